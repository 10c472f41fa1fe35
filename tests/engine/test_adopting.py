"""A node takes over what a dead one had in flight while clients already talk to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from antiphon.core.commands import Command, Lose
from antiphon.core.records import Run, RunStatus
from antiphon.engine.assembly import open_world
from antiphon.engine.dispatch.lines import LineCache
from antiphon.engine.edge.clock import SystemClock
from antiphon.engine.engine import Engine
from antiphon.engine.live import Broker
from antiphon.engine.runs.startup import adopt
from antiphon.engine.settings import Settings
from antiphon.library import Antiphon
from tests.support.postgres import Server, shared_server
from tests.support.provider import Hold, ScriptedProvider, says

pytestmark = [pytest.mark.needs("postgres")]

PATIENCE_S = 90.0
SETTINGS = Settings(retry_base_s=0.0, cancel_grace_s=0.0)


class Blind:
    """Other nodes, whose death is not noticed."""

    def __init__(self, nodes: Any) -> None:
        self._nodes = nodes

    async def claim(self, *_: object) -> list[Run]:
        return []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nodes, name)


class Slow:
    """A store that lets no `Lose` pass before it is told to; the node may be `blind` for others."""

    def __init__(self, store: Any, *, blind: bool = False) -> None:
        self._store = store
        self.nodes = Blind(store.nodes) if blind else store.nodes
        self.come = asyncio.Event()
        self.go = asyncio.Event()

    async def do(self, command: Command[Any]) -> Any:
        if isinstance(command, Lose):
            self.come.set()
            await self.go.wait()
        return await self._store.do(command)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@asynccontextmanager
async def node(
    database: str, provider: ScriptedProvider, *, dying: bool = False, blind: bool = False
) -> AsyncIterator[tuple[Antiphon, Slow]]:
    async with open_world(
        database, settings=SETTINGS, transport=provider, clock=SystemClock()
    ) as world:
        store: Any = Slow(world.store, blind=blind)
        engine = Engine(replace(world, store=store, broker=Broker(store), lines=LineCache(store)))
        if not dying:
            await engine.start()  # else it keeps no lease, and hears nothing of other nodes
        try:
            yield Antiphon(engine), store
        finally:
            await engine.close()


def bury(server: Server, database: str, dead: Antiphon) -> None:
    """Declare a node dead."""
    server.sql(
        "UPDATE antiphon.node SET lease_until_ms = 0, epoch = epoch + 1 "
        f"WHERE id = '{dead.engine.world.fence.node}'",
        database.rpartition("/")[2],
    )


@pytest.mark.req("M63", "M68")
async def test_a_message_that_comes_while_a_run_is_taken_over_waits_for_its_turn() -> None:
    server = await asyncio.to_thread(shared_server)
    database = await asyncio.to_thread(server.database)
    hold = Hold()
    dead = ScriptedProvider([*says("Half ")[:1], hold])
    alive = ScriptedProvider(says("Then this."))
    async with (
        asyncio.timeout(PATIENCE_S),
        node(database, dead, dying=True) as (first, store_of_first),
    ):
        chat = await first.create()
        lost = await chat.send("Hello?")
        await hold.reached.wait()
        async with node(database, alive) as (second, store):
            there = await second.conversation(chat.id)
            await asyncio.to_thread(bury, server, database, first)
            await store.come.wait()
            then = await there.send("And then?")  # it wakes the worker of this conversation
            await second.engine.idle(chat.id)
            assert second.engine.failures == []
            assert (await (await there.run(lost.id)).row()).status is RunStatus.PENDING
            store.go.set()
            while (row := await (await there.run(lost.id)).row()).status is not RunStatus.UNKNOWN:
                assert row.error_code is None
                await asyncio.sleep(0.02)
            await (await there.run(lost.id)).cancel()
            assert (await then.result()).text == "Then this."
            assert second.engine.failures == []
        store_of_first.go.set()
    await asyncio.to_thread(server.give_back, database)


@pytest.mark.req("M63", "M68", "M77")
async def test_a_message_that_comes_before_anybody_has_looked_takes_over_what_a_dead_node_left() -> (
    None
):
    """Whoever claims a run settles first what its dead owner had in flight."""
    server = await asyncio.to_thread(shared_server)
    database = await asyncio.to_thread(server.database)
    hold = Hold()
    dead = ScriptedProvider([*says("Half ")[:1], hold])
    alive = ScriptedProvider(says("Then this."))
    async with (
        asyncio.timeout(PATIENCE_S),
        node(database, dead, dying=True) as (first, store_of_first),
    ):
        chat = await first.create()
        lost = await chat.send("Hello?")
        await hold.reached.wait()
        async with node(database, alive, blind=True) as (second, store):
            store.go.set()
            await asyncio.to_thread(bury, server, database, first)
            there = await second.conversation(chat.id)
            then = await there.send("And then?")
            await second.engine.idle(chat.id)
            assert second.engine.failures == []
            handle = await there.run(lost.id)
            assert (await handle.row()).status is RunStatus.UNKNOWN
            await handle.cancel()
            assert (await then.result()).text == "Then this."
            assert len(alive.requests) == 1
        store_of_first.go.set()
    await asyncio.to_thread(server.give_back, database)


@pytest.mark.req("M63", "M68")
async def test_what_this_node_has_begun_itself_is_not_given_up_by_a_take_over_that_comes_late() -> (
    None
):
    """A client's word may let a claimed run go on before it is looked at what was left of it."""
    server = await asyncio.to_thread(shared_server)
    database = await asyncio.to_thread(server.database)
    hold = Hold()
    provider = ScriptedProvider([*says("All of it.")[:1], hold, *says("All of it.")[1:]])
    async with asyncio.timeout(PATIENCE_S), node(database, provider) as (app, store):
        store.go.set()
        run = await (await app.create()).send("Hello?")
        await hold.reached.wait()
        await adopt(app.engine.world, [await run.row()])
        hold.go.set()
        assert (await run.result()).text == "All of it."
        assert len(provider.requests) == 1
    await asyncio.to_thread(server.give_back, database)
