"""No tool runs from arguments that were cut, in any dialect, however the answer then ends."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import pytest

from antiphon.adapters import registry
from antiphon.core.answers.assembler import Assembler
from antiphon.core.answers.schemas import compile_schema
from antiphon.core.dispatch import State
from antiphon.core.recovery import Resend
from antiphon.engine.catalogue.models import Model, Models, Secret
from antiphon.engine.ports import Cut
from antiphon.engine.settings import Settings
from antiphon.engine.tools import Function
from antiphon.errors import AntiphonError
from tests.support.engines import app_on
from tests.support.everywhere import DIALECTS
from tests.support.half_calls import ARGUMENTS, TOOL, Way, content_type, half_answer
from tests.support.provider import ScriptedProvider, Status, Step

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

AT_ONCE = frozenset({"gemini", "ollama"})
"""Dialects that send a call in one piece: half of it is no event at all."""


def outcomes(dialect: str, way: Way) -> set[tuple[str, bool]]:
    """Return what may be said: the code, and whether the provider is known to have ended."""
    match way:
        case Way.CLEAN | Way.RESET:
            return {("stream_incomplete", False)}
        case _ if dialect in AT_ONCE:
            return {("malformed_event", False)}
        case Way.MARKER:
            return {("missing_finish_reason", True)}
        case Way.LENGTH:
            return {("unclosed_arguments", True), ("truncated_by_length", True)}


pytestmark = [
    pytest.mark.parametrize("dialect", DIALECTS),
    pytest.mark.parametrize("calls", [1, 2], ids=["one", "two"]),
    pytest.mark.parametrize("way", Way, ids=lambda way: way.name.lower()),
]


@pytest.mark.req("M72", "M73", "M82", "M89", "M98")
def test_arguments_cut_after_any_byte_release_nothing_and_say_why(
    dialect: str, calls: int, way: Way
) -> None:
    checks = {TOOL: compile_schema(Function(name=TOOL, run=print, parameters=SCHEMA).declaration.parameters)}  # fmt: skip
    for length in range(len(ARGUMENTS)):
        reader = registry.get(dialect).reader(content_type(dialect))
        assembler = Assembler(tools=checks)
        body = half_answer(dialect, calls=calls, length=length, way=way)
        for delta in [*reader.feed(body), *reader.end()]:
            assembler.feed(delta)
        answer = assembler.end("connection_reset" if way is Way.RESET else None)
        assert (answer.committable, answer.blocks, answer.released) == (False, (), ()), length
        assert (answer.error, answer.definite) in outcomes(dialect, way), length


@pytest.mark.req("M68", "M72", "M73", "M82", "M89", "M98")
async def test_nothing_runs_nothing_is_kept_and_the_run_says_what_is_known(
    tmp_path: Path, dialect: str, calls: int, way: Way
) -> None:
    ran: list[str] = []

    async def get_weather(city: str) -> str:
        ran.append(city)
        return "rain"

    body = half_answer(dialect, calls=calls, length=len(ARGUMENTS) // 2, way=way)
    script: list[Step] = [Status(200, {"content-type": content_type(dialect)}), body]
    if way is Way.RESET:
        script.append(Cut("connection_reset", "gone"))
    model = Model(
        name="m",
        profile=dialect,
        model="some-model",
        base_url="http://127.0.0.1:9",
        api_key=Secret("k"),
    )
    settings = Settings(
        models=Models(named=MappingProxyType({"m": model}), default="m"),
        resend_after_unknown=Resend.NEVER,
        retries=0,
    )
    tool = Function(name=TOOL, run=get_weather, parameters=SCHEMA)
    provider = ScriptedProvider(script)
    async with app_on(tmp_path / "a.db", provider, functions=[tool], settings=settings) as app:
        chat = await app.create()
        run = await chat.send("Weather?")
        with pytest.raises(AntiphonError) as caught:
            await run.result()
        (operation,) = (await run.explain()).operations
        (attempt,) = operation.attempts
        assert attempt.state in (State.FAILED, State.CLOSED)
        known = {code for code, definite in outcomes(dialect, way) if definite}
        assert caught.value.code in (known or {"outcome_unknown"})
        assert (ran, await run.calls()) == ([], [])
        assert [(m.role, m.status) for m in await chat.tree()] == [("user", "error")]
        assert await chat.line() == []
    assert len(provider.requests) == 1
