"""A clock that a test moves, and randomness that a seed repeats."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable

START_MS = 1_700_000_000_000


class SimulatedClock:
    """Time stands still until the test says so; sleepers wake in order of their time.

    A test of twelve hours takes as long as its events: `advance` moves to each sleeper's moment
    in turn and lets what it wakes run before the next, so two timers never fire as one.
    """

    def __init__(self, now_ms: int = START_MS) -> None:
        self._now_ms: float = now_ms
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now_ms(self) -> int:
        return int(self._now_ms)

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now_ms + seconds * 1000, next(self._order), woken))
        await woken

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        due: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        due.add_done_callback(lambda woken: None if woken.cancelled() else callback())
        heapq.heappush(
            self._sleepers, (self._now_ms + max(seconds, 0) * 1000, next(self._order), due)
        )

        def forget() -> None:
            due.cancel()

        return forget

    @property
    def sleeping(self) -> int:
        """How many tasks and timers wait for this clock."""
        return sum(not woken.done() for _, _, woken in self._sleepers)

    async def advance(self, seconds: float) -> None:
        """Move time forward, waking every sleeper whose moment comes, one moment after another."""
        await settle()
        until = self._now_ms + seconds * 1000
        while self._sleepers and self._sleepers[0][0] <= until:
            moment, _, woken = heapq.heappop(self._sleepers)
            if woken.done():  # canceled
                continue
            self._now_ms = moment
            woken.set_result(None)
            await settle()
        self._now_ms = until

    def set_back(self, seconds: float) -> None:
        """Move the wall time without waking anyone, as when a machine's clock is corrected."""
        self._now_ms -= seconds * 1000


async def settle(turns: int = 50) -> None:
    """Let every task that can run without the outside world run until it waits."""
    for _ in range(turns):
        await asyncio.sleep(0)


class Seeded:
    """Entropy that the same seed repeats."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def bits(self, count: int) -> int:
        return self._random.getrandbits(count)

    def fraction(self) -> float:
        return self._random.random()
