"""Tokens and money where they are shown: a run's resource, and each door in its own words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.server.test_admission import gateway
from tests.support.asgi import Client
from tests.support.provider import DONE, ScriptedProvider, Step, chunk

COUNTED = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "prompt_tokens_details": {"cached_tokens": 60},
    "completion_tokens_details": {"reasoning_tokens": 5},
}


def answer(**usage: Any) -> list[Step]:
    last = {"choices": [], "usage": usage} if usage else {"choices": []}
    return [
        chunk({"content": "Yes."}, "stop"),
        b"data: " + json.dumps(last).encode() + b"\n\n",
        DONE,
    ]


async def newest_run(client: Client) -> dict[str, Any]:
    (conversation,) = (await client.get("/antiphon/v1/conversations")).json["data"]
    runs = (await client.get(f"/antiphon/v1/conversations/{conversation['id']}/runs")).json["data"]
    told: dict[str, Any] = (await client.get(f"/antiphon/v1/runs/{runs[-1]['id']}")).json
    assert told["run"] == runs[-1]
    return told


@pytest.mark.req("M27")
async def test_a_run_says_what_it_took_and_cost_and_so_does_its_attempt(tmp_path: Path) -> None:
    async with gateway(tmp_path, ScriptedProvider(answer(**COUNTED))) as server:
        client = await server.client()
        told = await client.post("/v1/responses", {"model": "a", "input": "Hi"})
        assert told.json["usage"] == {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 0},
            "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 5},
            "total_tokens": 120,
        }
        took = {
            "input_tokens": 100,
            "output_tokens": 20,
            "cached_tokens": 60,
            "cache_write_tokens": 0,
            "reasoning_tokens": 5,
            "cost": {"micros": 140_000, "currency": "USD", "prices_of": None},
        }
        run = await newest_run(client)
        assert {name: run["run"][name] for name in took} == took
        (operation,) = run["operations"]
        assert [attempt["used"] for attempt in operation["attempts"]] == [took]


async def test_a_run_whose_provider_counted_nothing_has_a_cost_that_nobody_knows(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path, ScriptedProvider(answer())) as server:
        client = await server.client()
        assert (await client.post("/v1/responses", {"model": "a", "input": "Hi"})).status == 200
        run = (await newest_run(client))["run"]
        assert (run["input_tokens"], run["cost"]) == (0, None)


async def test_each_door_counts_what_a_cache_gave_as_its_clients_expect_it(tmp_path: Path) -> None:
    provider = ScriptedProvider(answer(**COUNTED), answer(**COUNTED))
    hi = {"model": "a", "messages": [{"role": "user", "content": "Hi"}]}
    async with gateway(tmp_path, provider) as server:
        client = await server.client()
        chat = (await client.post("/v1/chat/completions", hi)).json["usage"]
        assert (chat["prompt_tokens"], chat["prompt_tokens_details"]) == (
            100,
            {"cached_tokens": 60},
        )
        assert chat["completion_tokens_details"] == {"reasoning_tokens": 5}
        messages = (await client.post("/v1/messages", {**hi, "max_tokens": 50})).json["usage"]
        assert messages == {
            "input_tokens": 40,
            "cache_read_input_tokens": 60,
            "cache_creation_input_tokens": 0,
            "output_tokens": 20,
        }
