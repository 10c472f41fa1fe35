"""Sessions: which one is active, and how one follows another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from antiphon.core.answers.usage import used
from antiphon.core.blocks import Message, Status
from antiphon.core.commands import (
    Command,
    DropWish,
    NoteDecision,
    NoteWish,
    SetGoal,
    SetScheduling,
    SwitchSession,
    UndoSwitch,
)
from antiphon.core.dispatch import Condition, Denied
from antiphon.core.events import (
    Decided,
    DurableEvent,
    GoalChanged,
    HeadMoved,
    MessagesAdded,
    SchedulingSet,
    SessionActivated,
    SessionSwitched,
)
from antiphon.core.ids import MessageId, RunId
from antiphon.core.records import Conversation, Run, RunStatus
from antiphon.core.sessions.scheduling import Decision
from antiphon.errors import NotFound
from antiphon.stores.sql.messages import insert_message, settle
from antiphon.stores.sql.packing import encode_json
from antiphon.stores.sql.rows import ConversationRow, RunRow
from antiphon.stores.sql.standing import spend
from antiphon.stores.sql.transaction import Transaction


def enter_session(
    tx: Transaction, c: ConversationRow, session: int, now_ms: int, *, undone: bool = False
) -> Iterator[DurableEvent]:
    """Let the session at this place be the active one, if it is not; its own head is the head."""
    if session == c.session:
        return
    c = _archived(tx, c, now_ms)
    row = tx.one("SELECT id, head FROM session WHERE place = ?", (session,))
    assert row is not None
    tx.execute(
        "UPDATE session SET active = 1, head = NULL, archived_ms = NULL WHERE place = ?", (session,)
    )
    tx.activate(c.number, session, row[0], row[1])
    yield SessionActivated(session=row[0], previous=c.session_id, undone=undone)
    if row[1] != c.head:
        yield HeadMoved(head=row[1])


def _archived(tx: Transaction, c: ConversationRow, now_ms: int) -> ConversationRow:
    """Archive the active session; it keeps the head that the conversation had."""
    c = tx.row(c.number)
    tx.execute(
        "UPDATE session SET active = 0, head = ?, archived_ms = ? WHERE place = ?",
        (c.head, now_ms, c.session),
    )
    return c


def move_to(
    tx: Transaction, c: ConversationRow, head: MessageId | None, now_ms: int
) -> list[DurableEvent]:
    """Look at the line that ends in `head`; where it is another session's, enter that one."""
    c = tx.row(c.number)
    if head == c.head:
        return []
    events: list[DurableEvent] = []
    if head is not None:
        node = tx.node(c.number, head)
        if node is None:
            raise NotFound("There is no such message in this conversation.", at=head)
        events += (
            event
            for event in enter_session(tx, c, node.session, now_ms)
            if not isinstance(event, HeadMoved)
        )
    tx.change_conversation(c.number, head=head)
    return [*events, HeadMoved(head=head)]


def note_decision(tx: Transaction, command: NoteDecision) -> Run | Denied:
    """Note what was decided before a run is placed."""
    c = tx.conversation(command.conversation)
    run = tx.run(c, command.run)
    if run.status != RunStatus.QUEUED:
        return Denied("run_queued")
    if run.decision is not None:
        return Denied("run_decided")
    if c.revision != command.revision:
        return Denied(Condition.REVISION)
    events: list[DurableEvent] = [
        Decided(
            run=run.id,
            decision=command.decision,
            reason=command.reason,
            operation=command.operation,
        )
    ]
    if command.decision == Decision.UPDATE_GOAL:
        events += _goal(tx, c, command.goal)
    tx.tell(command, c.number, *events)
    return tx.change_run(run, decision=command.decision).record(c.id)


def set_goal(tx: Transaction, command: SetGoal) -> Conversation | Denied:
    """Give the active session another goal."""
    c = tx.conversation(command.conversation)
    if c.session_id != command.session:
        return Denied("session")
    tx.tell(command, c.number, *_goal(tx, c, command.goal))
    return tx.conversation_record(c.id)


def _goal(tx: Transaction, c: ConversationRow, goal: str | None) -> Iterator[DurableEvent]:
    tx.execute("UPDATE session SET goal = ? WHERE place = ?", (goal, c.session))
    yield GoalChanged(session=c.session_id)


def note_wish(tx: Transaction, command: NoteWish) -> Run | Denied:
    """Note that a run's model has asked for a new session and for nothing else."""
    c = tx.conversation(command.conversation)
    run = tx.run(c, command.run)
    if run.status != RunStatus.PENDING:
        return Denied("run_pending")
    took = used(command.usage, command.cost)
    if command.spent is not None:
        spend(tx, command.spent, command.now_ms, took)
    wished = tx.change_run(run, wish=command.goal, answer=None, **run.counted(took))
    return wished.record(c.id)


def drop_wish(tx: Transaction, command: DropWish) -> Run | Denied:
    """Let a run go on in the session in which it is."""
    c = tx.conversation(command.conversation)
    run = tx.run(c, command.run)
    if run.wish is None:
        return Denied("run_wish")
    event = Decided(run=run.id, decision=Decision.CONTINUE, reason=command.reason)
    tx.tell(command, c.number, event)
    return tx.change_run(run, wish=None, switched=True).record(c.id)


