"""Lines of messages, written so that a test shows what it is about."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.core.blocks import (
    Block,
    Message,
    Origin,
    Outcome,
    ResultPart,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Trust,
    default_trust,
)
from antiphon.core.ids import CallId, ConversationId, MessageId

HERE = ConversationId("conv_here")
ORIGINS = {Role.ASSISTANT: Origin.MODEL, Role.TOOL: Origin.TOOL}


def said(role: Role | str, *blocks: Block | str, **fields: Any) -> Message:
    """A message of `role`; a string is a text block. `line` gives it its id and parent."""
    role = Role(role)
    origin = fields.pop("origin", ORIGINS.get(role, Origin.CLIENT))
    fields.setdefault("trust", default_trust(role, origin))
    fields.setdefault("conversation", HERE)
    return Message(
        id=MessageId(fields.pop("id", "")),
        parent=fields.pop("parent", None),
        role=role,
        blocks=tuple(Text(text=b) if isinstance(b, str) else b for b in blocks),
        origin=origin,
        **fields,
    )


def user(*blocks: Block | str, **fields: Any) -> Message:
    return said(Role.USER, *(blocks or ("hello",)), **fields)


def model(*blocks: Block | str, **fields: Any) -> Message:
    return said(Role.ASSISTANT, *(blocks or ("hello yourself",)), **fields)


def system(text: str = "Be brief.", **fields: Any) -> Message:
    return said(Role.SYSTEM, text, **fields)


def call(call_id: str, name: str = "look", arguments: str = "{}", **fields: Any) -> ToolCall:
    return ToolCall(call_id=CallId(call_id), name=name, arguments=arguments, **fields)


def asks(*call_ids: str | ToolCall, text: str = "", **fields: Any) -> Message:
    """An assistant message with one call for each id."""
    calls = (c if isinstance(c, ToolCall) else call(c) for c in call_ids)
    return said(Role.ASSISTANT, *((text,) if text else ()), *calls, **fields)


def answer(
    call_id: str, *parts: ResultPart | str, outcome: Outcome = Outcome.SUCCESS, **fields: Any
) -> Message:
    """A tool message that answers one call; without parts it says "done"."""
    message_fields = {k: fields.pop(k) for k in ("id", "parent", "trust") if k in fields}
    content = tuple(Text(text=p) if isinstance(p, str) else p for p in (parts or ("done",)))
    result = ToolResult(call_id=CallId(call_id), content=content, outcome=outcome, **fields)
    return said(Role.TOOL, result, **message_fields)


def line(*messages: Message) -> list[Message]:
    """The messages as one line: m1, m2, ..., each the parent of the next, unless it says more."""
    made: list[Message] = []
    for number, message in enumerate(messages, start=1):
        made.append(
            msgspec.structs.replace(
                message,
                id=message.id or MessageId(f"m{number}"),
                parent=message.parent or (made[-1].id if made else None),
            )
        )
    return made


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC"
KEY = b"a tenant's key, of 32 characters"

__all__ = [
    "HERE",
    "KEY",
    "PNG",
    "Trust",
    "answer",
    "asks",
    "call",
    "line",
    "model",
    "said",
    "system",
    "user",
]
