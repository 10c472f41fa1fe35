"""Blocks as parts of a Gemini content: one block of ours as one of theirs.

A signature stands beside what it signs, in the same part, and two parts are never made one. A
part that says nothing of its own is known by the state that it left: see `Signed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, TypeAlias, assert_never

import msgspec

from antiphon.adapters.contents import failure
from antiphon.core.answers.arguments import Worth, worth
from antiphon.core.blocks import (
    Audio,
    Block,
    File,
    Image,
    Opaque,
    Outcome,
    Reasoning,
    Refusal,
    ResultPart,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from antiphon.errors import InternalError

Json: TypeAlias = dict[str, object]

SIGNATURE: Final = "thoughtSignature"
PLACEHOLDER: Final = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
"""Published for calls that never had a signature: `skip_thought_signature_validator`."""

DEFAULT_IMAGE: Final = "image/png"
DEFAULT_FILE: Final = "application/pdf"

_encode: Final = msgspec.json.Encoder().encode
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Signed(StrEnum):
    """What a signature outside a call stands on, as its state says."""

    THOUGHT = "thought"
    """A summary of thinking: the part holds the text of the block."""
    EMPTY = "empty"
    """A part of its own, with an empty text."""
    TEXT = "text"
    """The text part before it."""
    WORK = "work"
    """What the provider did by itself: the state is the whole part."""


def signed(state: Opaque) -> Signed:
    """Return what the signature in `state` stands on."""
    fields = _members.decode(state.value)
    if state.work:
        return Signed.WORK
    if "thought" in fields:
        return Signed.THOUGHT
    return Signed.EMPTY if "text" in fields else Signed.TEXT


def signature(state: Opaque) -> Json:
    """Return the member of a part that holds the signature in `state`, or none."""
    fields = _members.decode(state.value)
    return {SIGNATURE: fields[SIGNATURE]} if SIGNATURE in fields else {}


def part(block: Block, state: Opaque | None = None) -> bytes:
    """Return a block that stands by itself as a part, signed by `state` where it was."""
    more = signature(state) if state is not None else {}
    match block:
        case Text(text=text) | Refusal(text=text):
            return _encode({"text": text, **more})
        case Image() | Audio() | File():
            return _encode({**_media(block), **more})
        case Reasoning() | ToolCall() | ToolResult() | Unknown():
            raise InternalError(f"{type(block).__name__} is no part by itself.")
        case _ as never:
            assert_never(never)


def kept(text: str, state: Opaque) -> bytes:
    """Return a part that people do not read, as the provider had sent it."""
    if state.work:
        return bytes(state.value)
    thought: Json = {"thought": True} if signed(state) is Signed.THOUGHT else {}
    return _encode({"text": text, **thought, **signature(state)})


def call(block: ToolCall, call_id: str | None, arguments: str, more: Json) -> bytes:
    """Return a call. Its arguments are the very text that the model wrote, numbers and all."""
    fields: Json = {} if call_id is None else {"id": call_id}
    fields |= {"name": block.name, "args": msgspec.Raw(arguments.encode())}
    return _encode({"functionCall": fields, **more})


def result(block: ToolResult, name: str, call_id: str | None) -> bytes:
    """Return a result. Media ride along in parts of their own; a failure says that it is one."""
    fields: Json = {} if call_id is None else {"id": call_id}
    said: list[object] = [_value(p.text) for p in block.content if isinstance(p, Text)]
    if block.outcome is Outcome.SUCCESS:
        response: Json = {"output": _one(said)}
    else:
        if block.outcome is Outcome.CANCELED or block.code or not said:
            said.insert(0, failure(block))
        response = {"error": _one(said)}
    fields |= {"name": name, "response": response}
    media = [_media(p) for p in block.content if not isinstance(p, Text)]
    if media:
        fields["parts"] = media
    return _encode({"functionResponse": fields})


def _one(said: Sequence[object]) -> object:
    """Return what was said as one value: texts are not joined, so several are a list."""
    if len(said) == 1:
        return said[0]
    return said or ""


def _value(text: str) -> object:
    """Return the text of a result, or the very JSON object that it is."""
    if text.lstrip()[:1] == "{" and worth(text) is Worth.WHOLE:
        return msgspec.Raw(text.encode())
    return text


def _media(block: Image | Audio | File | ResultPart) -> Json:
    match block:
        case Image(data=None):
            return _file_data(block.url or "", block.media_type)
        case Image(data=str(data)):
            return _inline(block.media_type or DEFAULT_IMAGE, data)
        case Audio():
            return _inline(f"audio/{block.format}", block.data)
        case File(data=None):
            return _file_data(block.file_id or "", block.media_type)
        case File(data=str(data)):
            return _inline(block.media_type or DEFAULT_FILE, data)
        case _:
            raise InternalError(f"{type(block).__name__} is no medium.")


def _inline(media_type: str, data: str) -> Json:
    return {"inlineData": {"mimeType": media_type, "data": data}}


def _file_data(uri: str, media_type: str | None) -> Json:
    kind: Json = {} if media_type is None else {"mimeType": media_type}
    return {"fileData": {"fileUri": uri, **kind}}
