"""A whole answer: it becomes canonical, or it goes to quarantine. Nothing in between."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from antiphon.core.answers.usage import Used, used
from antiphon.core.blocks import Status
from antiphon.core.commands import CommitAnswer, ConflictAnswer, NewCall, Quarantine, Then
from antiphon.core.dispatch import Denied, Effect, Event
from antiphon.core.events import (
    CallChanged,
    Committed,
    DurableEvent,
    HeadMoved,
    RunChanged,
)
from antiphon.core.records import Approval, Attempt, Call, CallState, Run, RunStatus
from antiphon.errors import InternalError
from antiphon.stores.sql.call_rows import CallRow
from antiphon.stores.sql.commands.dispatch import changed, give_status
from antiphon.stores.sql.commands.runs import free_slot
from antiphon.stores.sql.messages import insert_message, settle
from antiphon.stores.sql.packing import encode_json
from antiphon.stores.sql.places import conversation_of
from antiphon.stores.sql.rows import AttemptRow, ConversationRow, RunRow
from antiphon.stores.sql.standing import spend
from antiphon.stores.sql.transaction import Transaction
from antiphon.stores.sql.transitions import Claim, move

_AFTER = {
    Then.FINISH: RunStatus.SUCCESS,
    Then.CONTINUE: RunStatus.PENDING,
    Then.WAIT: RunStatus.WAITING,
}


def commit(tx: Transaction, command: CommitAnswer) -> Run | Denied:
    """Rows 6 and 13."""
    c = tx.conversation(command.conversation)
    attempt = tx.attempt(command.conversation, command.operation)
    took = used(command.usage, command.cost)
    claim = Claim(now_ms=command.now_ms, generation=command.generation, whole_answer=True)
    event = Event.FOUND if command.found else Event.COMMIT
    moved = move(tx, attempt, event, claim, used=encode_json(took))
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
    if before.committed == 0:
        settle(tx, c, before.input, Status.SUCCESS)
    if command.spent is not None:
        spend(tx, command.spent, command.now_ms, took)
    # From here on rows are only held: calls that begin in the same transaction are written once.
    place = insert_message(tx, c, message, base_revision=attempt.base_revision)
    for position, call in enumerate(command.calls):
        _bear(tx, c, place, attempt, position, call, command)
    follows = Effect.FOLLOW_HEAD in moved.row.effects and c.head == before.head_left
    run = _move_run(tx, before, command, took, follows=follows)
    if follows:
        tx.change_conversation(c.number, head=message.id)
    if command.then is not Then.CONTINUE:
        free_slot(tx, c.number, run.id)
    committed = Committed(
        run=run.id,
        message=message.id,
        parent=parent,
        revision=tx.row(c.number).revision,
        generation=attempt.generation,
        finish=command.finish,
        calls=tuple(call.call_id for call in command.calls),
        input_tokens=took.input_tokens,
        output_tokens=took.output_tokens,
        cached_tokens=took.cached_tokens,
        cache_write_tokens=took.cache_write_tokens,
        reasoning_tokens=took.reasoning_tokens,
        verdict=command.verdict,
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


def _move_run(
    tx: Transaction, run: RunRow, command: CommitAnswer, took: Used, *, follows: bool
) -> RunRow:
    values: dict[str, object] = {
        "status": _AFTER[command.then],
        "committed": run.committed + 1,
        "leaf": command.message.id,
        "answer": None,
        "error_code": None,
        "end_code": command.end_code or run.end_code,
        **run.counted(took),
    }
    if follows:
        values["head_left"] = command.message.id
    if command.wish is not None:
        values["wish"] = command.wish
    # An index knows which runs are open: its column is left alone while this one is.
    if command.then is Then.FINISH:
        values["ended_ms"] = command.now_ms
    return tx.change_run(run, **values)  # type: ignore[arg-type]  # its own columns


def _bear(
    tx: Transaction,
    c: ConversationRow,
    message: int,
    attempt: AttemptRow,
    position: int,
    call: NewCall,
    command: CommitAnswer,
) -> None:
    closed = call.state is not CallState.PENDING
    born = Call(
        conversation=c.id,
        run=attempt.run,
        message=command.message.id,
        call_id=call.call_id,
        order=position,
        name=call.name,
        arguments=call.arguments,
        arguments_digest=call.arguments_digest,
        generation=attempt.generation,
        runner=call.runner,
        read_only=call.read_only,
        idempotent=call.idempotent,
        state=call.state,
        attempt=0,
        node=None,
        epoch=0,
        deadline_ms=call.approve_by_ms or 0,
        idempotency_key=call.idempotency_key,
        code=call.code,
        content=call.content if closed else (),
        ended_ms=command.now_ms if closed else None,
        repeatable=call.repeatable,
        approval=None if closed or call.approve_by_ms is None else Approval.NEEDED,
        max_result_chars=call.max_result_chars,
        reused_from=call.reused_from,
    )
    tx.add_call(attempt.run_place, message, CallRow(tx.next_place("call", c.number), born))


def conflict(tx: Transaction, command: ConflictAnswer) -> Attempt | Denied:
    """Row 7."""
    attempt = tx.attempt(command.conversation, command.operation)
    claim = Claim(
        now_ms=command.now_ms,
        generation=command.generation,
        whole_answer=True,
    )
    moved = move(tx, attempt, Event.CONFLICT, claim, error_code="conflict")
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
