"""Answers of Bedrock's ConverseStream as bytes, frame by frame."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable
from typing import Any

from antiphon.adapters.bedrock.read import Reader
from antiphon.core.answers.answer import Answer
from antiphon.core.answers.assembler import Assembler
from antiphon.core.answers.deltas import Delta

STREAM = "application/vnd.amazon.eventstream"


def frame(payload: bytes, **headers: str) -> bytes:
    """One frame; `_` in the name of a header stands for `-`."""
    return raw_frame(
        payload,
        b"".join(
            struct.pack(">B", len(name) + 1)
            + f":{name.replace('_', '-')}".encode()
            + struct.pack(">BH", 7, len(value.encode()))
            + value.encode()
            for name, value in headers.items()
        ),
    )


def raw_frame(payload: bytes, headers: bytes) -> bytes:
    prelude = struct.pack(">II", len(payload) + len(headers) + 16, len(headers))
    checked = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return checked + struct.pack(">I", zlib.crc32(checked))


def event(kind: str, **fields: Any) -> bytes:
    # The service pads each event with letters of no meaning.
    payload = json.dumps({**fields, "p": "abcdefghij"}, ensure_ascii=False).encode()
    return frame(payload, event_type=kind, content_type="application/json", message_type="event")


def exception(kind: str, message: str = "No.") -> bytes:
    payload = json.dumps({"message": message}).encode()
    return frame(
        payload, exception_type=kind, content_type="application/json", message_type="exception"
    )


def start() -> bytes:
    return event("messageStart", role="assistant")


def delta(index: int, **said: Any) -> bytes:
    return event("contentBlockDelta", contentBlockIndex=index, delta=said)


def stop(index: int) -> bytes:
    return event("contentBlockStop", contentBlockIndex=index)


def opened(index: int, **begun: Any) -> bytes:
    return event("contentBlockStart", contentBlockIndex=index, start=begun)


def text(index: int, *pieces: str) -> bytes:
    return b"".join(delta(index, text=piece) for piece in pieces) + stop(index)


def reasoning(index: int, *pieces: str, signature: str = "Eq==") -> bytes:
    deltas = [delta(index, reasoningContent={"text": piece}) for piece in pieces]
    deltas += [delta(index, reasoningContent={"signature": signature})] * bool(signature)
    return b"".join(deltas) + stop(index)


def call(index: int, call_id: str, name: str, *pieces: str, **more: Any) -> bytes:
    begun = opened(index, toolUse={"toolUseId": call_id, "name": name, **more})
    deltas = (delta(index, toolUse={"input": piece}) for piece in pieces)
    return b"".join((begun, *deltas, stop(index)))


def end(reason: str) -> bytes:
    return event("messageStop", stopReason=reason)


def metadata(**usage: int) -> bytes:
    counted = {"inputTokens": 7, "outputTokens": 9, "totalTokens": 16, **usage}
    return event("metadata", usage=counted, metrics={"latencyMs": 5})


def whole(*content: dict[str, Any], reason: str | None = "end_turn", **more: Any) -> bytes:
    """The same as one JSON text."""
    message = {"role": "assistant", "content": content}
    usage = {"inputTokens": 7, "outputTokens": 9, "totalTokens": 16}
    body = {"output": {"message": message}, "stopReason": reason, "usage": usage, **more}
    return json.dumps(body, ensure_ascii=False).encode()


def deltas_of(reads: Iterable[bytes], content_type: str = STREAM, **options: Any) -> list[Delta]:
    reader = Reader(content_type, **options)
    deltas = [delta for data in reads for delta in reader.feed(data)]
    return [*deltas, *reader.end()]


def answer_of(
    *reads: bytes, content_type: str = STREAM, cut: str | None = None, **options: Any
) -> Answer:
    """What the engine would make of these reads."""
    assembler = Assembler(**options)
    for made in deltas_of(reads, content_type):
        assembler.feed(made)
    return assembler.end(cut)
