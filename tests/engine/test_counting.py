"""A provider is asked what a request costs only near the edge, once, briefly; else the estimate stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.core.manifest import WireRequest
from antiphon.core.planning.trace import PromptTrace
from antiphon.engine.ports import Cut, NotSent
from antiphon.engine.settings import Settings
from antiphon.errors import Refused
from tests.engine.test_planning import LONG, holding, say
from tests.support.engines import app_on
from tests.support.messages_stream import end, start, text
from tests.support.provider import ScriptedProvider, Status, Step

WINDOW = 2_000


class Provider(ScriptedProvider):
    """Answers turns in Anthropic's words, and counts by a script of its own."""

    def __init__(self, *counts: list[Step]) -> None:
        super().__init__()
        self.counts, self.counted = list(counts), list[WireRequest]()

    async def send(self, request: WireRequest, **how: Any) -> Any:
        if request.url.endswith("/count_tokens"):
            self.counted.append(request)
            self.scripts = [self.counts.pop(0)]
        else:
            self.scripts = [[start(), text(0, "Fine."), end("end_turn")]]
        return await super().send(request, **how)


def counting(percent: int) -> Settings:
    settings = holding(WINDOW, profile="anthropic", max_output_tokens=64)
    return msgspec.structs.replace(settings, count_at_percent=percent)


def counts(tokens: int) -> list[Step]:
    return [
        Status(200, {"content-type": "application/json"}),
        json.dumps({"input_tokens": tokens}).encode(),
    ]


async def planned(db: Path, provider: Provider, percent: int, *texts: str) -> list[PromptTrace]:
    async with app_on(db, provider, settings=counting(percent)) as app:
        chat = await app.create()
        return [await say(chat, text) for text in texts]


NEAR = LONG * 8
"""Comes to some 1,700 tokens, as it is estimated; 1,811 may be sent."""


@pytest.mark.req("M46")
async def test_near_the_edge_the_provider_counts_and_the_plan_says_so(tmp_path: Path) -> None:
    provider = Provider(counts(1_234))
    (trace,) = await planned(tmp_path / "a.db", provider, 70, NEAR)
    assert (trace.counted_by, trace.total_tokens) == ("provider", 1_234)
    assert sum(block.tokens for block in trace.blocks) == 1_234
    (asked,) = provider.counted
    assert json.loads(asked.body)["messages"] == json.loads(provider.bodies[-1])["messages"]


async def test_far_from_it_nobody_is_asked_and_by_default_never(tmp_path: Path) -> None:
    provider = Provider()
    (trace,) = await planned(tmp_path / "a.db", provider, 70, "Hi")
    assert trace.counted_by == "estimate"
    (trace,) = await planned(tmp_path / "b.db", provider, Settings().count_at_percent, NEAR)
    assert trace.counted_by == "estimate"
    assert provider.counted == []


async def test_what_is_estimated_too_high_is_sent_where_the_provider_says_that_it_fits(
    tmp_path: Path,
) -> None:
    over = LONG * 10
    with pytest.raises(Refused):
        await planned(tmp_path / "a.db", Provider(), 0, over)
    (trace,) = await planned(tmp_path / "b.db", Provider(counts(1_700)), 70, over)
    assert trace.total_tokens == 1_700


@pytest.mark.parametrize(
    "answer",
    [
        [Status(500), b"{}"],
        [Status(200), b"<html>"],
        [Status(200), b" " * 70_000],
        [Cut("reset", "gone")],
        [NotSent("dns", "no such name")],
    ],
    ids=["500", "no number", "too long", "cut", "not sent"],
)
async def test_whatever_goes_wrong_the_estimate_stands(tmp_path: Path, answer: list[Step]) -> None:
    provider = Provider(answer)
    (trace,) = await planned(tmp_path / "a.db", provider, 70, NEAR)
    assert trace.counted_by == "estimate"


async def test_an_endpoint_that_is_not_there_is_asked_once(tmp_path: Path) -> None:
    provider = Provider([Status(404), b"{}"])
    traces = await planned(tmp_path / "a.db", provider, 50, NEAR, "And?")
    assert [trace.counted_by for trace in traces] == ["estimate", "estimate"]
    assert len(provider.counted) == 1
