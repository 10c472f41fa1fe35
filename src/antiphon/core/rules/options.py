"""What no provider can do, whatever the line says: a choice of no tool, an answer of no tokens.

Options stand beside the line, so these rules are asked once for a request and know nothing of
messages. Where a dialect takes less than what is allowed here, its adapter says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from antiphon.core.manifest import ToolDeclaration
from antiphon.core.rules.findings import Finding

CHOSEN: Final = "tool:"
"""What a choice of one tool begins with; its name follows."""

MOST_TOKENS: Final = 2**31 - 1
"""Larger numbers have no place in a store, and no provider has such a limit."""


def check_options(
    *,
    tool_choice: str | None,
    max_output_tokens: int | None,
    temperature: float | None,
    tools: Collection[ToolDeclaration] | None,
) -> Iterator[Finding]:
    """Yield which options ask for what cannot be. They stand before the line.

    Args:
        tool_choice: A word, or `tool:` and the name of the tool that is to be called.
        max_output_tokens: The limit on the answer.
        temperature: How freely it is sampled.
        tools: What is declared; None where nobody knows all of it.
    """
    if tool_choice is not None and tools is not None:
        yield from _choice(tool_choice, tools)
    if max_output_tokens is not None and not 1 <= max_output_tokens <= MOST_TOKENS:
        yield _bad(
            "max_output_tokens", f"An answer has at least 1 token and at most {MOST_TOKENS}."
        )
    if temperature is not None and not temperature >= 0:
        yield _bad("temperature", "A temperature is 0 or more.")


def _choice(choice: str, tools: Collection[ToolDeclaration]) -> Iterator[Finding]:
    name = choice.removeprefix(CHOSEN)
    if choice == "required" and not tools:
        yield _bad(
            "tool_choice", "A call is required, and no tool is declared that it could be of."
        )
    elif choice.startswith(CHOSEN) and all(tool.name != name for tool in tools):
        yield Finding(
            code="unknown_tool",
            at="tool_choice",
            position=-1,
            message=f"The model is to call {name!r}, and no tool of that name is declared.",
        )


def _bad(at: str, message: str) -> Finding:
    return Finding(code="bad_option", at=at, position=-1, message=message)
