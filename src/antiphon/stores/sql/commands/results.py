"""The results of a step enter the tree as one message, once, in the calls' order."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.core.events import DurableEvent, HeadMoved, ResultsPlaced
from antiphon.core.ids import MessageId
from antiphon.core.records import Call
from antiphon.core.tools.ledger import results_message
from antiphon.stores.sql.messages import insert_message
from antiphon.stores.sql.rows import ConversationRow, RunRow
from antiphon.stores.sql.transaction import Transaction


def calls_at_leaf(tx: Transaction, c: ConversationRow, run: RunRow) -> list[Call]:
    """Return the calls of the run's newest message: those whose results are not placed yet."""
    return [row.call for row in tx.calls_of_run(c, run) if row.call.message == run.leaf]


def insert_results(
    tx: Transaction,
    c: ConversationRow,
    run: RunRow,
    calls: Sequence[Call],
    results_id: MessageId,
    now_ms: int,
) -> tuple[RunRow, list[DurableEvent]]:
    """Place the results of `calls`, the run's newest message's, under it; revision + 1.

    The head goes along where it stands at that message: the line that a person looks at is
    closed by its results.
    """
    message = results_message(
        calls,
        message=results_id,
        parent=run.leaf,
        session=run.session,
        created_ms=now_ms,
    )
    insert_message(tx, c, message)
    follows = c.head == run.head_left == run.leaf
    revision = tx.row(c.number).revision + 1
    tx.change_conversation(c.number, revision=revision)
    run = tx.change_run(run, leaf=results_id)
    events: list[DurableEvent] = [ResultsPlaced(run=run.id, message=results_id, revision=revision)]
    if follows:
        tx.change_conversation(c.number, head=results_id)
        run = tx.change_run(run, head_left=results_id)
        events.append(HeadMoved(head=results_id))
    return run, events
