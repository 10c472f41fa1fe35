"""How a cancel reaches what a run has under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from antiphon.engine.dispatch.exchange import Exchange
from antiphon.engine.ports import Clock


class Control:
    """How the rest of the engine reaches a run under way."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reached: set[Callable[[], object]] = set()
        self._grace_s = 0.0
        self._exchange: Exchange | None = None
        self.canceled = False

    def cancel(self, grace_s: float) -> None:
        """The run was canceled in the store: read on for `grace_s`, then hang up."""
        self.canceled = True
        self._grace_s = grace_s
        for stop in self._reached:
            stop()
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
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        forget = self._clock.call_later(seconds, partial(done.set_result, None))
        try:
            await self.until(done)
        finally:
            forget()

    @contextmanager
    def reaching(self, stop: Callable[[], object]) -> Iterator[None]:
        """Let a cancel call `stop` while what it stops is under way."""
        self._reached.add(stop)
        if self.canceled:
            # What was begun just now has begun before it is let go of.
            asyncio.get_running_loop().call_soon(stop)
        try:
            yield
        finally:
            self._reached.discard(stop)

    async def until(self, work: asyncio.Future[Any]) -> bool:
        """Wait until `work` is done or the run is canceled; return whether it is done.

        Work that is not done goes on; it is the caller's to keep or to cancel.
        """
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        wake = partial(_wake, woken)
        work.add_done_callback(wake)
        try:
            with self.reaching(wake):
                await woken
        finally:
            work.remove_done_callback(wake)
        return work.done()


def _wake(woken: asyncio.Future[None], _: object = None) -> None:
    if not woken.done():
        woken.set_result(None)
