"""Everything of a request that stands before its instructions: model, options, tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from antiphon.adapters.openai_responses.profile import Wire
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.rules.strict_schemas import open_places
from antiphon.errors import InvalidInput

Json: TypeAlias = dict[str, object]

OWN_FIELDS: Final = frozenset(
    {"model", "input", "instructions", "tools", "parallel_tool_calls", "stream"}
    | {"max_output_tokens", "temperature", "previous_response_id", "conversation", "background"}
)
ENCRYPTED: Final = "reasoning.encrypted_content"

STRICT_WORDS: Final = frozenset(
    {"type", "properties", "required", "items", "enum", "description", "anyOf"}
    | {"additionalProperties"}
)
"""What every model takes in the schema of a strict tool."""

STRICT_DEPTH: Final = 5
STRICT_PROPERTIES: Final = 100

_encode: Final = msgspec.json.Encoder().encode
_names: Final = msgspec.json.Decoder(list[str]).decode


def head(policy: Policy, tools: Sequence[ToolDeclaration], wire: Wire) -> bytes:
    """Return the body up to its instructions, without the comma behind it.

    Nothing is kept at the provider, its reasoning comes back sealed, and what does not fit is
    refused instead of cut, unless the options say otherwise. What it works on in the background
    it has to keep; only what is streamed is worked on there.

    Raises:
        InvalidInput: `bad_option`: an extra field that has a setting of its own, or one of the
            wrong type.
    """
    clash = OWN_FIELDS & policy.extra.keys()
    if clash:
        raise _bad(
            f"extra.{min(clash)}",
            "This field has a setting of its own; leave it out of the extra ones.",
        )
    background = wire.background and policy.stream
    if background and bytes(policy.extra.get("store", b"true")) != b"true":
        raise _bad("extra.store", "What is worked on in the background has to be stored.")
    fields: Json = {"model": policy.model, "stream": policy.stream, "store": background}
    if background:
        fields["background"] = True
    fields["truncation"] = "disabled"
    if policy.max_output_tokens is not None:
        fields["max_output_tokens"] = policy.max_output_tokens
    if policy.temperature is not None:
        fields["temperature"] = policy.temperature
    fields |= sorted(policy.extra.items())
    fields["include"] = _include(policy)
    if tools:
        fields["tools"] = [_declaration(tool) for tool in tools]
        choice = policy.tool_choice
        if choice is not None:
            named = choice.startswith("tool:")
            function = {"type": "function", "name": choice.removeprefix("tool:")}
            fields["tool_choice"] = function if named else choice
        if policy.parallel_tool_calls is not None:
            fields["parallel_tool_calls"] = policy.parallel_tool_calls
    return _encode(fields)[:-1]


def _include(policy: Policy) -> list[str]:
    """Return what is asked for beside the answer: reasoning that can be sent back, at least."""
    raw = policy.extra.get("include")
    try:
        asked = _names(raw) if raw is not None else []
    except msgspec.DecodeError:
        raise _bad("extra.include", "This option is an array of strings.") from None
    return list(dict.fromkeys((ENCRYPTED, *asked)))


def _declaration(tool: ToolDeclaration) -> Json:
    """Return a declaration. Its two optional words are required on this wire."""
    declared: Json = {"type": "function", "name": tool.name}
    if tool.description:
        declared["description"] = tool.description
    declared["parameters"] = tool.parameters
    declared["strict"] = _fits_strict(tool) if tool.strict is None else tool.strict
    return declared


def _fits_strict(tool: ToolDeclaration) -> bool:
    """Say whether a schema can be held to strictly, as the server does where nobody says."""
    try:
        schema = msgspec.json.decode(tool.parameters)
    except (msgspec.DecodeError, RecursionError):
        return False  # the rules say what is wrong with it
    if not isinstance(schema, dict) or next(open_places(schema), ""):
        return False
    properties = 0
    todo: list[tuple[object, int]] = [(schema, 1)]
    while todo:
        node, depth = todo.pop()
        if not isinstance(node, dict) or node.keys() - STRICT_WORDS or depth > STRICT_DEPTH:
            return False
        inner = node.get("properties") or {}
        items, choices = node.get("items"), node.get("anyOf") or []
        if not isinstance(inner, dict) or not isinstance(choices, list):
            return False
        properties += len(inner)
        todo += [(child, depth + 1) for child in inner.values()]
        todo += [(child, depth) for child in choices]
        todo += [(items, depth + 1)] if items is not None else []
    return properties <= STRICT_PROPERTIES


def _bad(at: str, message: str) -> InvalidInput:
    return InvalidInput(message, code="bad_option", at=at)
