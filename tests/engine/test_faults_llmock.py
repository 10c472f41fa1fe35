"""Faults by a server that others wrote: each is sent once per generation, and none of them leaves a trace.

`llmock` counts what reached it. Its own verdict is not asked for: it wants retries that would be
a second execution of a call whose outcome nobody knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from antiphon.core.asking import Ask
from antiphon.core.blocks import Role, Status
from antiphon.core.dispatch import State
from antiphon.core.records import RunStatus
from antiphon.engine.settings import Settings
from antiphon.engine.tools.function import Function
from antiphon.errors import AntiphonError, OutcomeUnknown, ProviderFailed
from antiphon.handles.chat import Chat
from antiphon.handles.events import Ended, Withdrawn
from antiphon.handles.run import RunHandle
from antiphon.library import Antiphon
from antiphon.library import open as open_app
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
async def talking(
    llmock: LLMock, folder: Path, functions: Iterable[Function] = (), **options: Any
) -> AsyncIterator[tuple[Antiphon, Chat]]:
    """Open everything as a user has it: HTTP, SQLite, the machine's clock."""
    flags = {"retry_base_s": 0.0, "cancel_grace_s": 0.0, **options}
    settings = Settings.load({"db": str(folder / "antiphon.db"), **flags}, env=llmock.env())
    async with asyncio.timeout(WAIT_S * 2), open_app(settings=settings, functions=functions) as app:
        yield app, await app.create(ask=Ask(model="gpt-4o-mini"))


async def arrived(llmock: LLMock) -> list[Any]:
    """Return what the server saw, once it has seen the end of all of it."""
    return await asyncio.to_thread(lambda: llmock.requests)


async def states(run: RunHandle) -> list[tuple[int, State]]:
    """Return generation and state of every attempt, in order."""
    told = await run.explain()
    return [
        (attempt.generation, attempt.state) for step in told.operations for attempt in step.attempts
    ]


async def outcome(run: RunHandle) -> AntiphonError:
    with pytest.raises(AntiphonError) as caught:
        await run.result()
    return caught.value


async def only_the_input_is_there(chat: Chat) -> bool:
    """Whether the tree holds the failed input and nothing else, and nothing holds the conversation."""
    (message,) = await chat.tree()
    row = await chat.row()
    return (
        message.role is Role.USER
        and message.status is Status.ERROR
        and row.active_operation is None
        and await chat.open_run() is None
    )


# ------------------------------------------------------------------------------------- a clear no


@pytest.mark.req("M138", "M88")
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
async def test_a_refusal_is_final_and_sent_once(
    llmock: LLMock, tmp_path: Path, status: int
) -> None:
    llmock.fail(status, code="as_scripted")
    async with talking(llmock, tmp_path) as (_, chat):
        run = await chat.send("hello")
        error = await outcome(run)
        assert (type(error), error.code) == (ProviderFailed, "as_scripted")
        assert await states(run) == [(1, State.CLOSED)]
        assert await only_the_input_is_there(chat)
    assert [record.status for record in await arrived(llmock)] == [status]


async def test_too_long_a_prompt_has_the_provider_s_own_code(
    llmock: LLMock, tmp_path: Path
) -> None:
    llmock.context_overflow()
    async with talking(llmock, tmp_path) as (_, chat):
        assert (await outcome(await chat.send("hello"))).code == "context_length_exceeded"
    assert len(await arrived(llmock)) == 1


@pytest.mark.req("M139")
@pytest.mark.parametrize("status", [429, 503, 529])
async def test_a_refusal_for_now_is_tried_again_with_the_same_bytes_in_the_next_generation(
    llmock: LLMock, tmp_path: Path, status: int
) -> None:
    llmock.fail(status, retry_after=0.0).reply(WHOLE)
    async with talking(llmock, tmp_path) as (_, chat):
        run = await chat.send("hello")
        assert (await run.result()).text == WHOLE
        assert await states(run) == [(1, State.FAILED), (2, State.COMMITTED)]
    first, second = await arrived(llmock)
    assert (first.status, second.status) == (status, 200)
    assert first.fingerprint == second.fingerprint


async def test_a_provider_that_stays_down_is_asked_three_times_and_no_more(
    llmock: LLMock, tmp_path: Path
) -> None:
    llmock.outage(status=503)
    async with talking(llmock, tmp_path) as (_, chat):
        run = await chat.send("hello")
        assert isinstance(await outcome(run), ProviderFailed)
        assert [generation for generation, _ in await states(run)] == [1, 2, 3]
        assert await only_the_input_is_there(chat)
    assert len(await arrived(llmock)) == 3


async def test_a_pause_longer_than_ours_to_sit_out_ends_the_run(
    llmock: LLMock, tmp_path: Path
) -> None:
    llmock.rate_limit(retry_after=61)
    async with talking(llmock, tmp_path) as (_, chat):
        assert isinstance(await outcome(await chat.send("hello")), ProviderFailed)
    assert len(await arrived(llmock)) == 1


# --------------------------------------------------------------------------------- nobody can say


