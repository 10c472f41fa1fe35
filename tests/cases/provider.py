"""The only scripted part: a provider that speaks OpenAI Chat over loopback and holds its answers.

Each request is recorded as it came and waits until the case says what becomes of it. What the
case sends after the engine has hung up meets a closed connection, as it would in the world.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from socket import SO_LINGER, SOL_SOCKET
from typing import Any, Self

ANSWER_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


@dataclass(slots=True, eq=False)
class Exchange:
    """One request and the answer to it, given piece by piece."""

    number: int
    path: str
    body: bytes
    writer: asyncio.StreamWriter
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    begun: bool = False
    over: bool = False
    text: str = ""
    pieces: list[str] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages that were sent."""
        found: list[dict[str, Any]] = json.loads(self.body)["messages"]
        return found

    @property
    def reachable(self) -> bool:
        """Whether something sent now can still reach the engine."""
        return not self.over and not self.gone.is_set()

    async def begin(self) -> bool:
        """Send the head of the answer and its first, empty chunk."""
        if self.begun:
            return self.reachable
        self.begun = True
        return await self._send(ANSWER_HEAD + _chunked(self._event({"role": "assistant"})))

    async def say(self, text: str) -> bool:
        """Send a piece of text; return whether the engine could still be reached."""
        await self.begin()
        self.text += text
        self.pieces.append(text)
        return await self._send(_chunked(self._event({"content": text})))

    async def call(self, call_id: str, name: str, arguments: str) -> bool:
        """Open a tool call, or go on with it: `arguments` is all of it so far."""
        await self.begin()
        sent = self.arguments.get(call_id, "")
        if not arguments.startswith(sent):
            raise ValueError(f"the arguments of {call_id} do not go on from what was sent: {sent}")
        delivered = self.reachable
        if call_id not in self.calls:
            index = self.calls[call_id] = len(self.calls)
            function = {"name": name, "arguments": ""}
            opening = {"index": index, "id": call_id, "type": "function", "function": function}
            delivered = await self._send(_chunked(self._event({"tool_calls": [opening]})))
        rest = arguments[len(sent) :]
        middle = len(rest) // 2
        for piece in filter(None, (rest[:middle], rest[middle:])):
            part = {"index": self.calls[call_id], "function": {"arguments": piece}}
            delivered = await self._send(_chunked(self._event({"tool_calls": [part]})))
        self.arguments[call_id] = arguments
        return delivered

    async def finish(self, word: str | None, usage: dict[str, int] | None = None) -> bool:
        """Send the finish word, usage and end marker, and end the body."""
        await self.begin()
        closing = b""
        if word is not None:
            closing += _chunked(self._event({}, word))
        tokens = usage or {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        closing += _chunked(_data({"id": self.handle, "choices": [], "usage": tokens}))
        closing += _chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n"
        delivered = await self._send(closing)
        self.over = True
        return delivered

    async def refuse(self, code: str, *, status: int) -> bool:
        """Say a definite no: with `status`, or as an error event where the answer has begun."""
        error = {"message": f"The provider says {code}.", "type": code, "code": code, "param": None}
        body = json.dumps({"error": error}).encode()
        if self.begun:
            delivered = await self._send(_chunked(b"data: " + body + b"\n\n") + b"0\r\n\r\n")
        else:
            head = f"HTTP/1.1 {status} No\r\ncontent-type: application/json\r\n".encode()
            length = f"content-length: {len(body)}\r\n\r\n".encode()
            delivered = await self._send(head + length + body)
        self.over = True
        return delivered

    async def cut(self) -> None:
        """Break the connection: what the provider did stays unknown."""
        self.over = True
        connection = self.writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            connection.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    @property
    def handle(self) -> str:
        """The provider's own name for this answer."""
        return f"chatcmpl-{self.number}"

    def _event(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _data(
            {
                "id": self.handle,
                "object": "chat.completion.chunk",
                "created": 1,
                "choices": [choice],
            }
        )

    async def _send(self, data: bytes) -> bool:
        if not self.reachable:
            return False
        try:
            self.writer.write(data)
            await self.writer.drain()
        except ConnectionError:
            self.gone.set()
            return False
        return True


def _data(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def _chunked(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


class HeldProvider:
    """Listens on loopback. `answering`, where given, answers each request at once."""

    def __init__(self, answering: Callable[[Exchange], Awaitable[None]] | None = None) -> None:
        self.exchanges: list[Exchange] = []
        self._answering = answering
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self.port = 0

    def base_url(self, name: str) -> str:
        """Return an address of its own for everything that is asked under `name`."""
        return f"http://127.0.0.1:{self.port}/{name}"

    def of(self, name: str) -> list[Exchange]:
        """Return what was asked under `name`, in the order in which it came."""
        return [e for e in self.exchanges if e.path.startswith(f"/{name}/")]

    async def changed(self, timeout_s: float) -> bool:
        """Wait for the next request; return whether one came."""
        self._changed.clear()
        try:
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

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
        exchange: Exchange | None = None
        try:
            while True:
                # The next head is awaited while the answer is held: its absence is how one sees
                # that the engine has hung up.
                head = await reader.readuntil(b"\r\n\r\n")
                exchange = await self._taken(head, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            if exchange is not None:
                exchange.gone.set()
            self._tasks.discard(task)
            writer.transport.abort()

    async def _taken(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Exchange:
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        exchange = Exchange(len(self.exchanges) + 1, first.split(" ")[1], body, writer)
        self.exchanges.append(exchange)
        self._changed.set()
        if self._answering is not None:
            await self._answering(exchange)
        return exchange
