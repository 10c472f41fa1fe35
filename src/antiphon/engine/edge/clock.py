"""The one clock that reads the machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Final

NS_IN_MS: Final = 1_000_000

# Of the clocks that are never set, the one that goes on while the machine sleeps.
_never_set: Final = partial(
    time.clock_gettime_ns, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
)

LEAN: Final = 16
"""Of so many milliseconds that pass, one is used to come nearer to the wall time."""


class SystemClock:
    """Wall time that never jumps; waiting follows the machine's monotonic clock.

    Deadlines are wall times, since another process may have to judge them. So that they stay the
    lengths that they were meant to be when somebody sets the machine's clock, ours goes on
    steadily from where it stood and leans towards the new time, a sixteenth faster or slower,
    until it agrees again. It never goes back. Where the machine has slept, that was time.
    """

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        steady_ns: Callable[[], int] = _never_set,
    ) -> None:
        self._wall_ns = wall_ns
        self._steady_ns = steady_ns
        self._at_ms = steady_ns() // NS_IN_MS
        self._now_ms = wall_ns() // NS_IN_MS

    def now_ms(self) -> int:
        """Return milliseconds since 1970."""
        passed_ms = self._steady_ns() // NS_IN_MS - self._at_ms
        off_ms = self._wall_ns() // NS_IN_MS - (self._now_ms + passed_ms)
        if abs(off_ms) > LEAN:  # less is how the two are read, one after the other
            most_ms = passed_ms // LEAN
            if most_ms == 0:
                return self._now_ms + passed_ms
            off_ms = max(-most_ms, min(most_ms, off_ms))
        else:
            off_ms = 0
        self._now_ms += passed_ms + off_ms
        self._at_ms += passed_ms
        return self._now_ms

    async def sleep(self, seconds: float) -> None:
        """Wait at least `seconds`, whatever happens to the wall time meanwhile."""
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` once after `seconds`; call what is returned to forget it."""
        return asyncio.get_running_loop().call_later(seconds, callback).cancel
