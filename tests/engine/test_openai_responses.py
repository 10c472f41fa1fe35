"""Runs through OpenAI Responses: the engine over real HTTP, an upstream that says what it is told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from antiphon.core.blocks import Reasoning, ToolCall
from antiphon.engine.settings import Settings
from antiphon.engine.tools import Function
from antiphon.errors import ProviderFailed
from antiphon.handles.chat import Chat
from antiphon.library import Antiphon
from antiphon.library import open as open_app
from tests.adapters.responses_judge import problems
from tests.support.responses_stream import (
    call,
    created,
    ended,
    message,
    said,
    stream,
    thinking,
    thought,
    wire,
)
from tests.support.upstream import CLOSE, READ, WAIT_S, RawUpstream, Step

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"

WEATHER = Function(
    name="get_weather",
    run=lambda city: f"{city}: rain",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


def answers(body: bytes) -> list[Step]:
    return [READ, HEAD + body, CLOSE]


def configured(folder: Path, port: int) -> Settings:
    """The settings of somebody who names this dialect in the file."""
    config = folder / "antiphon.toml"
    config.write_text(
        f"""[models.thinker]
profile = "openai-responses"
model = "gpt-6-astra"
base_url = "http://127.0.0.1:{port}/v1"
api_key_env = "SOME_KEY"
max_output_tokens = 40
""",
        encoding="utf-8",
    )
    flags = {"db": str(folder / "antiphon.db"), "retry_base_s": 0.0}
    return Settings.load(flags, config=config, env={"SOME_KEY": "sk-1"})


@asynccontextmanager
async def talking(folder: Path, upstream: RawUpstream) -> AsyncIterator[tuple[Antiphon, Chat]]:
    """Open everything as a user has it."""
    settings = await asyncio.to_thread(configured, folder, upstream.port)
    async with asyncio.timeout(WAIT_S), open_app(settings=settings, functions=[WEATHER]) as app:
        yield app, await app.create()


@pytest.mark.req("M2", "M31", "M87")
async def test_a_tool_turn_goes_through_this_dialect_and_its_reasoning_goes_back(
    tmp_path: Path,
) -> None:
    asks = stream(thinking(0, "Need ", "it."), said(1, "I look."), call(2, "call_1", "get_weather", '{"city":', '"Oslo"}'))  # fmt: skip
    answered = stream(said(0, "It ", "rains."))
    async with RawUpstream(answers(asks), answers(answered), answers(answered)) as upstream:
        async with talking(tmp_path, upstream) as (_, chat):
            first = await (await chat.send("Weather?")).result()
            second = await (await chat.send("Sure?")).result()
            line = await chat.line()
        assert (first.text, second.text) == ("It rains.", "It rains.")
        assert [type(block).__name__ for block in line[1].blocks] == [
            "Reasoning",
            "Text",
            "ToolCall",
        ]
        assert isinstance(line[1].blocks[0], Reasoning)
        assert isinstance(line[1].blocks[2], ToolCall)
        requests = upstream.requests
        bodies = [json.loads(request.body) for request in requests]
        for request in requests:
            assert request.head.startswith(b"POST /v1/responses HTTP/1.1\r\n")
            assert request.headers["authorization"] == "Bearer sk-1"
            assert problems(request.body) == []
        assert [body["store"] for body in bodies] == [False] * 3
        kinds = [item["type"] for item in bodies[1]["input"]]
        assert kinds == ["message", "reasoning", "message", "function_call", "function_call_output"]
        assert bodies[1]["input"][1] == thought("Need it.", name="rs_0")
        assert bodies[1]["input"][4] == {
            "type": "function_call_output",
            "call_id": "call_1",
            "output": "Oslo: rain",
        }
        # What is sent later begins with all that was sent before.
        for before, after in pairwise(requests):
            assert after.body.startswith(before.body.removesuffix(b"]}"))


@pytest.mark.req("M74", "M85")
@pytest.mark.parametrize("told", [True, False], ids=["incomplete", "completed at the limit"])
async def test_an_answer_that_reached_its_limit_is_shown_as_cut_however_the_server_calls_it(
    tmp_path: Path, told: bool
) -> None:
    usage = {"input_tokens": 9, "output_tokens": 40, "total_tokens": 49}
    reason = {"incomplete_details": {"reason": "max_output_tokens"}} if told else {}
    item = message("It rai", name="msg_0")
    ending = ended("incomplete" if told else "completed", item, **{**reason, "usage": usage})
    body = wire([created(), *said(0, "It rai"), ending])
    async with RawUpstream(answers(body)) as upstream, talking(tmp_path, upstream) as (_, chat):
        run = await chat.send("Weather?")
        assert (await run.result()).text == "It rai"
        assert (await run.row()).end_code == "length"


async def test_a_server_that_repeats_the_limit_is_believed_at_its_word(tmp_path: Path) -> None:
    usage: dict[str, Any] = {"input_tokens": 9, "output_tokens": 40, "total_tokens": 49}
    ending = ended("completed", message("It rains.", name="msg_0"), usage=usage, max_output_tokens=40)  # fmt: skip
    body = wire([created(), *said(0, "It rains."), ending])
    async with RawUpstream(answers(body)) as upstream, talking(tmp_path, upstream) as (_, chat):
        run = await chat.send("Weather?")
        await run.result()
        assert (await run.row()).end_code is None


@pytest.mark.req("M73", "M82")
async def test_a_call_in_a_failed_response_never_runs_and_another_attempt_follows(
    tmp_path: Path,
) -> None:
    begun = [*call(0, "call_1", "get_weather", '{"city":"Oslo"}')]
    failed = wire([created(), *begun, ended("failed", error={"code": "server_error", "message": "Oh."})])  # fmt: skip
    async with RawUpstream(answers(failed), answers(stream(said(0, "It rains.")))) as upstream:
        async with talking(tmp_path, upstream) as (_, chat):
            assert (await (await chat.send("Weather?")).result()).text == "It rains."
            assert [m.role.value for m in await chat.tree()] == ["user", "assistant"]
        assert upstream.requests[0].body == upstream.requests[1].body


async def test_a_failure_that_will_not_pass_is_not_tried_again(tmp_path: Path) -> None:
    failed = wire([created(), ended("failed", error={"code": "invalid_prompt", "message": "No."})])
    async with RawUpstream(answers(failed)) as upstream, talking(tmp_path, upstream) as (_, chat):
        with pytest.raises(ProviderFailed) as caught:
            await (await chat.send("Weather?")).result()
        assert caught.value.code == "invalid_prompt"
