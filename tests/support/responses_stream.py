"""Answers of OpenAI Responses as bytes, item by item."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import count
from typing import Any

from antiphon.adapters.openai_responses.read import Reader
from antiphon.core.answers.answer import Answer
from antiphon.core.answers.assembler import Assembler
from antiphon.core.answers.deltas import Delta

USAGE = {
    "input_tokens": 7,
    "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 1},
    "output_tokens": 9,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 16,
}


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


def wire(events: Iterable[dict[str, Any]], *, numbered: bool = True) -> bytes:
    """The events as the server sends them: numbered from 0, or not at all."""
    numbers = count()
    told = ({**said, "sequence_number": next(numbers)} if numbered else said for said in events)
    return b"".join(
        f"event: {one['type']}\ndata: {json.dumps(one, ensure_ascii=False)}\n\n".encode()
        for one in told
    )


def response(status: str, *output: dict[str, Any], **more: Any) -> dict[str, Any]:
    usage = None if status == "in_progress" else USAGE
    begun = {"id": "resp_1", "object": "response", "model": "gpt-6-astra", "status": status}
    return {**begun, "output": list(output), "error": None, "usage": usage, **more}


def created() -> dict[str, Any]:
    return event("response.created", response=response("in_progress"))


def ended(status: str, *output: dict[str, Any], **more: Any) -> dict[str, Any]:
    return event(f"response.{status}", response=response(status, *output, **more))


def message(*texts: str, name: str = "msg_1", **more: Any) -> dict[str, Any]:
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    begun = {"id": name, "type": "message", "role": "assistant", "status": "completed"}
    return {**begun, "content": parts, **more}


def called(call_id: str, name: str, arguments: str, **more: Any) -> dict[str, Any]:
    begun = {"id": f"fc_{call_id}", "type": "function_call", "status": "completed"}
    return {**begun, "call_id": call_id, "name": name, "arguments": arguments, **more}


def thought(*summary: str, name: str = "rs_1", **more: Any) -> dict[str, Any]:
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return {
        "id": name,
        "type": "reasoning",
        "summary": parts,
        "encrypted_content": "gAAA",
        **more,
    }


def added(index: int, item: dict[str, Any]) -> dict[str, Any]:
    """The item as it begins: nothing of what it will say."""
    empty: dict[str, Any] = {
        "content": [],
        "summary": [],
        "arguments": "",
        "encrypted_content": "g",
    }
    begun = {name: empty.get(name, value) for name, value in item.items()}
    return event("response.output_item.added", output_index=index, item=begun)


def done(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return event("response.output_item.done", output_index=index, item=item)


def delta(kind: str, index: int, text: str, **more: Any) -> dict[str, Any]:
    return event(f"response.{kind}.delta", output_index=index, delta=text, **more)


def said(index: int, *pieces: str, **more: Any) -> list[dict[str, Any]]:
    """A message from its beginning to its end, its text in pieces."""
    item = message("".join(pieces), name=f"msg_{index}", **more)
    return [
        added(index, item),
        *(delta("output_text", index, piece, content_index=0) for piece in pieces),
        done(index, item),
    ]


def call(index: int, call_id: str, name: str, *pieces: str) -> list[dict[str, Any]]:
    item = called(call_id, name, "".join(pieces))
    return [
        added(index, item),
        *(delta("function_call_arguments", index, piece) for piece in pieces),
        done(index, item),
    ]


def thinking(index: int, *pieces: str) -> list[dict[str, Any]]:
    item = thought("".join(pieces), name=f"rs_{index}")
    return [
        added(index, item),
        *(delta("reasoning_summary_text", index, piece, summary_index=0) for piece in pieces),
        done(index, item),
    ]


def stream(*parts: list[dict[str, Any]] | dict[str, Any], numbered: bool = True) -> bytes:
    """An answer of these items, with what stands around them."""
    events = [one for part in parts for one in (part if isinstance(part, list) else [part])]
    items = {
        one["output_index"]: one["item"]
        for one in events
        if one["type"] == "response.output_item.done"
    }
    closing = [] if events[-1]["type"] in ENDINGS else [ended("completed", *items.values())]
    return wire([created(), *events, *closing], numbered=numbered)


ENDINGS = {f"response.{word}" for word in ("completed", "incomplete", "failed")}


def whole(*output: dict[str, Any], status: str = "completed", **more: Any) -> bytes:
    """The same as one JSON text."""
    return json.dumps(response(status, *output, **more), ensure_ascii=False).encode()


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
