"""Mending what contradicts itself: one function for each rule that leaves no doubt.

Each goes to the state that the rest of the rows already say. None invents what happened: an
attempt or a call that nobody told the end of is closed, and says that its fate is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from antiphon.core.blocks import Status
from antiphon.core.commands import Repair
from antiphon.core.dispatch import Denied, State
from antiphon.core.events import CallChanged, DurableEvent, HeadMoved, Repaired
from antiphon.core.ids import CallId, MessageId, OperationId
from antiphon.core.records import CallState, Conversation, RunStatus
from antiphon.core.tools.ledger import fate_unknown, text_result
from antiphon.stores.sql.contradictions import RULES
from antiphon.stores.sql.messages import settle
from antiphon.stores.sql.rows import ConversationRow
from antiphon.stores.sql.transaction import Transaction

REPAIRED: Final = "repaired"
"""Error code of what a repair has closed."""

NEVER_BEGUN: Final = "Not run: its run had ended before this call began."


def repair(tx: Transaction, command: Repair) -> Conversation | Denied:
    """Mend one contradiction if it is there still, and say so."""
    c = tx.conversation(command.conversation)
    rule = next((rule for rule in RULES if rule.code == command.code), None)
    mend = MENDINGS.get(command.code)
    found = None if rule is None else next(rule.find(tx, c.id, command.at), None)
    if mend is None or found is None:
        return Denied("sound")
    events = mend(tx, command, c)
    why = Repaired(code=command.code, at=command.at, why=found.message)
    tx.tell(command, c.number, *events, why)
    return tx.conversation_record(c.id)


def _head(tx: Transaction, command: Repair, c: ConversationRow) -> list[DurableEvent]:
    """Look at the newest message that was committed."""
    row = tx.one(
        """SELECT m.id FROM message AS m WHERE m.place >> 32 = ? AND m.status = 'success'
        ORDER BY m.place DESC LIMIT 1""",
        (c.number,),
    )
    head = None if row is None else MessageId(row[0])
    tx.change_conversation(c.number, head=head)
    return [HeadMoved(head=head)]


def _slot(tx: Transaction, command: Repair, c: ConversationRow) -> list[DurableEvent]:
    tx.change_conversation(c.number, slot=None)
    return []


def _operation(tx: Transaction, command: Repair, c: ConversationRow) -> list[DurableEvent]:
    tx.change_conversation(c.number, active_operation=None)
    return []


def _release(tx: Transaction, command: Repair, c: ConversationRow) -> list[DurableEvent]:
    """Close an attempt whose run has ended; whatever it came to, nobody waits for it."""
    operation = OperationId(command.at)
    attempt = tx.attempt(c.id, operation)
    tx.execute(
        """UPDATE attempt SET state = ?, error_code = ?, ended_ms = coalesce(ended_ms, ?)
        WHERE manifest = ? AND number = ?""",
        (State.CANCELED, REPAIRED, command.now_ms, attempt.manifest, attempt.number),
    )
    tx.keep_attempt(replace(attempt, state=State.CANCELED))
    if c.active_operation == operation:
        tx.change_conversation(c.number, active_operation=None)
    return []


def _hold(tx: Transaction, command: Repair, c: ConversationRow) -> list[DurableEvent]:
    """Let the conversation know of the one attempt that is active in it."""
    tx.change_conversation(c.number, active_operation=OperationId(command.at))
    return []


def _generation(tx: Transaction, command: Repair, c: ConversationRow) -> list[DurableEvent]:
    row = tx.one("SELECT max(generation) FROM attempt AS a WHERE a.manifest >> 32 = ?", (c.number,))
    assert row is not None
    tx.change_conversation(c.number, attempt_generation=row[0])
    return []


def _call(tx: Transaction, command: Repair, c: ConversationRow) -> list[DurableEvent]:
    """Close a call that its run has left open, with a result that says what is known of it."""
    found = tx.one(
        """SELECT r.id FROM call AS l JOIN run AS r ON r.place = l.run
        WHERE l.place >> 32 = ? AND l.call_id = ? AND l.ended_ms IS NULL
        AND r.ended_ms IS NOT NULL""",
        (c.number, command.at),
    )
    assert found is not None
    run = tx.run(c, found[0])
    row = tx.call(c, run, CallId(command.at))
    call = row.call
    never_begun = call.state == CallState.PENDING and call.attempt == 0
    text = NEVER_BEGUN if never_begun else fate_unknown()
    tx.change_call(
        row,
        state=CallState.CANCELED if never_begun else CallState.ERROR,
        code=REPAIRED,
        content=text_result(text),
        ended_ms=command.now_ms,
    )
    state = CallState.CANCELED if never_begun else CallState.ERROR
    return [CallChanged(run=run.id, call=call.call_id, name=call.name, state=state, code=REPAIRED)]


def _input(tx: Transaction, command: Repair, c: ConversationRow) -> list[DurableEvent]:
    """Give a message the status that the end of its run has given it."""
    row = tx.one("SELECT run FROM message WHERE place >> 32 = ? AND id = ?", (c.number, command.at))
    assert row is not None
    run = tx.run(c, row[0])
    failed = run.status == RunStatus.ERROR and run.committed == 0
    status = Status.ERROR if failed else Status.SUCCESS
    settle(tx, c, MessageId(command.at), status, run.error_code if failed else None)
    return []


def _events(tx: Transaction, command: Repair, c: ConversationRow) -> list[DurableEvent]:
    row = tx.one(
        "SELECT count(place) FROM event WHERE place BETWEEN ? AND ?",
        (c.number << 32, (c.number << 32) + 0xFFFF_FFFF),
    )
    assert row is not None
    tx.change_conversation(c.number, last_event=row[0])
    return []


Mending = Callable[[Transaction, Repair, ConversationRow], list[DurableEvent]]

MENDINGS: Final[Mapping[str, Mending]] = MappingProxyType(
    {
        "dangling_head": _head,
        "dangling_slot": _slot,
        "dangling_operation": _operation,
        "active_after_end": _release,
        "unheld_operation": _hold,
        "generation_behind": _generation,
        "call_after_end": _call,
        "pending_after_end": _input,
        "event_behind": _events,
    }
)
"""What can be mended, by the code of its rule."""
