"""Answers of Gemini as bytes, part by part."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from antiphon.adapters.gemini.read import Reader
from antiphon.core.answers.answer import Answer
from antiphon.core.answers.assembler import Assembler
from antiphon.core.answers.deltas import Delta

MODEL = "gemini-3.8-flash"
COUNTS = {"promptTokenCount": 7, "candidatesTokenCount": 9, "totalTokenCount": 16}


def value(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    """What one event says."""
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "modelVersion": MODEL, "responseId": "r-1", **more}


def event(said: object) -> bytes:
    return f"data: {json.dumps(said, ensure_ascii=False)}\r\n\r\n".encode()


def chunk(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    return event(value(*parts, finish=finish, **more))


def text(*pieces: str) -> bytes:
    return b"".join(chunk({"text": piece}) for piece in pieces)


def call(name: str, args: Any = None, signature: str | None = None, **more: Any) -> dict[str, Any]:
    part: dict[str, Any] = {"functionCall": {"name": name, "args": args or {}, **more}}
    return part if signature is None else {**part, "thoughtSignature": signature}


def end(finish: str = "STOP") -> bytes:
    """The last event: a finish without content, and what it all cost."""
    candidate = {"finishReason": finish, "index": 0}
    return event({"candidates": [candidate], "modelVersion": MODEL, "usageMetadata": COUNTS})


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
