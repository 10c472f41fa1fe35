"""What is kept of stateless requests is erased once it is old: a little at a time, and nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.core.ids import LOCAL_TENANT, ConversationId
from antiphon.engine.keeping.erasure import DAY_MS
from antiphon.engine.keeping.sweeping import AT_ONCE, EVERY_S, Sweep
from antiphon.engine.settings import Settings, Stateless
from tests.server.stage import Served, served
from tests.support.clock import SimulatedClock
from tests.support.provider import Hold, ScriptedProvider, chunk, says

WAIT_S = 20.0
DAY_S = DAY_MS / 1000
KEEP = Settings(stateless=Stateless.KEEP, stateless_days=1.0, retry_base_s=0.0, cancel_grace_s=0.0)
SECRET = "the rain in Spain"


async def asked(stage: Served, text: str = SECRET) -> None:
    body = {"model": "rehearsal", "messages": [{"role": "user", "content": text}]}
    assert (await stage.client.post("/v1/chat/completions", body)).status == 200


async def kept(stage: Served) -> list[ConversationId]:
    return [row.id for row in await stage.engine.world.store.conversations(LOCAL_TENANT)]


async def passes(stage: Served, clock: SimulatedClock, seconds: float) -> None:
    """Let time pass, and whoever looks look each time."""
    until_ms = clock.now_ms() + seconds * 1000
    while (left_s := (until_ms - clock.now_ms()) / 1000) > 0:
        await clock.advance(min(left_s, EVERY_S / 2))
        await asyncio.wait_for(stage.engine.sweep.idle(), WAIT_S)


def in_files(path: Path) -> bool:
    return any(SECRET.encode() in part.read_bytes() for part in path.parent.glob(f"{path.name}*"))


@pytest.mark.req("M91")
async def test_what_is_kept_of_stateless_requests_goes_when_it_is_old_and_a_conversation_stays(
    tmp_path: Path,
) -> None:
    path, clock = tmp_path / "a.db", SimulatedClock()
    provider = ScriptedProvider(says("Mainly."), says("Mainly."))
    async with served(path, provider, settings=KEEP, clock=clock) as stage:
        await asked(stage)
        (old,) = await kept(stage)
        own = (await stage.engine.create_conversation()).id
        await passes(stage, clock, DAY_S / 2)
        await asked(stage, "another")
        (young,) = set(await kept(stage)) - {old, own}
        await passes(stage, clock, DAY_S / 2 - 2 * EVERY_S)
        assert {old, own, young} == set(await kept(stage)), "it is not that old yet"
        await passes(stage, clock, 4 * EVERY_S)
        assert {own, young} == set(await kept(stage))
    assert not await asyncio.to_thread(in_files, path)
    async with served(path, ScriptedProvider(says("Again.")), settings=KEEP, clock=clock) as stage:
        await asked(stage)  # what is erased is known again by nothing
        assert len(await kept(stage)) == 3


async def test_one_look_takes_a_few_oldest_first_and_says_that_there_is_more(
    tmp_path: Path,
) -> None:
    clock, many = SimulatedClock(), AT_ONCE + 3
    provider = ScriptedProvider(*(says("Yes.") for _ in range(many)))
    async with served(tmp_path / "a.db", provider, settings=KEEP, clock=clock) as stage:
        for number in range(many):
            await asked(stage, f"number {number}")
            await clock.advance(1)
        named = list(reversed(await kept(stage)))
        sweep = Sweep(stage.engine.world, stage.engine.erasure)
        assert not await sweep.once(), "nothing is old yet"
        clock.set_back(-2 * DAY_S)  # a leap: no timer rings
        assert await sweep.once()
        assert set(await kept(stage)) == set(named[AT_ONCE:])
        assert not await sweep.once()
        assert await kept(stage) == []


async def test_what_is_at_work_is_left_alone_however_old_it_is(tmp_path: Path) -> None:
    clock, hold = SimulatedClock(), Hold()
    steps: list[Any] = [chunk({"content": "Ma"}), hold, *says("inly.")]
    provider = ScriptedProvider(steps)
    async with served(tmp_path / "a.db", provider, settings=KEEP, clock=clock) as stage:
        asking = asyncio.create_task(asked(stage))
        await asyncio.wait_for(hold.reached.wait(), WAIT_S)
        sweep = Sweep(stage.engine.world, stage.engine.erasure)
        clock.set_back(-2 * DAY_S)  # a leap: no timer rings
        assert not await sweep.once()
        assert len(await kept(stage)) == 1
        hold.go.set()
        await asking


async def test_without_an_age_nothing_is_ever_looked_for(tmp_path: Path) -> None:
    clock = SimulatedClock()
    settings = msgspec.structs.replace(KEEP, stateless_days=0.0)
    provider = ScriptedProvider(says("Mainly."))
    async with served(tmp_path / "a.db", provider, settings=settings, clock=clock) as stage:
        await asked(stage)
        await clock.advance(10 * DAY_S)
        assert len(await kept(stage)) == 1
