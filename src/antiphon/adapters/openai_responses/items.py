"""Blocks as items of a Responses request, and the parts that stand in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias, assert_never

import msgspec

from antiphon.core.blocks import (
    Audio,
    Block,
    File,
    Image,
    Opaque,
    Outcome,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from antiphon.errors import InternalError

Json: TypeAlias = dict[str, object]

DEFAULT_IMAGE: Final = "image/png"
UNNAMED_FILE: Final = "file"
"""A file that comes as data has to have a name; this one is given to those that have none."""

ITEM_ID: Final = re.compile("[A-Za-z0-9_-]{1,64}")
"""What the id of an item has to match. GitHub Copilot gives longer ones, and refuses them."""

_encode: Final = msgspec.json.Encoder().encode


class State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What goes back with a text or a call: the name of its item, and what kind of talk it is."""

    id: str | None = None
    phase: str | None = None


class Thought(msgspec.Struct, frozen=True, kw_only=True):
    """What of a reasoning item says whether it can be read again."""

    id: str = ""
    type: str = ""
    encrypted_content: str | None = None
    content: list[msgspec.Raw] | None = None

    @property
    def readable(self) -> bool:
        """Whether it holds its thoughts, sealed or plain, and is not only the name of some."""
        return bool(self.encrypted_content or self.content)


NOTHING: Final = State()
_state: Final = msgspec.json.Decoder(State).decode
_thought: Final = msgspec.json.Decoder(Thought).decode


def state_of(opaque: Opaque | None, profile: str) -> State:
    """Return what was kept with a text or a call; nothing of what another dialect kept."""
    if opaque is None or opaque.profile != profile:
        return NOTHING
    try:
        return _state(opaque.value)
    except msgspec.DecodeError:
        return NOTHING


def thought_of(opaque: Opaque) -> Thought:
    """Return what is known of the item that was kept with reasoning."""
    try:
        return _thought(opaque.value)
    except msgspec.DecodeError:
        return Thought()


def goes_back(item_id: str | None, begins: str) -> bool:
    """Return whether an item may be sent under this id, which begins as those of its kind do.

    Without any id it always may.
    """
    if item_id is None:
        return True
    return item_id.startswith(begins) and ITEM_ID.fullmatch(item_id) is not None


def unnamed(item: bytes) -> bytes:
    """Return an item as it came, without its id."""
    fields = msgspec.json.decode(item, type=dict[str, msgspec.Raw])
    return _encode({name: value for name, value in fields.items() if name != "id"})


def message(role: Role, blocks: Sequence[Block], at: str) -> bytes:
    """Return what somebody but the model says, as one item."""
    content = [part(block, at) for block in blocks]
    return _encode({"type": "message", "role": role.value, "content": content})


def said(texts: Sequence[str], phase: str | None, item_id: str | None) -> bytes:
    """Return what the model said, as one item: with its name as it came, or as plain text."""
    item: Json = {"type": "message", "role": Role.ASSISTANT.value}
    if item_id is None:
        item["content"] = "".join(texts)
    else:
        parts = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
        item |= {"id": item_id, "status": "completed", "content": parts}
    if phase is not None:
        item["phase"] = phase
    return _encode(item)


def call(block: ToolCall, call_id: str, arguments: str, item_id: str | None) -> bytes:
    """Return a call. Its arguments are the very text that the model wrote."""
    item: Json = {"type": "function_call"}
    if item_id is not None:
        item["id"] = item_id
    return _encode({**item, "call_id": call_id, "name": block.name, "arguments": arguments})


def result(block: ToolResult, call_id: str, at: str) -> bytes:
    """Return a result. It has no flag for failure, so its text says so."""
    content = block.content
    fine = block.outcome is Outcome.SUCCESS
    output: object
    if len(content) <= 1 and all(isinstance(inner, Text) for inner in content):
        texts = [inner.text for inner in content if isinstance(inner, Text)]
        output = "\n".join(texts if fine else (_failure(block), *filter(None, texts)))
    else:
        failure = [] if fine else [_text(_failure(block))]
        output = failure + [part(inner, at) for inner in content]
    return _encode({"type": "function_call_output", "call_id": call_id, "output": output})


def part(block: Block, at: str) -> Json:
    """Return a block as a part of content."""
    match block:
        case Text(text=text):
            return _text(text)
        case Image():
            return _image(block)
        case File():
            return _file(block)
        case Audio() | Refusal() | Reasoning() | ToolCall() | ToolResult() | Unknown():
            raise InternalError(f"{type(block).__name__} is no part of content.", at=at)
        case _ as never:
            assert_never(never)


def _text(text: str) -> Json:
    return {"type": "input_text", "text": text}


def _image(image: Image) -> Json:
    url = image.url or f"data:{image.media_type or DEFAULT_IMAGE};base64,{image.data or ''}"
    return {"type": "input_image", "image_url": url, "detail": image.detail or "auto"}


def _file(file: File) -> Json:
    item: Json = {"type": "input_file"}
    if file.file_id is not None:
        item["file_id"] = file.file_id
    if file.data is not None:
        media = file.media_type
        item["file_data"] = f"data:{media};base64,{file.data}" if media else file.data
    if file.filename is not None or file.data is not None:
        item["filename"] = file.filename or UNNAMED_FILE
    return item


def _failure(block: ToolResult) -> str:
    return f"[{block.outcome} {block.code}]" if block.code else f"[{block.outcome}]"
