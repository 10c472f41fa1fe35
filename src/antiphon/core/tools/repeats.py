"""Calls that repeat an earlier one of their run: answered from the ledger, refused, or run.

Two calls are the same when tool and canonical arguments are. A model that asks the same thing
again gets the answer that it has had, marked with whose it is, and nothing runs a second time.
One that goes on asking is told so. Only calls that we execute come here: what an application
runs by itself, it may well mean to run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from antiphon.core.commands import NewCall
from antiphon.core.ids import Digest
from antiphon.core.records import OPEN_CALL, Call, CallState

REPEATED_CALL: Final = "repeated_call"
"""Code of a call that repeats itself beyond the limit."""


Asked: TypeAlias = Call | NewCall
"""A row of the ledger, or one that is about to be born."""

A = TypeVar("A", Call, NewCall)


@dataclass(frozen=True, slots=True)
class Fresh:
    """Run it."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """Do not run it: it has the result of `earlier`."""

    earlier: Asked


@dataclass(frozen=True, slots=True)
class AwaitTwin:
    """The same call is under way: look again once that has its result."""


@dataclass(frozen=True, slots=True)
class TooOften:
    """Do not run it: it has been asked `times` times before in this run."""

    times: int


Repetition: TypeAlias = Fresh | Reuse | AwaitTwin | TooOften


def repetition(call: Asked, earlier: Sequence[Asked], *, repeat_limit: int) -> Repetition:
    """Return what becomes of `call`, after all that its run has asked `earlier`, in order.

    A repeatable call is never a repetition. A read-only one runs again once a tool that may
    have written has run since, for what it reads may be another; those reads count anew.
    """
    if call.repeatable:
        return Fresh()
    since = _last_write(earlier) + 1 if call.read_only else 0
    same = [one for one in earlier[since:] if one.arguments_digest == call.arguments_digest]
    if len(same) >= repeat_limit:
        return TooOften(len(same))
    if any(one.state in OPEN_CALL for one in same):
        return AwaitTwin()
    had = next((one for one in reversed(same) if one.state is CallState.SUCCESS), None)
    return Fresh() if had is None else Reuse(had)


def may_begin(calls: Iterable[A]) -> Iterator[A]:
    """Yield the calls of a step that need not wait for the answer of a same one before them."""
    waited_for: set[Digest] = set()
    for call in calls:
        if call.repeatable or call.arguments_digest not in waited_for:
            yield call
        if call.state in OPEN_CALL:
            waited_for.add(call.arguments_digest)


def _last_write(calls: Sequence[Asked]) -> int:
    """Return the place of the newest call that may have changed something; -1 for none."""
    return max((n for n, one in enumerate(calls) if _may_have_written(one)), default=-1)


def _may_have_written(call: Asked) -> bool:
    """Say whether a call may have had an effect: it began, and is not known to only read."""
    if call.read_only or call.reused_from is not None:
        return False
    return call.state is not CallState.PENDING and call.code not in NEVER_BEGAN


NEVER_BEGAN: Final = frozenset(
    {
        "unknown_tool",
        "invalid_arguments",
        "tool_limit",
        REPEATED_CALL,
        "refused",
        "approval_expired",
        "not_run",
    }
)
"""Codes of calls that were closed without being run."""
