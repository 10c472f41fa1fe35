"""How runs end: by themselves, or because somebody canceled them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from antiphon.core.blocks import Block, Message, Origin, Role, Status, default_trust
from antiphon.core.commands import CancelRun, Command, EndRun, KeepPartial
from antiphon.core.dispatch import FINAL, Condition, Denied, Event, State
from antiphon.core.events import (
    CallChanged,
    DurableEvent,
    HeadMoved,
    MessagesAdded,
    RunChanged,
    Withdrawn,
)
from antiphon.core.ids import MessageId
from antiphon.core.records import CallState, Run, RunKind, RunStatus
from antiphon.core.tools.ledger import NOT_RUN, WAS_RUNNING, text_result
from antiphon.errors import InvalidInput
from antiphon.stores.sql.commands.questions import drop_all
from antiphon.stores.sql.commands.results import calls_at_leaf, insert_results
from antiphon.stores.sql.commands.runs import free_slot, may_drive
from antiphon.stores.sql.messages import insert_message, settle
from antiphon.stores.sql.rows import AttemptRow, ConversationRow, RunRow
from antiphon.stores.sql.transaction import Transaction
from antiphon.stores.sql.transitions import Claim, move


def end(tx: Transaction, command: EndRun) -> Run | Denied:
    """End an open run that has nothing in flight."""
    if command.status not in (RunStatus.SUCCESS, RunStatus.ERROR):
        raise InvalidInput("A run ends in success or error.", code="bad_status", at=command.run)
    c = tx.conversation(command.conversation)
    run = tx.run(c, command.run)
    if not run.open:
        return run.record(c.id)
    denied = may_drive(tx, run, command.fence)
    if denied is not None:
        return denied
    attempt = tx.newest_attempt(run.operation)
    if attempt is not None and attempt.operation == c.active_operation:
        return Denied(Condition.NO_ACTIVE_OPERATION)
    _close_operation(tx, attempt, command)
    events = list(_close_calls(tx, c, run, "run_ended", command.now_ms))
    failed = command.status is RunStatus.ERROR and run.committed == 0
    if failed:
        settle(tx, c, run.input, Status.ERROR, command.error_code)
    else:
        settle(tx, c, run.input, Status.SUCCESS)
    free_slot(tx, c.number, run.id)
    run = tx.change_run(
        run,
        status=command.status,
        error_code=command.error_code,
        end_code=command.end_code or run.end_code,
        ended_ms=command.now_ms,
    )
    code = command.error_code or command.end_code
    tx.tell(command, c.number, *events, RunChanged(run=run.id, status=command.status, code=code))
    return run.record(c.id)


def _close_operation(tx: Transaction, attempt: AttemptRow | None, command: EndRun) -> None:
    """Close what the run had prepared or failed at; it will not be tried again."""
    match attempt and attempt.state:
        case State.FAILED:
            assert attempt is not None
            move(tx, attempt, Event.CLOSE, Claim(now_ms=command.now_ms))
        case State.PREPARED:
            assert attempt is not None
            claim = Claim(now_ms=command.now_ms, names_run=command.run)
            move(tx, attempt, Event.CANCEL, claim)
        case _:
            pass


def cancel(tx: Transaction, command: CancelRun) -> Run:
    """Cancel the run, whatever it is doing."""
    c = tx.conversation(command.conversation)
    run = tx.run(c, command.run)
    if run.open:
        run = cancel_run(
            tx,
            command,
            c,
            run,
            command.reason,
            partial=command.partial,
            partial_id=command.partial_id,
            results_id=command.results_id,
        )
    return run.record(c.id)


def cancel_run(
    tx: Transaction,
    command: Command[Any],
    c: ConversationRow,
    run: RunRow,
    reason: str,
    *,
    partial: tuple[Block, ...] = (),
    partial_id: MessageId | None = None,
    results_id: MessageId | None = None,
) -> RunRow:
    """Row 17, for a run that is open."""
    events: list[DurableEvent] = []
    attempt = tx.newest_attempt(run.operation)
    held = attempt is not None and attempt.operation == c.active_operation
    if attempt is not None and attempt.state not in FINAL:
        move(tx, attempt, Event.CANCEL, Claim(now_ms=command.now_ms, names_run=run.id))
    drop_all(tx, command, run, reason)
    events += _close_calls(tx, c, run, reason, command.now_ms)
    settle(tx, c, run.input, Status.SUCCESS)
    calls = calls_at_leaf(tx, c, run)
    free_slot(tx, c.number, run.id)
    if held:
        tx.change_conversation(c.number, cancel_generation=c.cancel_generation + 1)
    run = tx.change_run(run, status=RunStatus.CANCELED, error_code=reason, ended_ms=command.now_ms)
    if partial and partial_id is not None:
        if attempt is not None:
            events.append(Withdrawn(run=run.id, generation=attempt.generation, reason=reason))
        events.append(_insert_partial(tx, c, run, partial, partial_id, command.now_ms))
        run = tx.change_run(run, partial=partial_id)
    if calls and results_id is not None and (held or c.active_operation is None):
        run, placed = insert_results(tx, c, run, calls, results_id, command.now_ms)
        events += placed
    events += _move_head_to_input(tx, c, run)
    status = RunChanged(run=run.id, status=RunStatus.CANCELED, code=reason)
    tx.tell(command, c.number, *events, status)
    return run


def _move_head_to_input(tx: Transaction, c: ConversationRow, run: RunRow) -> Iterator[DurableEvent]:
    """What a person sent stays in view though its answer was canceled."""
    placed_send = run.kind == RunKind.SEND and run.started_ms is not None
    if placed_send and run.input and run.committed == 0 and c.head == run.head_left:
        tx.change_conversation(c.number, head=run.input)
        yield HeadMoved(head=run.input)


def _close_calls(
    tx: Transaction, c: ConversationRow, run: RunRow, reason: str, now_ms: int
) -> Iterator[DurableEvent]:
    """Close the run's open calls, each with a result that says what is known of it."""
    for row in tx.calls_of_run(c, run):
        call = row.call
        if call.ended_ms is not None:
            continue
        text = NOT_RUN if call.state == CallState.PENDING else WAS_RUNNING
        tx.change_call(
            row,
            state=CallState.CANCELED,
            code=reason,
            content=text_result(text),
            ended_ms=now_ms,
        )
        yield CallChanged(
            run=run.id, call=call.call_id, name=call.name, state=CallState.CANCELED, code=reason
        )


def keep_partial(tx: Transaction, command: KeepPartial) -> Denied | None:
    """Store what a canceled run had shown, once."""
    c = tx.conversation(command.conversation)
    run = tx.run(c, command.run)
    if run.status != RunStatus.CANCELED:
        return Denied("run_canceled")
    if run.partial is None and command.partial:
        event = _insert_partial(tx, c, run, command.partial, command.partial_id, command.now_ms)
        tx.change_run(run, partial=command.partial_id)
        tx.tell(command, c.number, event)
    return None


def _insert_partial(
    tx: Transaction,
    c: ConversationRow,
    run: RunRow,
    partial: tuple[Block, ...],
    partial_id: MessageId,
    now_ms: int,
) -> DurableEvent:
    insert_message(
        tx,
        c,
        Message(
            id=partial_id,
            conversation=c.id,
            parent=run.leaf,
            role=Role.ASSISTANT,
            blocks=partial,
            origin=Origin.MODEL,
            trust=default_trust(Role.ASSISTANT, Origin.MODEL),
            session=run.session,
            run=run.id,
            created_ms=now_ms,
            status=Status.CANCELED,
        ),
    )
    return MessagesAdded(messages=(partial_id,))
