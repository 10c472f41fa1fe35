"""Two engines on one store reach for the same thing at the same moment: one gets it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from antiphon.core.asking import Ask
from antiphon.core.blocks import Role, Status
from antiphon.core.commands import Accept, Command, PlaceRun, StartKey
from antiphon.core.ids import ConversationId, Digest, NodeId
from antiphon.core.records import OPEN_RUN, Run
from antiphon.engine.assembly import open_world
from antiphon.engine.catalogue.models import Model, Models, Routing
from antiphon.engine.dispatch.lines import LineCache
from antiphon.engine.engine import Engine
from antiphon.engine.live import Broker
from antiphon.engine.settings import Settings
from antiphon.engine.world import World
from antiphon.stores.base import Store
from tests.cases.provider import Exchange, HeldProvider

TOGETHER_S = 2.0
WAIT_S = 20.0


class Meeting:
    """A store that lets commands of one kind pass in pairs: whoever comes first waits.

    Who waits in vain, because the other was turned away before, goes alone.
    """

    def __init__(self, store: Store, kind: type[Command[Any]], met: asyncio.Barrier) -> None:
        self._store = store
        self._kind = kind
        self._met = met
        self.pairs = 0

    async def do(self, command: Command[Any]) -> Any:
        await self._meet([command])
        return await self._store.do(command)

    async def do_all(self, *commands: Command[Any]) -> Any:
        await self._meet(commands)
        return await self._store.do_all(*commands)

    async def _meet(self, commands: Sequence[Command[Any]]) -> None:
        if not any(isinstance(command, self._kind) for command in commands):
            return
        try:
            async with asyncio.timeout(TOGETHER_S):
                await self._met.wait()
            self.pairs += 1
        except (TimeoutError, asyncio.BrokenBarrierError):
            await self._met.reset()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def answer(exchange: Exchange) -> None:
    await exchange.say("An ")
    await exchange.say("alder.")
    await exchange.finish("stop")


@asynccontextmanager
async def two_engines(
    db: Path, provider: HeldProvider, kind: type[Command[Any]], *, same_node: bool
) -> AsyncIterator[tuple[Engine, Engine, list[Meeting]]]:
    """Open two engines on one store that meet before each command of `kind`."""
    model = Model(
        name="m",
        profile="openai-chat",
        model="m",
        base_url=provider.base_url("m/v1"),
        routing=Routing(max_concurrent=8),  # so that a run is there to be taken up, once started
    )
    settings = Settings(models=Models(named={"m": model}, default="m"))
    async with open_world(db, settings=settings) as world:
        met = asyncio.Barrier(2)
        fences = [world.fence, world.fence]
        if not same_node:
            fences[1] = await world.store.join(NodeId("other"), None, world.clock.now_ms())
        meetings = [Meeting(world.store, kind, met) for _ in fences]
        engines = [
            Engine(_beside(world, meeting, fence))
            for meeting, fence in zip(meetings, fences, strict=True)
        ]
        try:
            yield engines[0], engines[1], meetings
        finally:
            for engine in engines:
                await engine.close()
        if not same_node:
            # Two engines under one name both believe that a run is theirs; the second one is
            # turned away at acceptance, and that is an error of whoever opened it.
            assert [failure for engine in engines for failure in engine.failures] == []


def _beside(world: World, store: Any, fence: Any) -> World:
    return replace(
        world, store=store, fence=fence, broker=Broker(world.store), lines=LineCache(store)
    )


async def settled(*engines: Engine, conversation: ConversationId) -> list[Run]:
    """Return the runs of a conversation once no engine works on it any more."""
    async with asyncio.timeout(WAIT_S):
        for engine in engines:
            await engine.idle(conversation)
    store = engines[0].world.store
    assert await store.runs(conversation, OPEN_RUN) == []
    return await store.runs(conversation)


@pytest.mark.req("M52", "M53", "M90")
@pytest.mark.parametrize("kind", [Accept, PlaceRun])
@pytest.mark.parametrize("same_node", [True, False], ids=["one_node", "two_nodes"])
async def test_two_engines_that_take_up_one_run_together_ask_the_model_once(
    tmp_path: Path, kind: type[Command[Any]], same_node: bool
) -> None:
    async with (
        HeldProvider(answer) as provider,
        two_engines(tmp_path / "race.db", provider, kind, same_node=same_node) as opened,
    ):
        one, other, meetings = opened
        row = await one.create_conversation()
        await one.send(row.id, "Which tree is this?", Ask())
        other.kick(row.id)
        runs = await settled(one, other, conversation=row.id)
        assert meetings[0].pairs == 1, "they never met, so nothing was proved"
        assert [(run.status, run.error_code) for run in runs] == [("success", None)]
        assert len(provider.exchanges) == 1
        tree = await one.world.store.tree(row.id)
        assert [(m.role, m.status) for m in tree] == [
            (Role.USER, Status.SUCCESS),
            (Role.ASSISTANT, Status.SUCCESS),
        ]
        operations = await one.world.store.operations(row.id, runs[0].id)
        attempts = [a for o in operations for a in await one.world.store.attempts(o)]
        assert [a.generation for a in attempts if a.generation] == [1]


@pytest.mark.req("M136", "M27")
async def test_the_same_key_from_two_engines_at_once_starts_one_run(tmp_path: Path) -> None:
    def key(body: str) -> StartKey:
        digest = Digest(body * 32)
        return StartKey(scope="s", key="k", body_digest=digest, expires_ms=2**60)

    async with (
        HeldProvider(answer) as provider,
        two_engines(tmp_path / "race.db", provider, Accept, same_node=False) as opened,
    ):
        one, other, _ = opened
        row = await one.create_conversation()
        runs = await asyncio.gather(
            *(
                engine.send(row.id, "Which tree is this?", Ask(), key=key("ab"))
                for engine in (one, other, one, other)
            )
        )
        assert len({run.id for run in runs}) == 1
        stored = await settled(one, other, conversation=row.id)
        assert [run.status for run in stored] == ["success"]
        assert len(provider.exchanges) == 1
