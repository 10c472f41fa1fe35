"""A provider in a process of its own: it survives whoever asked, and what it received is on disk.

    python -m tests.support.upstream_process FOLDER

prints its port, and answers `GET /` once nobody else is connected: then whatever a dead process
had sent has been recorded. What is asked under `/NAME/v1/chat/completions` is appended to
`FOLDER/NAME/received.jsonl`, raw, before a byte is answered; the answer is what
`FOLDER/NAME/script.json` says at that moment:

    [{"last": "the text of the last message", "answers": [[piece, ...], ...]}, ...]

The n-th request that a rule fits takes its n-th answer, then the last one again. Pieces are
`{"text"}`, `{"call": {"id", "name", "arguments"}}` (its arguments in two parts), `{"finish"}`,
`{"hold": true}` (say nothing more until the client is gone), `{"until": FILE}` (until there is
`FOLDER/NAME/FILE`), `{"pause": SECONDS}`, `{"echo": true}` (what was asked, as text), `{"cut":
true}`, and `{"status", "code"}` in place of an answer. `"last": "*"` fits everything. It ends when its
standard input does.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET
from typing import IO, Any, Self

ROOT = Path(__file__).parents[2]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Upstream:
    """Answers by script."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._asked: Counter[tuple[str, str]] = Counter()
        self._open: set[asyncio.StreamWriter] = set()
        self._left = asyncio.Condition()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""
        self._open.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET / "):
                    self._open.discard(writer)
                    async with self._left:
                        await self._left.wait_for(lambda: not self._open)
                    writer.write(b"HTTP/1.1 204 Quiet\r\nconnection: close\r\n\r\n")
                    await writer.drain()
                    return
                lines = head.decode("latin-1").split("\r\n")
                fields = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
                body = await reader.readexactly(int(fields.get("content-length", "0")))
                name = lines[0].split(" ")[1].split("/")[1]
                self._record(name, body)
                await self._answer(self._pieces(name, body), name, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self._open.discard(writer)
            async with self._left:
                self._left.notify_all()

    def _record(self, name: str, body: bytes) -> None:
        line = json.dumps({"body": base64.b64encode(body).decode()})
        with (self._folder / name / "received.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def _pieces(self, name: str, body: bytes) -> list[dict[str, Any]]:
        last = json.loads(body)["messages"][-1]["content"]
        script = json.loads((self._folder / name / "script.json").read_text(encoding="utf-8"))
        for rule in script:
            if rule["last"] in (last, "*"):
                number = self._asked[name, last]
                self._asked[name, last] += 1
                found: list[dict[str, Any]] = rule["answers"][min(number, len(rule["answers"]) - 1)]
                return [{"text": last} if "echo" in piece else piece for piece in found]
        return [{"text": "There is no rule for this."}, {"finish": "stop"}]

    async def _answer(
        self,
        pieces: list[dict[str, Any]],
        name: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        if "status" in pieces[0]:
            error = {"message": "No.", "type": pieces[0]["code"], "code": pieces[0]["code"]}
            body = json.dumps({"error": error}).encode()
            head = f"HTTP/1.1 {pieces[0]['status']} No\r\ncontent-type: application/json\r\n"
            writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            return
        writer.write(HEAD)
        calls = 0
        for piece in pieces:
            if "hold" in piece:
                await writer.drain()
                while await reader.read(65536):
                    pass
                raise ConnectionResetError
            if "until" in piece:
                await writer.drain()
                while not (self._folder / name / piece["until"]).exists():  # noqa: ASYNC110 - see above
                    await asyncio.sleep(0.02)
                continue
            if "pause" in piece:
                await writer.drain()
                await asyncio.sleep(piece["pause"])
                continue
            if "cut" in piece:
                await writer.drain()
                connection = writer.get_extra_info("socket")
                connection.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
                raise ConnectionResetError
            for event in _events(piece, calls):
                writer.write(b"%x\r\n%s\r\n" % (len(event), event))
                await writer.drain()
            calls += "call" in piece
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def _events(piece: dict[str, Any], index: int) -> list[bytes]:
    if "text" in piece:
        return [_event({"content": piece["text"]})]
    if "call" in piece:
        call = piece["call"]
        arguments = json.dumps(call["arguments"])
        function = {"name": call["name"], "arguments": ""}
        opening = {"index": index, "id": call["id"], "type": "function", "function": function}
        middle = len(arguments) // 2
        parts = [
            {"index": index, "function": {"arguments": half}}
            for half in (arguments[:middle], arguments[middle:])
        ]
        return [_event({"tool_calls": [part]}) for part in (opening, *parts)]
    return [_event({}, piece["finish"]), b"data: [DONE]\n\n"]


def _event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "chatcmpl-1", "choices": [choice]}).encode() + b"\n\n"


class UpstreamProcess:
    """The other side of it: starts the process, writes scripts, reads what was received."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.upstream_process", str(self._folder)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.communicate(timeout=20)

    def base_url(self, name: str) -> str:
        """Return the address under which requests are recorded as `name`."""
        return f"http://127.0.0.1:{self.port}/{name}/v1"

    def script(self, name: str, rules: list[dict[str, Any]]) -> None:
        """Say how requests under `name` are answered from now on."""
        (self._folder / name).mkdir(exist_ok=True)
        (self._folder / name / "script.json").write_text(json.dumps(rules), encoding="utf-8")

    def quiet(self) -> None:
        """Wait until everything that dead processes sent has been recorded."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            connection.recv(1024)

    def received(self, name: str) -> list[bytes]:
        """Return the raw body of each request so far, in the order in which they came."""
        file = self._folder / name / "received.jsonl"
        if not file.exists():
            return []
        lines = file.read_text(encoding="utf-8").splitlines()
        return [base64.b64decode(json.loads(line)["body"]) for line in lines]


async def _serve(folder: Path, until: IO[str]) -> None:
    upstream = Upstream(folder)
    server = await asyncio.start_server(upstream.connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(until.read)
    server.close()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(Path(sys.argv[1]), sys.stdin))
