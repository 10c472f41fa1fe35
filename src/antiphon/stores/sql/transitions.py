"""One function moves an attempt, by a row of the table.

The statement carries the row's conditions, so the store decides even if the caller's picture
is old. Where it takes none, the same facts are given to `core.dispatch.step`, which says
which condition failed; if it says that none did, the store and the table disagree, and that
is our own fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.commands import Fence
from antiphon.core.dispatch import (
    QUESTION_TABLE,
    TABLE,
    Condition,
    Denied,
    Event,
    Facts,
    Row,
    State,
    rows_for,
    step,
)
from antiphon.core.ids import Digest, NodeId, RunId
from antiphon.errors import InternalError
from antiphon.stores.sql.conditions import (
    ATTEMPT_EFFECTS,
    CONDITIONS,
    CONVERSATION_EFFECTS,
    insert_first,
    insert_next,
    update,
)
from antiphon.stores.sql.packing import pack, unpack
from antiphon.stores.sql.places import conversation_of
from antiphon.stores.sql.rows import AttemptRow
from antiphon.stores.sql.transaction import Transaction

ROWS: Final = {event: tuple(row for row in TABLE if row.event is event) for event in Event}
QUESTION_ROWS: Final = {
    event: tuple(row for row in QUESTION_TABLE if row.event is event) for event in Event
}

# When a state was reached, for people; a resumed answer keeps its first opening.
_TIMES: Final[dict[State, Callable[[AttemptRow, int], dict[str, object]]]] = {
    State.DISPATCHING: lambda a, now_ms: (
        {} if a.accepted_ms is not None else {"accepted_ms": now_ms}
    ),
    State.SENT: lambda a, now_ms: {"written_ms": now_ms},
    State.STREAMING: lambda a, now_ms: {} if a.opened_ms is not None else {"opened_ms": now_ms},
    State.COMMITTED: lambda a, now_ms: {"ended_ms": now_ms},
    State.FAILED: lambda a, now_ms: {"ended_ms": now_ms},
    State.CANCELED: lambda a, now_ms: {"ended_ms": now_ms},
    State.CLOSED: lambda a, now_ms: {} if a.ended_ms is not None else {"ended_ms": now_ms},
}

# The facts are read by the unchanged map, whatever a test has done to the one that decides.
_IDLE: Final = CONDITIONS[Condition.RUN_IDLE]


class Claim(Struct, frozen=True, kw_only=True):
    """What the caller brings to a transition; the rest is read in the transaction."""

    now_ms: int
    fence: Fence | None = None
    generation: int = 0
    request_digest: Digest | None = None
    line_legal: bool = False
    whole_answer: bool = False
    definite: bool = False
    honours_key: bool = False
    proof: str | None = None
    attempts_allowed: int = 0
    names_run: RunId | None = None
    handle: str | None = None

    def parameters(self, attempt: AttemptRow) -> dict[str, Any]:
        """Return the parameters of a statement that moves `attempt`."""
        return {
            "manifest": attempt.manifest,
            "number": attempt.number,
            "operation": attempt.operation,
            "now_ms": self.now_ms,
            "my_node": self.fence.node if self.fence else None,
            "my_epoch": self.fence.epoch if self.fence else 0,
            "my_generation": self.generation,
            "my_request_digest": pack(self.request_digest) if self.request_digest else None,
            "line_legal": self.line_legal,
            "whole_answer": self.whole_answer,
            "definite": self.definite,
            "honours_key": self.honours_key,
            "proof": self.proof,
            "attempts_allowed": self.attempts_allowed,
            "names_run": self.names_run,
            "handle": self.handle,
        }


class Moved(NamedTuple):
    """A transition that happened: by which row, and the attempt as it stands now."""

    row: Row
    attempt: AttemptRow


def move(
    tx: Transaction, attempt: AttemptRow, event: Event, claim: Claim, **values: object
) -> Moved | Denied:
    """Move `attempt` by `event` and do what the row says to it and to its conversation.

    Args:
        tx: The transaction.
        attempt: The operation's newest attempt, as read in this transaction.
        event: What happened.
        claim: What the caller brings.
        values: Further columns to set.

    Raises:
        IllegalTransition: The table has no row for this state and event.
    """
    tx.write_conversation(
        conversation_of(attempt.manifest)
    )  # the conditions compare what stands in the database
    table = (QUESTION_ROWS if attempt.beside else ROWS)[event]
    rows = [row for row in table if attempt.state in row.sources]
    for row in rows:
        parameters = claim.parameters(attempt)
        news = _news(tx, attempt, row, parameters) | values
        parameters |= {f"new_{column}": value for column, value in news.items()}
        if tx.took(update(row, *news), parameters, foreseen=len(rows) == 1):
            _move_conversation(tx, attempt, row)
            return Moved(row, tx.keep_attempt(replace(attempt, state=row.target, **news)))
    return why_not(tx, attempt, event, claim)


def _news(
    tx: Transaction, attempt: AttemptRow, row: Row, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the columns of the attempt that `row` sets beside its state, with their values."""
    c = tx.row(conversation_of(attempt.manifest))
    news: dict[str, Any] = {}
    for effect in row.effects:
        if effect in ATTEMPT_EFFECTS:
            news |= ATTEMPT_EFFECTS[effect](attempt, c, parameters)
    if row.target in _TIMES:
        news |= _TIMES[row.target](attempt, parameters["now_ms"])
    return news


