"""Runs: born durable, placed in turn, ended once."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from antiphon.core.blocks import Block, Message, Origin, Role, Status, default_trust, encode_blocks
from antiphon.core.commands import (
    CancelRun,
    ClaimRun,
    EndRun,
    Fence,
    KeepPartial,
    PlaceRun,
    StartKey,
    StartRun,
    WaitRun,
)
from antiphon.core.dispatch import FINAL, Condition, Denied, Event, State
from antiphon.core.events import (
    CallChanged,
    DurableEvent,
    HeadMoved,
    MessagesAdded,
    Placed,
    RunChanged,
    Withdrawn,
)
from antiphon.core.ids import MessageId
from antiphon.core.ledger import NOT_RUN, WAS_RUNNING, text_result
from antiphon.core.records import CallState, Run, RunKind, RunStatus
from antiphon.errors import InvalidInput
from antiphon.stores.sqlite.commands.results import insert_results
from antiphon.stores.sqlite.messages import insert_message, same_input, settle
from antiphon.stores.sqlite.places import span
from antiphon.stores.sqlite.rows import ConversationRow, RunRow, encode_json, pack
from antiphon.stores.sqlite.transaction import Transaction
from antiphon.stores.sqlite.transitions import Claim, move

_read_message = msgspec.json.Decoder(Message).decode
_write_message = msgspec.json.Encoder().encode


def start(tx: Transaction, command: StartRun) -> Run | Denied:
    """Make the run durable, or answer with the one that it repeats."""
    c = tx.conversation(command.conversation)
    known = _by_key(tx, c, command)
    if known is None:
        known = _by_input(tx, c, command)
    if isinstance(known, Denied):
        return known
    if known is not None:
        return tx.run_record(known)
    queued = tx.one(
        "SELECT count(*) FROM run WHERE place BETWEEN ? AND ? AND ended_ms IS NULL "
        "AND status = 'queued'",
        span(c.number),
    )
    assert queued is not None
    if queued[0] >= command.max_queued:
        return Denied("queue_full")
    place = tx.next_place("run", c.number)
    seq = tx.tell(c, command.now_ms, RunChanged(run=command.run, status=RunStatus.QUEUED))
    tx.execute(
        """INSERT INTO run (place, id, kind, status, options, input, input_waiting,
          asked_parent, at_root, seq, created_ms)
        VALUES (?, ?, ?, 'queued', ?, ?, ?, ?, ?, ?, ?)""",
        (
            place,
            command.run,
            command.kind,
            encode_json(command.options),
            command.input.id if command.input else None,
            _write_message(command.input) if command.input else None,
            command.asked_parent,
            command.at_root,
            seq,
            command.now_ms,
        ),
    )
    if command.key is not None:
        _remember(tx, command.key, place)
    return tx.run_record(place)


def _by_key(tx: Transaction, c: ConversationRow, command: StartRun) -> int | Denied | None:
    key = command.key
    if key is None:
        return None
    found = tx.one(
        "SELECT run, body_digest FROM start_key WHERE scope = ? AND key = ? AND expires_ms > ?",
        (key.scope, key.key, command.now_ms),
    )
    if found is None:
        return None
    if found[1] != pack(key.body_digest):
        return Denied("idempotency_conflict")
    return int(found[0])


def _remember(tx: Transaction, key: StartKey, run: int) -> None:
    tx.execute(
        "INSERT OR REPLACE INTO start_key (scope, key, run, body_digest, expires_ms) "
        "VALUES (?, ?, ?, ?, ?)",
        (key.scope, key.key, run, pack(key.body_digest), key.expires_ms),
    )


def _by_input(tx: Transaction, c: ConversationRow, command: StartRun) -> int | Denied | None:
    """Find the run whose input this message is already, placed or still waiting."""
    message = command.input
    if message is None:
        return None
    stored = tx.message(c, message.id)
    if stored is not None:
        found = tx.one(
            "SELECT place, asked_parent, at_root FROM run WHERE id = ? AND input = ?",
            (stored.run, message.id),
        )
    else:
        waiting = tx.one(
            """SELECT place, asked_parent, at_root, input_waiting FROM run
            WHERE place BETWEEN ? AND ? AND ended_ms IS NULL AND input = ?""",
            (*span(c.number), message.id),
        )
        if waiting is None:
            return None
        found, stored = waiting[:3], _read_message(waiting[3])
    if found is None or found[1:] != (command.asked_parent, command.at_root):
        return Denied("message_id_conflict")
    return int(found[0]) if same_input(tx, c, stored, message) else Denied("message_id_conflict")


def place_run(tx: Transaction, command: PlaceRun) -> Run | Denied:
    """Give the run the slot and its input a place in the tree."""
    c = tx.conversation(command.conversation)
    run = tx.run(command.conversation, command.run)
    if run.status != RunStatus.QUEUED:
        return Denied("run_queued")
    if c.slot is not None:
        return Denied("slot")
    if c.active_operation is not None:
        return Denied(Condition.NO_ACTIVE_OPERATION)
    if c.revision != command.revision:
        return Denied(Condition.REVISION)
    if not _current(tx, command.fence):
        return Denied(Condition.CALLER_CURRENT)
    waiting = tx.one("SELECT input_waiting FROM run WHERE place = ?", (run.place,))
    assert waiting is not None
    leaf, events = command.parent, list[DurableEvent]()
    if waiting[0] is not None:
        message = msgspec.structs.replace(
            _read_message(waiting[0]),
            parent=command.parent,
            conversation=c.id,
            session=c.session_id,
            run=run.id,
            status=Status.PENDING,
            error_code=None,
        )
        insert_message(tx, c, message)
        leaf = message.id
        events.append(Placed(run=run.id, message=message.id, parent=command.parent))
    tx.execute(
        "UPDATE conversation SET slot = ?, revision = revision + ?, updated_ms = ? "
        "WHERE number = ?",
        (run.id, waiting[0] is not None, command.now_ms, c.number),
    )
    tx.execute(
        """UPDATE run SET status = 'pending', input_waiting = NULL, session = ?, leaf = ?,
          head_left = ?, node = ?, epoch = ?, started_ms = ? WHERE place = ?""",
        (
            c.session,
            leaf,
            c.head,
            command.fence.node,
            command.fence.epoch,
            command.now_ms,
            run.place,
        ),
    )
    tx.tell(c, command.now_ms, *events, RunChanged(run=run.id, status=RunStatus.PENDING))
    return tx.run_record(run.place)


def claim(tx: Transaction, command: ClaimRun) -> Run | Denied:
    """Take over an open run from an owner that is gone."""
    run = tx.run(command.conversation, command.run)
    fence = command.fence
    if not run.open:
        return Denied(Condition.RUN_OPEN)
    if not _current(tx, fence):
        return Denied(Condition.CALLER_CURRENT)
    if run.node is not None and _current(tx, Fence(node=run.node, epoch=run.epoch)):
        mine = run.node == fence.node and run.epoch == fence.epoch
        return run.record() if mine else Denied(Condition.OWNER_OR_GONE)
    tx.execute(
        "UPDATE run SET node = ?, epoch = ? WHERE place = ?", (fence.node, fence.epoch, run.place)
    )
    return tx.run_record(run.place)


def _current(tx: Transaction, fence: Fence) -> bool:
    row = tx.one("SELECT epoch FROM node WHERE id = ?", (fence.node,))
    return row is not None and row[0] == fence.epoch > 0


def wait(tx: Transaction, command: WaitRun) -> Run | Denied:
    """Let the run wait for those who must close its calls."""
    c = tx.conversation(command.conversation)
    run = tx.run(command.conversation, command.run)
    if run.status != RunStatus.PENDING:
        return Denied("run_pending")
    if all(call.ended_ms is not None for call in tx.calls_of_run(run)):
        return Denied("open_calls")
    let_wait(tx, c, run, command.end_code, command.now_ms)
    return tx.run_record(run.place)


def let_wait(
    tx: Transaction, c: ConversationRow, run: RunRow, end_code: str | None, now_ms: int
) -> None:
    """Make a run waiting and take the slot from it."""
    tx.execute(
        "UPDATE run SET status = 'waiting', end_code = ? WHERE place = ?", (end_code, run.place)
    )
    _free_slot(tx, c, run)
    tx.tell(c, now_ms, RunChanged(run=run.id, status=RunStatus.WAITING, code=end_code))


def _free_slot(tx: Transaction, c: ConversationRow, run: RunRow) -> None:
    tx.execute(
        "UPDATE conversation SET slot = nullif(slot, ?) WHERE number = ?", (run.id, c.number)
    )


def end(tx: Transaction, command: EndRun) -> Run | Denied:
    """End an open run that has nothing in flight."""
    if command.status not in (RunStatus.SUCCESS, RunStatus.ERROR):
        raise InvalidInput("A run ends in success or error.", code="bad_status", at=command.run)
    c = tx.conversation(command.conversation)
    run = tx.run(command.conversation, command.run)
    if not run.open:
        return run.record()
    attempt = tx.newest_attempt(run.operation)
    if attempt is not None and attempt.operation == c.active_operation:
        return Denied(Condition.NO_ACTIVE_OPERATION)
    if attempt is not None and attempt.state == State.FAILED:
        move(tx, attempt, Event.CLOSE, Claim(now_ms=command.now_ms))
    elif attempt is not None and attempt.state == State.PREPARED:
        move(tx, attempt, Event.CANCEL, Claim(now_ms=command.now_ms, names_run=run.id))
    events = list(close_calls(tx, run, "run_ended", command.now_ms))
    failed = command.status is RunStatus.ERROR and run.committed == 0
    settle(
        tx,
        c,
        run.input,
        Status.ERROR if failed else Status.SUCCESS,
        command.error_code if failed else None,
    )
    _finish(tx, c, run, command.status, command.error_code, command.end_code, command.now_ms)
    code = command.error_code or command.end_code
    tx.tell(c, command.now_ms, *events, RunChanged(run=run.id, status=command.status, code=code))
    return tx.run_record(run.place)


def _finish(
    tx: Transaction,
    c: ConversationRow,
    run: RunRow,
    status: RunStatus,
    error_code: str | None,
    end_code: str | None,
    now_ms: int,
) -> None:
    tx.execute(
        """UPDATE run SET status = ?, error_code = ?, end_code = coalesce(?, end_code),
          ended_ms = ? WHERE place = ?""",
        (status, error_code, end_code, now_ms, run.place),
    )
    tx.execute(
        "UPDATE conversation SET slot = nullif(slot, ?) WHERE number = ?",
        (run.id, c.number),
    )


def cancel(tx: Transaction, command: CancelRun) -> Run | Denied:
    """Cancel the run, whatever it is doing."""
    run = tx.run(command.conversation, command.run)
    if not run.open:
        return run.record()
    cancel_run(
        tx,
        tx.conversation(command.conversation),
        run,
        command.reason,
        command.now_ms,
        command.results_id,
        command.partial,
        command.partial_id,
    )
    return tx.run_record(run.place)


def cancel_run(
    tx: Transaction,
    c: ConversationRow,
    run: RunRow,
    reason: str,
    now_ms: int,
    results_id: MessageId | None = None,
    partial: tuple[Block, ...] = (),
    partial_id: MessageId | None = None,
) -> None:
    """Row 17 for a run that is open."""
    events: list[DurableEvent] = []
    attempt = tx.newest_attempt(run.operation)
    active = c.active_operation
    if attempt is not None and attempt.state not in FINAL:
        if attempt.operation == active:
            tx.execute(
                "UPDATE conversation SET cancel_generation = cancel_generation + 1 "
                "WHERE number = ?",
                (c.number,),
            )
            active = None
        move(tx, attempt, Event.CANCEL, Claim(now_ms=now_ms, names_run=run.id))
    events += close_calls(tx, run, reason, now_ms)
    settle(tx, c, run.input, Status.SUCCESS)
    _finish(tx, c, run, RunStatus.CANCELED, reason, None, now_ms)
    if partial and partial_id is not None:
        if attempt is not None:
            events.append(Withdrawn(run=run.id, generation=attempt.generation, reason=reason))
        events.append(_insert_partial(tx, c, run, partial, partial_id, now_ms))
    if results_id is not None and active is None:
        events += insert_results(tx, c, run, results_id, now_ms)
    plain = run.kind == RunKind.SEND and run.committed == 0 and run.started_ms is not None
    if plain and run.input is not None and c.head == run.head_left:
        tx.execute("UPDATE conversation SET head = ? WHERE number = ?", (run.input, c.number))
        events.append(HeadMoved(head=run.input))
    tx.tell(c, now_ms, *events, RunChanged(run=run.id, status=RunStatus.CANCELED, code=reason))


def close_calls(tx: Transaction, run: RunRow, reason: str, now_ms: int) -> Iterable[DurableEvent]:
    """Close the run's open calls with a result that says what is known of each."""
    for call in tx.calls_of_run(run):
        if call.ended_ms is not None:
            continue
        text = NOT_RUN if call.state == CallState.PENDING else WAS_RUNNING
        tx.execute(
            """UPDATE call SET state = 'CANCELED', code = ?, content = ?, ended_ms = ?
            WHERE place = ? AND ended_ms IS NULL""",
            (reason, encode_blocks(text_result(text)), now_ms, call.place),
        )
        yield CallChanged(
            run=run.id, call=call.call_id, name=call.name, state=CallState.CANCELED, code=reason
        )


def keep_partial(tx: Transaction, command: KeepPartial) -> Denied | None:
    """Store what a canceled run had shown, once."""
    c = tx.conversation(command.conversation)
    run = tx.run(command.conversation, command.run)
    if run.status != RunStatus.CANCELED:
        return Denied("run_canceled")
    if run.partial is None and command.partial:
        event = _insert_partial(tx, c, run, command.partial, command.partial_id, command.now_ms)
        tx.tell(c, command.now_ms, event)
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
            session=run.session_id,
            run=run.id,
            created_ms=now_ms,
            status=Status.CANCELED,
        ),
    )
    tx.execute("UPDATE run SET partial = ? WHERE place = ?", (partial_id, run.place))
    return MessagesAdded(messages=(partial_id,))