def switch(tx: Transaction, command: SwitchSession) -> Conversation | Denied:
    """Archive the active session, open the next one, and let a run go along."""
    c = tx.conversation(command.conversation)
    denied = _may_switch(tx, c, command.revision, command.run)
    if denied is None and c.session_id != command.previous:
        denied = Denied("session")
    if denied is None and not tx.current(command.fence):
        denied = Denied(Condition.CALLER_CURRENT)
    if denied is not None:
        return denied
    run = None if command.run is None else tx.run(c, command.run)
    _archived(tx, c, command.now_ms)
    tx.execute(
        "UPDATE session SET handover = ? WHERE place = ?",
        (encode_json(command.handover) if command.handover else None, c.session),
    )
    at = tx.next_place("session", c.number)
    tx.execute(
        """INSERT INTO session (place, id, goal, active, created_ms, previous, cause, precis)
        VALUES (?, ?, ?, 1, ?, ?, ?, ?)""",
        (
            at,
            command.session,
            command.goal,
            command.now_ms,
            c.session,
            command.cause,
            command.precis,
        ),
    )
    head = command.copies[-1].id if command.copies else None
    tx.activate(c.number, at, command.session, head)
    _insert(tx, tx.row(c.number), command.copies, run)
    if run is not None:
        _move_along(tx, c, run, command)
    _advance(tx, c, command.now_ms if run is None else None)
    _told(
        tx,
        command,
        SessionSwitched(
            session=command.session,
            previous=command.previous,
            cause=command.cause,
            revision=tx.row(c.number).revision,
            run=command.run,
        ),
        command.copies,
        head,
    )
    return tx.conversation_record(c.id)


def _may_switch(
    tx: Transaction, c: ConversationRow, revision: int, run: RunId | None
) -> Denied | None:
    if c.revision != revision:
        return Denied(Condition.REVISION)
    if c.active_operation is not None or c.slot != run:
        return Denied("conversation_busy")
    for other in tx.open_runs(c):
        if other.id != run and other.status != RunStatus.QUEUED:
            return Denied("conversation_busy")
        if other.id == run and other.status != RunStatus.PENDING:
            return Denied("run_pending")
    return None


def _insert(
    tx: Transaction, c: ConversationRow, copies: Sequence[Message], run: RunRow | None = None
) -> None:
    """Insert copies; the input of a run that goes along is its own there, pending as it was."""
    for copy in copies:
        if run is not None and copy.copied_from == run.input:
            status = Status.SUCCESS if run.committed else Status.PENDING
            copy = replace(copy, run=run.id, status=status)
        insert_message(tx, c, copy)


def _move_along(tx: Transaction, c: ConversationRow, run: RunRow, command: SwitchSession) -> None:
    """Let a run go on at the copies of what it was at; its input was answered where that is."""
    to = {copy.copied_from: copy.id for copy in command.copies}
    if run.leaf not in to:
        raise NotFound("The run's own leaf does not go along.", at=run.leaf)
    settle(tx, c, run.input, Status.SUCCESS)
    tx.change_run(
        run,
        session=command.session,
        input=to.get(run.input, run.input),
        leaf=to[run.leaf],
        head_left=to[run.leaf],
        answer=None,
        wish=None,
        switched=True,
    )


def _advance(tx: Transaction, c: ConversationRow, now_ms: int | None) -> None:
    values: dict[str, object] = {"revision": tx.row(c.number).revision + 1}
    if now_ms is not None:
        values["updated_ms"] = now_ms
    tx.change_conversation(c.number, **values)


def _told(
    tx: Transaction,
    command: Command[Any],
    event: DurableEvent,
    copies: Sequence[Message],
    head: MessageId | None,
) -> None:
    events: list[DurableEvent] = [event]
    if copies:
        events.append(MessagesAdded(messages=tuple(copy.id for copy in copies)))
    number = tx.conversation(command.conversation).number
    tx.tell(command, number, *events, HeadMoved(head=head))


def undo(tx: Transaction, command: UndoSwitch) -> Conversation | Denied:
    """Go back to the session before, and take along what was said since."""
    c = tx.conversation(command.conversation)
    denied = _may_switch(tx, c, command.revision, None)
    if denied is None and c.session_id != command.session:
        denied = Denied("session")
    if denied is not None:
        return denied
    row = tx.one("SELECT previous FROM session WHERE place = ?", (c.session,))
    if row is None or row[0] is None:
        return Denied("no_switch")
    events = [
        event
        for event in enter_session(tx, c, row[0], command.now_ms, undone=True)
        if not isinstance(event, HeadMoved)
    ]
    _insert(tx, tx.row(c.number), command.copies)
    if command.copies:
        tx.change_conversation(c.number, head=command.copies[-1].id)
    _advance(tx, c, command.now_ms)
    _told(tx, command, events[0], command.copies, tx.row(c.number).head)
    return tx.conversation_record(c.id)


def set_scheduling(tx: Transaction, command: SetScheduling) -> Conversation:
    """Say whether sessions come and go by themselves here."""
    c = tx.conversation(command.conversation)
    tx.change_conversation(c.number, scheduling=None if command.on is None else int(command.on))
    tx.tell(command, c.number, SchedulingSet(on=command.on))
    return tx.conversation_record(c.id)
