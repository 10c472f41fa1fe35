"""What whoever looks after a server is told while its database takes nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from antiphon.core.ids import NodeId
from antiphon.engine.edge.clock import SystemClock
from antiphon.stores.base import Store
from tests.crash.test_disk import small_files
from tests.server.stage import Served, served
from tests.support.asgi import WAIT_S
from tests.support.clock import SimulatedClock
from tests.support.provider import Hold, ScriptedProvider, says


async def ready(server: Served) -> tuple[int, str]:
    told = await server.client.get("/readyz")
    return told.status, told.json["status"]


async def until_ready(server: Served, status: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while (await ready(server))[0] != status:  # noqa: ASYNC110 - asked as a balancer does
            await asyncio.sleep(0.01)


async def test_a_server_whose_work_waits_for_a_full_disk_is_up_and_not_ready(
    tmp_path: Path,
) -> None:
    hold = Hold()
    provider = ScriptedProvider([hold, *says("An answer.")])
    with small_files(tmp_path) as (place, room):
        async with served(place / "talk.db", provider, clock=SystemClock()) as server:
            assert await ready(server) == (200, "ready")
            conversation = await server.conversation()
            await server.send(conversation, "Hello.")
            await asyncio.wait_for(hold.reached.wait(), WAIT_S)
            room(False)
            hold.go.set()
            await until_ready(server, 503)
            assert await ready(server) == (503, "store_unavailable")
            assert (await server.client.get("/healthz")).status == 200
            metrics = (await server.client.get("/metrics")).body.decode()
            assert "\nantiphon_store_waiting 1\n" in metrics
            room(True)
            await until_ready(server, 200)
            await server.idle(conversation)
            assert (
                "\nantiphon_store_waiting 0\n"
                in (await server.client.get("/metrics")).body.decode()
            )


class CountingStore:
    """The real store, and how often one question was asked."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def addresses(self) -> dict[NodeId, str]:
        self.asked += 1
        return await self._store.addresses()


async def test_however_many_ask_whether_it_is_ready_the_database_is_asked_once_a_second(
    tmp_path: Path,
) -> None:
    clock = SimulatedClock()
    async with served(tmp_path / "talk.db", clock=clock) as server:
        world = server.engine.world
        world.store = cast("Store", counting := CountingStore(world.store))
        told = await asyncio.gather(*(ready(server) for _ in range(20)))
        assert set(told) == {(200, "ready")}
        assert counting.asked == 1
        await clock.advance(0.9)
        await ready(server)
        assert counting.asked == 1
        await clock.advance(0.2)
        await asyncio.gather(*(ready(server) for _ in range(20)))
        assert counting.asked == 2


class SilentStore:
    """The real store, with one question that is never answered."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def addresses(self) -> dict[NodeId, str]:
        await asyncio.Event().wait()
        return {}


async def test_a_server_whose_database_says_nothing_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.server.health.PATIENCE_S", 0.01)
    async with served(tmp_path / "talk.db") as server:
        world = server.engine.world
        world.store = cast("Store", SilentStore(world.store))
        assert await ready(server) == (503, "store_unavailable")
