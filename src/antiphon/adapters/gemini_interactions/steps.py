"""Blocks as steps of an interaction, and as the content of a step."""

from __future__ import annotations

from typing import Final, TypeAlias, assert_never

import msgspec

from antiphon.adapters.contents import failure
from antiphon.core.blocks import (
    Audio,
    Block,
    File,
    Image,
    Outcome,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from antiphon.errors import InternalError

Json: TypeAlias = dict[str, object]

DEFAULT_IMAGE: Final = "image/png"
DEFAULT_FILE: Final = "application/pdf"

_encode: Final = msgspec.json.Encoder().encode


def said(kind: str, content: list[Json]) -> bytes:
    """Return what a user put in, or the model put out."""
    return _encode({"type": kind, "content": content})


def content(block: Block) -> Json:
    """Return a block that stands by itself as a piece of content."""
    match block:
        case Text(text=text) | Refusal(text=text):
            return {"type": "text", "text": text}
        case Image():
            if block.data is None:
                return _by_address("image", block.url or "", block.media_type)
            return _as_data("image", block.media_type or DEFAULT_IMAGE, block.data)
        case Audio():
            return _as_data("audio", f"audio/{block.format}", block.data)
        case File():
            if block.data is None:
                return _by_address("document", block.file_id or "", block.media_type)
            return _as_data("document", block.media_type or DEFAULT_FILE, block.data)
        case Reasoning() | ToolCall() | ToolResult() | Unknown():
            raise InternalError(f"{type(block).__name__} is no content by itself.")
        case _ as never:
            assert_never(never)


def call(block: ToolCall, arguments: str) -> bytes:
    """Return a call. Its arguments are the very text that the model wrote, numbers and all."""
    fields = {"type": "function_call", "id": block.call_id, "name": block.name}
    return _encode({**fields, "arguments": msgspec.Raw(arguments.encode())})


def result(block: ToolResult, name: str) -> bytes:
    """Return a result: one text as it is, more as a list; a failure says that it is one."""
    pieces = [content(piece) for piece in block.content]
    failed = block.outcome is not Outcome.SUCCESS
    if failed and (block.outcome is Outcome.CANCELED or block.code or not pieces):
        pieces.insert(0, content(Text(text=failure(block))))
    plain = len(pieces) == 1 and pieces[0]["type"] == "text"
    fields: Json = {"type": "function_result", "call_id": block.call_id, "name": name}
    fields["result"] = pieces[0]["text"] if plain else pieces or ""
    if failed:
        fields["is_error"] = True
    return _encode(fields)


def _as_data(kind: str, media_type: str, data: str) -> Json:
    return {"type": kind, "mime_type": media_type, "data": data}


def _by_address(kind: str, uri: str, media_type: str | None) -> Json:
    known: Json = {} if media_type is None else {"mime_type": media_type}
    return {"type": kind, **known, "uri": uri}
