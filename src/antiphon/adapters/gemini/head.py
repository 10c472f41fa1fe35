"""Everything of a request that stands before its system text: options, tools. The path names the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from antiphon.adapters.gemini.schemas import sayable
from antiphon.core.manifest import Mapping, Policy, ToolDeclaration
from antiphon.errors import InvalidInput

Json: TypeAlias = dict[str, object]

OWN_FIELDS: Final = frozenset({"model", "contents", "systemInstruction", "tools"})
OWN_CONFIG: Final = frozenset({"maxOutputTokens", "temperature"})
MODES: Final = {"auto": "AUTO", "required": "ANY", "none": "NONE"}

_encode: Final = msgspec.json.Encoder().encode


def head(policy: Policy, tools: Sequence[ToolDeclaration]) -> tuple[list[bytes], list[Mapping]]:
    """Return the members of the body up to its system text, and what had to be mapped for them.

    Raises:
        InvalidInput: `bad_option`: an extra field that has a setting of its own, or is no object;
            `unsupported_parameter`: this wire cannot ask for one call at a time.
    """
    clash = OWN_FIELDS & policy.extra.keys()
    if policy.tool_choice is not None:
        clash |= {"toolConfig"} & policy.extra.keys()
    if clash:
        raise _bad(f"extra.{min(clash)}")
    fields: Json = dict(sorted(policy.extra.items()))
    config = _config(policy)
    if config:
        fields["generationConfig"] = config
    mappings: list[Mapping] = []
    if tools:
        if policy.parallel_tool_calls is False:
            raise InvalidInput(
                "This wire cannot ask for one call at a time.",
                code="unsupported_parameter",
                at="parallel_tool_calls",
            )
        declared = [_declaration(number, tool, mappings) for number, tool in enumerate(tools)]
        fields["tools"] = [{"functionDeclarations": declared}]
        if policy.tool_choice is not None:
            fields["toolConfig"] = {"functionCallingConfig": _choice(policy.tool_choice)}
    return [_encode({name: value})[1:-1] for name, value in fields.items()], mappings


def _config(policy: Policy) -> Json:
    """Return the generation's options: ours, then the caller's as they came."""
    given = policy.extra.get("generationConfig")
    try:
        more = msgspec.json.decode(given, type=dict[str, msgspec.Raw]) if given else {}
    except msgspec.ValidationError:
        raise _bad("extra.generationConfig", "These options are an object.") from None
    clash = OWN_CONFIG & more.keys()
    if clash:
        raise _bad(f"extra.generationConfig.{min(clash)}")
    config: Json = {}
    if policy.max_output_tokens is not None:
        config["maxOutputTokens"] = policy.max_output_tokens
    if policy.temperature is not None:
        config["temperature"] = policy.temperature
    return config | more


def _declaration(number: int, tool: ToolDeclaration, mappings: list[Mapping]) -> Json:
    at = f"tools[{number}]"
    if tool.strict is not None:
        mappings.append(Mapping(rule="strict_dropped", block=at))
    schema, dropped = sayable(tool.parameters)
    if dropped:
        detail = "; ".join(dropped)
        mappings.append(Mapping(rule="schema_keywords_dropped", block=at, detail=detail))
    declared: Json = {"name": tool.name}
    if tool.description:
        declared["description"] = tool.description
    declared["parametersJsonSchema"] = schema
    return declared


def _choice(word: str) -> Json:
    """Return the wire's form of a tool choice: a word, or `tool:` and a tool's name."""
    if word.startswith("tool:"):
        return {"mode": "ANY", "allowedFunctionNames": [word.removeprefix("tool:")]}
    if word not in MODES:
        raise _bad("tool_choice", f"A choice is one of {', '.join(MODES)}, or tool: and a name.")
    return {"mode": MODES[word]}


def _bad(
    at: str, message: str = "This field has a setting of its own; leave it out of the extra ones."
) -> InvalidInput:
    return InvalidInput(message, code="bad_option", at=at)
