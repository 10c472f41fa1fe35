"""The machine's clocks: one that is set by hours now and then, and one that never is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from antiphon.engine.edge.clock import NS_IN_MS, SystemClock
from tests.simulation.loop import VirtualLoop

START_MS: Final = 1_700_000_000_000


@dataclass(slots=True)
class Skew:
    """How far the machine's wall clock is off; it outlives the process."""

    ms: int = 0


def machine_clock(loop: VirtualLoop, skew: Skew) -> SystemClock:
    """Return the clock of one life: the real one, which reads simulated clocks."""

    def steady_ms() -> int:
        return int(loop.time() * 1000)

    return SystemClock(
        lambda: (START_MS + steady_ms() + skew.ms) * NS_IN_MS, lambda: steady_ms() * NS_IN_MS
    )
