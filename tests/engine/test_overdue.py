"""A dispatch whose outcome nobody finds out for long is told of in the log, once."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from antiphon.engine.catalogue.models import Model, Models
from antiphon.engine.ports import Cut, NotSent
from antiphon.engine.settings import Settings
from tests.support import responses_stream as items
from tests.support.clock import SimulatedClock
from tests.support.engines import app_on
from tests.support.provider import ScriptedProvider, says
from tests.support.upstream import WAIT_S

KEPT = Model(
    name="kept",
    profile="openai-responses",
    model="gpt-6-astra",
    base_url="http://provider.invalid/v1",
    facts={"background": True},
)
SETTINGS = Settings(
    models=Models(named={"kept": KEPT}, default="kept"),
    deadline_s=7200.0,
    deadline_cap_s=7200.0,
    unknown_limit_s=900.0,
)


class Unreachable(ScriptedProvider):
    """Breaks off in the first answer, and is not reached any more."""

    def __init__(self) -> None:
        super().__init__([items.wire([items.created()]), Cut("connection_reset", "Broken.")])
        self.scripts += [[NotSent("connect", "Nobody there.")] for _ in range(5000)]


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "antiphon.dispatch"]


@pytest.mark.req("M60", "M93")
async def test_what_stays_unknown_for_too_long_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = SimulatedClock()
    caplog.set_level(logging.WARNING, "antiphon.dispatch")
    async with app_on(tmp_path / "a.db", Unreachable(), clock=clock, settings=SETTINGS) as app:
        run = await (await app.create()).send("Hello")
        async with asyncio.timeout(WAIT_S):
            # No time goes by for it: however long this takes, its 900 s begin now.
            while (await run.row()).status != "unknown":  # noqa: ASYNC110 - it is not told apart
                await asyncio.sleep(0.005)
        operation = (await run.row()).operation
        await clock.advance(890)
        assert told(caplog) == []
        await clock.advance(20)
        async with asyncio.timeout(WAIT_S):
            while not told(caplog):  # noqa: ASYNC110 - a line in the log sets no event
                await asyncio.sleep(0.005)
        (line,) = told(caplog)
        assert str(operation) in line
        assert "Hello" not in line
        await clock.advance(2000)
        assert told(caplog) == [line]


async def test_what_was_settled_in_time_is_not_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = SimulatedClock()
    caplog.set_level(logging.WARNING, "antiphon.dispatch")
    provider = ScriptedProvider([Cut("connection_reset", "Broken.")], says("Here."))
    async with app_on(tmp_path / "a.db", provider, clock=clock) as app:
        run = await (await app.create()).send("Hello")
        assert (await run.result()).text == "Here."
        await clock.advance(5000)
    assert told(caplog) == []
