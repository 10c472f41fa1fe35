"""Gemini through the whole engine: configuration, real HTTP, tools, and a server that others wrote."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from antiphon.core.asking import Ask
from antiphon.core.dispatch import State
from antiphon.engine.settings import Settings
from antiphon.engine.tools import Function
from antiphon.errors import OutcomeUnknown, ProviderFailed
from antiphon.handles.chat import Chat
from antiphon.handles.run import RunHandle
from antiphon.library import open as open_app
from tests.support.gemini_stream import call, chunk, end, text
from tests.support.upstream import CLOSE, READ, WAIT_S, RawUpstream, Step

if TYPE_CHECKING:
    from llmock.pytest_plugin import LLMock

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
CONFIG = """
[models.fast]
profile = "{profile}"
model = "gemini-3.8-flash"
base_url = "{address}"
api_key_env = "SOME_KEY"
max_output_tokens = 64
"""

ran: list[str] = []


def get_weather(city: str) -> str:
    ran.append(city)
    return json.dumps({"sky": "rain", "city": city})


WEATHER = Function(
    name="get_weather",
    run=get_weather,
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


def configured(folder: Path, address: str, profile: str, flags: dict[str, Any]) -> Settings:
    """Return the settings of a user who has an `antiphon.toml`."""
    config = folder / "antiphon.toml"
    config.write_text(CONFIG.format(address=address, profile=profile), encoding="utf-8")
    flags = {"db": str(folder / "antiphon.db"), "retry_base_s": 0.0, "cancel_grace_s": 0.0, **flags}
    return Settings.load(flags, config=config, env={"SOME_KEY": "k-secret"})


@asynccontextmanager
async def talking(
    folder: Path,
    address: str,
    functions: Iterable[Function] = (),
    profile: str = "gemini",
    **flags: Any,
) -> AsyncIterator[Chat]:
    """Open everything as a user has it: HTTP, SQLite, the machine's clock."""
    settings = await asyncio.to_thread(configured, folder, address, profile, flags)
    async with asyncio.timeout(WAIT_S * 2), open_app(settings=settings, functions=functions) as app:
        yield await app.create(ask=Ask(model="fast"))


def answers(*chunks: bytes) -> list[Step]:
    return [READ, HEAD, *chunks, CLOSE]


async def states(run: RunHandle) -> list[State]:
    told = await run.explain()
    return [attempt.state for step in told.operations for attempt in step.attempts]


