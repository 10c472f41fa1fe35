"""The same talks over every wire that a server which others wrote speaks.

What one dialect's own tests prove in depth, these prove alike: text, a tool turn, two calls at once,
and each fault, through the real HTTP client, with the requests that arrived as the judge.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from llmock.scenarios import Reply, ToolCall

from antiphon import Chat, RunHandle, Settings, tool
from antiphon.core.dispatch import State
from antiphon.core.records import CallState
from antiphon.engine.catalogue.models import Model, Models, Secret
from antiphon.errors import OutcomeUnknown, ProviderFailed
from antiphon.library import open as open_app
from tests.support.upstream import WAIT_S

if TYPE_CHECKING:
    from llmock.pytest_plugin import LLMock

WIRES = {
    "openai-chat": "openai",
    "openai-responses": "openai",
    "anthropic": "anthropic",
    "gemini": "gemini",
}
"""Profiles, and what the server calls the API."""

WHOLE = "Every word of this answer is here, from the first one to the last."

pytestmark = pytest.mark.parametrize("wire", WIRES)

ran: list[str] = []


@tool
def get_weather(city: str) -> str:
    """Get the weather."""
    ran.append(city)
    return f"rain in {city}"


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@asynccontextmanager
async def talking(llmock: LLMock, folder: Path, wire: str, **options: Any) -> AsyncIterator[Chat]:
    """Open everything as a user has it: HTTP, SQLite, the machine's clock."""
    base = llmock.base_url(WIRES[wire])
    model = Model(
        name="m",
        profile=wire,
        model="some-model",
        base_url=f"{llmock.url}/anthropic" if wire == "anthropic" else base,
        api_key=Secret("k-secret"),
        max_output_tokens=500,
    )
    flags: dict[str, Any] = {"retry_base_s": 0.0, "cancel_grace_s": 0.0, **options}
    models = Models(named=MappingProxyType({"m": model}))
    settings = Settings(db=str(folder / "a.db"), models=models, **flags)
    async with (
        asyncio.timeout(WAIT_S * 2),
        open_app(settings=settings, functions=[get_weather]) as app,
    ):
        yield await app.create()


async def arrived(llmock: LLMock) -> list[Any]:
    return await asyncio.to_thread(lambda: llmock.requests)


async def states(run: RunHandle) -> list[State]:
    told = await run.explain()
    return [attempt.state for step in told.operations for attempt in step.attempts]


@pytest.mark.req("M2", "M34")
async def test_text_then_a_tool_turn(llmock: LLMock, tmp_path: Path, wire: str) -> None:
    llmock.reply(WHOLE).call_tool("get_weather", {"city": "Oslo"}).reply("It rains.")
    async with talking(llmock, tmp_path, wire) as chat:
        assert (await (await chat.send("hello")).result()).text == WHOLE
        run = await chat.send("weather?")
        assert (await run.result()).text == "It rains."
        (call,) = (await run.explain()).calls
    assert (ran, call.state) == (["Oslo"], CallState.SUCCESS)
    requests = await arrived(llmock)
    assert len(requests) == 3
    assert "rain in Oslo" in json.dumps(requests[2].body)


@pytest.mark.req("M37")
async def test_two_calls_at_once_are_both_answered_in_the_next_request(
    llmock: LLMock, tmp_path: Path, wire: str
) -> None:
    cities = [ToolCall("get_weather", {"city": city}) for city in ("Oslo", "Rome")]
    llmock.add(Reply(tool_calls=tuple(cities))).reply("Rain in both.")
    async with talking(llmock, tmp_path, wire) as chat:
        run = await chat.send("weather?")
        assert (await run.result()).text == "Rain in both."
    assert sorted(ran) == ["Oslo", "Rome"]
    told = json.dumps((await arrived(llmock))[1].body)
    assert told.index("rain in Oslo") < told.index("rain in Rome")


@pytest.mark.req("M60", "M73", "M89")
@pytest.mark.parametrize("fault", ["disconnect", "truncate"])
async def test_a_call_that_broke_off_runs_nothing_and_is_sent_once(
    llmock: LLMock, tmp_path: Path, wire: str, fault: str
) -> None:
    # The text comes in several pieces, so that each wire breaks before its call is whole.
    llmock.call_tool("get_weather", {"city": "Paris"}, text=WHOLE)
    getattr(llmock, fault)(after_chunks=3)
    async with talking(llmock, tmp_path, wire, resend_after_unknown="never") as chat:
        run = await chat.send("weather?")
        with pytest.raises(OutcomeUnknown):
            await run.result()
        assert len(await chat.tree()) == 1
    assert ran == []
    assert len(await arrived(llmock)) == 1


@pytest.mark.req("M138")
async def test_a_clear_no_is_final(llmock: LLMock, tmp_path: Path, wire: str) -> None:
    llmock.fail(400)
    async with talking(llmock, tmp_path, wire) as chat:
        run = await chat.send("hello")
        with pytest.raises(ProviderFailed):
            await run.result()
        assert await states(run) == [State.CLOSED]
    assert len(await arrived(llmock)) == 1


@pytest.mark.req("M139")
async def test_a_no_for_now_is_tried_again(llmock: LLMock, tmp_path: Path, wire: str) -> None:
    llmock.fail(429, retry_after=0.0).reply(WHOLE)
    async with talking(llmock, tmp_path, wire) as chat:
        run = await chat.send("hello")
        assert (await run.result()).text == WHOLE
        assert await states(run) == [State.FAILED, State.COMMITTED]


@pytest.mark.req("M42")
async def test_an_event_that_is_not_json_is_never_skipped(
    llmock: LLMock, tmp_path: Path, wire: str
) -> None:
    llmock.reply(WHOLE).corrupt(after_chunks=2)
    async with talking(llmock, tmp_path, wire, resend_after_unknown="never") as chat:
        run = await chat.send("hello")
        with pytest.raises((OutcomeUnknown, ProviderFailed)):
            await run.result()
        assert len(await chat.tree()) == 1
