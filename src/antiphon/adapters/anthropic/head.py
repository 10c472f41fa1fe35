"""Everything of a request that stands before its system text: model, options, tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from antiphon.adapters.anthropic.profile import Wire
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.errors import InvalidInput

Json: TypeAlias = dict[str, object]

OWN_FIELDS: Final = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "stream", "max_tokens", "temperature"}
)
FORCING: Final = frozenset({"any", "tool"})
LEAST_BUDGET: Final = 1024
"""Fewest tokens that thinking may be given."""

_encode: Final = msgspec.json.Encoder().encode


def head(policy: Policy, tools: Sequence[ToolDeclaration], wire: Wire) -> bytes:
    """Return the body up to its system text, without the comma behind it.

    Raises:
        InvalidInput: `bad_option`: an extra field that has a setting of its own, or two options
            that the provider refuses together.
    """
    clash = OWN_FIELDS & policy.extra.keys()
    if clash:
        raise _bad(
            f"extra.{min(clash)}",
            "This field has a setting of its own; leave it out of the extra ones.",
        )
    most = wire.answer_tokens if policy.max_output_tokens is None else policy.max_output_tokens
    fields: Json = {"model": policy.model, "max_tokens": most, "stream": policy.stream}
    if policy.temperature is not None:
        fields["temperature"] = policy.temperature
    fields |= sorted(policy.extra.items())
    choice = choice_of(policy) if tools else None
    if tools:
        fields["tools"] = [_declaration(tool) for tool in tools]
        if choice is not None:
            fields["tool_choice"] = choice
    for at, sentence in contradictions(policy, most, choice):
        raise _bad("extra.thinking" if at.startswith("thinking") else at, sentence)
    return _encode(fields)[:-1]


def _declaration(tool: ToolDeclaration) -> Json:
    declared: Json = {"name": tool.name}
    if tool.description:
        declared["description"] = tool.description
    declared["input_schema"] = tool.parameters
    if tool.strict:
        declared["strict"] = True
    return declared


def choice_of(policy: Policy) -> Json | None:
    """Return the wire's form of a tool choice: a word, or `tool:` and a tool's name."""
    word = policy.tool_choice
    alone = policy.parallel_tool_calls is False
    if word is None:
        if not alone:
            return None
        word = "auto"
    choice: Json
    if word.startswith("tool:"):
        choice = {"type": "tool", "name": word.removeprefix("tool:")}
    else:
        choice = {"type": "any" if word == "required" else word}
    if alone and choice["type"] != "none":
        choice["disable_parallel_tool_use"] = True
    return choice


def contradictions(
    policy: Policy, most: int | None, choice: Mapping[str, object] | None
) -> Iterator[tuple[str, str]]:
    """Yield the places of options that the provider refuses together, each with a sentence.

    Thinking on a budget needs room for its answer, and forces no tool; thinking has one temperature.
    """
    raw = policy.extra.get("thinking")
    thinking = msgspec.json.decode(raw) if raw is not None else None
    match thinking:
        case {"type": "enabled", "budget_tokens": int(budget)} if most and budget >= most:
            yield "thinking.budget_tokens", f"The budget of {budget} has to be below {most}."
        case {"type": "enabled", "budget_tokens": int(budget)} if budget < LEAST_BUDGET:
            yield "thinking.budget_tokens", f"A budget is at least {LEAST_BUDGET}, not {budget}."
        case {"type": "enabled"} if choice is not None and choice["type"] in FORCING:
            yield "tool_choice", "A tool cannot be forced while thinking is enabled."
        case {"type": "enabled" | "adaptive"} if policy.temperature not in (None, 1):
            yield "temperature", "While the model thinks its temperature is 1. Leave it out."
        case _:
            pass


def _bad(at: str, message: str) -> InvalidInput:
    return InvalidInput(message, code="bad_option", at=at)
