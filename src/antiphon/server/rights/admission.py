"""Who may begin what now: rates, requests at once and budgets of a key, before anything is read.

What a key may ask for is counted by each process; what it has used is read from the store, where
every answer is charged in the transaction that commits it. A request that was begun within its
budget is finished, so a budget may be passed by what is under way when it is used up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from antiphon.core.traffic.standing import SpendingSince, day_of
from antiphon.engine.world import World
from antiphon.errors import Conflict, Forbidden
from antiphon.server.rights.principals import Principal

MINUTE_MS: Final = 60_000


@dataclass(slots=True)
class _Counted:
    """What one key does at the moment."""

    under_way: int = 0
    left: float = 0.0  # of the requests that it may make in a minute
    seen_ms: int = 0


class Admission:
    """Lets in what a key's terms allow."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._counted: dict[str, _Counted] = {}

    @asynccontextmanager
    async def admitted(self, who: Principal) -> AsyncIterator[None]:
        """Be under way within, counted for the key of whoever asks.

        Raises:
            Conflict: `too_many_at_once`, `rate_limited` or `budget_exhausted`, and when it is
                worth trying again.
        """
        terms = who.terms
        counted = self._counted.setdefault(who.id, _Counted())
        if terms.concurrent is not None and counted.under_way >= terms.concurrent:
            raise _not_now("too_many_at_once", f"{terms.concurrent} requests are under way.", 1)
        await self._within_budget(who)
        if terms.requests_per_minute is not None:
            self._take(counted, terms.requests_per_minute)
        counted.under_way += 1
        try:
            yield
        finally:
            counted.under_way -= 1

    def _take(self, counted: _Counted, most: int) -> None:
        now_ms = self._world.clock.now_ms()
        grown = (now_ms - counted.seen_ms) * most / MINUTE_MS
        counted.left = min(float(most), counted.left + grown if counted.seen_ms else float(most))
        counted.seen_ms = now_ms
        if counted.left < 1:
            wait_s = (1 - counted.left) * MINUTE_MS / most / 1000
            raise _not_now("rate_limited", f"It makes {most} requests a minute.", wait_s)
        counted.left -= 1

    async def _within_budget(self, who: Principal) -> None:
        terms, now_ms = who.terms, self._world.clock.now_ms()
        if terms.tokens_per_day is not None:
            asked = SpendingSince(key=who.id, day=day_of(now_ms))
            if (await self._world.store.answer(asked)).tokens >= terms.tokens_per_day:
                raise _used_up(f"{terms.tokens_per_day} tokens a day", _tomorrow(now_ms), now_ms)
        if terms.micros_per_month is not None:
            asked = SpendingSince(key=who.id, day=day_of(month_began_ms(now_ms)))
            if (await self._world.store.answer(asked)).micros >= terms.micros_per_month:
                told = f"${terms.micros_per_month / 1_000_000:.2f} a month"
                raise _used_up(told, _next_month(now_ms), now_ms)


def may_ask(who: Principal, model: str) -> None:
    """Refuse a model that the key was not made for.

    Raises:
        Forbidden: `model_not_allowed`, with the names that are.
    """
    allowed = who.terms.models
    if allowed is not None and model not in allowed:
        raise Forbidden(
            f"This key may ask: {', '.join(sorted(allowed)) or 'no model'}.",
            code="model_not_allowed",
            at=model,
        )


def month_began_ms(now_ms: int) -> int:
    """Return when the month of a time began, in UTC.

    Example:
        >>> month_began_ms(40 * 86_400_000) == 31 * 86_400_000
        True
    """
    began = _utc(now_ms).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return int(began.timestamp() * 1000)


def _next_month(now_ms: int) -> int:
    within = _utc(month_began_ms(now_ms)) + timedelta(days=32)
    return month_began_ms(int(within.timestamp() * 1000))


def _tomorrow(now_ms: int) -> int:
    return (day_of(now_ms) + 1) * 24 * 60 * MINUTE_MS


def _utc(now_ms: int) -> datetime:
    return datetime.fromtimestamp(now_ms / 1000, UTC)


def _not_now(code: str, why: str, wait_s: float) -> Conflict:
    return Conflict(
        f"{why} That is all that this key may do now.",
        code=code,
        retryable=True,
        retry_after_s=max(1, -int(-wait_s // 1)),
    )


def _used_up(what: str, ends_ms: int, now_ms: int) -> Conflict:
    return Conflict(
        f"The budget of this key is used up: {what}.",
        code="budget_exhausted",
        retry_after_s=(ends_ms - now_ms) // 1000 + 1,
    )
