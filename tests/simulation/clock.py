"""The process's clock: waiting follows virtual time, and the wall time may be set by hours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.simulation.loop import VirtualLoop

START_MS: Final = 1_700_000_000_000


@dataclass(slots=True)
class Skew:
    """How far the machine's wall clock is off; it outlives the process."""

    ms: int = 0


@dataclass(frozen=True, slots=True)
class MachineClock:
    """The `Clock` of one life."""

    loop: VirtualLoop
    skew: Skew

    def now_ms(self) -> int:
        return START_MS + int(self.loop.time() * 1000) + self.skew.ms

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        return self.loop.call_later(seconds, callback).cancel
