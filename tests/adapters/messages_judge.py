"""Says whether an Anthropic Messages body may be sent, knowing nothing of our rules.

The published request types and the refusals that people have reported, written down once more as
one plain pass over the body, after neighbours of one role were joined as the server joins them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

FIELDS = {
    "text": {"type", "text"},
    "image": {"type", "source"},
    "document": {"type", "source", "title"},
    "tool_result": {"type", "tool_use_id", "content", "is_error"},
    "tool_use": {"type", "id", "name", "input"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
    "server_tool_use": {"type", "id", "name", "input"},
}
ALLOWED = {
    "user": {"text", "image", "document", "tool_result"},
    "assistant": {"text", "tool_use", "thinking", "redacted_thinking", "server_tool_use"},
    "system": {"text"},
}
OPTIONS = {
    "model",
    "max_tokens",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "stream",
    "thinking",
}
OPTIONS |= {"temperature", "stop_sequences", "metadata"}


def problems(body: bytes, *, prefill: bool = False, between: bool = False) -> list[str]:
    """Return why the provider would refuse `body`; nothing where it would not.

    `prefill` and `between` say whether the model continues a text, and takes system messages.
    """
    request = json.loads(body)
    return [
        *_of_options(request),
        *_of_messages(request["messages"], prefill=prefill, between=between),
        *_of_tools(request),
    ]


def _of_options(request: dict[str, Any]) -> Iterator[str]:
    if request.keys() - OPTIONS:
        yield f"no such option: {request.keys() - OPTIONS}"
    if not isinstance(request.get("max_tokens"), int) or request["max_tokens"] < 1:
        yield "max_tokens is required"
    if not request.get("model"):
        yield "model is required"
    for block in _blocks(request.get("system", "x")):
        if block.keys() != {"type", "text"} or not block["text"].strip():
            yield "system: text blocks must be non-empty"


def _of_tools(request: dict[str, Any]) -> Iterator[str]:
    tools = request.get("tools", [])
    used = any(
        block["type"] in ("tool_use", "tool_result")
        for message in request["messages"]
        for block in _blocks(message["content"])
    )
    if used and not tools:
        yield "history with tool blocks needs tools"
    if "tool_choice" in request and (not tools or not isinstance(request["tool_choice"], dict)):
        yield "tool_choice without tools, or no object"
    for tool in tools:
        if tool["input_schema"].get("type") != "object":
            yield "input_schema.type is object"
        if tool.keys() - {"name", "description", "input_schema", "strict"}:
            yield "no such field of a tool"
        if re.fullmatch("[a-zA-Z0-9_-]{1,128}", tool["name"]) is None:
            yield "an impossible name for a tool"


def _of_messages(messages: list[dict[str, Any]], *, prefill: bool, between: bool) -> Iterator[str]:
    if not messages:
        yield "messages: at least one message is required"
        return
    turns: list[tuple[str, list[dict[str, Any]]]] = []
    for role, run in groupby(messages, key=lambda message: message["role"]):
        joined = [_blocks(message["content"]) for message in run]
        if not all(joined):
            yield f"a {role} message with empty content"
        turns.append((role, [block for blocks in joined for block in blocks]))
    if turns[0][0] != "user":
        yield "the first message is the user's"
    last = [role for role, _ in turns if role != "system"][-1:] or [""]
    paused = turns[-1][1] and turns[-1][1][-1]["type"] == "server_tool_use"
    if last != ["user"] and not prefill and not paused:
        yield "This model does not support assistant message prefill."
    due: set[str] = set()
    seen: set[str] = set()
    for (role, blocks), before in zip(turns, ["", *(role for role, _ in turns)], strict=False):
        if role == "system" and (not between or before != "user"):
            yield "role 'system' is not supported here"
        yield from _of_results(blocks, due)
        due = {block["id"] for block in blocks if block["type"] == "tool_use"}
        for block in blocks:
            yield from _of_block(role, block)
            if block["type"] == "tool_use":
                if block["id"] in seen:
                    yield "two calls of one id"
                seen.add(block["id"])
    if due:
        yield f"tool_use ids were found without tool_result blocks: {due}"


def _of_results(blocks: list[dict[str, Any]], due: set[str]) -> Iterator[str]:
    ids = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    if set(ids) - due:
        yield f"unexpected tool_use_id in tool_result blocks: {set(ids) - due}"
    if due - set(ids):
        yield f"tool_use ids were found without tool_result blocks immediately after: {due}"
    if len(ids) != len(set(ids)):
        yield "each tool_use must have a single result"
    if any(block["type"] == "tool_result" for block in blocks[len(ids) :]):
        yield "tool_result blocks come first"


def _of_block(role: str, block: dict[str, Any]) -> Iterator[str]:
    kind = block["type"]
    if kind not in ALLOWED[role]:
        yield f"{kind} in a {role} message"
        return
    if block.keys() - FIELDS[kind]:
        yield f"no such field of {kind}: {block.keys() - FIELDS[kind]}"
    match block:
        case {"type": "text", "text": text} if not text.strip():
            yield "text content blocks must contain non-whitespace text"
        case {"type": "tool_use", "id": name, "input": given}:
            if re.fullmatch("[a-zA-Z0-9_-]+", name) is None or not isinstance(given, dict):
                yield "tool_use.id or input is of another form"
            if re.fullmatch("[a-zA-Z0-9_-]{1,128}", block["name"]) is None:
                yield "an impossible name for a tool"
        case {"type": "thinking"} if not block["signature"]:
            yield "a thinking block without a signature"
        case {"type": "image", "source": source}:
            kinds = {"image/jpeg", "image/png", "image/gif", "image/webp"}
            if source["type"] == "base64" and source["media_type"] not in kinds:
                yield "an image of another type"
        case {"type": "tool_result"}:
            content = block.get("content", "left out")
            if content == [] or (block.get("is_error") and not block.get("content")):
                yield "a result with an empty list, or an error that says nothing"
            for inner in content if isinstance(content, list) else ():
                if inner["type"] not in ("text", "image", "document"):
                    yield f"{inner['type']} in a result"
                yield from _of_block("user", inner)
        case _:
            return


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
