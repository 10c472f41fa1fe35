"""Runs while they are open: born durable, placed in turn, claimed, waiting."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.core.blocks import Message
from antiphon.core.commands import (
    ClaimRun,
    Command,
    Fence,
    PlaceRun,
    ResumeRun,
    StartKey,
    StartRun,
    WaitRun,
)
from antiphon.core.dispatch import Condition, Denied
from antiphon.core.events import DurableEvent, Placed, RunChanged
from antiphon.core.ids import ConversationId, MessageId, RunId
from antiphon.core.placement import as_placed
from antiphon.core.records import Run, RunStatus
from antiphon.core.tools.loop import lasting
from antiphon.stores.sql.commands.sessions import enter_session
from antiphon.stores.sql.messages import insert_message, same_input
from antiphon.stores.sql.packing import pack
from antiphon.stores.sql.places import conversation_of, span
from antiphon.stores.sql.rows import ConversationRow, RunRow
from antiphon.stores.sql.transaction import Outrun, Transaction

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
        return tx.run_at(known).record(_home(tx, c, known))
    if command.refusal is not None:
        return Denied(command.refusal)
    others = [RunStatus(run.status) for run in tx.open_runs(c)]
    if command.alone and any(status is not RunStatus.WAITING for status in others):
        return Denied("conversation_busy")
    queued = others.count(RunStatus.QUEUED)
    if queued >= command.max_queued:
        return Denied("queue_full")
    seq = tx.tell(command, c.number, RunChanged(run=command.run, status=RunStatus.QUEUED))
    run = RunRow.started(command, tx.next_place("run", c.number), seq)
    tx.add_run(run, _write_message(command.input) if command.input else None)
    if command.key is not None:
        _remember(tx, command.key, run.place, command.now_ms)
    return run.record(c.id)


def _home(tx: Transaction, c: ConversationRow, run: int) -> ConversationId:
    """Return the conversation of a run that this start repeats: maybe not the one it names.

    Who starts a conversation and a run together, and repeats that, has a new conversation in
    hand; it goes again if nothing has happened in it.
    """
    number = conversation_of(run)
    if number == c.number:
        return c.id
    if c.untouched:
        tx.execute("DELETE FROM session WHERE place = ?", (c.session,))
        tx.execute("DELETE FROM content_use WHERE conversation = ?", (c.number,))
        tx.execute("DELETE FROM conversation WHERE number = ?", (c.number,))
        tx.forget_conversation(c.number)
    row = tx.one("SELECT id FROM conversation WHERE number = ?", (number,))
    assert row is not None
    return ConversationId(row[0])


_KEY: Final = (
    "SELECT run, body_digest FROM start_key WHERE scope = ? AND key = ? AND expires_ms > ?"
)

_SEEN: Final = """
SELECT 1 FROM message WHERE place >> 32 = ? AND id = ?
UNION ALL
SELECT 1 FROM run WHERE input = ? AND input_waiting IS NOT NULL AND ended_ms IS NOT NULL
AND place BETWEEN ? AND ?
"""
"""A message of this id in the tree, or one that was withdrawn before it had a place there."""


def _by_key(tx: Transaction, c: ConversationRow, command: StartRun) -> int | Denied | None:
    key = command.key
    if key is None:
        return None
    under = (key.scope, key.key, command.now_ms)
    if tx.absent(_KEY, under):
        return None
    found = tx.one(_KEY, under)
    assert found is not None
    if found[1] != pack(key.body_digest):
        return Denied("idempotency_conflict")
    return int(found[0])


def _remember(tx: Transaction, key: StartKey, run: int, now_ms: int) -> None:
    """Put a run under its key. Raises `Outrun`: another run has just come under it."""
    taken = tx.took(
        """INSERT INTO start_key (scope, key, run, body_digest, expires_ms)
        VALUES (?, ?, ?, ?, ?) ON CONFLICT (scope, key) DO UPDATE SET
          run = excluded.run, body_digest = excluded.body_digest, expires_ms = excluded.expires_ms
        WHERE start_key.expires_ms <= ?""",
        (key.scope, key.key, run, pack(key.body_digest), key.expires_ms, now_ms),
    )
    if not taken:
        raise Outrun


def _by_input(tx: Transaction, c: ConversationRow, command: StartRun) -> int | Denied | None:
    """Find the run whose input this message is already: placed, waiting, or withdrawn."""
    message = command.input
    if message is None or c.untouched:
        return None
    run = next((run for run in tx.open_runs(c) if run.input == message.id), None)
    seen = (c.number, message.id, message.id, *span(c.number))
    if run is None and tx.absent(_SEEN, seen):
        return None
    stored = tx.message(c, message.id)
    if stored is None:
        run = run or tx.withdrawn_run(c, message.id)
        if run is None:
            return None
        stored = waiting_input(tx, run)
    elif stored.run is not None:
        run = tx.run(c, stored.run)
    if run is None or stored is None or not _asks(tx, c, run, message.id):
        return Denied("message_id_conflict")
    asked_alike = (run.asked_parent, bool(run.at_root)) == (command.asked_parent, command.at_root)
    if asked_alike and same_input(tx, c, stored, message):
        return run.place
    return Denied("message_id_conflict")


def _asks(tx: Transaction, c: ConversationRow, run: RunRow, message: MessageId) -> bool:
    """Whether this is the run's input, or what its input was before it went into a new session."""
    if run.input == message:
        return True
    placed = None if run.input is None or not run.switched else tx.message(c, run.input)
    return placed is not None and placed.copied_from == message


