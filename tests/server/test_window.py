"""What a model's window cannot hold is refused at every door, before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.test_planning import LONG, answers, holding
from tests.server.stage import ROOT, served
from tests.support.provider import ScriptedProvider

HUGE = LONG * 30

DOORS: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/responses", {"input": HUGE}, "input"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": HUGE}]}, "messages"),
    (
        "/v1/messages",
        {"max_tokens": 100, "messages": [{"role": "user", "content": HUGE}]},
        "messages",
    ),
]


@pytest.mark.req("M46")
@pytest.mark.parametrize(("path", "body", "at"), DOORS)
async def test_what_is_over_the_window_is_a_400_and_nothing_is_sent(
    tmp_path: Path, path: str, body: dict[str, Any], at: str
) -> None:
    provider = ScriptedProvider()
    async with served(tmp_path / "a.db", provider, settings=holding(2_000)) as stage:
        told = await stage.client.post(path, {"model": "small", **body})
        assert told.status == 400, told.body
        assert b"over_window" in told.body or b"window of 2000" in told.body
        assert provider.requests == []
        listed = await stage.client.get(f"{ROOT}/conversations")
        assert listed.json["data"] == []  # nothing was begun


async def test_a_response_may_let_older_turns_be_left_out(tmp_path: Path) -> None:
    provider = ScriptedProvider(*answers(9))
    async with served(tmp_path / "a.db", provider, settings=holding(1_600)) as stage:
        previous: str | None = None
        for n in range(6):
            body = {"model": "small", "input": f"{n} {LONG}", "truncation": "auto"}
            told = await stage.client.post(
                "/v1/responses", {**body, "previous_response_id": previous}
            )
            assert told.status == 200, told.body
            assert told.json["status"] == "completed"
            assert told.json["truncation"] == "auto"
            previous = told.json["id"]
        strict = {"model": "small", "input": "more " * 900, "previous_response_id": previous}
        told = await stage.client.post("/v1/responses", strict)
        assert told.status == 400
        assert told.json["error"]["code"] == "over_window"


async def test_a_plan_is_told_over_http(tmp_path: Path) -> None:
    async with served(
        tmp_path / "a.db", ScriptedProvider(*answers(1)), settings=holding(4_000)
    ) as stage:
        chat = await stage.conversation()
        run = await stage.send(chat, "Hello")
        await stage.idle(chat)
        told = (await stage.client.get(f"{ROOT}/runs/{run['id']}/plan")).json
        assert told["trace"]["window"] == 4_000
        assert [block["kind"] for block in told["trace"]["blocks"]] == ["transcript"]
        assert told["retrieval"] == []


async def test_input_tokens_are_those_of_the_models_own_vocabulary(tmp_path: Path) -> None:
    settings = holding(4_000, model="gpt-4o")
    async with served(tmp_path / "a.db", settings=settings) as stage:
        told = await stage.client.post(
            "/v1/responses/input_tokens", {"model": "small", "input": "hello world"}
        )
        # Two of the text, one of the role, three around the message and three for the answer.
        assert told.json["input_tokens"] == 2 + 1 + 3 + 3
