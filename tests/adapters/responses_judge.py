"""Says whether a Responses body may be sent, knowing nothing of our rules.

Two outside statements: the published request types of the provider's own library, by which no key
may be unknown or of the wrong type; and the rules about items that people have reported refusals
for, written here once more from the published messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from openai.types.responses import ResponseInputItemParam, ToolParam
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter, ValidationError

MODELS = {"function_call", "reasoning", "web_search_call"}
INPUT = {"input_text", "input_image", "input_file"}


@cache
def _types() -> tuple[TypeAdapter[Any], TypeAdapter[Any], TypeAdapter[Any]]:
    return (
        TypeAdapter(list[ResponseInputItemParam]),
        TypeAdapter(list[ToolParam]),
        TypeAdapter(ResponseCreateParamsStreaming),
    )


def problems(body: bytes) -> list[str]:
    """Return why the provider would refuse `body`; nothing where it would not."""
    request = json.loads(body)
    return [*_of_shape(request), *_of_items(request), *_of_tools(request)]


def _of_shape(request: dict[str, Any]) -> Iterator[str]:
    items, tools, options = _types()
    given = request.get("input", [])
    listed = [{"role": "user", "content": given}] if isinstance(given, str) else given
    bare = {k: v for k, v in request.items() if k not in ("input", "tools")}
    yield from _typed(items, listed)
    yield from _typed(tools, request.get("tools", []))
    yield from _typed(options, {**bare, "stream": True})


def _typed(adapter: TypeAdapter[Any], value: Any) -> Iterator[str]:
    try:
        kept = _plain(adapter.validate_python(value))
    except ValidationError as error:
        yield f"not of the published type: {error.errors()[0]['loc']} {error.errors()[0]['msg']}"
        return
    if kept != value:
        yield f"the published types do not keep all of it: {kept} is not {value}"


def _plain(value: Any) -> Any:
    """Lazy iterables of validated values as lists."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, str | int | float | None):
        return value
    return [_plain(inner) for inner in value]


def _of_items(request: dict[str, Any]) -> Iterator[str]:
    given = request.get("input")
    if given in (None, []) and not request.get("previous_response_id"):
        yield "One of input, previous_response_id, conversation or prompt must be provided."
    items = given if isinstance(given, list) else []
    due: dict[str, int] = {}
    seen: set[str] = set()
    for number, item in enumerate(items):
        at = f"input[{number}]"
        kind = item.get("type", "message")
        if kind == "function_call_output":
            if due.pop(item.get("call_id"), None) is None:
                yield f"No tool call found for function call output with call_id {item.get('call_id')}."
            if isinstance(item["output"], list):
                yield from _of_parts(f"{at}.output", item["output"], INPUT)
        elif kind == "function_call":
            if item["call_id"] in seen:
                yield f"{at} has the call id {item['call_id']} a second time"
            if not 0 < len(item["call_id"]) <= 64:
                yield f"Invalid '{at}.call_id': string too long."
            if re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", item["name"]) is None:
                yield f"{at} calls a tool of an impossible name"
            seen.add(item["call_id"])
            due[item["call_id"]] = number
            try:
                json.loads(item["arguments"])
            except (ValueError, TypeError):
                yield f"{at} has half a call"
        elif kind == "message":
            models = item["role"] == "assistant"
            if isinstance(item["content"], list):
                allowed = {"output_text", "refusal"} if models else INPUT
                yield from _of_parts(f"{at}.content", item["content"], allowed)
        elif kind == "reasoning":
            yield from _of_reasoning(request, items, number)
        elif kind == "item_reference" and request.get("store") is False:
            yield f"Item with id '{item['id']}' not found."
    if due:
        yield f"No tool output found for function call {', '.join(due)}."


def _of_reasoning(
    request: dict[str, Any], items: list[dict[str, Any]], number: int
) -> Iterator[str]:
    item = items[number]
    after = items[number + 1] if number + 1 < len(items) else {"type": "nothing"}
    models = after.get("role") == "assistant" or after.get("type") in MODELS
    if not models:
        yield f"Item '{item['id']}' was provided without its required following item."
    if request.get("store") is False and not (item.get("encrypted_content") or item.get("content")):
        yield f"Item with id '{item['id']}' not found. Items are not persisted when store is false."


def _of_parts(at: str, parts: list[dict[str, Any]], allowed: set[str]) -> Iterator[str]:
    if not parts:
        yield f"{at} is an empty array"
    for part in parts:
        if part["type"] not in allowed:
            yield f"Invalid value: '{part['type']}' at {at}. Supported values are: {allowed}"
        if part["type"] == "input_file" and "file_data" in part and "filename" not in part:
            yield f"Missing required parameter: {at}.filename"


def _of_tools(request: dict[str, Any]) -> Iterator[str]:
    for tool in request.get("tools", []):
        if tool["strict"] and _is_open(tool["parameters"]):
            yield f"Invalid schema for function '{tool['name']}'"
    if "tool_choice" in request and not request.get("tools"):
        yield "Tool choice is only allowed when tools are specified."


def _is_open(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    inner = schema.get("properties", {})
    unclosed = schema.get("type") == "object" and (
        schema.get("additionalProperties") is not False
        or set(inner) != set(schema.get("required", []))
    )
    nodes = [*inner.values(), schema.get("items"), *schema.get("anyOf", [])]
    return unclosed or any(_is_open(node) for node in nodes)
