"""A request held against what earlier answers left to be sent back: signed reasoning.

Converse carries the same thinking as the API of its maker, under other names. It is told over
to those names, and held against the same rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

import msgspec

from antiphon.adapters.anthropic import kept
from antiphon.adapters.base import Parsed
from antiphon.core.blocks import Block, Reasoning
from antiphon.core.rules.findings import Finding

Fields: TypeAlias = Mapping[str, object]


def findings(parsed: Parsed, stored: Fields) -> Iterator[Finding]:
    """Yield what of the kept reasoning is missing from a request, or other than it came."""
    messages = tuple(
        msgspec.structs.replace(message, blocks=tuple(map(_block, message.blocks)))
        for message in parsed.messages
    )
    told = {name: _told(value) for name, value in stored.items()}
    yield from kept.findings(replace(parsed, messages=messages), told)


def _block(block: Block) -> Block:
    if not isinstance(block, Reasoning) or block.opaque is None or block.opaque.work:
        return block
    state = _thinking({"reasoningContent": msgspec.json.decode(block.opaque.value)})
    opaque = msgspec.structs.replace(block.opaque, value=msgspec.Raw(msgspec.json.encode(state)))
    return msgspec.structs.replace(block, opaque=opaque)


def _told(value: object) -> object:
    if isinstance(value, list):
        return [_told(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "reasoningContent" in value or "reasoningText" in value or "redactedContent" in value:
        return _thinking(value)
    use = value.get("toolUse")
    if isinstance(use, dict):
        return {"type": "tool_use", "id": use.get("toolUseId")}
    if isinstance(value.get("text"), str):
        return {**value, "type": "text"}
    return {name: _told(inner) for name, inner in value.items()}


def _thinking(value: Fields) -> dict[str, object]:
    content = value.get("reasoningContent", value)
    match content:
        case {"redactedContent": data}:
            return {"type": "redacted_thinking", "data": data}
        case {"reasoningText": dict(said)}:
            fields = {"thinking": said.get("text"), "signature": said.get("signature")}
            return {"type": "thinking", **{n: v for n, v in fields.items() if v is not None}}
        case _:
            return {"type": "thinking"}
