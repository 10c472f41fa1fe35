"""Blocks as the content of an Anthropic message: one block of ours as one of theirs."""

from __future__ import annotations

import base64
import binascii
from typing import Final, TypeAlias, assert_never

import msgspec

from antiphon.adapters.contents import failure, is_blank
from antiphon.core.blocks import (
    Audio,
    Block,
    File,
    Image,
    Opaque,
    Outcome,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from antiphon.errors import InternalError, InvalidInput

Json: TypeAlias = dict[str, object]

CITATIONS: Final = "citations"
"""Type of the state that stands behind a text for what the text cites. It is no block of theirs."""

DEFAULT_IMAGE: Final = "image/png"
DEFAULT_FILE: Final = "application/pdf"

_encode: Final = msgspec.json.Encoder().encode
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def part(block: Block, at: str) -> bytes:
    """Return a block that stands by itself, as a part of content.

    Raises:
        InvalidInput: `bad_data`: a plain text that is none.
    """
    match block:
        case Text(text=text) | Refusal(text=text):
            return _encode(_text(text))
        case Image():
            return _encode(_image(block))
        case File():
            return _encode(_document(block, at))
        case Reasoning() | ToolCall() | ToolResult() | Audio() | Unknown():
            raise InternalError(f"{type(block).__name__} is no part by itself.", at=at)
        case _ as never:
            assert_never(never)


def kept(text: str, opaque: Opaque) -> bytes:
    """Return thinking, or the provider's own work, as the provider had sent it.

    What was not thinking in words is sent byte for byte. Of thinking the state holds the
    signature; its words are the block's text.
    """
    fields = _members.decode(opaque.value)
    if bytes(fields.get("type", b"")) != b'"thinking"':
        return bytes(opaque.value)
    return _encode({"type": "thinking", "thinking": text, "signature": fields["signature"]})


def cites(opaque: Opaque | None) -> bool:
    """Return whether a state is what the text before it cites."""
    return opaque is not None and bytes(opaque.value).startswith(b'{"type":"citations",')


def citing(text: bytes, opaque: Opaque) -> bytes:
    """Return a part of text with what it cites."""
    return _encode({**_members.decode(text), CITATIONS: _members.decode(opaque.value)[CITATIONS]})


def call(block: ToolCall, call_id: str, arguments: str) -> bytes:
    """Return a call. Its input is the very text that the model wrote, numbers and all."""
    fields = {"type": "tool_use", "id": call_id, "name": block.name}
    return _encode({**fields, "input": msgspec.Raw(arguments.encode())})


def result(block: ToolResult, call_id: str, at: str) -> bytes:
    """Return a result. What says nothing is left out; a failure always says that it is one."""
    fields: Json = {"type": "tool_result", "tool_use_id": call_id}
    content: list[msgspec.Raw] = [
        msgspec.Raw(part(inner, at)) for inner in block.content if not is_blank(inner)
    ]
    if block.outcome is not Outcome.SUCCESS:
        if block.outcome is Outcome.CANCELED or block.code or not content:
            content.insert(0, msgspec.Raw(_encode(_text(failure(block)))))
        fields["content"] = content
        fields["is_error"] = True
    elif content:
        fields["content"] = content
    return _encode(fields)


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _image(image: Image) -> Json:
    if image.data is None:
        return {"type": "image", "source": {"type": "url", "url": image.url}}
    source = _base64(image.media_type or DEFAULT_IMAGE, image.data)
    return {"type": "image", "source": source}


def _document(file: File, at: str) -> Json:
    source: Json
    if file.data is None:
        source = {"type": "file", "file_id": file.file_id}
    elif file.media_type == "text/plain":
        source = {"type": "text", "media_type": "text/plain", "data": _plain(file.data, at)}
    else:
        source = _base64(file.media_type or DEFAULT_FILE, file.data)
    document: Json = {"type": "document", "source": source}
    if file.filename is not None:
        document["title"] = file.filename
    return document


def _base64(media_type: str, data: str) -> Json:
    return {"type": "base64", "media_type": media_type, "data": data}


def _plain(data: str, at: str) -> str:
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise InvalidInput(
            "This file is said to be plain text, but is no UTF-8 in base64.",
            code="bad_data",
            at=at,
        ) from None
