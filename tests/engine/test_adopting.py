"""A node takes over what a dead one had in flight while clients already talk to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from antiphon.core.commands import Command, Lose
from antiphon.core.records import RunStatus
from antiphon.engine.assembly import open_world
from antiphon.engine.dispatch.lines import LineCache
from antiphon.engine.edge.clock import SystemClock
from antiphon.engine.engine import Engine
from antiphon.engine.live import Broker
from antiphon.engine.settings import Settings
from antiphon.library import Antiphon
from tests.support.postgres import shared_server
from tests.support.provider import Hold, ScriptedProvider, says

pytestmark = [pytest.mark.needs("postgres")]

PATIENCE_S = 90.0
SETTINGS = Settings(retry_base_s=0.0, cancel_grace_s=0.0)


class Slow:
    """A store that lets no `Lose` pass before it is told to."""

    def __init__(self, store: Any) -> None:
        self._store = store
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
    database: str, provider: ScriptedProvider, *, dying: bool = False
) -> AsyncIterator[tuple[Antiphon, Slow]]:
    async with open_world(
        database, settings=SETTINGS, transport=provider, clock=SystemClock()
    ) as world:
        store: Any = Slow(world.store)
        engine = Engine(replace(world, store=store, broker=Broker(store), lines=LineCache(store)))
        if not dying:
            await engine.start()  # else it keeps no lease, and hears nothing of other nodes
        try:
            yield Antiphon(engine), store
        finally:
            await engine.close()


@pytest.mark.req("M63", "M68")
async def test_a_message_that_comes_while_a_run_is_taken_over_waits_for_its_turn() -> None:
    server = await asyncio.to_thread(shared_server)
    database = await asyncio.to_thread(server.database)
    name = database.rpartition("/")[2]
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
            await asyncio.to_thread(
                server.sql,
                "UPDATE antiphon.node SET lease_until_ms = 0, epoch = epoch + 1 "
                f"WHERE id = '{first.engine.world.fence.node}'",
                name,
            )
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
