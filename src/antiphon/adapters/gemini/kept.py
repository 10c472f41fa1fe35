"""A request held against what earlier answers left to be sent back: signatures.

A signature goes back on the very part that it came with. Since the user last spoke it is missed
where it does not, unless the model is one that does not mind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from antiphon.adapters.base import Parsed
from antiphon.adapters.gemini.options import camel
from antiphon.adapters.gemini.parts import SIGNATURE
from antiphon.core.blocks import Message, Reasoning, Role, ToolCall, block_id
from antiphon.core.rules.findings import Finding

Fields: TypeAlias = Mapping[str, object]

ARRAY: Final = "contents"


class _Part(NamedTuple):
    """A part of the model that is sent since the user last spoke."""

    at: str
    position: int
    signature: object
    call: ToolCall | None


def findings(parsed: Parsed, stored: Fields, *, enforced: bool) -> Iterator[Finding]:
    """Yield where a kept signature is missing from a request, or is another.

    `stored_provider_state` is what single parts, named by place, had come with;
    `committed_blocks` are the parts of answers, or the contents that held them. With `enforced`
    the profile's own rule speaks of calls without any signature.
    """
    sent = list(_sent(parsed))
    for part, signature in _wanted(sent, stored):
        told = enforced and part.call is not None and part.signature is None
        if part.signature != signature and not told:
            yield Finding(
                code="lost_signature",
                at=part.at,
                position=part.position,
                message="A signature came with this part and has to go back on it. Send the part as it came.",
            )


def _sent(parsed: Parsed) -> Iterator[_Part]:
    messages: Sequence[Message] = parsed.messages
    spoke = max((n for n, m in enumerate(messages) if m.role is Role.USER), default=-1)
    position = 0
    for number, message in enumerate(messages):
        parts: dict[str, _Part] = {}
        for order, block in enumerate(message.blocks):
            at = block_id(message.id, order)
            place = parsed.places.get(at, at)
            signature = None
            if isinstance(block, ToolCall | Reasoning) and block.opaque is not None:
                signature = camel(msgspec.json.decode(block.opaque.value)).get(SIGNATURE)
            call = block if isinstance(block, ToolCall) else None
            # A signed text is two blocks of ours and one part of theirs.
            parts[place] = _Part(place, position + order, signature, call)
        if message.role is Role.ASSISTANT and number > spoke:
            yield from parts.values()
        position += len(message.blocks) or 1


def _wanted(sent: Sequence[_Part], stored: Fields) -> Iterator[tuple[_Part, object]]:
    """Yield the parts that came with a signature, and that."""
    by_place = {part.at: part for part in sent}
    state = stored.get("stored_provider_state")
    for place, fields in state.items() if isinstance(state, dict) else ():
        signature = _signature(fields)
        part = by_place.get(f"{ARRAY}[{place.partition('[')[2]}")
        if part is not None and signature is not None:
            yield part, signature
    for fields in _committed(stored.get("committed_blocks")):
        signature, call = _signature(fields), fields.get("functionCall")
        if signature is not None and isinstance(call, dict):
            part = next((p for p in sent if p.call is not None and _is(p.call, call)), None)
            if part is not None:
                yield part, signature


def _signature(fields: object) -> object:
    return camel(fields).get(SIGNATURE) if isinstance(fields, dict) else None


def _committed(value: object) -> Iterator[Fields]:
    """Yield the parts in what was kept: a list of them, contents that hold them, or either by place."""
    todo = [value]
    while todo:
        match todo.pop(0):
            case list(items):
                todo = [*items, *todo]
            case {"parts": parts}:
                todo = [parts, *todo]
            case dict(fields) if SIGNATURE in camel(fields) or "functionCall" in camel(fields):
                yield camel(fields)
            case dict(fields):
                todo = [*fields.values(), *todo]
            case _:
                pass


def _is(call: ToolCall, fields: Fields) -> bool:
    """Whether a call that is sent is the one that was kept."""
    if fields.get("id"):
        return call.call_id == fields["id"]
    arguments = msgspec.json.decode(call.arguments or b"{}")
    return call.name == fields.get("name") and arguments == (fields.get("args") or {})
