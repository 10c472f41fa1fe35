"""Streams of server-sent events: for readers that stall, that leave, and that stay too long.

A stream holds one frame. The next one is asked for when the last has been handed to the
socket, so a slow reader costs no memory; where it reads nothing for too long the connection is
cut. While there is nothing to tell, a comment says that the server lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from antiphon.core.telling.attach import Ending
from antiphon.engine.settings import Settings
from antiphon.server.http.faults import Broken

COMMENT: Final = b": \n\n"


def frame(data: bytes, *, event: str | None = None, number: int | None = None) -> bytes:
    r"""Return one event. `data` is one line, as JSON is.

    Example:
        >>> frame(b"{}", event="caught_up", number=3)
        b'id: 3\nevent: caught_up\ndata: {}\n\n'
    """
    head = b"" if number is None else b"id: %d\n" % number
    if event is not None:
        head += b"event: %s\n" % event.encode()
    return head + b"data: " + data + b"\n\n"


class Streams:
    """The open streams of a server, so that they can be closed in good order."""

    def __init__(self) -> None:
        self.open: set[EventStream] = set()
        self.closing = False

    def close(self) -> None:
        """Let every stream say farewell, and every later one at once."""
        self.closing = True
        for stream in list(self.open):
            stream.end(Ending.SHUTDOWN)


class EventStream(Response):
    """An answer that goes on while `frames` does.

    With a `farewell` the stream ends in good order after `stream_s`, or when the server stops:
    it is given the reason and returns the last frame. Without one it has its own end, and a
    server that stops before cuts it.
    """

    def __init__(
        self,
        frames: AsyncGenerator[bytes, None],
        streams: Streams,
        settings: Settings,
        *,
        farewell: Callable[[Ending], bytes] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no", **(headers or {})},
        )
        del self.headers["content-length"]
        self._frames = frames
        self._streams = streams
        self._settings = settings
        self._farewell = farewell
        self._reason = Ending.RECYCLED
        self._ending = False
        self._asking: asyncio.Task[None] | None = None  # the writer, while it waits for a frame
        self._beats = True
        self._writing: float | None = None  # since when one and the same piece is
        self._guarding: asyncio.TimerHandle | None = None

    def end(self, reason: Ending) -> None:
        """End after the frame that is under way."""
        self._reason = reason
        self._ending = True
        if self._asking is not None:
            self._asking.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the frames, until they end or the client leaves."""
        loop = asyncio.get_running_loop()
        if self._streams.closing:
            self.end(Ending.SHUTDOWN)
        self._streams.open.add(self)
        tasks: list[asyncio.Task[None]] = []
        recycling: asyncio.TimerHandle | None = None
        stalled: asyncio.Future[None] = loop.create_future()
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            work = (self._write(send), self._beat(send), left(receive))
            tasks.extend(asyncio.create_task(part) for part in work)
            self._guard(loop, stalled)
            if self._farewell is not None:
                recycling = loop.call_later(self._settings.stream_s, self.end, Ending.RECYCLED)
            ends = (*tasks, stalled)
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._streams.open.discard(self)
            self._asking = None  # what holds its own task waits for the collector
            for timer in (recycling, self._guarding):
                if timer is not None:
                    timer.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._frames.aclose()

    async def _write(self, send: Send) -> None:
        """Hand over one frame after the other, and the farewell where the stream is told to end."""
        writer = asyncio.current_task()
        assert writer is not None
        last = b""
        try:
            while not self._ending:
                self._asking = writer
                data = await anext(self._frames)
                self._asking = None
                await self._put(send, data)
            last = self._last_words()
        except StopAsyncIteration:
            pass
        except asyncio.CancelledError:
            if not self._ending or writer.uncancel():
                raise  # by the client that left, too
            last = self._last_words()
        self._asking = None
        if last:
            await self._put(send, last)
        await self._put(send, b"", more=False)

    def _last_words(self) -> bytes:
        if self._farewell is None:
            raise Broken
        return self._farewell(self._reason)

    async def _put(self, send: Send, data: bytes, *, more: bool = True) -> None:
        self._beats = False
        if self._writing is None:
            self._writing = asyncio.get_running_loop().time()
        await send({"type": "http.response.body", "body": data, "more_body": more})
        self._writing = None

    def _guard(self, loop: asyncio.AbstractEventLoop, stalled: asyncio.Future[None]) -> None:
        """Hang up on who takes nothing. One timer for the stream, and not one for each piece."""
        now, patience_s = loop.time(), self._settings.write_timeout_s
        due = patience_s + (now if self._writing is None else self._writing)
        if due <= now:
            stalled.set_exception(Broken())
        else:
            self._guarding = loop.call_at(due, self._guard, loop, stalled)

    async def _beat(self, send: Send) -> None:
        while True:
            self._beats = True
            await asyncio.sleep(self._settings.heartbeat_s)
            if self._beats:  # nothing was written since the last one
                await self._put(send, COMMENT)


async def left(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
