"""A provider with no think time, as a process of its own: `python bench/upstream.py`.

Prints the port that it got and serves OpenAI Chat streams until its standard input ends, with
as little work as possible, so that what is measured is who asks.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.provider import chat_text
from bench.talk import words

ANSWER_DELTAS = 8


def _answer() -> bytes:
    body = b"".join(chat_text([" " + words(1) for _ in range(ANSWER_DELTAS)]))
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


class Upstream(asyncio.Protocol):
    """Answers every whole request on a connection with the same stream."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._held += data
        while (end := self._held.find(b"\r\n\r\n")) >= 0:
            head = self._held[:end].lower()
            length = head.partition(b"content-length:")[2].split(b"\r\n", 1)[0]
            whole = end + 4 + int(length or b"0")
            if len(self._held) < whole:
                return
            self._held = self._held[whole:]
            self._transport.write(self._answer)


async def main() -> None:
    answer = _answer()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Upstream(answer), "127.0.0.1", 0, backlog=256)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
