"""Says whether a Chat Completions body may be sent, knowing nothing of our rules.

Two outside statements: the published request types of the provider's own library, by which no key
may be unknown or of the wrong type; and the sequence rules that people have reported refusals for,
written here once more from the published messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolUnionParam
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from pydantic import TypeAdapter, ValidationError


@cache
def _types() -> tuple[TypeAdapter[Any], TypeAdapter[Any], TypeAdapter[Any]]:
    return (
        TypeAdapter(list[ChatCompletionMessageParam]),
        TypeAdapter(list[ChatCompletionToolUnionParam]),
        TypeAdapter(CompletionCreateParamsStreaming),
    )


def problems(body: bytes) -> list[str]:
    """Return why the provider would refuse `body`; nothing where it would not."""
    request = json.loads(body)
    return [*_of_shape(request), *_of_sequence(request["messages"])]


def _of_shape(request: dict[str, Any]) -> Iterator[str]:
    messages, tools, options = _types()
    parts = (
        (messages, request["messages"]),
        (tools, request.get("tools", [])),
        (options, {**request, "messages": [], "tools": []}),
    )
    for adapter, value in parts:
        try:
            kept = _plain(adapter.validate_python(value))
        except ValidationError as error:
            yield f"not of the published type: {error.errors()[0]['loc']} {error.errors()[0]['msg']}"
            continue
        if kept != value:
            yield f"the published types do not keep all of it: {kept} is not {value}"


def _plain(value: Any) -> Any:
    """Lazy iterables of validated values as lists."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, str | int | float | None):
        return value
    return [_plain(inner) for inner in value]


def _of_sequence(messages: list[dict[str, Any]]) -> Iterator[str]:
    if not messages:
        yield "messages has no item"
    seen: set[str] = set()
    due: set[str] = set()
    for number, message in enumerate(messages):
        at = f"messages[{number}]"
        if message["role"] == "tool":
            if message["tool_call_id"] not in due:
                yield f"{at} is no response to a preceding message with tool_calls"
            due.discard(message["tool_call_id"])
        elif due:
            yield f"{at} comes before the tool messages for {sorted(due)}"
            due = set()
        calls = message.get("tool_calls", [])
        if "content" in message and message["content"] == []:
            yield f"{at} has an empty array of content"
        if message.get("content") is None and not calls and "refusal" not in message:
            yield f"{at} has neither content nor calls"
        if calls == [] and "tool_calls" in message:
            yield f"{at} has an empty array of calls"
        for call in calls:
            if call["id"] in seen:
                yield f"{at} has the call id {call['id']} a second time"
            if not 0 < len(call["id"]) <= 64:
                yield f"{at} has a call id of {len(call['id'])} characters"
            if re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", call["function"]["name"]) is None:
                yield f"{at} calls a tool of an impossible name"
            try:
                json.loads(call["function"]["arguments"])
            except ValueError:
                yield f"{at} has half a call"
            seen.add(call["id"])
            due.add(call["id"])
    if due:
        yield f"the calls {sorted(due)} have no response"
