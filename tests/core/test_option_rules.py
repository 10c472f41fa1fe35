"""Options that no provider can follow, told before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.core.manifest import ToolDeclaration
from antiphon.core.rules.options import check_options

WEATHER = ToolDeclaration(name="weather")
NOTHING: dict[str, Any] = {
    "tool_choice": None,
    "max_output_tokens": None,
    "temperature": None,
    "tools": (),
}


def found(**given: Any) -> list[tuple[str, str]]:
    return [(f.code, f.at) for f in check_options(**{**NOTHING, **given})]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"tool_choice": "required"}, ("bad_option", "tool_choice")),
        ({"tool_choice": "tool:weather"}, ("unknown_tool", "tool_choice")),
        ({"tool_choice": "tool:wether", "tools": (WEATHER,)}, ("unknown_tool", "tool_choice")),
        ({"tool_choice": "tool:", "tools": (WEATHER,)}, ("unknown_tool", "tool_choice")),
        ({"max_output_tokens": 0}, ("bad_option", "max_output_tokens")),
        ({"max_output_tokens": -1}, ("bad_option", "max_output_tokens")),
        ({"max_output_tokens": 2**31}, ("bad_option", "max_output_tokens")),
        ({"temperature": -0.1}, ("bad_option", "temperature")),
        ({"temperature": float("nan")}, ("bad_option", "temperature")),
    ],
)
def test_what_cannot_be_is_found_at_its_option(
    given: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert found(**given) == [expected]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"tool_choice": "auto"},
        {"tool_choice": "none"},
        {"tool_choice": "required", "tools": (WEATHER,)},
        {"tool_choice": "tool:weather", "tools": (WEATHER,)},
        # One that nobody read may be the one that is meant.
        {"tool_choice": "required", "tools": None},
        {"tool_choice": "tool:theirs", "tools": None},
        {"max_output_tokens": 1},
        {"max_output_tokens": 2**31 - 1},
        {"temperature": 0},
        {"temperature": 2.5},
    ],
)
def test_what_some_provider_would_take_is_let_through(given: dict[str, Any]) -> None:
    assert found(**given) == []
