"""The ledger: a call has one row, and that row takes one terminal result."""

from __future__ import annotations

from antiphon.core.blocks import encode_blocks
from antiphon.core.commands import Fence, FinishCall, LoseCall, PlaceResults, Quarantine, StartCall
from antiphon.core.dispatch import Condition, Denied
from antiphon.core.events import CallChanged, DurableEvent, RunChanged
from antiphon.core.records import TERMINAL_CALL, Call, CallState, Run, RunStatus
from antiphon.errors import InvalidInput
from antiphon.stores.sqlite.commands.results import calls_at_leaf, insert_results
from antiphon.stores.sqlite.commands.runs import let_wait
from antiphon.stores.sqlite.rows import CallRow, RunRow
from antiphon.stores.sqlite.transaction import Transaction


def start(tx: Transaction, command: StartCall) -> Call | Denied:
    """Claim a pending call; what it does may take effect from here on."""
    run = tx.run(command.conversation, command.run)
    call = tx.call(run, command.call_id)
    if not run.open:
        return Denied(Condition.RUN_OPEN)
    if not _current(tx, command.fence):
        return Denied(Condition.CALLER_CURRENT)
    changed = tx.execute(
        """UPDATE call SET state = 'EXECUTING', attempt = attempt + 1, node = ?, epoch = ?,
          deadline_ms = ? WHERE place = ? AND state = 'PENDING'""",
        (command.fence.node, command.fence.epoch, command.deadline_ms, call.place),
    )
    if not changed:
        return Denied("call_state")
    return _told(tx, command.conversation, run, call, CallState.EXECUTING, None, command.now_ms)


def finish(tx: Transaction, command: FinishCall) -> Call | Denied:
    """Take the result if it is the call's first and comes from who may give it."""
    if command.state not in TERMINAL_CALL:
        raise InvalidInput(
            "A result is success, error or canceled.", code="bad_status", at=command.call_id
        )
    run = tx.run(command.conversation, command.run)
    call = tx.call(run, command.call_id)
    content = encode_blocks(command.content)
    if call.ended_ms is not None:
        if (call.state, call.code, call.content) == (command.state, command.code, content):
            return call.record()
        brought = command.fence is None and run.status != RunStatus.CANCELED
        if run.open or brought:
            return Denied("duplicate_tool_result")
    denied = _may_finish(run, call, command)
    if denied is not None:
        _put_aside(tx, call, command, content)
        return denied
    tx.execute(
        """UPDATE call SET state = ?, code = ?, content = ?, ended_ms = ?
        WHERE place = ? AND ended_ms IS NULL""",
        (command.state, command.code, content, command.now_ms, call.place),
    )
    return _told(tx, command.conversation, run, call, command.state, command.code, command.now_ms)


def _may_finish(run: RunRow, call: CallRow, command: FinishCall) -> Denied | None:
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


def _put_aside(tx: Transaction, call: CallRow, command: FinishCall, content: bytes) -> None:
    """Keep a late result for people, though its command is denied."""
    tx.note_late(
        Quarantine(
            conversation=command.conversation,
            now_ms=command.now_ms,
            operation=None,
            generation=call.generation,
            reason="late_tool_result",
            data=f'{{"call":"{call.call_id}","state":"{command.state}","content":{content.decode()}}}',
        )
    )


def lose(tx: Transaction, command: LoseCall) -> Call | Denied:
    """Give up on an executor that is gone, without guessing what it did."""
    run = tx.run(command.conversation, command.run)
    call = tx.call(run, command.call_id)
    if call.state != CallState.EXECUTING:
        return Denied("call_state")
    gone = call.node is None or not _current(tx, Fence(node=call.node, epoch=call.epoch))
    if not gone and command.now_ms < call.deadline_ms:
        return Denied(Condition.OWNER_OR_GONE)
    again = bool(call.read_only or call.idempotent)
    state = CallState.PENDING if again else CallState.UNKNOWN
    tx.execute(
        "UPDATE call SET state = ?, node = NULL, epoch = 0 WHERE place = ?", (state, call.place)
    )
    answer = _told(tx, command.conversation, run, call, state, None, command.now_ms)
    if state is CallState.UNKNOWN and run.open:
        c = tx.conversation(command.conversation)
        let_wait(tx, c, run, "tool_unknown", command.now_ms)
    return answer


def place_results(tx: Transaction, command: PlaceResults) -> Run | Denied:
    """Let the results of a step enter the tree; the run goes on where it is open."""
    c = tx.conversation(command.conversation)
    run = tx.run(command.conversation, command.run)
    if run.leaf == command.message:
        return run.record()
    if c.active_operation is not None:
        return Denied(Condition.NO_ACTIVE_OPERATION)
    if run.open and c.slot not in (None, run.id):
        return Denied("slot")
    if not _current(tx, command.fence):
        return Denied(Condition.CALLER_CURRENT)
    calls = calls_at_leaf(tx, run)
    if not calls:
        return Denied("no_results")
    if any(call.ended_ms is None for call in calls):
        return Denied("open_calls")
    events: list[DurableEvent] = insert_results(tx, c, run, command.message, command.now_ms)
    if run.open:
        tx.execute(
            "UPDATE run SET status = 'pending', end_code = NULL, node = ?, epoch = ? "
            "WHERE place = ?",
            (command.fence.node, command.fence.epoch, run.place),
        )
        tx.execute("UPDATE conversation SET slot = ? WHERE number = ?", (run.id, c.number))
        if run.status != RunStatus.PENDING:
            events.append(RunChanged(run=run.id, status=RunStatus.PENDING))
    tx.tell(c, command.now_ms, *events)
    return tx.run_record(run.place)


def _told(
    tx: Transaction,
    conversation: str,
    run: RunRow,
    call: CallRow,
    state: CallState,
    code: str | None,
    now_ms: int,
) -> Call:
    c = tx.conversation(call.conversation)
    event = CallChanged(run=run.id, call=call.call_id, name=call.name, state=state, code=code)
    tx.tell(c, now_ms, event)
    return tx.call_record(call.place)


def _current(tx: Transaction, fence: Fence) -> bool:
    row = tx.one("SELECT epoch FROM node WHERE id = ?", (fence.node,))
    return row is not None and row[0] == fence.epoch > 0
