"""Where a process kills itself: before and after each store command, and along each request.

Only the test program knows of this. The product's own parts stand behind the wrappers, unchanged.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from antiphon import library
from antiphon.core.commands import Command, FinishCall
from antiphon.core.manifest import WireRequest
from antiphon.engine.dispatch.lines import LineCache
from antiphon.engine.live import Broker
from antiphon.engine.ports import Reply, Transport
from antiphon.engine.world import World
from antiphon.stores.base import Store

MARKER = b"PARTIAL"
"""Stands in the first piece of every text that the upstream streams."""


class Killer:
    """Counts the points that are passed, writes them down, and ends the process at one of them."""

    def __init__(self, point: str | None, trace: Path) -> None:
        self._point = point
        self._trace = trace
        self._passed: Counter[str] = Counter()

    def at(self, name: str) -> None:
        """Pass a point."""
        self._passed[name] += 1
        point = f"{name} #{self._passed[name]}"
        with self._trace.open("a", encoding="utf-8") as file:
            file.write(point + "\n")
        if point == self._point:
            os.kill(os.getpid(), signal.SIGKILL)


class _Store:
    def __init__(self, store: Store, killer: Killer) -> None:
        self._store = store
        self._killer = killer

    async def do(self, command: Command[Any]) -> Any:
        return await self._around(_points([command]), self._store.do(command))

    async def do_all(self, *commands: Command[Any]) -> Any:
        return await self._around(_points(commands), self._store.do_all(*commands))

    def submit(self, command: Command[Any]) -> Awaitable[Any]:
        points = _points([command])
        self._before(points)
        return asyncio.ensure_future(self._after(points, self._store.submit(command)))

    async def _around(self, points: Sequence[str], work: Awaitable[Any]) -> Any:
        self._before(points)
        return await self._after(points, work)

    def _before(self, points: Sequence[str]) -> None:
        for name in points:
            self._killer.at(f"before {name}")

    async def _after(self, points: Sequence[str], work: Awaitable[Any]) -> Any:
        done = await work
        for name in points:
            self._killer.at(f"after {name}")
        return done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def _points(commands: Sequence[Command[Any]]) -> list[str]:
    """Return the names of a transaction's points: each result is one, and the rest is one.

    Which results come together is a matter of moments, and a story passes the same points always.
    """
    results = [type(command).__name__ for command in commands if isinstance(command, FinishCall)]
    rest = [type(command).__name__ for command in commands if not isinstance(command, FinishCall)]
    return [*results, "+".join(rest)] if rest else results


class _Transport:
    def __init__(self, transport: Transport, killer: Killer) -> None:
        self._transport = transport
        self._killer = killer

    async def send(
        self,
        request: WireRequest,
        *,
        api_key: str | None,
        connect_timeout_s: float,
        on_written: Callable[[], None],
    ) -> Reply:
        def leaving() -> None:
            self._killer.at("before first byte")
            on_written()
            self._killer.at("before first byte, recorded")

        self._killer.at("before send")
        reply = await self._transport.send(
            request, api_key=api_key, connect_timeout_s=connect_timeout_s, on_written=leaving
        )
        self._killer.at("head of answer")
        return _Reply(reply, self._killer)

    async def close(self) -> None:
        await self._transport.close()


class _Reply:
    def __init__(self, reply: Reply, killer: Killer) -> None:
        self._reply = reply
        self._killer = killer
        self.status = reply.status
        self.headers = reply.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        marks = {
            MARKER: "text shown",
            b'"arguments": "{': "inside arguments",
            b"[DONE]": "all read",
        }
        so_far = b""
        async for data in self._reply.chunks():
            yield data  # what follows happens when the engine asks for more: it has seen this
            so_far += data
            for mark in [mark for mark in marks if mark in so_far]:
                self._killer.at(marks.pop(mark))
        self._killer.at("end of answer")

    async def close(self) -> None:
        await self._reply.close()


def install(killer: Killer, home: Any = library) -> None:
    """Let every world that `home` opens, by its own name for it, pass the killer's points."""
    real = home.open_world

    @asynccontextmanager
    async def opened(*args: Any, **named: Any) -> AsyncIterator[World]:
        async with real(*args, **named) as world:
            store: Any = _Store(world.store, killer)
            yield replace(
                world,
                store=store,
                transport=_Transport(world.transport, killer),
                broker=Broker(store),
                lines=LineCache(store),
            )

    home.open_world = opened
