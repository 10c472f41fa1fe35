"""The contract of the dispatch table, written by hand as plain data.

Nothing here is read from the table under test: the rows, what each condition means and which
way is forward are stated a second time, so that a mistake in the table meets somebody who
disagrees with it. `tests/core/test_dispatch.py` and `make verify` compare the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from antiphon.core import dispatch
from antiphon.core.dispatch import Facts, State

if TYPE_CHECKING:
    from collections.abc import Callable

STATE_WORDS: Final = (
    "none PREPARED DISPATCHING SENT STREAMING UNKNOWN FAILED COMMITTED CANCELED CLOSED"
)
EVENT_WORDS: Final = (
    "prepare accept supersede written opened commit conflict refused not_sent lost resume replay"
    " found ended retry close cancel"
)
STATES: Final = STATE_WORDS.split()
EVENTS: Final = EVENT_WORDS.split()


class Line(NamedTuple):
    """One line of the contract."""

    number: int
    sources: str
    event: str
    target: str
    conditions: str = ""
    effects: str = ""


IN_FLIGHT: Final = "DISPATCHING SENT STREAMING"
ACTIVE: Final = "DISPATCHING SENT STREAMING UNKNOWN"
FENCE: Final = "generation owner"
FIVE: Final = "generation active_operation revision cancel_generation"  # and the state itself
CANONICAL: Final = "write_message bear_calls advance_revision follow_head release"

CONTRACT: Final = (
    Line(1, "none", "prepare", "PREPARED", "run_open run_idle line_legal", "write_manifest"),
    Line(
        2,
        "PREPARED",
        "accept",
        "DISPATCHING",
        "revision cancel_generation no_active_operation caller_current run_open",
        "take_conversation open_generation take_ownership",
    ),
    Line(3, "PREPARED", "supersede", "CANCELED", "fence_moved"),
    Line(4, "DISPATCHING", "written", "SENT", FENCE),
    Line(5, "SENT", "opened", "STREAMING", FENCE, "bind_handle"),
    Line(6, "STREAMING", "commit", "COMMITTED", f"whole_answer {FIVE}", CANONICAL),
    Line(
        7,
        "STREAMING UNKNOWN",
        "conflict",
        "FAILED",
        "whole_answer generation fence_moved run_open",
        "quarantine release",
    ),
    Line(8, IN_FLIGHT, "refused", "FAILED", f"{FENCE} first_sending definite", "release"),
    Line(8, "DISPATCHING", "not_sent", "FAILED", f"{FENCE} first_sending", "release"),
    Line(9, IN_FLIGHT, "lost", "UNKNOWN", "owner_or_gone"),
    Line(
        10,
        "UNKNOWN",
        "resume",
        "STREAMING",
        "generation handle caller_current",
        "take_ownership mark_again",
    ),
    Line(
        11,
        "UNKNOWN",
        "replay",
        "DISPATCHING",
        "generation honours_key before_deadline caller_current same_bytes",
        "take_ownership mark_again",
    ),
    Line(12, IN_FLIGHT, "refused", "UNKNOWN", f"{FENCE} sent_again"),
    Line(12, IN_FLIGHT, "not_sent", "UNKNOWN", f"{FENCE} sent_again"),
    Line(13, "UNKNOWN", "found", "COMMITTED", f"whole_answer {FIVE}", CANONICAL),
    Line(14, "UNKNOWN", "ended", "FAILED", "generation proof", "record_proof release"),
    Line(
        15,
        "FAILED",
        "retry",
        "PREPARED",
        "run_open attempts_left revision cancel_generation",
    ),
    Line(16, "FAILED", "close", "CLOSED"),
    Line(
        17,
        f"{ACTIVE} PREPARED FAILED",
        "cancel",
        "CANCELED",
        "names_run run_open",
        "close_run release",
    ),
)

# What each condition compares. For every one: ways in which it holds, ways in which it fails.
Change = dict[str, Any]
MINE: Final = {
    "owner": "a",
    "owner_epoch": 3,
    "owner_epoch_current": 3,
    "my_node": "a",
    "my_epoch": 3,
}
IN_TIME: Final = {"now_ms": 99, "deadline_ms": 100}
HOLDS: Final[dict[str, list[Change]]] = {
    "run_open": [{"run_open": True}],
    "run_idle": [{"run_idle": True}],
    "line_legal": [{"line_legal": True}],
    "revision": [{"base_revision": 7, "revision": 7}],
    "cancel_generation": [{"base_cancel_generation": 2, "cancel_generation": 2}],
    "fence_moved": [
        {"base_revision": 7, "revision": 8, "base_cancel_generation": 2, "cancel_generation": 2},
        {"base_revision": 7, "revision": 7, "base_cancel_generation": 2, "cancel_generation": 3},
    ],
    "no_active_operation": [{"active_operation": None}],
    "active_operation": [{"operation": "op_1", "active_operation": "op_1"}],
    "caller_current": [{"my_epoch": 3, "my_epoch_current": 3}],
    "generation": [{"generation": 5, "my_generation": 5}],
    "owner": [{"owner": "a", "owner_epoch": 3, "my_node": "a", "my_epoch": 3}],
    "owner_or_gone": [
        {**MINE, **IN_TIME, "generation": 5, "my_generation": 5},
        # Anyone: its epoch is stale, though time is left.
        {**MINE, **IN_TIME, "my_node": "b", "owner_epoch_current": 4},
        # Anyone: its node lives, but its time is over; the deadline itself is over.
        {**MINE, "my_node": "b", "now_ms": 100, "deadline_ms": 100},
    ],
    "first_sending": [{"sent_again": False}],
    "sent_again": [{"sent_again": True}],
    "whole_answer": [{"whole_answer": True}],
    "definite": [{"definite": True}],
    "handle": [{"handle": "resp_9"}],
    "honours_key": [{"honours_key": True}],
    "before_deadline": [IN_TIME],
    "same_bytes": [{"request_digest": "d1", "my_request_digest": "d1"}],
    "proof": [{"proof": "the connection is closed"}],
    "attempts_left": [{"attempts_made": 2, "attempts_allowed": 3}],
    "names_run": [{"names_run": True}],
}
FAILS: Final[dict[str, list[Change]]] = {
    "run_open": [{"run_open": False}],
    "run_idle": [{"run_idle": False}],
    "line_legal": [{"line_legal": False}],
    "revision": [{"revision": 8}, {"revision": 6}],
    "cancel_generation": [{"cancel_generation": 3}, {"cancel_generation": 1}],
    "fence_moved": [
        {"base_revision": 7, "revision": 7, "base_cancel_generation": 2, "cancel_generation": 2}
    ],
    "no_active_operation": [
        {"active_operation": "op_2"},
        {"operation": "op_1", "active_operation": "op_1"},
    ],
    "active_operation": [{"active_operation": None}, {"active_operation": "op_2"}],
    "caller_current": [{"my_epoch": 2}, {"my_epoch": 4}, {"my_epoch": 0, "my_epoch_current": 0}],
    "generation": [
        {"my_generation": 4},
        {"my_generation": 6},
        {"my_generation": 0, "generation": 0},
    ],
    "owner": [{"my_node": "b"}, {"my_epoch": 2}, {"my_epoch": 4}, {"my_node": None, "owner": None}],
    "owner_or_gone": [
        {**MINE, **IN_TIME, "my_node": "b"},
        {**MINE, **IN_TIME, "my_epoch": 2, "generation": 5, "my_generation": 5},
        {**MINE, **IN_TIME, "generation": 5, "my_generation": 4},
        {
            **MINE,
            **IN_TIME,
            "my_node": None,
            "owner": None,
            "owner_epoch": 3,
            "owner_epoch_current": 3,
        },
    ],
    "first_sending": [{"sent_again": True}],
    "sent_again": [{"sent_again": False}],
    "whole_answer": [{"whole_answer": False}],
    "definite": [{"definite": False}],
    "handle": [{"handle": None}],
    "honours_key": [{"honours_key": False}],
    "before_deadline": [{"now_ms": 100, "deadline_ms": 100}, {"now_ms": 101, "deadline_ms": 100}],
    "same_bytes": [
        {"my_request_digest": "d2"},
        {"my_request_digest": None, "request_digest": None},
    ],
    "proof": [{"proof": None}],
    "attempts_left": [{"attempts_made": 3}, {"attempts_made": 4}],
    "names_run": [{"names_run": False}],
}

# The only ways back. Each continues the same generation, or begins the next attempt after the end of the last one.
BACKWARD: Final = {("UNKNOWN", "resume"), ("UNKNOWN", "replay"), ("FAILED", "retry")}
ORDER: Final = {
    "none": 0,
    "PREPARED": 1,
    "DISPATCHING": 2,
    "SENT": 3,
    "STREAMING": 4,
    "UNKNOWN": 5,
    "FAILED": 6,
    "COMMITTED": 7,
    "CANCELED": 7,
    "CLOSED": 7,
}


def written(state: State | None) -> str:
    return "none" if state is None else str(state)


def read(state: str) -> State | None:
    return None if state == "none" else State(state)


Cell = tuple[int, str, str, str, frozenset[str], frozenset[str]]


def cells_by_hand() -> set[Cell]:
    return {
        (n, source, event, target, frozenset(conditions.split()), frozenset(effects.split()))
        for n, sources, event, target, conditions, effects in CONTRACT
        for source in sources.split()
    }


def cells_of_the_table() -> list[Cell]:
    return [
        (
            row.number,
            written(source),
            str(row.event),
            str(row.target),
            frozenset(map(str, row.conditions)),
            frozenset(map(str, row.effects)),
        )
        for row in dispatch.TABLE
        for source in row.sources
    ]


# What each condition says, as one sentence of code; written apart from the predicates under test.
MEANING: Final[dict[str, Callable[[Facts], bool]]] = {
    "run_open": lambda f: f.run_open,
    "run_idle": lambda f: f.run_idle,
    "line_legal": lambda f: f.line_legal,
    "revision": lambda f: not (f.revision < f.base_revision or f.revision > f.base_revision),
    "cancel_generation": lambda f: f.cancel_generation - f.base_cancel_generation == 0,
    "fence_moved": lambda f: (
        (f.revision, f.cancel_generation) != (f.base_revision, f.base_cancel_generation)
    ),
    "no_active_operation": lambda f: not f.active_operation,
    "active_operation": lambda f: bool(f.active_operation) and f.active_operation == f.operation,
    "caller_current": lambda f: f.my_epoch >= 1 and f.my_epoch == f.my_epoch_current,
    "generation": lambda f: f.generation >= 1 and f.generation == f.my_generation,
    "owner": lambda f: bool(f.owner) and (f.owner, f.owner_epoch) == (f.my_node, f.my_epoch),
    "owner_or_gone": lambda f: any(
        (
            bool(f.owner)
            and (f.owner, f.owner_epoch, f.generation) == (f.my_node, f.my_epoch, f.my_generation),
            f.owner_epoch != f.owner_epoch_current,
            not f.now_ms < f.deadline_ms,
        )
    ),
    "first_sending": lambda f: f.sent_again is False,
    "sent_again": lambda f: f.sent_again is True,
    "whole_answer": lambda f: f.whole_answer,
    "definite": lambda f: f.definite,
    "handle": lambda f: bool(f.handle),
    "honours_key": lambda f: f.honours_key,
    "before_deadline": lambda f: f.deadline_ms - f.now_ms > 0,
    "same_bytes": lambda f: bool(f.request_digest) and f.request_digest == f.my_request_digest,
    "proof": lambda f: bool(f.proof),
    "attempts_left": lambda f: f.attempts_allowed - f.attempts_made > 0,
    "names_run": lambda f: f.names_run,
}