def place_run(tx: Transaction, command: PlaceRun) -> Run | Denied:
    """Give the run the slot and its input a place in the tree."""
    c = tx.conversation(command.conversation)
    run = tx.run(c, command.run)
    denied = _may_place(tx, c, run, command)
    if denied is not None:
        return denied
    above = tx.node(c.number, command.parent)
    events: list[DurableEvent] = []
    if above is not None:
        events += enter_session(tx, c, above.session, command.now_ms)
        c = tx.row(c.number)
    waiting = waiting_input(tx, run)
    leaf = command.parent
    if waiting is not None:
        message = as_placed(
            waiting,
            conversation=c.id,
            session=c.session_id,
            run=run.id,
            parent=command.parent,
            beside=command.beside,
        )
        insert_message(tx, c, message)
        leaf = message.id
        events.append(Placed(run=run.id, message=message.id, parent=command.parent))
    tx.change_conversation(
        c.number,
        slot=run.id,
        revision=c.revision + (waiting is not None),
        updated_ms=command.now_ms,
    )
    run = tx.change_run(
        run,
        placed=True,
        status=RunStatus.PENDING,
        session=c.session_id,
        leaf=leaf,
        head_left=c.head,
        node=command.fence.node,
        epoch=command.fence.epoch,
        started_ms=command.now_ms,
    )
    tx.tell(command, c.number, *events, RunChanged(run=run.id, status=RunStatus.PENDING))
    return run.record(c.id)


def waiting_input(tx: Transaction, run: RunRow) -> Message | None:
    """Return the input that waits in a run for its placement, if one does."""
    waiting = tx.input_waiting(run)
    return None if waiting is None else _read_message(waiting)


def _may_place(
    tx: Transaction, c: ConversationRow, run: RunRow, command: PlaceRun
) -> Denied | None:
    if run.status != RunStatus.QUEUED:
        return Denied("run_queued")
    if c.slot is not None:
        return Denied("slot")
    if c.active_operation is not None:
        return Denied(Condition.NO_ACTIVE_OPERATION)
    if c.revision != command.revision:
        return Denied(Condition.REVISION)
    if not tx.current(command.fence):
        return Denied(Condition.CALLER_CURRENT)
    return None


def claim(tx: Transaction, command: ClaimRun) -> Run | Denied:
    """Take over an open run from an owner that is gone."""
    c = tx.conversation(command.conversation)
    run = tx.run(c, command.run)
    fence = command.fence
    if not run.open:
        return Denied(Condition.RUN_OPEN)
    denied = may_drive(tx, run, fence)
    if denied is not None:
        return denied
    if (run.node, run.epoch) == (fence.node, fence.epoch):
        return run.record(c.id)
    return tx.change_run(run, node=fence.node, epoch=fence.epoch).record(c.id)


def may_drive(tx: Transaction, run: RunRow, fence: Fence) -> Denied | None:
    """Return why this node may not decide how the run goes on, or None if it may.

    Its owner may, and anybody where it has none or that one's epoch is stale. Who was followed
    by another, and has not noticed, would end or lay down what is being worked on.
    """
    if not tx.current(fence):
        return Denied(Condition.CALLER_CURRENT)
    if run.node is None or (run.node, run.epoch) == (fence.node, fence.epoch):
        return None
    if tx.current(Fence(node=run.node, epoch=run.epoch)):
        return Denied(Condition.OWNER_OR_GONE)
    return None


def wait(tx: Transaction, command: WaitRun) -> Run | Denied:
    """Let the run wait for those who must close its calls."""
    c = tx.conversation(command.conversation)
    run = tx.run(c, command.run)
    if run.status != RunStatus.PENDING:
        return Denied("run_pending")
    denied = may_drive(tx, run, command.fence)
    if denied is not None:
        return denied
    if all(row.call.ended_ms is not None for row in tx.calls_of_run(c, run)):
        return Denied("open_calls")
    return let_wait(tx, command, c.number, run, command.end_code).record(c.id)


def resume(tx: Transaction, command: ResumeRun) -> Run | Denied:
    """Let a waiting run work again: a call of it may be run that could not be before."""
    c = tx.conversation(command.conversation)
    run = tx.run(c, command.run)
    fence = command.fence
    if run.status != RunStatus.WAITING:
        return Denied("run_waiting")
    if c.slot is not None:
        return Denied("slot")
    if c.active_operation is not None:
        return Denied(Condition.NO_ACTIVE_OPERATION)
    if not tx.current(fence):
        return Denied(Condition.CALLER_CURRENT)
    tx.change_conversation(c.number, slot=run.id)
    tx.tell(command, c.number, RunChanged(run=run.id, status=RunStatus.PENDING))
    return tx.change_run(
        run,
        status=RunStatus.PENDING,
        end_code=lasting(run.end_code),
        node=fence.node,
        epoch=fence.epoch,
    ).record(c.id)


def let_wait(
    tx: Transaction, command: Command[Any], number: int, run: RunRow, end_code: str | None
) -> RunRow:
    """Make a run waiting and take the slot from it."""
    free_slot(tx, number, run.id)
    tx.tell(command, number, RunChanged(run=run.id, status=RunStatus.WAITING, code=end_code))
    return tx.change_run(run, status=RunStatus.WAITING, end_code=end_code or lasting(run.end_code))


def free_slot(tx: Transaction, number: int, run: RunId) -> None:
    """Give the slot back if this run has it."""
    if tx.row(number).slot == run:
        tx.change_conversation(number, slot=None)
