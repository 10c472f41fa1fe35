"""A provider with no think time, as a process of its own: `python bench/upstream.py`.

Prints the port that it got and serves OpenAI Chat streams until its standard input ends, with
as little work as possible, so that what is measured is who asks. Under `/COUNTxMS/v1` it says so
many words with such a pause between two; under `/COUNTx0same/v1` the same word all the time; under
`/COUNTxMStime/v1` each word is the time at which it left, in nanoseconds of the machine's steady clock.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from functools import cache, partial
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.provider import chat_event, chat_text
from bench.talk import words

ANSWER_DELTAS = 8
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


def _answer() -> bytes:
    body = b"".join(chat_text([" " + words(1) for _ in range(ANSWER_DELTAS)]))
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


def _whole() -> bytes:
    text = "".join(" " + words(1) for _ in range(ANSWER_DELTAS))
    body = json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "plain",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text},
                    "finish_reason": "stop",
                }
            ],
            "usage": {"prompt_tokens": 10, "completion_tokens": 8, "total_tokens": 18},
        }
    ).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


STREAMED = re.compile(rb'"stream": ?true')
PACED = re.compile(rb"/(\d+)x(\d+)(same|time)?/")


@cache
def _paced(count: int, same: bool) -> tuple[bytes, ...]:
    pieces = [" word"] * count if same else [" " + words(1) for _ in range(count)]
    return tuple(b"%x\r\n%s\r\n" % (len(event), event) for event in chat_text(pieces))


def _now() -> bytes:
    event = chat_event({"content": f" {time.monotonic_ns()}"})
    return b"%x\r\n%s\r\n" % (len(event), event)


class Upstream(asyncio.Protocol):
    """Answers every request on a connection with the same stream, or the same whole answer."""

    def __init__(self, answer: bytes, plain: bytes) -> None:
        self._answer = answer
        self._plain = plain
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
            body, self._held = self._held[end + 4 : whole], self._held[whole:]
            if STREAMED.search(body) is None:
                self._transport.write(self._plain)
                continue
            paced = PACED.search(head[: head.find(b"\r\n")])
            if paced is None:
                self._transport.write(self._answer)
            else:
                events = _paced(int(paced[1]), paced[3] == b"same")
                self._transport.write(CHUNKED)
                self._say(events, 0, int(paced[2]) / 1000, timed=paced[3] == b"time")

    def _say(
        self, events: tuple[bytes, ...], at: int, pause_s: float, *, timed: bool = False
    ) -> None:
        """Say one event and come back for the next; all at once where there is no pause."""
        if not pause_s or at == len(events) - 1:
            self._transport.write(b"".join(events[at:]) + b"0\r\n\r\n")
            return
        is_word = 0 < at < len(events) - 3  # the others open the answer and end it
        self._transport.write(_now() if timed and is_word else events[at])
        if not self._transport.is_closing():
            loop = asyncio.get_running_loop()
            say = partial(self._say, events, at + 1, pause_s, timed=timed)
            loop.call_later(pause_s, say)


async def main() -> None:
    answer, plain = _answer(), _whole()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Upstream(answer, plain), "127.0.0.1", 0, backlog=256)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
