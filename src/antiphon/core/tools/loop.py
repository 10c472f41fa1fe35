"""The run loop as a pure decision: what a run does next, from what stands in the store.

The engine asks after every transition and after every restart; since the answer depends on
stored rows alone, a run goes on in another process as it would have gone on in the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from antiphon.core.records import (
    OPEN_CALL,
    TERMINAL_CALL,
    Approval,
    Call,
    CallState,
    Run,
    RunStatus,
)
from antiphon.core.tools.repeats import may_begin

TOOL_LIMIT: Final = "tool_limit"
"""Code of a call over the run's limit, and end code of a run that has reached it."""

JOINED: Final = "joined"
"""End code of a run whose message was taken up by another one, between two of its steps."""

APPROVAL_REQUIRED: Final = "approval_required"
"""End code of a run that waits for somebody to agree to a call."""


@dataclass(frozen=True, slots=True)
class CallModel:
    """Plan, render and dispatch. Without `tools` the model is asked for a last answer."""

    tools: bool = True


@dataclass(frozen=True, slots=True)
class RunTools:
    """Execute these calls, each durable as EXECUTING before it begins."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class PlaceToolResults:
    """Every call is closed: their results enter the tree."""


@dataclass(frozen=True, slots=True)
class AwaitOutputs:
    """Calls are open that only somebody else can close; the run gives the slot back."""

    end_code: str | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """There is nothing left to do."""

    end_code: str | None = None


NextStep: TypeAlias = CallModel | RunTools | PlaceToolResults | AwaitOutputs | Finish


def next_step(run: Run, calls: Sequence[Call], functions: frozenset[str]) -> NextStep:
    """Return what `run` does next.

    Args:
        run: An open run that has been placed and has no attempt in flight.
        calls: The ledger rows of its newest message; empty where that asks for nothing, or
            holds the results already.
        functions: Tools that this process can run.
    """
    if not calls:
        # At a limit no tools are offered; a model that has them must stop somewhere.
        last = run.committed + 1 >= run.options.max_model_calls
        return CallModel(tools=not last and run.end_code != TOOL_LIMIT)
    if all(call.state in TERMINAL_CALL for call in calls):
        return PlaceToolResults()
    ours = tuple(call for call in may_begin(calls) if call.runnable and call.name in functions)
    if ours:
        return RunTools(ours)
    if any(call.state is CallState.UNKNOWN for call in calls):
        return AwaitOutputs("tool_unknown")
    if any(call.approval is Approval.NEEDED for call in calls if call.state in OPEN_CALL):
        return AwaitOutputs(APPROVAL_REQUIRED)
    return AwaitOutputs()


def lasting(end_code: str | None) -> str | None:
    """Return what of an end code holds on when the run goes on: a limit stays reached."""
    return end_code if end_code == TOOL_LIMIT else None


def over_limit(run: Run) -> bool:
    """Return whether the run has used up its model calls."""
    return run.committed >= run.options.max_model_calls


def may_go_on(run: Run) -> bool:
    """Return whether the run has work that some process may take up now."""
    return run.status in (RunStatus.PENDING, RunStatus.UNKNOWN)
