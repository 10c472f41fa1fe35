"""The rehearsal model's server: a scripted OpenAI-compatible upstream on a socket of its own.

Without a key Antiphon talks to this, over the same adapter, transport and wire as to any
provider: offline and online differ in nothing but the address. A test gives it a script and is
told what was asked of it; `python -m antiphon.engine.edge.rehearsal` runs it as a process of its own,
which outlives a client that is killed.

The HTTP here is the least that a client of our own and the official SDKs need, because what it
has to do well is to misbehave on demand, to the byte.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import secrets
import signal
import socket
import struct
import sys
import time
from argparse import ArgumentParser
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from threading import Thread
from types import TracebackType
from typing import Any, Final, Self, assert_never

from antiphon.engine.edge.rehearsal_model import (
    NAME,
    Answer,
    Break,
    Hold,
    Pause,
    Piece,
    Stall,
    answer,
    failure,
)

_RESET: Final = struct.pack("ii", 1, 0)  # linger for no time: the close becomes a reset

HEAD_BYTES: Final = 64 * 1024
BODY_BYTES: Final = 256 * 1024 * 1024
CONTROL: Final = "/rehearsal"
"""Below this path a test in another process reads and steers the server."""


@dataclass(slots=True)
class Received:
    """One request that came, as it came, and how its answer ended.

    `end` is None while it is being answered, then `whole`, `broken` (as scripted) or `left` (by
    the client).
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    end: str | None = None


class ScriptMismatch(AssertionError):
    """The script and what was asked do not fit: steps are left over, or one was missing."""


