"""A client of an ASGI application in the same process: no socket, no buffering, no pretending.

A stream is read frame by frame, as fast or as slowly as the test likes, and a client leaves
when the test says so.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message

WAIT_S = 20.0
"""Longest wait for anything that a test expects; never reached by one that passes."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Frame:
    """One server-sent event; a comment has no name and no data."""

    event: str | None
    number: int | None
    data: str

    @property
    def json(self) -> Any:
        return json.loads(self.data)


@dataclass(slots=True)
class Exchange:
    """One request under way."""

    task: asyncio.Task[None]
    sent: asyncio.Queue[Message]
    left: asyncio.Event
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    _buffer: bytes = b""
    _over: bool = False

    async def head(self) -> None:
        message = await self._message()
        assert message is not None, "the application sent nothing"
        assert message["type"] == "http.response.start"
        self.status = message["status"]
        self.headers = {k.decode().lower(): v.decode() for k, v in message["headers"]}

    async def chunk(self) -> bytes | None:
        """Return the next piece of the body, None after the last."""
        if self._over:
            return None
        message = await self._message()
        if message is None:
            self._over = True
            return None
        self._over = not message.get("more_body", False)
        body: bytes = message.get("body", b"")
        return body

    async def frame(self, *, comments: bool = False) -> Frame | None:
        """Return the next event of the stream, None at its end."""
        while True:
            while b"\n\n" not in self._buffer:
                piece = await self.chunk()
                if piece is None:
                    assert not self._buffer, f"half an event: {self._buffer!r}"
                    return None
                self._buffer += piece
            raw, self._buffer = self._buffer.split(b"\n\n", 1)
            told = _frame(raw.decode())
            if told.data or comments:
                return told

    async def frames(self) -> AsyncIterator[Frame]:
        while (told := await self.frame()) is not None:
            yield told

    async def until(self, event: str) -> list[Frame]:
        """Return the events up to the first one of this name."""
        told = []
        async for one in self.frames():
            told.append(one)
            if one.event == event:
                return told
        raise AssertionError(f"the stream ended without {event}: {[t.event for t in told]}")

    def leave(self) -> None:
        self.left.set()

    async def _message(self) -> Message | None:
        getting = asyncio.ensure_future(self.sent.get())
        try:
            async with asyncio.timeout(WAIT_S):
                await asyncio.wait({getting, self.task}, return_when=asyncio.FIRST_COMPLETED)
            if getting.done():
                return getting.result()
        finally:
            getting.cancel()
        if not self.sent.empty():
            return self.sent.get_nowait()
        self.task.result()
        return None


def _frame(raw: str) -> Frame:
    event, number, data = None, None, []
    for line in raw.split("\n"):
        name, _, value = line.partition(": ")
        match name:
            case "event":
                event = value
            case "id":
                number = int(value)
            case "data":
                data.append(value)
            case _:
                assert line.startswith(":"), f"no line of an event stream: {line!r}"
    return Frame(event, number, "\n".join(data))


class Client:
    """Asks an application. `headers` go with every request."""

    def __init__(self, app: ASGIApp, headers: Mapping[str, str] | None = None) -> None:
        self._app = app
        self.headers = {"host": "127.0.0.1", **(headers or {})}

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Ask and return the whole answer."""
        async with self.asked(method, path, body, raw=raw, headers=headers) as exchange:
            pieces = []
            while (piece := await exchange.chunk()) is not None:
                pieces.append(piece)
            return Answer(exchange.status, exchange.headers, b"".join(pieces))

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.ask("GET", path, headers=_named(headers))

    async def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return await self.ask("POST", path, body, headers=_named(headers))

    @asynccontextmanager
    async def asked(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        most_unread: int = 1,
    ) -> AsyncIterator[Exchange]:
        """Ask and give the exchange, its head read; at the end the client leaves.

        `most_unread` messages of the answer wait for the reader before the application does.
        """
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        given = dict(self.headers)
        if data:
            given |= {"content-type": "application/json", "content-length": str(len(data))}
        given |= headers or {}
        bare, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(bare),
            "raw_path": bare.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(k.lower().encode(), v.encode()) for k, v in given.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "state": {},
        }
        sent: asyncio.Queue[Message] = asyncio.Queue(most_unread)
        left = asyncio.Event()
        told = False

        async def receive() -> Message:
            nonlocal told
            if not told:
                told = True
                return {"type": "http.request", "body": data, "more_body": False}
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if not left.is_set():
                await sent.put(message)

        async def run() -> None:
            await self._app(scope, receive, send)

        exchange = Exchange(asyncio.create_task(run()), sent, left)
        try:
            await exchange.head()
            yield exchange
        finally:
            exchange.leave()
            while not sent.empty():  # so that nobody waits for a reader that has left
                sent.get_nowait()
            await asyncio.wait({exchange.task}, timeout=WAIT_S)
            assert exchange.task.done(), "the application did not notice that its client left"


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers given as Python names: `last_event_id` is `last-event-id`."""
    return {name.replace("_", "-"): value for name, value in headers.items()}
