"""Blocks as the content of a Converse message: one block of ours as one of theirs."""

from __future__ import annotations

import json
import math
import re
from typing import Final, TypeAlias, assert_never

import msgspec

from antiphon.adapters.bedrock.profile import FORMATS
from antiphon.adapters.contents import failure, is_blank
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
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from antiphon.errors import InternalError

Json: TypeAlias = dict[str, object]

DEFAULT_IMAGE: Final = "image/png"
DEFAULT_FILE: Final = "application/pdf"
MAX_NAME_CHARACTERS: Final = 200
NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9 ()\[\]-]+")
EXACT_DIGITS: Final = 15
"""So many digits of a number come through anybody's arithmetic as they are."""

_encode: Final = msgspec.json.Encoder().encode
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def part(block: Block, at: str, name: str = "") -> bytes:
    """Return a block that stands by itself, as a part of content; `name` is that of a file."""
    match block:
        case Text(text=text) | Refusal(text=text):
            return _encode({"text": text})
        case Image():
            form = (block.media_type or DEFAULT_IMAGE).removeprefix("image/")
            return _encode({"image": {"format": form, "source": {"bytes": block.data}}})
        case File():
            form = FORMATS[block.media_type or DEFAULT_FILE]
            document = {"format": form, "name": name, "source": {"bytes": block.data}}
            return _encode({"document": document})
        case Audio(data=data, format=form):
            return _encode({"audio": {"format": form, "source": {"bytes": data}}})
        case Reasoning() | ToolCall() | ToolResult() | Unknown():
            raise InternalError(f"{type(block).__name__} is no part by itself.", at=at)
        case _ as never:
            assert_never(never)


def kept(text: str, opaque: Opaque) -> bytes:
    """Return reasoning, or the provider's own work, as the provider had sent it."""
    if opaque.work:
        return bytes(opaque.value)
    fields = _members.decode(opaque.value)
    if "reasoningText" in fields:
        signed = _members.decode(fields["reasoningText"])
        return _encode({"reasoningContent": {"reasoningText": {"text": text, **signed}}})
    return _encode({"reasoningContent": fields})


def call(block: ToolCall, call_id: str, arguments: str) -> bytes:
    """Return a call. Its input is the very text that the model wrote, numbers and all."""
    fields = {"toolUseId": call_id, "name": block.name, "input": msgspec.Raw(arguments.encode())}
    return _encode({"toolUse": fields})


def result(block: ToolResult, call_id: str, content: list[bytes], *, status: bool) -> bytes:
    """Return a result of these parts. What failed always says that it did, in words too."""
    parts = [msgspec.Raw(piece) for piece in content]
    fine = block.outcome is Outcome.SUCCESS
    if not fine and (block.outcome is Outcome.CANCELED or block.code or not parts or not status):
        parts.insert(0, msgspec.Raw(_encode({"text": failure(block)})))
    fields: Json = {"toolUseId": call_id, "content": parts}
    if status:
        fields["status"] = "success" if fine else "error"
    return _encode({"toolResult": fields})


def returned(text: str) -> bytes:
    """Return what a tool said: as JSON where it is an object, which the wire has a place for.

    Only where that is the same to the letter, on the way there and back: with no space to lose,
    no key twice, and no number that would come out as another.
    """
    if text.startswith("{") and worth(text) is Worth.WHOLE and _is_plain(text):
        return _encode({"json": msgspec.Raw(text.encode())})
    return _encode({"text": text})


def document_name(filename: str | None) -> str:
    """Return a file's name as the wire takes it: nothing but letters, digits and a few signs."""
    stem = (filename or "").rpartition(".")[0] or filename or ""
    spaced = " ".join(NOT_IN_NAMES.sub(" ", stem).split())
    return spaced[:MAX_NAME_CHARACTERS].rstrip() or "document"


def _is_plain(text: str) -> bool:
    numbers: list[str] = []

    def number(word: str) -> float:
        numbers.append(word)
        return 0.0

    json.loads(text, parse_int=number, parse_float=number)
    if not all(map(_is_exact, numbers)):
        return False
    return msgspec.json.format(text.encode(), indent=-1) == text.encode()


def _is_exact(number: str) -> bool:
    return sum(map(str.isdigit, number)) <= EXACT_DIGITS and math.isfinite(float(number))


__all__ = ["call", "document_name", "is_blank", "kept", "part", "result", "returned"]
