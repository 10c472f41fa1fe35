"""A provider that works in the background and keeps what came of it, on loopback.

It implements the four calls that there are: create, stream again from an event on, retrieve,
cancel. It generates once for each create, whoever listens, and counts what it received. Which
API it speaks is a value.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self
from urllib.parse import parse_qs, urlsplit

from tests.support.interactions_stream import interaction
from tests.support.responses_stream import response

EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Api(Protocol):
    """Where an API's calls go, and how its events are named."""

    path: str
    handle: str
    behind: str
    """The option that names the event to go on behind."""

    def named(self, number: int, event: dict[str, Any]) -> bytes:
        """Return event `number` of an answer as it is sent."""

    def number(self, name: str) -> int:
        """Return which event `name` is."""

    def canceled(self) -> dict[str, Any]:
        """Return what a cancel is answered with."""


class Responses:
    """OpenAI: events have a number."""

    path = "/v1/responses"
    handle = "resp_1"
    behind = "starting_after"

    def named(self, number: int, event: dict[str, Any]) -> bytes:
        data = json.dumps({**event, "sequence_number": number})
        return f"event: {event['type']}\ndata: {data}\n\n".encode()

    def number(self, name: str) -> int:
        return int(name)

    def canceled(self) -> dict[str, Any]:
        return response("cancelled")


class Interactions:
    """Google: events have a name that only the provider can read."""

    path = "/v1beta/interactions"
    handle = "v1_1"
    behind = "last_event_id"

    def named(self, number: int, event: dict[str, Any]) -> bytes:
        data = json.dumps({**event, "event_id": f"ev/{number}=&"})
        return f"event: {event['event_type']}\ndata: {data}\n\n".encode()

    def number(self, name: str) -> int:
        return int(name.removeprefix("ev/").removesuffix("=&"))

    def canceled(self) -> dict[str, Any]:
        return interaction("cancelled")


@dataclass(slots=True)
class Serve:
    """How one connection is served.

    Attributes:
        events: How many are sent before the connection breaks; None for all of them.
        status: Answered instead, where it is not 200.
        hold: The connection stays open behind those events, until the client leaves or the
            test says `let_go`.
        anew: Whoever asks to go on gets all of the answer, from its beginning.
    """

    events: int | None = None
    status: int = 200
    hold: bool = False
    anew: bool = False


@dataclass(slots=True)
class Received:
    """What came, call by call."""

    created: list[dict[str, Any]] = field(default_factory=list)
    resumed: list[int | None] = field(default_factory=list)
    retrieved: int = 0
    canceled: int = 0


class KeepingProvider:
    """Serves connection after connection by its script, and all others in one way."""

    def __init__(
        self,
        api: Api,
        answers: Sequence[list[dict[str, Any]]],
        serves: Iterable[Serve] = (),
        then: Serve | None = None,
    ) -> None:
        self.received = Received()
        self.held = asyncio.Event()
        self.let_go = asyncio.Event()
        self.told_to_stop = asyncio.Event()
        self.states: list[dict[str, Any]] = []  # what a retrieval says, one after the other
        self._api = api
        self._answers = [[api.named(n, e) for n, e in enumerate(events)] for events in answers]
        self._serves = list(serves)
        self._then = then or Serve()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(_length(head))
                method, target = head.decode().split(" ", 2)[:2]
                await self._answer(method, target, body, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            with contextlib.suppress(ConnectionError):
                writer.close()

    async def _answer(
        self,
        method: str,
        target: str,
        body: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        parts = urlsplit(target)
        asked = parse_qs(parts.query)
        if (method, parts.path) == ("POST", self._api.path):
            self.received.created.append(json.loads(body))
            await self._stream(-1, reader, writer)
            return
        assert parts.path.startswith(f"{self._api.path}/{self._api.handle}"), target
        if method == "POST" and parts.path.endswith("/cancel"):
            self.received.canceled += 1
            self.told_to_stop.set()
            await _whole(writer, 200, self._api.canceled())
        elif asked.get("stream") == ["true"]:
            after = [self._api.number(name) for name in asked.get(self._api.behind, [])]
            self.received.resumed.append(after[0] if after else None)
            await self._stream(after[0] if after else -1, reader, writer)
        else:
            self.received.retrieved += 1
            assert method == "GET"
            await _whole(writer, 200, self.states.pop(0))

    async def _stream(
        self, after: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        serve = self._serves.pop(0) if self._serves else self._then
        if serve.status != 200:
            await _whole(writer, serve.status, {"error": {"message": "No.", "code": None}})
            return
        first = 0 if serve.anew else after + 1
        events = self._answers[len(self.received.created) - 1][first:]
        sent = events if serve.events is None else events[: serve.events]
        writer.write(EVENTS + b"".join(b"%x\r\n%b\r\n" % (len(e), e) for e in sent))
        if serve.events is None:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        if serve.hold:
            self.held.set()
            waiting = [asyncio.ensure_future(w) for w in (reader.read(), self.let_go.wait())]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            self.let_go.clear()
            writer.close()
        elif serve.events is not None:
            writer.close()


def _length(head: bytes) -> int:
    for line in head.decode("latin-1").lower().split("\r\n"):
        if line.startswith("content-length:"):
            return int(line.partition(":")[2])
    return 0


async def _whole(writer: asyncio.StreamWriter, status: int, value: dict[str, Any]) -> None:
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
