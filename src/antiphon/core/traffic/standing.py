"""What is kept for the whole server and for no conversation: what keys have used, rollouts.

Changes and questions are data, as commands are: a store carries out a change in one transaction
of its own, and answers a question from a snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec

from antiphon.core.answers.usage import Cost
from antiphon.core.ids import ConversationId, Digest, MessageId, TenantId
from antiphon.core.traffic.rollout import Difference, Rollout, Tally

R = TypeVar("R", covariant=True)

DAY_MS: Final = 24 * 60 * 60 * 1000


def day_of(now_ms: int) -> int:
    """Return the day of a time, in UTC, counted from 1970.

    Example:
        >>> day_of(86_400_000)
        1
    """
    return now_ms // DAY_MS


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What one answer cost, and whose key asked for it.

    Money is counted in millionths of a dollar: small sums add up without rounding.
    """

    key: str
    micros: int


def charged(key: str, cost: Cost | None) -> Spent | None:
    """Return what an answer costs the key that asked for it; None where no key did.

    What has no price costs nothing, and is counted all the same.
    """
    return Spent(key=key, micros=0 if cost is None else cost.micros) if key else None


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """What a key has used in a number of days."""

    answers: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    micros: int = 0

    @property
    def tokens(self) -> int:
        """Tokens of both directions."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Generic[R]):
    """Base of all changes; `R` is what the store answers with when it is durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Generic[R]):
    """Base of all questions; `R` is the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingSince(Question[Spending]):
    """What a key has used on `day` and after it."""

    key: str
    day: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefixes(Question[dict[Digest, tuple[ConversationId, MessageId]]]):
    """Where histories of these digests stand, those that are known."""

    tenant: TenantId
    digests: tuple[Digest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptUnchanged(Question[list[ConversationId]]):
    """Conversations kept of stateless requests that nothing has changed since, oldest first.

    Of any tenant, at most `limit`; one at work is none of them.
    """

    before_ms: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollouts(Question[list[Rollout]]):
    """Every rollout there is, by tenant and model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences(Question[list[Difference]]):
    """What was found to differ for a tenant and model, most frequent first."""

    tenant: TenantId
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tallies(Question[list[Tally]]):
    """How many requests of a tenant and model took which way, and came out how."""

    tenant: TenantId
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRollout(Change[Rollout]):
    """Put a rollout in the place of what was said for its tenant and model."""

    rollout: Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteShadow(Change[None]):
    """Count one request's way and outcome, and add what differed to what is known."""

    tenant: TenantId
    model: str
    outcome: str
    differences: tuple[Difference, ...]
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetShadow(Change[None]):
    """Drop what was counted and compared for a tenant and model."""

    tenant: TenantId
    model: str
