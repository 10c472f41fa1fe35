"""Typed functions as tools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
import pytest

from antiphon import Text, ToolContext, tool
from antiphon.core.blocks import Image
from antiphon.core.records import Call, CallState
from antiphon.engine.tools.function import Function, execute
from antiphon.errors import InvalidInput
from tests.support.calls import ledger_call
from tests.support.clock import SimulatedClock

CLOCK = SimulatedClock(-1)  # a call that is made by hand has the deadline 0


@dataclass
class Place:
    city: str
    country: str = "NO"


@tool(read_only=True, timeout_s=5)
def weather(place: Place, unit: Literal["C", "F"] = "C", days: list[int] | None = None) -> str:
    """The weather of a place.

    Second paragraph.

    Args:
        place: Where, in
            English.
        unit (str): Of temperature.

    Returns:
        Not for the model.
    """
    return f"{place.city},{place.country} {unit} {days}"


def asked(arguments: str) -> Call:
    return msgspec.structs.replace(ledger_call(state=CallState.EXECUTING), arguments=arguments)


async def said(function: Function, arguments: str) -> str:
    (part,) = await execute(function, asked(arguments), CLOCK)
    assert isinstance(part, Text)
    return part.text


def test_the_schema_is_the_signature_and_the_words_are_the_docstrings() -> None:
    assert weather.name == "weather"
    assert weather.description == "The weather of a place.\n\nSecond paragraph."
    assert (weather.read_only, weather.timeout_s) == (True, 5)
    assert weather.parameters == {
        "type": "object",
        "properties": {
            "place": {"$ref": "#/$defs/Place", "description": "Where, in English."},
            "unit": {"enum": ["C", "F"], "default": "C", "description": "Of temperature."},
            "days": {
                "anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}],
                "default": None,
            },
        },
        "required": ["place"],
        "additionalProperties": False,
        "$defs": {
            "Place": {
                "title": "Place",
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "country": {"type": "string", "default": "NO"},
                },
                "required": ["city"],
            }
        },
    }


def test_every_option_is_the_functions() -> None:
    @tool(
        read_only=True,
        idempotent=True,
        repeatable=True,
        approval=True,
        timeout_s=7,
        max_result_chars=9,
    )
    def all_of_them() -> None: ...

    plain = tool(all_of_them.run)
    options = ("read_only", "idempotent", "repeatable", "approval", "timeout_s", "max_result_chars")
    assert [getattr(all_of_them, name) for name in options] == [True, True, True, True, 7, 9]
    assert [getattr(plain, name) for name in options] == [False, False, False, False, 60, None]


async def test_arguments_arrive_as_what_the_signature_says() -> None:
    assert await said(weather, '{"place":{"city":"Oslo"},"days":[1]}') == "Oslo,NO C [1]"


async def test_numbers_arrive_digit_for_digit() -> None:
    @tool
    async def pay(amount: Decimal, account: int) -> str:
        return f"{amount} {account}"

    text = await said(pay, '{"amount":0.10000000000000000001,"account":12345678901234567890123}')
    assert text == "0.10000000000000000001 12345678901234567890123"


async def test_a_function_can_have_the_context_of_its_call() -> None:
    @tool
    def charge(amount: int, context: ToolContext) -> str:
        return f"{amount} {context.call_id} {context.idempotency_key} {context.execution}"

    assert set(charge.declaration.parameters and charge.parameters["properties"]) == {"amount"}  # type: ignore[index]  # it has some
    assert await said(charge, '{"amount":3}') == "3 c1 idem_1 0"


async def test_results_may_be_text_blocks_or_anything_json_holds() -> None:
    image = Image(media_type="image/png", data="aGk=")

    @tool
    def look(what: str) -> object:
        return {"image": image, "both": [Text(text="a"), image], "place": Place("Oslo")}[what]

    assert await execute(look, asked('{"what":"image"}'), CLOCK) == (image,)
    assert await execute(look, asked('{"what":"both"}'), CLOCK) == (Text(text="a"), image)
    assert await said(look, '{"what":"place"}') == '{"city":"Oslo","country":"NO"}'


async def test_text_that_nobody_could_store_is_an_error_of_the_tool() -> None:
    @tool
    def broken() -> str:
        return "\ud800"

    with pytest.raises(InvalidInput) as caught:
        await execute(broken, asked("{}"), CLOCK)
    assert caught.value.code == "invalid_unicode"


def _bare(city):  # type: ignore[no-untyped-def]  # the point  # noqa: ANN001, ANN202
    return city


def _star(*cities: str) -> str:
    return "".join(cities)


def _positional(city: str, /) -> str:
    return city


def _odd(city: Callable[[], str]) -> str:
    return city()


@pytest.mark.parametrize("function", [_bare, _star, _positional, _odd])
def test_what_json_cannot_carry_is_refused_when_it_is_declared(
    function: Callable[..., Any],
) -> None:
    with pytest.raises(InvalidInput) as caught:
        tool(function)
    assert caught.value.code == "untyped_tool"


def test_constraints_of_the_types_are_part_of_the_schema() -> None:
    @tool(name="dice", description="Throw.")
    def throw(sides: Annotated[int, msgspec.Meta(ge=2)] = 6) -> int:
        return sides

    assert (throw.name, throw.description) == ("dice", "Throw.")
    assert throw.parameters is not None
    assert throw.parameters["properties"]["sides"]["minimum"] == 2
