"""The ledger: a call has one row, and that row takes one terminal result."""

from __future__ import annotations

import msgspec

from antiphon.core.blocks import encode_blocks
from antiphon.core.commands import (
    ApproveCall,
    Command,
    Fence,
    FinishCall,
    LoseCall,
    PlaceResults,
    Quarantine,
    StartCall,
)
from antiphon.core.dispatch import Condition, Denied
from antiphon.core.events import CallChanged, RunChanged
from antiphon.core.records import (
    LATE_TOOL_RESULT,
    TERMINAL_CALL,
    Approval,
    Call,
    CallState,
    LateResult,
    Run,
    RunStatus,
)
from antiphon.core.tools.loop import lasting
from antiphon.errors import InvalidInput
from antiphon.stores.sql.commands.results import calls_at_leaf, insert_results
from antiphon.stores.sql.commands.runs import let_wait, may_drive
from antiphon.stores.sql.packing import encode_json
from antiphon.stores.sql.rows import ConversationRow, RunRow
from antiphon.stores.sql.transaction import Transaction


def start(tx: Transaction, command: StartCall) -> Call | Denied:
    """Claim a pending call; what it does may take effect from here on."""
    c = tx.conversation(command.conversation)
    run = tx.run(c, command.run)
    row = tx.call(c, run, command.call_id)
    call = row.call
    fence = command.fence
    if not run.open:
        return Denied(Condition.RUN_OPEN)
    denied = may_drive(tx, run, fence)
    if denied is not None:
        return denied
    if call.state != CallState.PENDING:
        return Denied("call_state")
    if call.approval == Approval.NEEDED:
        return Denied("approval_required")
    call = tx.change_call(
        row,
        state=CallState.EXECUTING,
        attempt=call.attempt + 1,
        node=fence.node,
        epoch=fence.epoch,
        deadline_ms=command.deadline_ms,
    )
    return _told(tx, command, c, call)


def finish(tx: Transaction, command: FinishCall) -> Call | Denied:
    """Take the result if it is the call's first and comes from who may give it."""
    if command.state not in TERMINAL_CALL:
        raise InvalidInput(
            "A result is success, error or canceled.", code="bad_status", at=command.call_id
        )
    c = tx.conversation(command.conversation)
    run = tx.run(c, command.run)
    row = tx.call(c, run, command.call_id)
    call = row.call
    if call.ended_ms is not None:
        if (call.state, call.code, call.content) == (command.state, command.code, command.content):
            return call
        # An executor's own late result goes to quarantine; a client's is refused as a second.
        brought = command.fence is None and run.status != RunStatus.CANCELED
        if run.open or brought:
            return Denied("duplicate_tool_result")
    denied = _may_finish(run, call, command)
    if denied is not None:
        _put_aside(tx, call, command)
        return denied
    call = tx.change_call(
        row,
        state=command.state,
        code=command.code,
        content=command.content,
        ended_ms=command.now_ms,
        reused_from=command.reused_from,
    )
    return _told(tx, command, c, call)


def approve(tx: Transaction, command: ApproveCall) -> Call | Denied:
    """Let a call run that waits for somebody to agree."""
    c = tx.conversation(command.conversation)
    run = tx.run(c, command.run)
    row = tx.call(c, run, command.call_id)
    call = row.call
    if call.approval == Approval.GIVEN and call.changed_arguments == command.arguments:
        return call
    if call.approval != Approval.NEEDED or call.state != CallState.PENDING:
        return Denied("not_approvable")
    if not run.open:
        return Denied(Condition.RUN_OPEN)
    if command.now_ms >= call.deadline_ms:
        return Denied("approval_expired")
    call = tx.change_call(
        row, approval=Approval.GIVEN, changed_arguments=command.arguments, deadline_ms=0
    )
    return _told(tx, command, c, call)


