"""Answers of OpenAI Chat Completions as bytes, and the ways in which a network may cut them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from typing import Any

from antiphon.adapters.openai_chat.read import Reader
from antiphon.core.answers.answer import Answer
from antiphon.core.answers.assembler import Assembler
from antiphon.core.answers.deltas import Delta

DONE = b"data: [DONE]\n\n"


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    """One chunk of a stream with `delta`, in the form that OpenAI sends."""
    choice = {"index": 0, "delta": delta or {}, "logprobs": None, "finish_reason": finish}
    return event(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [choice],
            **more,
        }
    )


def text(*parts: str) -> bytes:
    return b"".join(chunk({"content": part}) for part in parts)


def call(index: int, call_id: str, name: str, *arguments: str) -> bytes:
    """A tool call: its opening, then its arguments in pieces."""
    opening = {
        "index": index,
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": ""},
    }
    rest = ({"index": index, "function": {"arguments": piece}} for piece in arguments)
    return b"".join(chunk({"tool_calls": [part]}) for part in (opening, *rest))


def whole(message: dict[str, Any], finish: str | None = "stop", **more: Any) -> bytes:
    """The same as one JSON text."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], **more}
    return json.dumps(body, ensure_ascii=False).encode()


def split(body: bytes, marks: Iterable[int]) -> Iterator[bytes]:
    """The bytes of `body`, cut at `marks`."""
    before = 0
    for mark in sorted(mark % (len(body) + 1) for mark in marks):
        yield body[before:mark]
        before = mark
    yield body[before:]


def cuts(body: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """The same body as one read, byte by byte, and at places drawn from a fixed seed."""
    yield "one", [body]
    yield "bytes", [body[i : i + 1] for i in range(len(body))]
    draw = random.Random(7)
    for count in (1, 3, 20):
        yield (
            f"random-{count}",
            list(split(body, (draw.randrange(len(body) + 1) for _ in range(count)))),
        )


def deltas_of(reads: Iterable[bytes], content_type: str = "text/event-stream") -> list[Delta]:
    reader = Reader(content_type)
    deltas = [delta for data in reads for delta in reader.feed(data)]
    return [*deltas, *reader.end()]


def answer_of(
    *reads: bytes,
    content_type: str = "text/event-stream",
    cut: str | None = None,
    **options: Any,
) -> Answer:
    """What the engine would make of these reads."""
    assembler = Assembler(**options)
    for delta in deltas_of(reads, content_type):
        assembler.feed(delta)
    return assembler.end(cut)
