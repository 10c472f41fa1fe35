"""Erases what was kept of stateless requests once it is old, a little at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from antiphon.core.traffic.standing import KeptUnchanged
from antiphon.engine.keeping.erasure import DAY_MS, Erasure
from antiphon.engine.world import World
from antiphon.errors import AntiphonError

log = logging.getLogger("antiphon.erasure")

EVERY_S: Final = 600.0
"""Pause between two looks: what is to go is gone this much later at most."""

AT_ONCE: Final = 20
"""Conversations that one look erases before it lets others write; the next follows soon."""

SOON_S: Final = 1.0


class Sweep:
    """Looks for conversations that are older than the setting allows. Nodes may do so side by side."""

    def __init__(self, world: World, erasure: Erasure) -> None:
        self._world = world
        self._erasure = erasure
        self._keep_ms = round(world.settings.stateless_days * DAY_MS)
        self._forget: Callable[[], None] = lambda: None
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look soon, and from then on; never, where no age is set."""
        if self._keep_ms:
            self._look_in(SOON_S)

    async def close(self) -> None:
        """Look no longer; what is half done is done by the next start."""
        self._forget()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def idle(self) -> None:
        """Wait until nothing is being looked for."""
        if self._looking is not None:
            await self._looking

    def _look_in(self, seconds: float) -> None:
        self._forget = self._world.clock.call_later(seconds, self._begin)

    def _begin(self) -> None:
        self._looking = asyncio.ensure_future(self._look())

    async def _look(self) -> None:
        more = False
        try:
            more = await self.once()
        except AntiphonError as error:  # the store may be busy or away: the next look will find it
            log.warning("What is too old could not be erased: %s", error.code)
        self._look_in(SOON_S if more else EVERY_S)

    async def once(self) -> bool:
        """Erase the oldest that are too old, and return whether there may be more."""
        before_ms = self._world.clock.now_ms() - self._keep_ms
        found = await self._world.store.answer(KeptUnchanged(before_ms=before_ms, limit=AT_ONCE))
        for conversation in found:
            await self._erasure.drop(conversation)
        if found:
            log.info("erased %d conversations kept of stateless requests", len(found))
        return len(found) == AT_ONCE
