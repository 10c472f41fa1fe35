"""Everything of a request that stands before its system text: model, options, tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from antiphon.adapters.gemini_interactions.profile import Wire
from antiphon.core.manifest import Mapping, Policy, ToolDeclaration
from antiphon.errors import InvalidInput

Json: TypeAlias = dict[str, object]

OWN_FIELDS: Final = frozenset(
    {"model", "input", "system_instruction", "tools", "stream", "background"}
)
OWN_CONFIG: Final = frozenset({"max_output_tokens", "temperature"})
WORDS: Final = {"required": "any", "none": "none"}

_encode: Final = msgspec.json.Encoder().encode


def head(
    policy: Policy, tools: Sequence[ToolDeclaration], wire: Wire
) -> tuple[list[bytes], list[Mapping]]:
    """Return the members of the body up to its system text, and what had to be mapped for them.

    What the provider works on in the background it has to keep; only what is streamed is worked
    on there.

    Raises:
        InvalidInput: `bad_option`: an extra field that has a setting of its own, or is no object;
            `unsupported_parameter`: this wire cannot ask for one call at a time.
    """
    clash = OWN_FIELDS & policy.extra.keys()
    if clash:
        raise _bad(f"extra.{min(clash)}")
    background = wire.background and policy.stream
    if background and bytes(policy.extra.get("store", b"true")) != b"true":
        raise _bad("extra.store", "What is worked on in the background has to be stored.")
    store = wire.store or background
    fields: Json = {"model": policy.model, "store": store, "stream": policy.stream}
    if background:
        fields["background"] = True
    fields |= sorted(policy.extra.items())
    config = _config(policy, offers=bool(tools))
    if config:
        fields["generation_config"] = config
    mappings: list[Mapping] = []
    if tools:
        if policy.parallel_tool_calls is False:
            raise InvalidInput(
                "This wire cannot ask for one call at a time.",
                code="unsupported_parameter",
                at="parallel_tool_calls",
            )
        mappings += (
            Mapping(rule="strict_dropped", block=f"tools[{number}]")
            for number, tool in enumerate(tools)
            if tool.strict is not None
        )
        fields["tools"] = [_declaration(tool) for tool in tools]
    return [_encode({name: value})[1:-1] for name, value in fields.items()], mappings


def _config(policy: Policy, *, offers: bool) -> Json:
    """Return the generation's options: ours, then the caller's as they came."""
    given = policy.extra.get("generation_config")
    try:
        more = msgspec.json.decode(given, type=dict[str, msgspec.Raw]) if given else {}
    except msgspec.ValidationError:
        raise _bad("extra.generation_config", "These options are an object.") from None
    choice = _choice(policy.tool_choice) if offers else None
    own = OWN_CONFIG | ({"tool_choice"} if choice is not None else set())
    clash = own & more.keys()
    if clash:
        raise _bad(f"extra.generation_config.{min(clash)}")
    config: Json = {}
    if policy.max_output_tokens is not None:
        config["max_output_tokens"] = policy.max_output_tokens
    if policy.temperature is not None:
        config["temperature"] = policy.temperature
    if choice is not None:
        config["tool_choice"] = choice
    return config | more


def _choice(word: str | None) -> object:
    """Return the wire's form of a tool choice; auto is what it does by itself."""
    if word is None or word == "auto":
        return None
    if word.startswith("tool:"):
        return {"allowed_tools": {"mode": "any", "tools": [word.removeprefix("tool:")]}}
    if word not in WORDS:
        raise _bad("tool_choice", f"A choice is auto, {', '.join(WORDS)}, or tool: and a name.")
    return WORDS[word]


def _declaration(tool: ToolDeclaration) -> Json:
    declared: Json = {"type": "function", "name": tool.name}
    if tool.description:
        declared["description"] = tool.description
    declared["parameters"] = tool.parameters
    return declared


def _bad(
    at: str, message: str = "This field has a setting of its own; leave it out of the extra ones."
) -> InvalidInput:
    return InvalidInput(message, code="bad_option", at=at)