def break_answer(llmock: LLMock, fault: str) -> None:
    match fault:
        case "disconnected":
            llmock.disconnect(after_chunks=3)
        case "truncated":
            llmock.truncate(after_chunks=3)
        case "stalled":
            llmock.stall(after_chunks=3, seconds=WAIT_S)
        case status:
            llmock.fail(int(status))


@pytest.mark.req("M60", "M73")
@pytest.mark.parametrize("fault", ["disconnected", "truncated", "stalled", "500", "502", "504"])
async def test_what_may_have_been_carried_out_is_unknown_and_sent_once(
    llmock: LLMock, tmp_path: Path, fault: str
) -> None:
    break_answer(llmock, fault)
    async with talking(llmock, tmp_path, resend_after_unknown="never", idle_timeout_s=0.3) as (
        _,
        chat,
    ):
        run = await chat.send("hello")
        assert isinstance(await outcome(run), OutcomeUnknown)
        assert await only_the_input_is_there(chat)
        assert len(await states(run)) == 1
    assert len(await arrived(llmock)) == 1


@pytest.mark.req("M65", "M76", "M77")
@pytest.mark.parametrize("fault", ["disconnected", "truncated", "stalled", "500"])
async def test_the_process_that_saw_it_break_asks_once_more_and_keeps_nothing_of_the_first(
    llmock: LLMock, tmp_path: Path, fault: str
) -> None:
    break_answer(llmock, fault)
    llmock.reply(WHOLE, times=None)
    # Long enough for the second answer on a busy machine: only the stalled one waits it out.
    async with talking(llmock, tmp_path, idle_timeout_s=3.0) as (_, chat):
        run = await chat.send("hello")
        events = [event async for event in run.events()]
        assert [event.status for event in events if isinstance(event, Ended)] == [RunStatus.SUCCESS]
        assert [event.generation for event in events if isinstance(event, Withdrawn)] in ([1], [])
        assert await states(run) == [(1, State.FAILED), (2, State.COMMITTED)]
        assert [message.text for message in await chat.line()] == ["hello", WHOLE]
        await (await chat.send("and again")).result()
    first, second, third = await arrived(llmock)
    assert first.fingerprint == second.fingerprint
    assert [message["content"] for message in third.body["messages"]] == [
        "hello",
        WHOLE,
        "and again",
    ]


async def test_it_asks_once_more_and_not_for_ever(llmock: LLMock, tmp_path: Path) -> None:
    llmock.disconnect(after_chunks=2, times=None)
    async with talking(llmock, tmp_path) as (_, chat):
        assert isinstance(await outcome(await chat.send("hello")), OutcomeUnknown)
        assert await only_the_input_is_there(chat)
    assert len(await arrived(llmock)) == 2


# ------------------------------------------------------------------------------------ bad answers


@pytest.mark.req("M74", "M138")
async def test_an_event_that_is_not_json_is_never_skipped(llmock: LLMock, tmp_path: Path) -> None:
    llmock.corrupt(after_chunks=3, times=None)
    async with talking(llmock, tmp_path, resend_after_unknown="never", retries=0) as (_, chat):
        run = await chat.send("hello")
        assert isinstance(await outcome(run), OutcomeUnknown)
        attempts = [
            attempt for step in (await run.explain()).operations for attempt in step.attempts
        ]
        assert [attempt.error_code for attempt in attempts] == ["malformed_event"]
        assert await only_the_input_is_there(chat)
    assert len(await arrived(llmock)) == 1


@pytest.mark.req("M41", "M68", "M89")
@pytest.mark.parametrize("fault", ["disconnect", "truncate", "malformed_arguments"])
async def test_a_call_that_is_not_whole_runs_nothing(
    llmock: LLMock, tmp_path: Path, fault: str
) -> None:
    llmock.call_tool("get_weather", {"city": "Paris"}, times=None)
    match fault:
        case "disconnect":
            llmock.disconnect(after_chunks=3, times=None)
        case "truncate":
            llmock.truncate(after_chunks=3, times=None)
        case _:
            llmock.break_tool_call("malformed_arguments", times=None)
    async with talking(llmock, tmp_path, [WEATHER], resend_after_unknown="never", retries=0) as (
        _,
        chat,
    ):
        await outcome(await chat.send("weather?"))
        assert await only_the_input_is_there(chat)
    assert ran == []
    (request,) = await arrived(llmock)
    assert request.body["tools"][0]["function"]["name"] == "get_weather"


async def test_a_whole_call_runs_once_and_its_result_is_sent(
    llmock: LLMock, tmp_path: Path
) -> None:
    llmock.call_tool("get_weather", {"city": "Paris"}).reply("It rains in Paris.")
    async with talking(llmock, tmp_path, [WEATHER]) as (_, chat):
        assert (await (await chat.send("weather?")).result()).text == "It rains in Paris."
    assert ran == ["Paris"]
    _, second = await arrived(llmock)
    assert [message["role"] for message in second.body["messages"]] == ["user", "assistant", "tool"]
    assert second.body["messages"][2]["content"] == "rain"