@dataclass(slots=True)
class _Gate:
    """A hold: whether somebody waits at it, and whether it has been opened."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)


class RehearsalServer:
    """Answers chat requests on loopback, from a script or as the rehearsal model.

    With a `script`, each request takes its next answer, whatever was asked, and `close` complains
    about answers that nobody took and requests that found none. `received` holds every request in
    order. Use it as a context manager, or let `address` start it when it is first needed.
    """

    def __init__(
        self,
        script: Iterable[Answer] | None = None,
        *,
        delay_s: float = 0.0,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.received: list[Received] = []
        self._script = None if script is None else deque(script)
        self._missing = 0
        self._delay_s = delay_s
        self._wanted = (host, port)
        self._bound: tuple[str, int] | None = None
        self._starting = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._gates: dict[str, _Gate] = {}
        self._seen: Counter[bytes] = Counter()
        self._instance = secrets.token_hex(4)
        self._changed = asyncio.Event()

    async def address(self) -> tuple[str, int]:
        """Return where the server listens, and see that it does."""
        async with self._starting:
            if self._bound is None:
                self._server = await asyncio.start_server(
                    self._connected, *self._wanted, limit=HEAD_BYTES
                )
                host, port, *_ = self._server.sockets[0].getsockname()
                self._bound = (host, port)
            return self._bound

    @property
    def url(self) -> str:
        """The base address for a client; the server has been started."""
        assert self._bound is not None, "not started"
        return f"http://{self._bound[0]}:{self._bound[1]}/v1"

    async def wait_received(self, count: int) -> Received:
        """Return request number `count`, counted from 1, once it has come whole."""
        while len(self.received) < count:
            self._changed.clear()
            await self._changed.wait()
        return self.received[count - 1]

    async def wait_end(self, received: Received) -> str:
        """Return how the answer to `received` ended, once it has."""
        while received.end is None:
            self._changed.clear()
            await self._changed.wait()
        return received.end

    async def wait_held(self, name: str = "hold") -> None:
        """Return once an answer stands at the hold `name`."""
        await self._gate(name).reached.wait()

    def release(self, name: str = "hold") -> None:
        """Let every answer that stands or will stand at the hold `name` go on."""
        self._gate(name).opened.set()

    async def close(self) -> None:
        """Break every connection and stop.

        Raises:
            ScriptMismatch: The script was not used up, or was too short.
        """
        if self._server is not None:
            self._server.close()
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            await self._server.wait_closed()
            self._server = self._bound = None
        if self._script:
            raise ScriptMismatch(f"{len(self._script)} scripted answers were never asked for")
        if self._missing:
            raise ScriptMismatch(f"{self._missing} requests came after the script's end")

    async def __aenter__(self) -> Self:
        await self.address()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        except ScriptMismatch:
            if error is None:  # otherwise that error is the reason
                raise

    # ------------------------------------------------------------------------------ connections

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client left, or does not speak HTTP
        except asyncio.CancelledError:
            pass  # the server closes; nobody waits for this task but `close`
        finally:
            self._connections.discard(task)
            writer.transport.abort()  # what was drained has left; the rest never shall

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether the connection may carry another."""
        request = await _read(reader)
        if request.path.startswith(f"{CONTROL}/"):
            script = await self._steer(request)
        else:
            self.received.append(request)
            self._changed.set()
            script = self._answer(request)
        try:
            whole = await self._perform(script, reader, writer)
            request.end = "whole" if whole else "broken"
            return whole
        except ConnectionError:
            request.end = "left"
            raise
        finally:
            self._changed.set()

    def _answer(self, request: Received) -> Answer:
        if self._script is not None:
            if not self._script:
                self._missing += 1
                return failure(500, "The script has no answer left.")
            return self._script.popleft()
        match request.method, request.path.partition("?")[0]:
            case "POST", "/v1/chat/completions":
                seen = self._seen[request.body]
                self._seen[request.body] += 1
                return answer(
                    request.body,
                    response_id=f"chatcmpl-{self._instance}{len(self.received):06d}",
                    created=int(time.time()),
                    delay_s=self._delay_s,
                    seen=seen,
                )
            case "GET", "/v1/models":
                model = {"id": NAME, "object": "model", "created": 0, "owned_by": "antiphon"}
                return _document({"object": "list", "data": [model]})
            case method, path:
                return failure(404, f"The rehearsal model has no {method} {path}.")

    async def _perform(
        self, script: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Do what the script says; return whether the answer came to its end."""
        # A client sends nothing while it waits for its answer, so whatever can be read is its end.
        gone = asyncio.create_task(reader.read(1))
        try:
            for piece in script.before:
                if not await self._act(piece, writer, gone, chunked=False):
                    return False
            match script.body:
                case (bytes() as only,):
                    length: int | None = len(only)
                case _:
                    length = None
            chunked = length is None
            writer.write(_head(script, length))
            for piece in script.body:
                if not await self._act(piece, writer, gone, chunked=chunked):
                    return False
            if chunked:
                writer.write(b"0\r\n\r\n")
            await writer.drain()
            return True
        finally:
            gone.cancel()
            await asyncio.wait([gone])

    async def _act(
        self,
        piece: Piece,
        writer: asyncio.StreamWriter,
        gone: asyncio.Task[bytes],
        *,
        chunked: bool,
    ) -> bool:
        """Do one step of a script; return whether the next one follows."""
        match piece:
            case bytes():
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                await writer.drain()
            case Pause():
                await asyncio.wait([gone], timeout=piece.seconds)
            case Stall():
                await asyncio.wait([gone])
            case Hold():
                gate = self._gate(piece.name)
                gate.reached.set()
                opened = asyncio.create_task(gate.opened.wait())
                await asyncio.wait([gone, opened], return_when=asyncio.FIRST_COMPLETED)
                opened.cancel()
            case Break():
                await writer.drain()
                if piece.reset:
                    connection = writer.get_extra_info("socket")
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                else:
                    writer.close()
                    await writer.wait_closed()
                return False
            case _:
                assert_never(piece)
        if gone.done():
            raise ConnectionResetError("the client left")
        return True

    def _gate(self, name: str) -> _Gate:
        return self._gates.setdefault(name, _Gate())

    # ------------------------------------------------------------------- from another process

    async def _steer(self, request: Received) -> Answer:
        """Answer a test that runs in another process than this server."""
        action, _, argument = request.path.removeprefix(f"{CONTROL}/").partition("/")
        match request.method, action:
            case "GET", "received":
                return _document([_shown(received) for received in self.received])
            case "GET", "held":
                await self.wait_held(argument or "hold")
                return _document({})
            case "POST", "release":
                self.release(argument or "hold")
                return _document({})
            case "POST", "script":
                self._script = deque(_scripted(item) for item in json.loads(request.body))
                return _document({})
            case method, path:
                return failure(404, f"There is no {method} {path} here.")


def _shown(received: Received) -> dict[str, object]:
    return {
        "method": received.method,
        "path": received.path,
        "headers": received.headers,
        "body": base64.b64encode(received.body).decode(),
        "end": received.end,
    }


def _scripted(item: Mapping[str, Any]) -> Answer:
    """Read an answer from JSON: its fields, and pieces as text or as one step by name."""
    before, body = (tuple(map(_piece, item.get(part, ()))) for part in ("before", "body"))
    return Answer(**{**item, "before": before, "body": body})


def _piece(item: str | Mapping[str, Any]) -> Piece:
    match item:
        case str():
            return item.encode()
        case {"pause": seconds}:
            return Pause(seconds)
        case {"hold": name}:
            return Hold(name)
        case {"break": how}:
            return Break(reset=how == "reset")
        case {"stall": True}:
            return Stall()
        case _:
            raise ValueError(f"no piece of a script: {item}")


# ------------------------------------------------------------------------------------- HTTP


async def _read(reader: asyncio.StreamReader) -> Received:
    """Read one request.

    Raises:
        IncompleteReadError: The client closed the connection.
        LimitOverrunError: Its head is too long, or it is not HTTP with a content length.
    """
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head[:-4].split("\r\n")
    method, _, rest = first.partition(" ")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length) > BODY_BYTES or "transfer-encoding" in headers:
        raise asyncio.LimitOverrunError("a content length is needed", 0)
    body = await reader.readexactly(int(length))
    return Received(method=method, path=rest.partition(" ")[0], headers=headers, body=body)


def _head(script: Answer, length: int | None) -> bytes:
    framing = (
        {"transfer-encoding": "chunked"} if length is None else {"content-length": str(length)}
    )
    headers = {"content-type": script.content_type, **framing, **script.headers}
    lines = [f"HTTP/1.1 {script.status} {_reason(script.status)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def _document(value: object) -> Answer:
    return Answer(content_type="application/json", body=(json.dumps(value).encode(),))


# ---------------------------------------------------------------------------- its own process


def main(arguments: list[str] | None = None) -> None:
    """Serve until a signal comes, or until standard input ends where `--stdin` is given.

    The first line on standard output is the base address for a client.
    """
    parser = ArgumentParser(prog="python -m antiphon.engine.edge.rehearsal", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 for any free one")
    parser.add_argument("--delay", type=float, default=0.03, help="seconds between two words")
    parser.add_argument("--stdin", action="store_true", help="end when standard input ends")
    options = parser.parse_args(arguments)
    server = RehearsalServer(delay_s=options.delay, host=options.host, port=options.port)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(server, stdin=options.stdin))


async def _serve(server: RehearsalServer, *, stdin: bool) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    if stdin:
        Thread(target=_at_end_of_input, args=(loop, ended), daemon=True).start()
    await server.address()
    sys.stdout.write(f"{server.url}\n")
    sys.stdout.flush()
    await ended.wait()
    with contextlib.suppress(ScriptMismatch):  # whoever wrote the script reads `received`
        await server.close()


def _at_end_of_input(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    while sys.stdin.buffer.read(4096):
        pass
    with contextlib.suppress(RuntimeError):  # the loop has ended before
        loop.call_soon_threadsafe(ended.set)


if __name__ == "__main__":
    main()
