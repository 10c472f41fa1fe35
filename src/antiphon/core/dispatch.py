"""The life of one model call, as a table.

Rule 1: a state changes only by a row of `TABLE`; nothing else in the code base assigns one.
Rule 2: nothing here reads a clock, draws a number or awaits. The engine brings the facts.
Rule 3: the stores repeat these conditions in SQL, inside the transaction that writes, and a
test compares the two on crafted rows, because a condition that lives in only one of them is
a race.

An *operation* is one intended call, fixed by its manifest. An *attempt* is one try at it. The
conversation's row holds what is compared: its revision, its cancel generation, the operation
that is active and the last generation given. Active means DISPATCHING, SENT, STREAMING or
UNKNOWN: in each of them something may still reach the provider or come back from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from antiphon.core.ids import Digest, NodeId, OperationId
from antiphon.errors import IllegalTransition


class State(StrEnum):
    """Where an attempt stands."""

    PREPARED = "PREPARED"
    DISPATCHING = "DISPATCHING"
    SENT = "SENT"
    STREAMING = "STREAMING"
    UNKNOWN = "UNKNOWN"
    FAILED = "FAILED"
    COMMITTED = "COMMITTED"
    CANCELED = "CANCELED"
    CLOSED = "CLOSED"


class Event(StrEnum):
    """What can happen to an attempt."""

    PREPARE = "prepare"
    ACCEPT = "accept"
    SUPERSEDE = "supersede"
    WRITTEN = "written"
    OPENED = "opened"
    COMMIT = "commit"
    CONFLICT = "conflict"
    REFUSED = "refused"
    NOT_SENT = "not_sent"
    LOST = "lost"
    RESUME = "resume"
    REPLAY = "replay"
    FOUND = "found"
    ENDED = "ended"
    RETRY = "retry"
    CLOSE = "close"
    CANCEL = "cancel"


IN_FLIGHT: Final = frozenset({State.DISPATCHING, State.SENT, State.STREAMING})
ACTIVE: Final = IN_FLIGHT | {State.UNKNOWN}
FINAL: Final = frozenset({State.COMMITTED, State.CANCELED, State.CLOSED})


class Condition(StrEnum):
    """What has to hold for a row, each compared in the store."""

    RUN_OPEN = "run_open"
    RUN_IDLE = "run_idle"
    LINE_LEGAL = "line_legal"
    REVISION = "revision"
    CANCEL_GENERATION = "cancel_generation"
    FENCE_MOVED = "fence_moved"
    NO_ACTIVE_OPERATION = "no_active_operation"
    ACTIVE_OPERATION = "active_operation"
    CALLER_CURRENT = "caller_current"
    GENERATION = "generation"
    OWNER = "owner"
    OWNER_OR_GONE = "owner_or_gone"
    FIRST_SENDING = "first_sending"
    SENT_AGAIN = "sent_again"
    WHOLE_ANSWER = "whole_answer"
    DEFINITE = "definite"
    HANDLE = "handle"
    HONOURS_KEY = "honours_key"
    BEFORE_DEADLINE = "before_deadline"
    SAME_BYTES = "same_bytes"
    PROOF = "proof"
    ATTEMPTS_LEFT = "attempts_left"
    NAMES_RUN = "names_run"


class Effect(StrEnum):
    """What a row does besides moving the state, in the same transaction."""

    WRITE_MANIFEST = "write_manifest"
    TAKE_CONVERSATION = "take_conversation"
    OPEN_GENERATION = "open_generation"
    BIND_HANDLE = "bind_handle"
    WRITE_MESSAGE = "write_message"
    ADVANCE_REVISION = "advance_revision"
    FOLLOW_HEAD = "follow_head"
    BEAR_CALLS = "bear_calls"
    RELEASE = "release"
    QUARANTINE = "quarantine"
    TAKE_OWNERSHIP = "take_ownership"
    MARK_AGAIN = "mark_again"
    RECORD_PROOF = "record_proof"
    CLOSE_RUN = "close_run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that the conditions compare: stored rows first, then what the caller brings.

    A caller's claim stands in `my_*` fields; everything else is read in the transaction.
    """

    # The attempt's row.
    state: State | None = None
    operation: OperationId = OperationId("")
    generation: int = 0
    owner: NodeId | None = None
    owner_epoch: int = 0
    owner_epoch_current: int = 0
    deadline_ms: int = 0
    handle: str | None = None
    sent_again: bool = False
    base_revision: int = 0
    base_cancel_generation: int = 0
    request_digest: Digest | None = None
    attempts_made: int = 1
    # The conversation's row and the run's.
    revision: int = 0
    cancel_generation: int = 0
    active_operation: OperationId | None = None
    run_open: bool = True
    run_idle: bool = True
    # The caller.
    my_node: NodeId | None = None
    my_epoch: int = 0
    my_epoch_current: int = 0
    my_generation: int = 0
    now_ms: int = 0
    my_request_digest: Digest | None = None
    line_legal: bool = False
    whole_answer: bool = False
    definite: bool = False
    honours_key: bool = False
    proof: str | None = None
    attempts_allowed: int = 0
    names_run: bool = False
    # Whether it is a question beside the turn: then `QUESTION_TABLE` holds.
    beside: bool = False


