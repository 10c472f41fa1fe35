"""OpenAI Responses as a server speaks it that others wrote: text, a tool, and the ways in which it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from antiphon.core.dispatch import State
from antiphon.engine.catalogue.models import Model, Models, Secret
from antiphon.engine.settings import Settings
from antiphon.engine.tools import Function
from antiphon.errors import AntiphonError
from antiphon.handles.chat import Chat
from antiphon.handles.run import RunHandle
from antiphon.library import open as open_app
from tests.adapters.responses_judge import problems
from tests.support.upstream import WAIT_S

if TYPE_CHECKING:
    from llmock.pytest_plugin import LLMock

WHOLE = "Every word of this answer is here, from the first one to the last."

ran: list[str] = []


def get_weather(city: str) -> str:
    ran.append(city)
    return "rain"


WEATHER = Function(
    name="get_weather",
    run=get_weather,
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@asynccontextmanager
async def talking(llmock: LLMock, folder: Path, **options: Any) -> AsyncIterator[Chat]:
    model = Model(
        name="thinker",
        profile="openai-responses",
        model="gpt-5.4-mini",
        base_url=llmock.base_url("openai"),
        api_key=Secret(llmock.env()["OPENAI_API_KEY"]),
    )
    models = Models(named=MappingProxyType({"thinker": model}))
    flags: dict[str, Any] = {"retry_base_s": 0.0, **options}
    settings = Settings(db=str(folder / "antiphon.db"), models=models, **flags)
    async with asyncio.timeout(WAIT_S), open_app(settings=settings, functions=[WEATHER]) as app:
        yield await app.create()


async def states(run: RunHandle) -> list[State]:
    told = await run.explain()
    return [attempt.state for step in told.operations for attempt in step.attempts]


async def sent(llmock: LLMock, run: RunHandle) -> int:
    """Return how many requests came, after the last of them was judged."""
    assert problems(await run.request()) == []
    return len(await asyncio.to_thread(lambda: llmock.requests))


@pytest.mark.req("M2", "M71")
async def test_text_and_a_tool_turn(llmock: LLMock, tmp_path: Path) -> None:
    llmock.call_tool("get_weather", {"city": "Paris"}).reply("It rains in Paris.").reply(WHOLE)
    async with talking(llmock, tmp_path) as chat:
        run = await chat.send("Weather?")
        assert (await run.result()).text == "It rains in Paris."
        assert ran == ["Paris"]
        run = await chat.send("hello")
        assert (await run.result()).text == WHOLE
        assert await sent(llmock, run) == 3


@pytest.mark.req("M60", "M73")
@pytest.mark.parametrize("fault", ["disconnect", "truncate"])
async def test_half_a_call_runs_nothing_and_the_process_that_saw_it_asks_once_more(
    llmock: LLMock, tmp_path: Path, fault: str
) -> None:
    llmock.call_tool("get_weather", {"city": "Paris"})
    getattr(llmock, fault)(after_chunks=5)
    llmock.reply(WHOLE, times=None)
    async with talking(llmock, tmp_path) as chat:
        run = await chat.send("Weather?")
        assert (await run.result()).text == WHOLE
        assert ran == []
        assert await states(run) == [State.FAILED, State.COMMITTED]
        assert await sent(llmock, run) == 2


@pytest.mark.req("M138")
async def test_too_long_a_prompt_has_the_provider_s_own_code(
    llmock: LLMock, tmp_path: Path
) -> None:
    llmock.context_overflow()
    async with talking(llmock, tmp_path) as chat:
        with pytest.raises(AntiphonError) as caught:
            await (await chat.send("hello")).result()
        assert caught.value.code == "context_length_exceeded"


@pytest.mark.req("M139")
async def test_a_refusal_for_now_is_tried_again_with_the_same_bytes(
    llmock: LLMock, tmp_path: Path
) -> None:
    llmock.fail(503, retry_after=0.0).reply(WHOLE)
    async with talking(llmock, tmp_path) as chat:
        run = await chat.send("hello")
        assert (await run.result()).text == WHOLE
        assert await states(run) == [State.FAILED, State.COMMITTED]
        assert await sent(llmock, run) == 2
