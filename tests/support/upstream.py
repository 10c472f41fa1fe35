"""An upstream that says exactly the bytes that a test gives it, heads and all.

    async with RawUpstream([READ, b"HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\nhi"]) as upstream:
        ... send to upstream.url ...
    assert upstream.requests[0].body == b"{}"

Each connection takes the next script. A script that nobody connected for is an error when the
upstream closes, and so is a connection that finds no script: what was sent twice, or never, is
the very thing that such tests are about.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from socket import SO_LINGER, SOL_SOCKET
from typing import Self, TypeAlias

WAIT_S = 20.0
"""Longest wait for anything that a test expects; never reached by one that passes."""


class Act(Enum):
    READ = auto()
    """Wait for one whole request and record it."""
    CLOSE = auto()
    """Close the connection in good order; what was written arrives."""
    RESET = auto()
    """Break the connection the hard way."""
    HANGUP = auto()
    """Wait until the client has closed the connection."""


READ, CLOSE, RESET, HANGUP = Act


@dataclass(frozen=True, slots=True)
class Endless:
    """Write this again and again until the client hangs up, or `most_bytes` are written."""

    data: bytes
    most_bytes: int = 256 * 1024 * 1024


Step: TypeAlias = bytes | asyncio.Event | Endless | Act


@dataclass(frozen=True, slots=True)
class RawRequest:
    """One request as it came."""

    head: bytes
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        return {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
            if name
        }


class RawUpstream:
    """Plays one script per connection, on loopback."""

    def __init__(self, *scripts: Sequence[Step], tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[RawRequest] = []
        self.connections = 0
        self.written_bytes = 0
        self.swallowed_bytes = 0
        self.surplus = 0
        self._scripts = list(scripts)
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self._left = asyncio.Event()
        self._happened = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}/v1/chat/completions"

    async def requested(self, count: int = 1) -> RawRequest:
        """Return request number `count` once it has come whole."""
        async with self._happened:
            await asyncio.wait_for(
                self._happened.wait_for(lambda: len(self.requests) >= count), WAIT_S
            )
        return self.requests[count - 1]

    async def client_left(self) -> None:
        """Return once a client has been seen to close its connection."""
        await asyncio.wait_for(self._left.wait(), WAIT_S)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        if kind is None:
            assert not self._scripts, f"{len(self._scripts)} scripts were left over"
            assert not self.surplus, f"{self.surplus} connections too many"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            if self._scripts:
                for step in self._scripts.pop(0):
                    await self._play(step, reader, writer)
            else:
                self.surplus += 1
        except (ConnectionError, asyncio.IncompleteReadError):
            self._left.set()
        except asyncio.CancelledError:
            pass
        finally:
            self._tasks.discard(task)
            with contextlib.suppress(ConnectionError):
                writer.close()
                await writer.wait_closed()

    async def _play(
        self, step: Step, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        match step:
            case bytes():
                writer.write(step)
                await writer.drain()
            case asyncio.Event():
                await asyncio.wait_for(step.wait(), WAIT_S)
            case Endless():
                while self.written_bytes < step.most_bytes:
                    writer.write(step.data)
                    await writer.drain()
                    self.written_bytes += len(step.data)
            case Act.READ:
                self.requests.append(await _read(reader))
                async with self._happened:
                    self._happened.notify_all()
            case Act.CLOSE:
                writer.close()
                await writer.wait_closed()
            case Act.RESET:
                connection = writer.get_extra_info("socket")
                connection.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            case Act.HANGUP:
                while data := await asyncio.wait_for(reader.read(65536), WAIT_S):
                    self.swallowed_bytes += len(data)
                self._left.set()


async def _read(reader: asyncio.StreamReader) -> RawRequest:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(RawRequest(head[:-4], b"").headers.get("content-length", "0"))
    return RawRequest(head[:-4], await reader.readexactly(length))


async def refused_port() -> int:
    """Return a port of loopback on which nothing listens."""
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port
