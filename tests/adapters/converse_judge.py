"""Says whether a Converse body may be sent, knowing nothing of our rules.

First botocore's own validator over the published service model, with the patterns and enums of
that model which it leaves to the service; then the refusals that people have reported, written
down once more as one plain pass over the body.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

from botocore.session import Session
from botocore.validate import ParamValidator

ALLOWED = {
    "user": {"text", "image", "document", "audio", "toolResult"},
    "assistant": {"text", "toolUse", "toolResult", "reasoningContent"},
    "system": {"text"},
}


@cache
def _shape(operation: str) -> Any:
    model = Session().get_service_model("bedrock-runtime")
    return model.operation_model(operation).input_shape


def problems(
    body: bytes, *, streamed: bool = True, prefill: bool = False, between: bool = False
) -> list[str]:
    """Return why the service would refuse `body`; nothing where it would not.

    `prefill` and `between` say whether the model continues a text, and takes system messages.
    """
    request = json.loads(body)
    shape = _shape("ConverseStream" if streamed else "Converse")
    report = ParamValidator().validate({"modelId": "m", **request}, shape)
    found = [report.generate_report()] if report.has_errors() else []
    found += _of_shape(request, shape)
    found += [f"no such field: {name}" for name in request if name not in shape.members]
    if not found:
        found += _of_turns(request["messages"], prefill=prefill, between=between)
        found += _of_tools(request)
    return found


def _of_shape(value: Any, shape: Any) -> Iterator[str]:
    """Yield what breaks a pattern or an enum of the service model, and fields that it lacks."""
    match shape.type_name:
        case "structure":
            if getattr(shape, "is_document_type", False):
                return
            for name, inner in value.items():
                if name not in shape.members:
                    yield f"{shape.name} has no field {name}"
                else:
                    yield from _of_shape(inner, shape.members[name])
        case "list":
            for inner in value:
                yield from _of_shape(inner, shape.member)
        case "string":
            pattern = shape.metadata.get("pattern")
            if pattern is not None and re.fullmatch(pattern, value) is None:
                yield f"{value!r} does not match {pattern}"
            if not shape.metadata.get("min", 0) <= len(value) <= shape.metadata.get("max", 1 << 30):
                yield f"{value!r} is too short or too long"
            if shape.enum and value not in shape.enum:
                yield f"{value!r} is none of {shape.enum}"
        case _:
            return


def _of_turns(messages: list[Any], *, prefill: bool, between: bool) -> Iterator[str]:
    if not messages:
        yield "at least one message"
        return
    roles = [message["role"] for message in messages]
    if roles[0] != "user":
        yield "A conversation must start with a user message."
    if [r for r in roles if r != "system"][-1] != "user" and not prefill:
        yield "the last turn is the user's"
    for before, role in pairwise(roles):
        if before == role:
            yield "roles must alternate"
        if role == "system" and (before != "user" or not between):
            yield "a system message there"
    due: list[str] = []
    seen: set[str] = set()
    names: set[str] = set()
    for message in (m for m in messages if m["role"] != "system"):
        content = message["content"]
        if not content:
            yield "an empty message"
        results = [b["toolResult"] for b in content if "toolResult" in b and "type" not in b["toolResult"]]  # fmt: skip
        if sorted(r["toolUseId"] for r in results) != sorted(due):
            yield "Expected toolResult blocks for exactly the calls before"
        if results and any("toolResult" in b for b in content[len(results) :]):
            yield "results come first"
        if results and any("document" in b for b in content):
            yield "no documents beside results"
        uses = [b["toolUse"] for b in content if "toolUse" in b and "type" not in b["toolUse"]]
        due = [use["toolUseId"] for use in uses]
        if seen & set(due) or len(set(due)) != len(due):
            yield "two calls of one id"
        seen |= set(due)
        for block in content:
            yield from _of_block(message["role"], block, names)
        if any("document" in b for b in content) and not any("text" in b for b in content):
            yield "a document needs a text beside it"
    if due:
        yield "calls without results"


def _of_block(role: str, block: dict[str, Any], names: set[str]) -> Iterator[str]:
    (kind,) = block
    if kind not in ALLOWED[role]:
        yield f"{kind} in a {role} message"
    match block:
        case {"text": text} if not text.strip():
            yield "a blank text"
        case {"toolUse": {"input": given}} if not isinstance(given, dict):
            yield "an input that is no object"
        case {"document": {"name": name}}:
            fits = re.fullmatch(r"[a-zA-Z0-9 ()\[\]-]{1,200}", name) and "  " not in name
            if name in names or not fits:
                yield f"an impossible name of a document: {name!r}"
            names.add(name)
        case {"toolResult": {"content": content, **more}}:
            if more.get("status") == "error" and not content:
                yield "cannot be empty when status value is error"
            for inner in content:
                if "json" in inner and not isinstance(inner["json"], dict):
                    yield "JSON of a result is an object"
                elif "json" not in inner:
                    yield from _of_block("user", inner, names)
        case _:
            return


def _of_tools(request: dict[str, Any]) -> Iterator[str]:
    used = any(
        "toolUse" in block or "toolResult" in block
        for message in request["messages"]
        for block in message["content"]
    )
    tools = request.get("toolConfig", {}).get("tools", [])
    if used and not tools:
        yield "The toolConfig field must be defined when using toolUse and toolResult blocks."
    for tool in tools:
        if tool["toolSpec"]["inputSchema"]["json"].get("type") != "object":
            yield "a schema is of type object"
