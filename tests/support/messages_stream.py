"""Answers of Anthropic Messages as bytes, block by block."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from antiphon.adapters.anthropic.read import Reader
from antiphon.core.answers.answer import Answer
from antiphon.core.answers.assembler import Assembler
from antiphon.core.answers.deltas import Delta

STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'


def event(kind: str, **fields: Any) -> bytes:
    data = json.dumps({"type": kind, **fields}, ensure_ascii=False)
    return f"event: {kind}\ndata: {data}\n\n".encode()


def start(handle: str = "msg_1", /, **usage: Any) -> bytes:
    message = {"id": handle, "type": "message", "role": "assistant", "model": "claude-opus-5"}
    usage = {"input_tokens": 7, "output_tokens": 1, **usage}
    return event("message_start", message={**message, "content": [], "usage": usage})


def block(index: int, begun: dict[str, Any], *deltas: dict[str, Any], stop: bool = True) -> bytes:
    """A block from its start to its stop."""
    begin = event("content_block_start", index=index, content_block=begun)
    parts = [event("content_block_delta", index=index, delta=delta) for delta in deltas]
    return b"".join((begin, *parts, *([event("content_block_stop", index=index)] * stop)))


def text(index: int, *pieces: str) -> bytes:
    deltas = ({"type": "text_delta", "text": piece} for piece in pieces)
    return block(index, {"type": "text", "text": ""}, *deltas)


def thinking(index: int, *pieces: str, signature: str = "Eq==") -> bytes:
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    deltas += [{"type": "signature_delta", "signature": signature}] * bool(signature)
    return block(index, {"type": "thinking", "thinking": "", "signature": ""}, *deltas)


def call(index: int, call_id: str, name: str, *pieces: str, **begun: Any) -> bytes:
    opening = {"type": "tool_use", "id": call_id, "name": name, "input": {}, **begun}
    deltas = ({"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces))
    return block(index, opening, *deltas)


def delta(reason: str | None, **usage: Any) -> bytes:
    return event(
        "message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 9, **usage}
    )


def end(reason: str, **usage: Any) -> bytes:
    return delta(reason, **usage) + STOP


def whole(*content: dict[str, Any], reason: str | None = "end_turn", **more: Any) -> bytes:
    """The same as one JSON text."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-5"}
    usage = {"input_tokens": 7, "output_tokens": 9}
    body = {**message, "content": content, "stop_reason": reason, "usage": usage, **more}
    return json.dumps(body, ensure_ascii=False).encode()


def deltas_of(reads: Iterable[bytes], content_type: str = "text/event-stream") -> list[Delta]:
    reader = Reader(content_type)
    deltas = [delta for data in reads for delta in reader.feed(data)]
    return [*deltas, *reader.end()]


def answer_of(
    *reads: bytes, content_type: str = "text/event-stream", cut: str | None = None, **options: Any
) -> Answer:
    """What the engine would make of these reads."""
    assembler = Assembler(**options)
    for made in deltas_of(reads, content_type):
        assembler.feed(made)
    return assembler.end(cut)