def _may_finish(run: RunRow, call: Call, command: FinishCall) -> Denied | None:
    if not run.open:
        return Denied(Condition.RUN_OPEN)
    fence = command.fence
    if fence is None:
        outside = (CallState.PENDING, CallState.UNKNOWN)
        return None if call.state in outside else Denied("call_state")
    if call.state != CallState.EXECUTING:
        return Denied("call_state")
    if (call.node, call.epoch, call.attempt) != (fence.node, fence.epoch, command.attempt):
        return Denied(Condition.OWNER)
    return None


def _put_aside(tx: Transaction, call: Call, command: FinishCall) -> None:
    """Keep a late result for people, though its command is denied."""
    late = LateResult(
        call=call.call_id,
        state=command.state,
        content=msgspec.Raw(encode_blocks(command.content)),
        run=call.run,
    )
    tx.note_late(
        Quarantine(
            conversation=command.conversation,
            now_ms=command.now_ms,
            operation=None,
            generation=call.generation,
            reason=LATE_TOOL_RESULT,
            data=encode_json(late).decode(),
        )
    )


def lose(tx: Transaction, command: LoseCall) -> Call | Denied:
    """Give up on an executor that is gone, without guessing what it did."""
    c = tx.conversation(command.conversation)
    run = tx.run(c, command.run)
    row = tx.call(c, run, command.call_id)
    call = row.call
    if call.state != CallState.EXECUTING:
        return Denied("call_state")
    owner = None if call.node is None else Fence(node=call.node, epoch=call.epoch)
    own = command.fence is not None and command.fence == owner
    gone = owner is None or not tx.current(owner)
    if not own and not gone and command.now_ms < call.deadline_ms:
        return Denied(Condition.OWNER_OR_GONE)
    # Its owner, alive, has just tried: trying again at once would go round for ever.
    again = (call.read_only or call.idempotent) and not own
    state = CallState.PENDING if again else CallState.UNKNOWN
    call = tx.change_call(row, state=state, node=None, epoch=0)
    answer = _told(tx, command, c, call)
    if call.state == CallState.UNKNOWN and run.open:
        let_wait(tx, command, c.number, run, "tool_unknown")
    return answer


def place_results(tx: Transaction, command: PlaceResults) -> Run | Denied:
    """Let the results of a step enter the tree; the run goes on where it is open."""
    c = tx.conversation(command.conversation)
    run = tx.run(c, command.run)
    fence = command.fence
    if run.leaf == command.message:
        return run.record(c.id)
    if c.active_operation is not None:
        return Denied(Condition.NO_ACTIVE_OPERATION)
    if run.open and c.slot not in (None, run.id):
        return Denied("slot")
    denied = may_drive(tx, run, fence) if run.status == RunStatus.PENDING else None
    if denied is not None:
        return denied
    if not tx.current(fence):
        return Denied(Condition.CALLER_CURRENT)
    calls = calls_at_leaf(tx, c, run)
    if not calls:
        return Denied("no_results")
    if any(call.ended_ms is None for call in calls):
        return Denied("open_calls")
    before = run.status
    run, events = insert_results(tx, c, run, calls, command.message, command.now_ms)
    if run.open:
        tx.change_conversation(c.number, slot=run.id)
        run = tx.change_run(
            run,
            status=RunStatus.PENDING,
            end_code=lasting(run.end_code),
            node=fence.node,
            epoch=fence.epoch,
        )
        if before != RunStatus.PENDING:
            events.append(RunChanged(run=run.id, status=RunStatus.PENDING))
    tx.tell(command, c.number, *events)
    return run.record(c.id)


def _told(tx: Transaction, command: Command[Call], c: ConversationRow, call: Call) -> Call:
    """Tell readers where a call stands now, and return its row."""
    event = CallChanged(
        run=call.run,
        call=call.call_id,
        name=call.name,
        state=call.state,
        code=call.code,
    )
    tx.tell(command, c.number, event)
    return call
