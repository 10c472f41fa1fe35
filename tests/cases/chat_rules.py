"""What a Chat Completions endpoint refuses: a judge of raw bodies, written from its published types.

It shares no line with the product's validator: it reads the bytes that a provider received, as
that provider would, and says what it would have answered with 400.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

ROLES: Final = {"developer", "system", "user", "assistant", "tool"}
PARTS: Final = {
    "developer": {"text"},
    "system": {"text"},
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal"},
    "tool": {"text"},
}
NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
LONGEST_ID: Final = 64
MOST_TOOLS: Final = 128


def objections(body: bytes) -> list[str]:
    """Return every reason for which the endpoint would refuse this body; none if it is legal."""
    try:
        request = json.loads(body.decode("utf-8"))
    except ValueError as error:
        return [f"not JSON: {error}"]
    if not isinstance(request, dict):
        return ["not an object"]
    found = []
    if not isinstance(request.get("model"), str) or not request["model"]:
        found.append("model is missing")
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        return [*found, "messages needs at least one item"]
    for number, message in enumerate(messages):
        found += [f"messages[{number}]: {why}" for why in _message(message)]
    if not found:
        found += _pairing(messages)
    return found + list(_tools(request))


def _message(message: Any) -> Iterator[str]:
    if not isinstance(message, dict):
        yield "not an object"
        return
    role = message.get("role")
    if role not in ROLES:
        yield f"role {role!r}"
        return
    calls = message.get("tool_calls")
    if role != "assistant" and calls is not None:
        yield "only an assistant calls tools"
    if role == "assistant" and calls is not None:
        yield from _calls(calls)
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        yield "a tool message without tool_call_id"
    if role != "tool" and "tool_call_id" in message:
        yield "tool_call_id on a message that is no result"
    if role == "tool" and "name" in message:
        yield "a tool message has no name"
    yield from _content(message, role, may_be_null=bool(calls) or "refusal" in message)


def _content(message: dict[str, Any], role: str, *, may_be_null: bool) -> Iterator[str]:
    content = message.get("content")
    if content is None:
        if role != "assistant" or not may_be_null:
            yield "content is missing"
    elif isinstance(content, list):
        if not content:
            yield "an array of content needs at least one part"
        for part in content:
            kind = part.get("type") if isinstance(part, dict) else None
            if kind not in PARTS[role]:
                yield f"a part of type {kind!r} in a message of role {role}"
            elif kind == "text" and not isinstance(part.get("text"), str):
                yield "a text part without text"
    elif not isinstance(content, str):
        yield f"content is a {type(content).__name__}"


def _calls(calls: Any) -> Iterator[str]:
    if not isinstance(calls, list) or not calls:
        yield "tool_calls needs at least one item"
        return
    seen: set[str] = set()
    for call in calls:
        call_id = call.get("id")
        if not isinstance(call_id, str) or not 0 < len(call_id) <= LONGEST_ID:
            yield f"call id {call_id!r}"
        elif call_id in seen:
            yield f"two calls with the id {call_id!r}"
        else:
            seen.add(call_id)
        function = call.get("function")
        if call.get("type") != "function" or not isinstance(function, dict):
            yield "a call that is no function call"
            continue
        if not isinstance(function.get("name"), str) or not NAME.match(function["name"]):
            yield f"function name {function.get('name')!r}"
        try:
            arguments = json.loads(function["arguments"])
        except (KeyError, TypeError, ValueError):
            yield "arguments that are no JSON text"
        else:
            if not isinstance(arguments, dict):
                yield "arguments that are no object"


def _pairing(messages: list[dict[str, Any]]) -> Iterator[str]:
    """Calls are answered before anything else is said, each once; nothing else is a result."""
    waiting: set[str] = set()
    asked_at: int | None = None
    for number, message in enumerate(messages):
        if message["role"] == "tool":
            call_id = message["tool_call_id"]
            if call_id not in waiting:
                what = "a second result, or one" if asked_at is not None else "a result"
                yield f"messages[{number}]: {what} without a call: {call_id!r}"
            waiting.discard(call_id)
            continue
        if waiting:
            yield f"messages[{asked_at}]: no result for {sorted(waiting)} before messages[{number}]"
        waiting = {call["id"] for call in message.get("tool_calls") or ()}
        asked_at = number if waiting else None
    if waiting:
        yield f"messages[{asked_at}]: no result for {sorted(waiting)}"


def _tools(request: dict[str, Any]) -> Iterator[str]:
    tools = request.get("tools")
    if tools is None:
        if request.get("tool_choice") not in (None, "none"):
            yield "tool_choice without tools"
        return
    if not isinstance(tools, list) or not 0 < len(tools) <= MOST_TOOLS:
        yield "tools has to hold 1 to 128 items"
        return
    names: set[str] = set()
    for tool in tools:
        function = tool.get("function") if isinstance(tool, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or not NAME.match(name) or name in names:
            yield f"tool name {name!r}"
        else:
            names.add(name)
