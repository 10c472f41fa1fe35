"""The one clock that reads the machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class SystemClock:
    """Wall time of this machine; waiting follows its monotonic clock."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970. May jump when the machine's clock is set."""
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """Wait at least `seconds`, whatever happens to the wall time meanwhile."""
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` once after `seconds`; call what is returned to forget it."""
        return asyncio.get_running_loop().call_later(seconds, callback).cancel
