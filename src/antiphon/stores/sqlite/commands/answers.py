"""A whole answer: it becomes canonical, or it goes to quarantine. Nothing in between."""

from __future__ import annotations

import msgspec

from antiphon.core.blocks import Status, encode_blocks
from antiphon.core.commands import CommitAnswer, ConflictAnswer, NewCall, Quarantine, Then
from antiphon.core.dispatch import Denied, Effect, Event, Row, State
from antiphon.core.events import (
    CallChanged,
    Committed,
    DispatchChanged,
    DurableEvent,
    HeadMoved,
    RunChanged,
)
from antiphon.core.ids import MessageId
from antiphon.core.records import Attempt, CallState, Run, RunStatus
from antiphon.errors import InternalError
from antiphon.stores.sqlite.messages import insert_message, settle
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
    row = move(tx, attempt, Event.FOUND if command.found else Event.COMMIT, claim)
    if isinstance(row, Denied):
        return row
    run = tx.run(command.conversation, attempt.run)
    if command.message.id != run.answer:
        raise InternalError(
            "The answer has another id than the run reserved.",
            code="reserved_answer",
            at=command.message.id,
        )
    parent = _id_at(tx, attempt.base_leaf)
    message = msgspec.structs.replace(
        command.message, parent=parent, run=run.id, status=Status.SUCCESS, error_code=None
    )
    place = insert_message(tx, c, message, base_revision=attempt.base_revision)
    for position, call in enumerate(command.calls):
        _bear(tx, c, run, place, attempt, position, call, command.now_ms)
    if run.committed == 0:
        settle(tx, c, run.input, Status.SUCCESS)
    follows = Effect.FOLLOW_HEAD in row.effects and c.head == run.head_left
    _move_run(tx, run, command, follows=follows)
    status = _AFTER[command.then]
    tx.execute(
        """UPDATE conversation SET head = iif(?, ?, head),
          slot = iif(?, slot, nullif(slot, ?)) WHERE number = ?""",
        (follows, message.id, command.then is Then.CONTINUE, run.id, c.number),
    )
    events: list[DurableEvent] = [
        Committed(
            run=run.id,
            message=message.id,
            parent=parent,
            revision=c.revision + 1,
            generation=attempt.generation,
            finish=command.finish,
            calls=tuple(call.call_id for call in command.calls),
        )
    ]
    events += (
        CallChanged(
            run=run.id, call=call.call_id, name=call.name, state=CallState.ERROR, code=call.code
        )
        for call in command.calls
        if call.code is not None
    )
    if follows:
        events.append(HeadMoved(head=message.id))
    if status != run.status:
        events.append(RunChanged(run=run.id, status=status, code=command.end_code))
    tx.tell(c, command.now_ms, *events)
    return tx.run_record(run.place)


def _id_at(tx: Transaction, place: int) -> MessageId:
    row = tx.one("SELECT id FROM message WHERE place = ?", (place,))
    assert row is not None
    return MessageId(row[0])


def _move_run(tx: Transaction, run: RunRow, command: CommitAnswer, *, follows: bool) -> None:
    # An index knows which runs are open: leave its column alone while this one is.
    ended = ", ended_ms = :now_ms" if command.then is Then.FINISH else ""
    tx.execute(
        f"""UPDATE run SET status = :status, committed = committed + 1, leaf = :leaf,
          head_left = iif(:follows, :leaf, head_left), answer = NULL,
          error_code = NULL, end_code = coalesce(:end_code, end_code),
          input_tokens = input_tokens + :input, output_tokens = output_tokens + :output{ended}
        WHERE place = :place""",
        {
            "status": _AFTER[command.then],
            "leaf": command.message.id,
            "follows": follows,
            "end_code": command.end_code,
            "input": command.usage.input or 0,
            "output": command.usage.output or 0,
            "now_ms": command.now_ms,
            "place": run.place,
        },
    )


def _bear(
    tx: Transaction,
    c: ConversationRow,
    run: RunRow,
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
            run.place,
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
    c = tx.conversation(command.conversation)
    attempt = tx.attempt(command.conversation, command.operation)
    claim = Claim(
        now_ms=command.now_ms,
        generation=command.generation,
        whole_answer=True,
        error_code="conflict",
    )
    row: Row | Denied = move(tx, attempt, Event.CONFLICT, claim, "error_code = :error_code")
    if isinstance(row, Denied):
        return row
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
    events: list[DurableEvent] = [
        DispatchChanged(
            run=attempt.run,
            operation=attempt.operation,
            generation=attempt.generation,
            state=State.FAILED,
            code="conflict",
        )
    ]
    changed = tx.execute(
        "UPDATE run SET status = 'pending' WHERE place = ? AND status = 'unknown'",
        (attempt.run_place,),
    )
    if changed:
        events.append(RunChanged(run=attempt.run, status=RunStatus.PENDING))
    tx.tell(c, command.now_ms, *events)
    return tx.attempt(command.conversation, command.operation).record()
