"""What follows on a run's line between two of its steps: words that steer it, or that ask it again."""

from __future__ import annotations

from typing import Any

from antiphon.core.answers.judging import ANSWER_RETRIED, SCHEMA_MISMATCH
from antiphon.core.blocks import Message
from antiphon.core.commands import AskAgain, Command, Fence, JoinRun
from antiphon.core.dispatch import Condition, Denied
from antiphon.core.events import DurableEvent, HeadMoved, Placed, RunChanged
from antiphon.core.ids import MessageId, RunId
from antiphon.core.placement import as_joined
from antiphon.core.records import Run, RunStatus
from antiphon.core.tools.loop import JOINED
from antiphon.stores.sql.commands.runs import may_drive, waiting_input
from antiphon.stores.sql.messages import insert_message
from antiphon.stores.sql.rows import ConversationRow, RunRow
from antiphon.stores.sql.transaction import Transaction


def join(tx: Transaction, command: JoinRun) -> Run | Denied:
    """Let a queued run's input follow what another run has come to."""
    c = tx.conversation(command.conversation)
    run, into = tx.run(c, command.run), tx.run(c, command.into)
    if run.status != RunStatus.QUEUED or not run.record(c.id).options.steer:
        return Denied("run_queued")
    denied = _not_between_steps(tx, c, into, command.parent, command.fence)
    if denied is not None:
        return denied
    waiting = waiting_input(tx, run)
    if waiting is None:
        return Denied("run_queued")
    ended = RunChanged(run=run.id, status=RunStatus.SUCCESS, code=JOINED, into=into.id)
    into = _follow(tx, command, c, into, waiting, whose=run.id, ended=ended)
    return tx.change_run(
        run,
        placed=True,
        status=RunStatus.SUCCESS,
        session=into.session,
        leaf=into.leaf,
        end_code=JOINED,
        started_ms=command.now_ms,
        ended_ms=command.now_ms,
    ).record(c.id)


def ask_again(tx: Transaction, command: AskAgain) -> Run | Denied:
    """Let the model know why its answer does not do."""
    c = tx.conversation(command.conversation)
    run = tx.run(c, command.run)
    if run.end_code != SCHEMA_MISMATCH:
        return Denied("end_code")
    denied = _not_between_steps(tx, c, run, command.parent, command.fence)
    if denied is not None:
        return denied
    run = _follow(tx, command, c, run, command.message, whose=run.id)
    return tx.change_run(run, end_code=ANSWER_RETRIED).record(c.id)


def _not_between_steps(
    tx: Transaction, c: ConversationRow, run: RunRow, parent: MessageId, fence: Fence
) -> Denied | None:
    if run.status != RunStatus.PENDING or not run.committed:
        return Denied("run_pending")
    if c.slot != run.id:
        return Denied("slot")
    if c.active_operation is not None:
        return Denied(Condition.NO_ACTIVE_OPERATION)
    if run.leaf != parent:
        return Denied("leaf")
    denied = may_drive(tx, run, fence)
    if denied is not None:
        return denied
    calls = [row.call for row in tx.calls_of_run(c, run)]
    if any(call.ended_ms is None or call.message == run.leaf for call in calls):
        return Denied("open_calls")
    return None


def _follow(
    tx: Transaction,
    command: Command[Any],
    c: ConversationRow,
    run: RunRow,
    waiting: Message,
    *,
    whose: RunId,
    ended: RunChanged | None = None,
) -> RunRow:
    """Put a message under the run's leaf; the head goes along where it stands there."""
    assert run.session is not None
    assert run.leaf is not None
    message = as_joined(waiting, conversation=c.id, session=run.session, run=whose, parent=run.leaf)
    insert_message(tx, c, message)
    tx.change_conversation(c.number, revision=c.revision + 1, updated_ms=command.now_ms)
    events: list[DurableEvent] = [Placed(run=whose, message=message.id, parent=message.parent)]
    if ended is not None:
        events.append(ended)
    if c.head == run.head_left == run.leaf:
        tx.change_conversation(c.number, head=message.id)
        run = tx.change_run(run, head_left=message.id)
        events.append(HeadMoved(head=message.id))
    tx.tell(command, c.number, *events)
    return tx.change_run(run, leaf=message.id)