def _move_conversation(tx: Transaction, attempt: AttemptRow, row: Row) -> None:
    number = conversation_of(attempt.manifest)
    for effect in row.effects:
        if effect in CONVERSATION_EFFECTS:
            values = CONVERSATION_EFFECTS[effect](tx.row(number), attempt.operation)
            tx.change_conversation(number, **values)


def begin(tx: Transaction, unborn: AttemptRow, claim: Claim) -> AttemptRow | Denied:
    """Row 1: make the first attempt under a manifest that has just been written.

    `unborn` says what its manifest says; the attempt's own columns come from the database.
    """
    tx.write_conversation(conversation_of(unborn.manifest))
    (row,) = (QUESTION_ROWS if unborn.beside else ROWS)[Event.PREPARE]
    if tx.took(insert_first(row), claim.parameters(unborn)):
        return tx.keep_attempt(unborn.born(1, row.target, claim.now_ms))
    found = tx.one(
        f"SELECT r.ended_ms IS NULL, ({_IDLE}) FROM run AS r WHERE r.place = ?",
        (unborn.run_place,),
    )
    assert found is not None
    known = Facts(
        run_open=bool(found[0]),
        run_idle=bool(found[1]),
        line_legal=claim.line_legal,
        beside=unborn.beside,
    )
    return _denied(step(known, Event.PREPARE), Event.PREPARE, None)


def again(tx: Transaction, attempt: AttemptRow, claim: Claim) -> AttemptRow | Denied:
    """Row 15: add the next attempt; the failed one stays as it is."""
    tx.write_conversation(conversation_of(attempt.manifest))
    (row,) = ROWS[Event.RETRY]
    if tx.took(insert_next(row), claim.parameters(attempt)):
        return tx.keep_attempt(attempt.born(attempt.number + 1, row.target, claim.now_ms))
    return why_not(tx, attempt, Event.RETRY, claim)


def why_not(tx: Transaction, attempt: AttemptRow, event: Event, claim: Claim) -> Denied:
    """Return the condition of core's table that forbids `event` on the stored facts.

    The state is compared like every other value: who reports on an attempt that was canceled
    or settled meanwhile has lost a race, and drops what it holds.
    """
    if not rows_for(State(attempt.state), event, beside=attempt.beside):
        return Denied("state")
    return _denied(step(facts(tx, attempt, claim), event), event, attempt)


def _denied(answer: Row | Denied, event: Event, attempt: AttemptRow | None) -> Denied:
    if isinstance(answer, Denied):
        return answer
    raise InternalError(
        f"The store refused {event}, which the table allows.",
        code="table_mismatch",
        at=attempt.operation if attempt else None,
    )


def facts(tx: Transaction, attempt: AttemptRow, claim: Claim) -> Facts:
    """Return all that the table's conditions compare, as it stands in this transaction."""
    found = tx.one(
        f"""SELECT c.revision, c.cancel_generation, c.active_operation, r.ended_ms IS NULL,
          ({_IDLE})
        FROM run AS r JOIN conversation AS c ON c.number = r.place >> 32 WHERE r.place = ?""",
        (attempt.run_place,),
    )
    assert found is not None
    fence = claim.fence
    return Facts(
        state=State(attempt.state),
        operation=attempt.operation,
        generation=attempt.generation,
        owner=attempt.node,
        owner_epoch=attempt.epoch,
        owner_epoch_current=_epoch(tx, attempt.node),
        deadline_ms=attempt.deadline_ms,
        handle=attempt.handle,
        sent_again=bool(attempt.sent_again),
        base_revision=attempt.base_revision,
        base_cancel_generation=attempt.base_cancel_generation,
        request_digest=unpack(attempt.request_digest),
        attempts_made=attempt.number,
        revision=found[0],
        cancel_generation=found[1],
        active_operation=found[2],
        run_open=bool(found[3]),
        run_idle=bool(found[4]),
        my_node=fence.node if fence else None,
        my_epoch=fence.epoch if fence else 0,
        my_epoch_current=_epoch(tx, fence.node) if fence else 0,
        my_generation=claim.generation,
        now_ms=claim.now_ms,
        my_request_digest=claim.request_digest,
        line_legal=claim.line_legal,
        whole_answer=claim.whole_answer,
        definite=claim.definite,
        honours_key=claim.honours_key,
        proof=claim.proof,
        attempts_allowed=claim.attempts_allowed,
        names_run=claim.names_run == attempt.run,
        beside=attempt.beside,
    )


def _epoch(tx: Transaction, node: NodeId | None) -> int:
    row = tx.one("SELECT epoch FROM node WHERE id = ?", (node,))
    return 0 if row is None else int(row[0])
