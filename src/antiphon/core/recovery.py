"""What to do with an attempt of unknown outcome: a pure decision.

A profile's recovery policy is a ladder; each rung falls to the next. *Ended* means that
nothing of the old attempt can reach us any more. It does not mean that the provider did no
work, and it never means that a lease has run out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from antiphon.core.dispatch import State
from antiphon.core.records import Attempt


class Rung(StrEnum):
    """One way out of UNKNOWN."""

    HANDLE = "handle"
    IDEMPOTENT = "idempotent"
    CONNECTION = "connection"
    DEADLINE = "deadline"
    OPERATOR = "operator"


class Resend(StrEnum):
    """Whether a call that was confirmed ended after an UNKNOWN may be made again."""

    NEVER = "never"
    SAME_PROCESS = "same_process"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """What this process knows of the connection that carried the attempt.

    `closed` is true for the process that held the socket and has closed it, and for its
    successor on the same machine under the same lock: a dead process holds no socket. For
    anybody else the connection proves nothing. `saw_cut` is true only for the former.
    `unanswered` says that the provider was asked by the handle, and said nothing of use.
    """

    closed: bool = False
    saw_cut: bool = False
    queried_ended: bool = False
    unanswered: bool = False


@dataclass(frozen=True, slots=True)
class QueryHandle:
    """Ask the provider by its handle."""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Send the same bytes under the same key again, in the same generation."""


@dataclass(frozen=True, slots=True)
class ConfirmEnded:
    """It is proven that nothing can reach us any more; `proof` says why."""

    proof: str


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing can be proven before this time."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class AskOperator:
    """Only a person can say."""


NextAction: TypeAlias = QueryHandle | ReplayRequest | ConfirmEnded | WaitUntil | AskOperator


def next_action(
    attempt: Attempt,
    ladder: tuple[Rung, ...],
    witness: Witness,
    *,
    now_ms: int,
    closing_ends: bool,
) -> NextAction:
    """Return the next safe thing to do with an UNKNOWN attempt.

    Args:
        attempt: It stands in UNKNOWN.
        ladder: The profile's rungs, best first.
        witness: What this process knows.
        now_ms: The wall time.
        closing_ends: Whether the profile says that a closed connection ends the call.
    """
    if attempt.state is not State.UNKNOWN:
        raise ValueError(f"{attempt.operation} stands in {attempt.state}, not in UNKNOWN")
    if witness.queried_ended:
        return ConfirmEnded("the provider says that it has ended")
    for rung in ladder:
        match rung:
            case Rung.HANDLE:
                if attempt.handle is not None and not witness.unanswered:
                    return QueryHandle()
            case Rung.IDEMPOTENT:
                if now_ms < attempt.deadline_ms:
                    return ReplayRequest()
            case Rung.CONNECTION:
                if witness.closed and closing_ends:
                    return ConfirmEnded(
                        "the connection that carried it is closed, and closing ends the call"
                    )
            case Rung.DEADLINE:
                if now_ms >= attempt.deadline_ms:
                    return ConfirmEnded("its deadline has passed; its sender sends nothing more")
                return WaitUntil(attempt.deadline_ms)
            case Rung.OPERATOR:
                return AskOperator()
    return AskOperator()


def may_resend(policy: Resend, witness: Witness, *, resent: int) -> bool:
    """Return whether a call confirmed ended after an UNKNOWN may be made once more.

    A crash re-sends nothing that may have been sent: the process that comes back did not see
    the cut, so only `always` lets it.
    """
    match policy:
        case Resend.NEVER:
            return False
        case Resend.SAME_PROCESS:
            return witness.saw_cut and resent == 0
        case Resend.ALWAYS:
            return resent == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Automatic retry after *not sent* and retryable *refused*: how often and how soon."""

    retries: int = 2
    base_ms: int = 500
    cap_ms: int = 8_000
    retry_after_cap_ms: int = 60_000


def backoff_ms(
    policy: RetryPolicy, *, made: int, fraction: float, retry_after_ms: int | None
) -> int | None:
    """Return how long to wait before the next attempt, or None if there is none.

    Full jitter under a doubling cap. What the provider asks for is obeyed up to its cap; a
    longer wait is not ours to sit out, so there is no retry.

    Args:
        policy: The limits.
        made: Attempts made so far, at least 1.
        fraction: A random number from 0 to 1.
        retry_after_ms: What the provider asked for.

    Example:
        >>> backoff_ms(RetryPolicy(), made=1, fraction=0.5, retry_after_ms=None)
        250
    """
    if made > policy.retries:
        return None
    if retry_after_ms is not None:
        return retry_after_ms if retry_after_ms <= policy.retry_after_cap_ms else None
    return int(min(policy.cap_ms, policy.base_ms * 2 ** (made - 1)) * fraction)
