"""A whole answer: it becomes canonical, or it goes to quarantine. Nothing in between."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from antiphon.core.blocks import Status, encode_blocks
from antiphon.core.commands import CommitAnswer, ConflictAnswer, NewCall, Quarantine, Then
from antiphon.core.dispatch import Denied, Effect, Event
from antiphon.core.events import (
    CallChanged,
    Committed,
    DurableEvent,
    HeadMoved,
    RunChanged,
)
from antiphon.core.records import Attempt, CallState, Run, RunStatus
from antiphon.errors import InternalError
from antiphon.stores.sqlite.commands.dispatch import changed, give_status
from antiphon.stores.sqlite.messages import insert_message, settle
from antiphon.stores.sqlite.places import conversation_of
from antiphon.stores.sqlite.rows import AttemptRow, ConversationRow, RunRow, pack
from antiphon.stores.sqlite.transaction import Transaction
from antiphon.stores.sqlite.transitions import Claim, move

_AFTER = {
    Then.FINISH: RunStatus.SUCCESS,
    Then.CONTINUE: RunStatus.PENDING,
    Then.WAIT: RunStatus.WAITING,
}


def commit(tx: Transaction, command: CommitAnswer) -> Run | Denied:
    """Rows 6 and 13."""
    c = tx.conversation(command.conversation)
    attempt = tx.attempt(command.conversation, command.operation)
    claim = Claim(now_ms=command.now_ms, generation=command.generation, whole_answer=True)
    moved = move(tx, attempt, Event.FOUND if command.found else Event.COMMIT, claim)
    if isinstance(moved, Denied):
        return moved
    before = tx.run_at(attempt.run_place)
    if command.message.id != before.answer:
        raise InternalError(
            "The answer has another id than the run reserved.",
            code="reserved_answer",
            at=command.message.id,
        )
    parent = tx.message_at(attempt.base_leaf)
    message = msgspec.structs.replace(
        command.message, parent=parent, run=before.id, status=Status.SUCCESS, error_code=None
    )
    place = insert_message(tx, c, message, base_revision=attempt.base_revision)
    for position, call in enumerate(command.calls):
        _bear(tx, c, place, attempt, position, call, command.now_ms)
    if before.committed == 0:
        settle(tx, c, before.input, Status.SUCCESS)
    follows = Effect.FOLLOW_HEAD in moved.row.effects and c.head == before.head_left
    run = _move_run(tx, before, command, follows=follows)
    tx.execute(
        """UPDATE conversation SET head = iif(?, ?, head),
          slot = iif(?, slot, nullif(slot, ?)) WHERE number = ?""",
        (follows, message.id, command.then is Then.CONTINUE, run.id, c.number),
    )
    committed = Committed(
        run=run.id,
        message=message.id,
        parent=parent,
        revision=c.revision + 1,
        generation=attempt.generation,
        finish=command.finish,
        calls=tuple(call.call_id for call in command.calls),
    )
    tx.tell(command, c.number, committed, *_consequences(command, before, run, follows=follows))
    return run.record(c.id)


def _consequences(
    command: CommitAnswer, before: RunRow, run: RunRow, *, follows: bool
) -> Iterator[DurableEvent]:
    """Yield what follows from a commit: calls that will not run, the head, the run's status."""
    for call in command.calls:
        if call.code is not None:
            yield CallChanged(
                run=run.id,
                call=call.call_id,
                name=call.name,
                state=CallState.ERROR,
                code=call.code,
            )
    if follows:
        yield HeadMoved(head=command.message.id)
    if run.status != before.status:
        yield RunChanged(run=run.id, status=RunStatus(run.status), code=command.end_code)


def _move_run(tx: Transaction, run: RunRow, command: CommitAnswer, *, follows: bool) -> RunRow:
    # An index knows which runs are open: its column is left alone while this one is.
    ended = (command.now_ms,) if command.then is Then.FINISH else ()
    return tx.change_run(
        run,
        """status = ?, committed = committed + 1, leaf = ?, head_left = iif(?, ?, head_left),
          answer = NULL, error_code = NULL, end_code = coalesce(?, end_code),
          input_tokens = input_tokens + ?, output_tokens = output_tokens + ?"""
        + (", ended_ms = ?" if ended else ""),
        (
            _AFTER[command.then],
            command.message.id,
            follows,
            command.message.id,
            command.end_code,
            command.usage.input or 0,
            command.usage.output or 0,
            *ended,
        ),
    )


def _bear(
    tx: Transaction,
    c: ConversationRow,
    message: int,
    attempt: AttemptRow,
    position: int,
    call: NewCall,
    now_ms: int,
) -> None:
    tx.execute(
        """INSERT INTO call (place, run, message, call_id, position, name, arguments,
          arguments_digest, generation, runner, read_only, idempotent, idempotency_key, state,
          code, content, ended_ms)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            tx.next_place("call", c.number),
            attempt.run_place,
            message,
            call.call_id,
            position,
            call.name,
            call.arguments,
            pack(call.arguments_digest),
            attempt.generation,
            call.runner,
            call.read_only,
            call.idempotent,
            call.idempotency_key,
            CallState.PENDING if call.code is None else CallState.ERROR,
            call.code,
            None if call.code is None else encode_blocks(call.content),
            None if call.code is None else now_ms,
        ),
    )


def conflict(tx: Transaction, command: ConflictAnswer) -> Attempt | Denied:
    """Row 7."""
    attempt = tx.attempt(command.conversation, command.operation)
    claim = Claim(
        now_ms=command.now_ms,
        generation=command.generation,
        whole_answer=True,
        error_code="conflict",
    )
    moved = move(tx, attempt, Event.CONFLICT, claim, "error_code = :error_code")
    if isinstance(moved, Denied):
        return moved
    tx.put_aside(
        Quarantine(
            conversation=command.conversation,
            now_ms=command.now_ms,
            operation=command.operation,
            generation=command.generation,
            reason="conflict",
            data=command.data,
        )
    )
    events = give_status(tx, attempt, RunStatus.PENDING)
    tx.tell(command, conversation_of(attempt.manifest), changed(moved.attempt), *events)
    return moved.attempt.record()