PREDICATES: Final[Mapping[Condition, Callable[[Facts], bool]]] = MappingProxyType(
    {
        Condition.RUN_OPEN: lambda f: f.run_open,
        Condition.RUN_IDLE: lambda f: f.run_idle,
        Condition.LINE_LEGAL: lambda f: f.line_legal,
        Condition.REVISION: lambda f: f.revision == f.base_revision,
        Condition.CANCEL_GENERATION: lambda f: f.cancel_generation == f.base_cancel_generation,
        Condition.FENCE_MOVED: lambda f: (
            f.revision != f.base_revision or f.cancel_generation != f.base_cancel_generation
        ),
        Condition.NO_ACTIVE_OPERATION: lambda f: f.active_operation is None,
        Condition.ACTIVE_OPERATION: lambda f: f.active_operation == f.operation,
        Condition.CALLER_CURRENT: lambda f: f.my_epoch == f.my_epoch_current > 0,
        Condition.GENERATION: lambda f: f.my_generation == f.generation > 0,
        Condition.OWNER: lambda f: f.my_node == f.owner is not None and f.my_epoch == f.owner_epoch,
        # Its owner says so; or anyone, once the owner's lease or the attempt's time is over.
        Condition.OWNER_OR_GONE: lambda f: (
            (
                f.my_node == f.owner is not None
                and f.my_epoch == f.owner_epoch
                and f.my_generation == f.generation
            )
            or f.owner_epoch != f.owner_epoch_current
            or f.now_ms >= f.deadline_ms
        ),
        Condition.FIRST_SENDING: lambda f: not f.sent_again,
        Condition.SENT_AGAIN: lambda f: f.sent_again,
        Condition.WHOLE_ANSWER: lambda f: f.whole_answer,
        Condition.DEFINITE: lambda f: f.definite,
        Condition.HANDLE: lambda f: f.handle is not None,
        Condition.HONOURS_KEY: lambda f: f.honours_key,
        Condition.BEFORE_DEADLINE: lambda f: f.now_ms < f.deadline_ms,
        Condition.SAME_BYTES: lambda f: f.my_request_digest == f.request_digest is not None,
        Condition.PROOF: lambda f: f.proof is not None,
        Condition.ATTEMPTS_LEFT: lambda f: f.attempts_made < f.attempts_allowed,
        Condition.NAMES_RUN: lambda f: f.names_run,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the table: from any of `sources`, by `event`, to `target`."""

    number: int
    sources: frozenset[State | None]
    event: Event
    target: State
    conditions: tuple[Condition, ...] = ()
    effects: tuple[Effect, ...] = ()

    def fails(self, facts: Facts) -> Condition | None:
        """Return the first condition that does not hold, or None if the row may be taken."""
        for condition in self.conditions:
            if not PREDICATES[condition](facts):
                return condition
        return None


def _row(
    number: int,
    sources: State | frozenset[State] | None,
    event: Event,
    target: State,
    conditions: tuple[Condition, ...] = (),
    effects: tuple[Effect, ...] = (),
) -> Row:
    return Row(
        number=number,
        sources=frozenset(sources) if isinstance(sources, frozenset) else frozenset({sources}),
        event=event,
        target=target,
        conditions=conditions,
        effects=effects,
    )


_S, _E, _C, _F = State, Event, Condition, Effect
_FENCE: Final = (_C.GENERATION, _C.OWNER)
_COMMIT: Final = (_C.GENERATION, _C.ACTIVE_OPERATION, _C.REVISION, _C.CANCEL_GENERATION)
# The head follows only where it still stands where the run's placement or last commit left it.
_LAND: Final = (
    _F.WRITE_MESSAGE, _F.BEAR_CALLS, _F.ADVANCE_REVISION, _F.FOLLOW_HEAD, _F.RELEASE,
)  # fmt: skip

TABLE: Final[tuple[Row, ...]] = (
    _row(
        1, None, _E.PREPARE, _S.PREPARED,
        (_C.RUN_OPEN, _C.RUN_IDLE, _C.LINE_LEGAL),
        (_F.WRITE_MANIFEST,),
    ),
    _row(
        2, _S.PREPARED, _E.ACCEPT, _S.DISPATCHING,
        (_C.REVISION, _C.CANCEL_GENERATION, _C.NO_ACTIVE_OPERATION, _C.CALLER_CURRENT, _C.RUN_OPEN),
        (_F.TAKE_CONVERSATION, _F.OPEN_GENERATION, _F.TAKE_OWNERSHIP),
    ),
    _row(3, _S.PREPARED, _E.SUPERSEDE, _S.CANCELED, (_C.FENCE_MOVED,)),
    _row(4, _S.DISPATCHING, _E.WRITTEN, _S.SENT, _FENCE),
    _row(5, _S.SENT, _E.OPENED, _S.STREAMING, _FENCE, (_F.BIND_HANDLE,)),
    _row(6, _S.STREAMING, _E.COMMIT, _S.COMMITTED, (_C.WHOLE_ANSWER, *_COMMIT), _LAND),
    # A whole answer for a base that has moved. The rules around it keep this from happening.
    _row(
        7, frozenset({_S.STREAMING, _S.UNKNOWN}), _E.CONFLICT, _S.FAILED,
        (_C.WHOLE_ANSWER, _C.GENERATION, _C.FENCE_MOVED, _C.RUN_OPEN),
        (_F.QUARANTINE, _F.RELEASE),
    ),
    _row(
        8, IN_FLIGHT, _E.REFUSED, _S.FAILED,
        (*_FENCE, _C.FIRST_SENDING, _C.DEFINITE), (_F.RELEASE,),
    ),
    _row(
        8, _S.DISPATCHING, _E.NOT_SENT, _S.FAILED,
        (*_FENCE, _C.FIRST_SENDING), (_F.RELEASE,),
    ),
    _row(9, IN_FLIGHT, _E.LOST, _S.UNKNOWN, (_C.OWNER_OR_GONE,)),
    _row(
        10, _S.UNKNOWN, _E.RESUME, _S.STREAMING,
        (_C.GENERATION, _C.HANDLE, _C.CALLER_CURRENT),
        (_F.TAKE_OWNERSHIP, _F.MARK_AGAIN),
    ),
    _row(
        11, _S.UNKNOWN, _E.REPLAY, _S.DISPATCHING,
        (
            _C.GENERATION, _C.HONOURS_KEY, _C.BEFORE_DEADLINE,
            _C.CALLER_CURRENT, _C.SAME_BYTES,
        ),
        (_F.TAKE_OWNERSHIP, _F.MARK_AGAIN),
    ),
    # A no to the second sending says nothing of the first.
    _row(12, IN_FLIGHT, _E.REFUSED, _S.UNKNOWN, (*_FENCE, _C.SENT_AGAIN)),
    _row(12, IN_FLIGHT, _E.NOT_SENT, _S.UNKNOWN, (*_FENCE, _C.SENT_AGAIN)),
    _row(13, _S.UNKNOWN, _E.FOUND, _S.COMMITTED, (_C.WHOLE_ANSWER, *_COMMIT), _LAND),
    # Proof for an earlier generation says nothing of this one.
    _row(
        14, _S.UNKNOWN, _E.ENDED, _S.FAILED,
        (_C.GENERATION, _C.PROOF), (_F.RECORD_PROOF, _F.RELEASE),
    ),
    _row(
        15, _S.FAILED, _E.RETRY, _S.PREPARED,
        (_C.RUN_OPEN, _C.ATTEMPTS_LEFT, _C.REVISION, _C.CANCEL_GENERATION),
    ),
    _row(16, _S.FAILED, _E.CLOSE, _S.CLOSED),
    _row(
        17, ACTIVE | {_S.PREPARED, _S.FAILED}, _E.CANCEL, _S.CANCELED,
        (_C.NAMES_RUN, _C.RUN_OPEN), (_F.CLOSE_RUN, _F.RELEASE),
    ),
)  # fmt: skip
"""The rows of the contract, one a line or so; `number` is the contract's own."""

QUESTION_TABLE: Final[tuple[Row, ...]] = (
    _row(1, None, _E.PREPARE, _S.PREPARED, (_C.LINE_LEGAL,), (_F.WRITE_MANIFEST,)),
    _row(
        2, _S.PREPARED, _E.ACCEPT, _S.DISPATCHING,
        (_C.REVISION, _C.CANCEL_GENERATION, _C.CALLER_CURRENT),
        (_F.OPEN_GENERATION, _F.TAKE_OWNERSHIP),
    ),
    _row(4, _S.DISPATCHING, _E.WRITTEN, _S.SENT, _FENCE),
    _row(5, _S.SENT, _E.OPENED, _S.STREAMING, _FENCE, (_F.BIND_HANDLE,)),
    # An answer to what stood then says nothing of what stands now.
    _row(
        6, _S.STREAMING, _E.COMMIT, _S.COMMITTED,
        (_C.WHOLE_ANSWER, _C.GENERATION, _C.REVISION, _C.CANCEL_GENERATION),
    ),
    _row(8, IN_FLIGHT, _E.REFUSED, _S.FAILED, (*_FENCE, _C.DEFINITE)),
    _row(8, _S.DISPATCHING, _E.NOT_SENT, _S.FAILED, _FENCE),
    _row(9, IN_FLIGHT, _E.LOST, _S.UNKNOWN, (_C.OWNER_OR_GONE,)),
    _row(16, _S.FAILED, _E.CLOSE, _S.CLOSED),
    _row(17, ACTIVE | {_S.PREPARED, _S.FAILED}, _E.CANCEL, _S.CANCELED, (_C.NAMES_RUN,)),
)  # fmt: skip
"""The same life for a question beside the turn (a decision, a summary, a title).

It takes no slot, moves no revision and writes no message, so any number may be under way beside
a turn; nothing waits for one that was lost, and none is asked a second time.
"""


def rows_for(state: State | None, event: Event, *, beside: bool = False) -> tuple[Row, ...]:
    """Return the rows for this pair; conditions tell apart where there are several."""
    return (_QUESTION_BY_PAIR if beside else _BY_PAIR).get((state, event), ())


def by_pair(table: tuple[Row, ...]) -> Mapping[tuple[State | None, Event], tuple[Row, ...]]:
    """Return the rows of `table` under each pair that has any, in the table's order."""
    pairs: dict[tuple[State | None, Event], tuple[Row, ...]] = {}
    for row in table:
        for state in row.sources:
            pairs[state, row.event] = (*pairs.get((state, row.event), ()), row)
    return MappingProxyType(pairs)


_BY_PAIR: Final = by_pair(TABLE)
_QUESTION_BY_PAIR: Final = by_pair(QUESTION_TABLE)


@dataclass(frozen=True, slots=True)
class Denied:
    """The event did not happen: a condition does not hold. The caller drops what it holds.

    `reason` is a `Condition`, or the name of a constraint or rule of the store.
    """

    reason: str


def step(facts: Facts, event: Event) -> Row | Denied:
    """Return the row that `event` takes on these facts, or the condition that forbids it.

    Raises:
        IllegalTransition: The table has no row for this pair at all. Never catch it to carry
            on: it means that the caller's picture of the attempt is wrong.

    Example:
        >>> step(Facts(state=State.FAILED), Event.CLOSE).target
        <State.CLOSED: 'CLOSED'>
    """
    rows = rows_for(facts.state, event, beside=facts.beside)
    if not rows:
        raise IllegalTransition("dispatch", facts.state, event)
    denied: Condition | None = None
    for row in rows:
        failing = row.fails(facts)
        if failing is None:
            return row
        denied = denied or failing
    assert denied is not None
    return Denied(denied)
