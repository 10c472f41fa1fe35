"""Everything of a request that stands before its messages: model, options, tools.

What a dialect has no field for is not sent. Where leaving it out would change what the caller
asked for, that is an error; where it would not, it is listed as a mapping.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from antiphon.adapters.openai_chat.profile import Wire
from antiphon.core.manifest import Mapping, Policy, ToolDeclaration
from antiphon.errors import InvalidInput

Json: TypeAlias = dict[str, object]

OWN_FIELDS: Final = frozenset(
    {"model", "messages", "tools", "parallel_tool_calls", "stream", "stream_options"}
    | {"max_tokens", "max_completion_tokens", "temperature"}
)

_encode: Final = msgspec.json.Encoder().encode


def head(
    policy: Policy, tools: Sequence[ToolDeclaration], wire: Wire
) -> tuple[bytes, list[Mapping]]:
    """Return the body up to its first message, and what had to be mapped for it.

    Raises:
        InvalidInput: `bad_option`: an extra field that has a setting of its own;
            `unsupported_parameter`: one that this dialect does not list, or a setting that it
            cannot say.
    """
    _check_extra(policy, wire)
    mappings: list[Mapping] = []
    fields: Json = {"model": policy.model, "stream": policy.stream}
    if policy.stream and wire.stream_usage:
        word = "include_usage" if wire.usage_option == "stream_options" else "include"
        fields[wire.usage_option] = {word: True}
    if policy.max_output_tokens is not None:
        fields[wire.output_limit or "max_tokens"] = policy.max_output_tokens
    if policy.temperature is not None:
        fields["temperature"] = policy.temperature
    if wire.store is not None:
        fields["store"] = wire.store
    fields |= sorted(policy.extra.items())
    if tools:
        fields |= _offer(policy, tools, wire, mappings)
    return _encode(fields)[:-1] + b',"messages":[', mappings


def _check_extra(policy: Policy, wire: Wire) -> None:
    clash = OWN_FIELDS & policy.extra.keys()
    if clash:
        raise InvalidInput(
            "This field has a setting of its own; leave it out of the extra ones.",
            code="bad_option",
            at=f"extra.{min(clash)}",
        )
    unlisted = policy.extra.keys() - (wire.options if wire.options is not None else policy.extra)
    if unlisted:
        raise _unsupported(f"extra.{min(unlisted)}")


def _offer(
    policy: Policy, tools: Sequence[ToolDeclaration], wire: Wire, mappings: list[Mapping]
) -> Json:
    choice = policy.tool_choice
    if choice == "none" and not wire.tool_choice:
        mappings.append(Mapping(rule="tools_withheld", block="tools", detail="none may be called"))
        return {}
    fields: Json = {"tools": [_declaration(tool, wire) for tool in tools]}
    if not wire.strict_tools:
        mappings += (
            Mapping(rule="strict_dropped", block=f"tools[{number}]")
            for number, tool in enumerate(tools)
            if tool.strict is not None
        )
    if wire.tool_choice and choice is not None:
        fields["tool_choice"] = _choice(choice, wire)
    elif choice not in (None, "auto"):
        raise _unsupported("tool_choice")
    if policy.parallel_tool_calls is not None and wire.parallel_tool_calls:
        fields["parallel_tool_calls"] = policy.parallel_tool_calls
    elif policy.parallel_tool_calls is False:
        raise _unsupported("parallel_tool_calls")
    return fields


def _declaration(tool: ToolDeclaration, wire: Wire) -> Json:
    function: Json = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = tool.parameters
    if tool.strict is not None and wire.strict_tools:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _choice(choice: str, wire: Wire) -> object:
    """Return the wire's form of a tool choice: a word, or `tool:` and a tool's name."""
    if choice.startswith("tool:"):
        return {"type": "function", "function": {"name": choice.removeprefix("tool:")}}
    return wire.required_word if choice == "required" else choice


def _unsupported(at: str) -> InvalidInput:
    return InvalidInput(
        "This dialect has no such field, and what it does not list is not sent.",
        code="unsupported_parameter",
        at=at,
    )
