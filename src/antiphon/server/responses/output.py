"""What a message of the model looks like as output items.

The order of the blocks is the order of the items: texts and refusals that follow one another
are parts of one message, readable reasoning and calls are items of their own. Reasoning that
only its provider can read is kept in the graph and not listed. What becomes of a call decides
how it is told: one that the client is to run is a function call; one that was run or refused
here is told with its result, so that nobody runs it again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, assert_never

from antiphon.core.answers.deltas import Channel
from antiphon.core.blocks import Message, Reasoning, Refusal, Text, ToolCall
from antiphon.core.ids import CallId, MessageId
from antiphon.core.records import Call, CallState, Runner
from antiphon.core.tools.ledger import REFUSED

Json: TypeAlias = dict[str, Any]

HERE: Final = "antiphon"
"""Stands where OpenAI names the server that ran a tool."""

_OWN_ID: Final = re.compile(r"[A-Za-z0-9_-]+\.[0-9]+")


@dataclass(frozen=True, slots=True)
class Part:
    """A text or a refusal inside a message."""

    channel: Channel
    text: str


@dataclass(frozen=True, slots=True)
class Said:
    """A message item."""

    id: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Thought:
    """A reasoning item."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that the client is to run."""

    id: str
    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Ran:
    """A call that was run, or refused, by this server; `error` says that it failed."""

    id: str
    name: str
    arguments: str
    output: str
    error: bool


Item: TypeAlias = Said | Thought | Asked | Ran


def item_id(message: MessageId, number: int, *, said_before: bool) -> str:
    """Return the id of item `number` of a message: the message's own for its first text.

    A point never stands in the id of a message, so the two cannot be confused.
    """
    return f"{message}.{number}" if said_before else message


def as_brought(item: object) -> object:
    """Return an item that a client brings back without the id that it had from us.

    Such an id names a place in an answer of this server. No provider gave it, and OpenAI refuses
    ids of that form. The one that a message bears itself is like theirs, and stays.
    """
    match item:
        case {"type": "item_reference"}:
            return item
        case {"id": str(name), **rest} if _OWN_ID.fullmatch(name):
            return rest
        case _:
            return item


def listed(message: Message, calls: Mapping[CallId, Call]) -> tuple[Item, ...]:
    """Return the items of an assistant message, but for calls that are not the client's."""
    items: list[Item] = []
    parts: list[Part] = []
    said = False

    def close() -> None:
        nonlocal said
        if parts:
            items.append(Said(item_id(message.id, len(items), said_before=said), tuple(parts)))
            parts.clear()
            said = True

    for block in message.blocks:
        match block:
            case Text(text=text):
                parts.append(Part(Channel.TEXT, text))
            case Refusal(text=text):
                parts.append(Part(Channel.REFUSAL, text))
            case Reasoning(text=text) if text:
                close()
                items.append(Thought(f"{message.id}.{len(items)}", text))
            case ToolCall() if is_clients(calls.get(block.call_id)):
                close()
                items.append(
                    Asked(f"{message.id}.{len(items)}", block.call_id, block.name, block.arguments)
                )
            case ToolCall():
                close()
            case _:
                pass
    close()
    return tuple(items)


def is_clients(call: Call | None) -> bool:
    """Return whether the client is to bring a call's result. Unknown calls are its own."""
    if call is None:
        return True
    refused = call.state is CallState.ERROR and call.code in REFUSED
    return call.runner is Runner.CLIENT and not refused


def ran(call: Call) -> Ran:
    """Return the item of a call that was closed here."""
    text = "\n".join(part.text for part in call.content if isinstance(part, Text))
    return Ran(
        f"{call.message}.c{call.order}",
        call.name,
        call.arguments,
        text,
        call.state is not CallState.SUCCESS,
    )


def as_json(item: Item, *, done: bool = True) -> Json:
    """Return an item as the wire has it: whole, or as it stands when it is announced."""
    status = "completed" if done else "in_progress"
    match item:
        case Said(id=own, parts=parts):
            content = [part_json(part) for part in parts] if done else []
            return {
                "id": own,
                "type": "message",
                "status": status,
                "role": "assistant",
                "content": content,
            }
        case Thought(id=own, text=text):
            content = [{"type": "reasoning_text", "text": text}] if done else []
            return {
                "id": own,
                "type": "reasoning",
                "status": status,
                "summary": [],
                "content": content,
            }
        case Asked():
            return {
                "id": item.id,
                "type": "function_call",
                "status": status,
                "call_id": item.call_id,
                "name": item.name,
                "arguments": item.arguments if done else "",
            }
        case Ran():
            return {
                "id": item.id,
                "type": "mcp_call",
                "status": "failed" if item.error and done else status,
                "server_label": HERE,
                "name": item.name,
                "arguments": item.arguments,
                "output": item.output if done and not item.error else None,
                "error": item.output if done and item.error else None,
                "approval_request_id": None,
            }
        case _:
            assert_never(item)


def part_json(part: Part) -> Json:
    """Return a part of a message as the wire has it."""
    if part.channel is Channel.REFUSAL:
        return {"type": "refusal", "refusal": part.text}
    return {"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}
