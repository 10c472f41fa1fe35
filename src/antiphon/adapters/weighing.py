"""How heavy a rendered request is: what of its JSON its model reads as text, and what else costs.

It is the request that is weighed, with everything that its adapter added, and not the messages
that it was made of. Every dialect has the same few shapes: a head that ends in an open list,
items one after the other, and an ending. So nothing here belongs to one dialect: texts are what
strings say, tools and arguments are read as the JSON that they are, an image costs the same
whatever it shows, and what only steers the provider costs nothing.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, Literal

import msgspec

from antiphon.core.planning.tokens import (
    TOKENS_A_MESSAGE,
    Counter,
    Weight,
)

IMAGE_TOKENS: Final = 1_600
"""The most that the large providers ask for one image at the size to which they scale it."""

FILE_CHARS_A_TOKEN: Final = 24
AUDIO_CHARS_A_TOKEN: Final = 2_000
"""Of base64: nobody says how a document or sound is counted before it was."""

TOOLS: Final = frozenset({"tools", "toolConfig", "functions", "response_format", "format"})
"""What of a head declares tools or forms: the model reads the whole of it."""

SYSTEM: Final = frozenset({"system", "instructions", "systemInstruction", "system_instruction"})

INSTRUCTING: Final = frozenset({"system", "developer"})

SILENT: Final = frozenset(
    {
        "annotations", "cache_control", "call_id", "detail", "file_id", "format", "id", "index",
        "media_type", "mimeType", "mime_type", "phase", "signature", "status",
        "thoughtSignature", "thought_signature", "toolUseId", "tool_call_id", "tool_use_id", "type",
    }
)  # fmt: skip
"""Members that steer the provider and that no model reads as text."""

READ_AS_JSON: Final = frozenset({"args", "input", "json", "response", "arguments"})
"""Members whose objects the model reads as JSON, names and numbers too."""

IMAGES: Final = frozenset({"image", "image_url", "input_image", "images"})
AUDIO: Final = frozenset({"audio", "input_audio"})
INLINE: Final = frozenset({"inlineData", "inline_data"})

SPECIAL: Final = READ_AS_JSON | IMAGES | AUDIO | INLINE
"""Members that are not read as they stand."""

LONG: Final = 1_024
"""A text that is longer may be no text at all: sounds and files are so, in base64."""

_is_base64: Final = re.compile(r"(?:data:[^,]*,)?[A-Za-z0-9+/_=-]+").fullmatch
_encode: Final = msgspec.json.encode


class _Function(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    name: str
    arguments: str


class _Call(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    id: str
    type: Literal["function"]
    function: _Function


class _Usual(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """An item as most are: a role, a text, the calls that it asks for or the one that it answers."""

    role: Literal["user", "assistant", "tool"]
    content: str | None = None
    tool_calls: tuple[_Call, ...] = ()
    tool_call_id: str = ""


_decode_usual: Final = msgspec.json.Decoder(list[_Usual]).decode


def weigh_head(head: bytes, counter: Counter) -> Weight:
    """Return what the head of a body costs; it ends where the list of what was said begins."""
    members = _decode(head + b"]}")
    return _of_members(members, counter)


def weigh_items(items: bytes, counter: Counter) -> Weight:
    """Return what items that follow each other cost, separated and perhaps led by commas."""
    whole = b"".join((b"[", items.lstrip(b","), b"]"))  # copied once: it may be all there is
    try:
        return _of_usual(_decode_usual(whole), counter)
    except msgspec.ValidationError:
        return _of_items(_decode(whole), counter)


def weigh_ending(ending: bytes, counter: Counter) -> Weight:
    """Return what stands behind the items that are sealed, up to the end of the body."""
    members = _decode(b'{"":[' + ending.lstrip(b","))
    open_items = members.pop("")
    return _of_items(open_items, counter) + _of_members(members, counter)


def _decode(text: bytes) -> Any:  # noqa: ANN401 - any JSON there is
    try:
        return msgspec.json.decode(text)
    except msgspec.ValidationError:
        return json.loads(text, parse_float=str)  # arguments may hold numbers that no double does


def _of_members(members: dict[str, Any], counter: Counter) -> Weight:
    system, tools = 0, 0
    for name, value in members.items():
        if name in SYSTEM and value:
            texts: list[str] = []
            system += TOKENS_A_MESSAGE + _texts(value, texts)
            system += counter.count(texts)
        elif name in TOOLS and value:
            tools += counter.count([_encode(value).decode()])
        elif name in ("text", "generationConfig", "generation_config") and isinstance(value, dict):
            forms = {key: held for key, held in value.items() if "ormat" in key or "chema" in key}
            tools += counter.count([_encode(forms).decode()]) if forms else 0
    return Weight(system_policy=system, tool_guidance=tools)


def _of_items(items: list[Any], counter: Counter) -> Weight:
    said: list[str] = []
    told: list[str] = []
    said_fixed = told_fixed = 0
    for item in items:
        role = item.get("role") if isinstance(item, dict) else None
        if role in INSTRUCTING:
            told_fixed += TOKENS_A_MESSAGE + _texts(item, told)
        else:
            said_fixed += TOKENS_A_MESSAGE + _texts(item, said)
    return Weight(
        transcript=said_fixed + counter.count(said),
        system_policy=told_fixed + counter.count(told) if told else told_fixed,
    )


def _of_usual(items: list[_Usual], counter: Counter) -> Weight:
    """Weigh items that are as most are: what `_of_items` says of them, in fewer steps.

    Only their form says that all of it is text, also what looks like base64: so it is counted.
    """
    said = [item.content for item in items if item.content is not None]
    for calls in [item.tool_calls for item in items if item.tool_calls]:
        for call in calls:
            said += (call.function.name, call.function.arguments)
    roles = [item.role for item in items]
    fixed = TOKENS_A_MESSAGE * len(items)
    for role in set(roles):  # a word, which is counted once
        fixed += roles.count(role) * counter.count([role])
    return Weight(transcript=fixed + counter.count(said))


def _texts(value: Any, texts: list[str]) -> int:  # noqa: ANN401 - any JSON there is
    """Add to `texts` what the model reads of `value`; return the tokens of what is no text."""
    if type(value) is str:
        if len(value) > LONG and _is_base64(value):
            return -(-len(value) // FILE_CHARS_A_TOKEN)
        texts.append(value)
        return 0
    if type(value) is list:
        return sum([_texts(each, texts) for each in value])
    return _members(value, texts) if type(value) is dict else 0


def _members(value: dict[str, Any], texts: list[str]) -> int:
    if value.get("type") in IMAGES:
        return IMAGE_TOKENS
    fixed = 0
    for name, held in value.items():
        if name in SILENT:
            continue
        if name in SPECIAL:
            fixed += _special(name, held, texts)
        elif type(held) is str and len(held) <= LONG:
            texts.append(held)
        elif held is not None:
            fixed += _texts(held, texts)
    return fixed


def _special(name: str, held: Any, texts: list[str]) -> int:  # noqa: ANN401 - any JSON there is
    """Weigh a member that is not read as it stands."""
    if name in IMAGES:
        return IMAGE_TOKENS * (len(held) if isinstance(held, list) else 1)
    if name in AUDIO:
        return -(-len(_encode(held)) // AUDIO_CHARS_A_TOKEN)
    if name in INLINE and _is_image(held):
        return IMAGE_TOKENS
    if name in READ_AS_JSON and isinstance(held, dict):
        texts.append(_encode(held).decode())
        return 0
    return _texts(held, texts)


def _is_image(held: Any) -> bool:  # noqa: ANN401 - any JSON there is
    kind = held.get("mimeType") or held.get("mime_type") if isinstance(held, dict) else None
    return isinstance(kind, str) and kind.startswith("image/")
