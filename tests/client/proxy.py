"""A proxy that stands between a client and its server, and does what networks do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass(slots=True)
class Proxy:
    """Passes bytes on, and cuts what it is told to.

    Attributes:
        url: Where it listens.
        target: The server behind it; may be changed while it runs.
        cuts: After how many bytes the next streams of events break, one after the other.
        sent: What clients sent, all of it.
        streams: How many streams of events were asked for.
        lose_next: The answer to the next request with this in its first line is lost.
        lost: How many answers were.
    """

    target: str
    url: str = ""
    cuts: list[int] = field(default_factory=list)
    sent: bytearray = field(default_factory=bytearray)
    streams: int = 0
    lose_next: bytes | None = None
    lost: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._passed_on(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # the connection is what is given up, and it says nothing
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _passed_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = urlsplit(self.target)
        there, back = await asyncio.open_connection(address.hostname, address.port)
        left: list[int] = []  # bytes that may still pass, once a cut is due

        async def out() -> None:
            while data := await reader.read(65536):
                self.sent += data
                if b"/events?" in data.split(b"\r\n", 1)[0]:
                    self.streams += 1
                    left[:] = [self.cuts.pop(0)] if self.cuts else []
                elif self.lose_next is not None and self.lose_next in data.split(b"\r\n", 1)[0]:
                    self.lose_next, self.lost, left[:] = None, self.lost + 1, [0]
                back.write(data)
                await back.drain()

        async def home() -> None:
            while data := await there.read(65536):
                if left:
                    data, left[0] = data[: left[0]], left[0] - len(data)
                writer.write(data)
                await writer.drain()
                if left and left[0] <= 0:
                    return

        ways = {asyncio.ensure_future(out()), asyncio.ensure_future(home())}
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            back.transport.abort()  # first of all: what is awaited here may be canceled too
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def proxied(target: str) -> AsyncIterator[Proxy]:
    """Give a proxy in front of `target`."""
    proxy = Proxy(target)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    proxy.url = f"http://{host}:{port}"
    try:
        yield proxy
    finally:
        server.close()
        for _ in range(3):  # who was just let in begins, so that it can be shown out
            await asyncio.sleep(0)
        await proxy.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(server.wait_closed(), 5)