@pytest.mark.req("M2", "M41", "M48")
async def test_a_tool_turn_over_http_sends_every_signature_back_where_it_came_from(
    tmp_path: Path,
) -> None:
    asked = [
        chunk({"text": "Both.", "thoughtSignature": "dGV4dA=="}),
        chunk(call("get_weather", {"city": "Oslo"}, "Y2FsbA==", id="1"), call("get_weather", {"city": "Turku"}, id="2")),
        end(),
    ]  # fmt: skip
    said = [text("Rain ", "in both."), chunk({"text": "", "thoughtSignature": "ZW5k"}), end()]
    async with (
        RawUpstream(answers(*asked), answers(*said), answers(text("Bye."), end())) as upstream,
        talking(tmp_path, f"http://127.0.0.1:{upstream.port}/v1beta", [WEATHER]) as chat,
    ):
        run = await chat.send("Weather in Oslo and Turku?")
        assert (await run.result()).text == "Rain in both."
        assert await states(run) == [State.COMMITTED, State.COMMITTED]
        assert (await (await chat.send("Thanks")).result()).text == "Bye."
    assert sorted(ran) == ["Oslo", "Turku"]
    first, second, third = upstream.requests
    line, _, _ = first.head.decode().partition("\r\n")
    assert line == "POST /v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse HTTP/1.1"
    assert first.headers["x-goog-api-key"] == "k-secret"
    assert "authorization" not in first.headers
    assert json.loads(first.body)["generationConfig"] == {"maxOutputTokens": 64}
    assert json.loads(second.body)["contents"][1:] == [
        {
            "role": "model",
            "parts": [
                {"text": "Both.", "thoughtSignature": "dGV4dA=="},
                {"functionCall": {"id": "1", "name": "get_weather", "args": {"city": "Oslo"}}, "thoughtSignature": "Y2FsbA=="},
                {"functionCall": {"id": "2", "name": "get_weather", "args": {"city": "Turku"}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": i, "name": "get_weather", "response": {"output": {"sky": "rain", "city": city}}}}
                for i, city in (("1", "Oslo"), ("2", "Turku"))
            ],
        },
    ]  # fmt: skip
    assert json.loads(third.body)["contents"][3]["parts"] == [
        {"text": "Rain in both."},
        {"text": "", "thoughtSignature": "ZW5k"},
    ]
    for before, after in ((first, second), (second, third)):
        assert after.body.startswith(before.body.removesuffix(b"]}"))


@pytest.mark.req("M60", "M73")
async def test_an_answer_that_ends_without_its_finish_is_unknown_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    async with (
        RawUpstream(answers(text("The capital"))) as upstream,
        talking(tmp_path, f"http://127.0.0.1:{upstream.port}", resend_after_unknown="never") as chat,
    ):  # fmt: skip
        with pytest.raises(OutcomeUnknown):
            await (await chat.send("Which?")).result()
        assert [m.text for m in await chat.tree()] == ["Which?"]


def steps(*events: dict[str, Any]) -> list[Step]:
    return answers(*(f"data: {json.dumps(event)}\n\n".encode() for event in events))


@pytest.mark.req("M2", "M41", "M48")
async def test_a_tool_turn_of_interactions_sends_its_thought_back_before_its_call(
    tmp_path: Path,
) -> None:
    made = {"id": "v1_1", "model": "gemini-3.8-flash"}
    thought = {"type": "thought", "signature": "c2ln"}
    call = {"type": "function_call", "id": "1", "name": "get_weather", "arguments": {"city": "Oslo"}}  # fmt: skip
    said = {"type": "model_output", "content": [{"type": "text", "text": "It rains."}]}

    def answered(status: str, *given: dict[str, Any]) -> list[Step]:
        created = {"event_type": "interaction.created", "interaction": made}
        events = [
            event
            for number, step in enumerate(given)
            for event in (
                {"event_type": "step.start", "index": number, "step": step},
                {"event_type": "step.stop", "index": number},
            )
        ]
        ended = {"event_type": "interaction.completed", "interaction": {**made, "status": status}}
        return steps(created, *events, ended)

    async with (
        RawUpstream(answered("requires_action", thought, call), answered("completed", said)) as upstream,
        talking(tmp_path, f"http://127.0.0.1:{upstream.port}", [WEATHER], profile="gemini-interactions") as chat,
    ):  # fmt: skip
        assert (await (await chat.send("Weather?")).result()).text == "It rains."
    assert ran == ["Oslo"]
    first, second = upstream.requests
    assert first.head.startswith(b"POST /v1beta/interactions HTTP/1.1")
    assert first.headers["x-goog-api-key"] == "k-secret"
    assert json.loads(first.body)["store"] is False
    assert json.loads(second.body)["input"][1:] == [
        thought,
        call,
        {"type": "function_result", "call_id": "1", "name": "get_weather", "result": get_weather("Oslo")},
    ]  # fmt: skip
    assert second.body.startswith(first.body.removesuffix(b"]}"))


# A server that others wrote.


async def test_text_and_a_tool_turn_with_llmock(llmock: LLMock, tmp_path: Path) -> None:
    llmock.reply("Hello there.").call_tool("get_weather", {"city": "Oslo"}).reply("It rains.")
    async with talking(tmp_path, f"{llmock.url}/gemini", [WEATHER]) as chat:
        assert (await (await chat.send("hello")).result()).text == "Hello there."
        assert (await (await chat.send("weather?")).result()).text == "It rains."
    assert ran == ["Oslo"]
    third = (await asyncio.to_thread(lambda: llmock.requests))[2].body
    assert [content["role"] for content in third["contents"]] == ["user", "model", "user", "model", "user"]  # fmt: skip
    sent, result = (third["contents"][n]["parts"][0] for n in (3, 4))
    assert sent["functionCall"]["id"] == result["functionResponse"]["id"]


@pytest.mark.req("M138")
@pytest.mark.parametrize("status", [400, 401, 404])
async def test_a_refusal_is_final_and_sent_once(
    llmock: LLMock, tmp_path: Path, status: int
) -> None:
    llmock.fail(status)
    async with talking(tmp_path, f"{llmock.url}/gemini") as chat:
        run = await chat.send("hello")
        with pytest.raises(ProviderFailed):
            await run.result()
        assert await states(run) == [State.CLOSED]
    assert len(await asyncio.to_thread(lambda: llmock.requests)) == 1


@pytest.mark.req("M139")
@pytest.mark.parametrize("status", [429, 503])
async def test_a_refusal_for_now_is_tried_again(
    llmock: LLMock, tmp_path: Path, status: int
) -> None:
    llmock.fail(status, retry_after=0.0).reply("Now.")
    async with talking(tmp_path, f"{llmock.url}/gemini") as chat:
        run = await chat.send("hello")
        assert (await run.result()).text == "Now."
        assert await states(run) == [State.FAILED, State.COMMITTED]


@pytest.mark.req("M60", "M73", "M89")
@pytest.mark.parametrize("fault", ["disconnect", "truncate", "500"])
async def test_what_may_have_been_carried_out_is_unknown_and_runs_nothing(
    llmock: LLMock, tmp_path: Path, fault: str
) -> None:
    llmock.reply("A tale of many words, told in as many pieces as there are words in it.")
    match fault:
        case "disconnect":
            llmock.disconnect(after_chunks=1)
        case "truncate":
            llmock.truncate(after_chunks=1)
        case _:
            llmock.fail(500)
    async with talking(
        tmp_path, f"{llmock.url}/gemini", [WEATHER], resend_after_unknown="never"
    ) as chat:
        with pytest.raises(OutcomeUnknown):
            await (await chat.send("a long tale, please")).result()
        assert len(await chat.tree()) == 1
    assert ran == []
