"""Says whether a generateContent body may be sent, knowing nothing of our rules.

Shape is judged by the types of Google's own client, which refuse a field that they do not know.
Order is judged by the refusals that people have reported, written down once more as a plain pass.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from google.genai import types
from pydantic import BaseModel, ValidationError

TOP: dict[str, type[BaseModel]] = {
    "systemInstruction": types.Content,
    "toolConfig": types.ToolConfig,
    "generationConfig": types.GenerationConfig,
}
LISTS: dict[str, type[BaseModel]] = {
    "contents": types.Content,
    "tools": types.Tool,
    "safetySettings": types.SafetySetting,
}
DATA = [
    "text",
    "inline_data",
    "file_data",
    "function_call",
    "function_response",
    "executable_code",
    "code_execution_result",
    "tool_call",
    "tool_response",
]  # reads like the union that it is
KEYWORDS = [
    "$id",
    "$defs",
    "$ref",
    "$anchor",
    "type",
    "format",
    "title",
    "description",
    "enum",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "anyOf",
    "oneOf",
    "properties",
    "additionalProperties",
    "required",
]


def problems(body: bytes, *, newer: bool = False) -> list[str]:
    """Return why the provider would refuse `body`; nothing where it would not.

    `newer` models insist on signatures, and continue no text of their own.
    """
    request = json.loads(body)
    try:
        contents = [content for content in _shaped(request) if content.role]
    except ValidationError as error:
        return [f"{e['loc']}: {e['msg']}" for e in error.errors()]
    return [
        *_of_tools(request),
        *_of_parts(contents),
        *_of_order(contents),
        *(_of_newer(contents) if newer else ()),
    ]


def _shaped(request: dict[str, Any]) -> list[types.Content]:
    """Return the contents, after every field was taken by the client's own types."""
    unknown = request.keys() - TOP.keys() - LISTS.keys()
    assert not unknown, f"no such field: {unknown}"
    for name, kind in TOP.items():
        if name in request:
            kind.model_validate(request[name])
    made: list[types.Content] = []
    for name, kind in LISTS.items():
        for value in request.get(name, []):
            read = kind.model_validate(value)
            if isinstance(read, types.Content):
                made.append(read)
                assert read.role in ("user", "model"), "Please use a valid role: user, model."
    return made


def _of_tools(request: dict[str, Any]) -> Iterator[str]:
    declared = [f for tool in request.get("tools", []) for f in tool["functionDeclarations"]]
    if "toolConfig" in request and not declared:
        yield "function calling config without function declarations"
    for function in declared:
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}", function["name"]) is None:
            yield "Invalid function name"
        yield from _of_schema(function["parametersJsonSchema"])


def _of_schema(schema: Any) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    if schema.keys() - set(KEYWORDS):
        yield f"unsupported: {schema.keys() - set(KEYWORDS)}"
    if "$ref" in schema and any(not name.startswith("$") for name in schema):
        yield "$ref beside other keywords"
    named = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]
    for inner in (*named, *schema.get("anyOf", []), schema.get("items")):
        yield from _of_schema(inner)


def _of_parts(contents: list[types.Content]) -> Iterator[str]:
    for number, content in enumerate(contents):
        if not content.parts:
            yield f"contents[{number}].parts: contents.parts must not be empty."
        for part in content.parts or ():
            held = [name for name in DATA if getattr(part, name) is not None]
            if len(held) != 1:
                yield f"contents[{number}].parts: required oneof field 'data' must have one initialized field"
            if part.text == "" and not part.thought_signature:
                yield f"contents[{number}].parts: an empty text"
            if part.function_response is not None and content.role != "user":
                yield "a response of the model"
            if part.function_call is not None and content.role != "model":
                yield "a call of the user"


def _of_order(contents: list[types.Content]) -> Iterator[str]:
    if not contents:
        yield "contents is not specified"
        return
    if contents[0].role != "user":
        yield "Please ensure that multiturn requests start with a user role"
    due: list[types.FunctionCall] = []
    before = ""
    for content in contents:
        parts = content.parts or []
        answers = [p.function_response for p in parts if p.function_response is not None]
        if len(answers) != len(due):
            yield (
                "Please ensure that the number of function response parts is equal to the number of function call "
                "parts of the function call turn."
            )
        for call, answer in zip(due, answers, strict=False):
            if (call.id, call.name) != (answer.id, answer.name):
                yield "a response that is none to its call"
        due = [p.function_call for p in parts if p.function_call is not None]
        if due and before != "user":
            yield (
                "Please ensure that function call turn comes immediately after a user turn or after a function "
                "response turn."
            )
        before = content.role or ""
    if due:
        yield "calls without responses"


def _of_newer(contents: list[types.Content]) -> Iterator[str]:
    if contents and contents[-1].role == "model":
        yield "Requests ending with a model turn are not supported."
    for content in contents:
        calls = [p for p in content.parts or () if p.function_call is not None]
        if calls and not calls[0].thought_signature:
            yield "Function call is missing a thought_signature in functionCall parts."
