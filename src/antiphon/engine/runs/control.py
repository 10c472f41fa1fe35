"""How a cancel reaches what a run has under way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from antiphon.engine.dispatch.exchange import Exchange
from antiphon.engine.ports import Clock


class Control:
    """How the rest of the engine reaches a run under way."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wake = asyncio.Event()
        self._grace_s = 0.0
        self._exchange: Exchange | None = None
        self.canceled = False

    def cancel(self, grace_s: float) -> None:
        """The run was canceled in the store: read on for `grace_s`, then hang up."""
        self.canceled = True
        self._grace_s = grace_s
        self._wake.set()
        if self._exchange is not None:
            self._exchange.cancel(grace_s)

    @contextmanager
    def over(self, exchange: Exchange) -> Iterator[None]:
        """Let a cancel reach `exchange` while it is on the wire."""
        self._exchange = exchange
        if self.canceled:
            exchange.cancel(self._grace_s)
        try:
            yield
        finally:
            self._exchange = None

    async def pause(self, seconds: float) -> None:
        """Wait, but not longer than until the run is canceled."""
        if seconds <= 0:
            return
        done = asyncio.Event()
        forget = self._clock.call_later(seconds, done.set)
        waiting = asyncio.ensure_future(done.wait())
        try:
            await self.until(waiting)
        finally:
            waiting.cancel()
            forget()

    async def until(self, work: asyncio.Future[Any]) -> bool:
        """Wait until `work` is done or the run is canceled; return whether it is done.

        Work that is not done goes on; it is the caller's to keep or to cancel.
        """
        canceled = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait({work, canceled}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            canceled.cancel()
        return work.done()
