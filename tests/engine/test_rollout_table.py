"""The rollouts that a node knows: never older than what was set on it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from antiphon.core.ids import LOCAL_TENANT
from antiphon.core.traffic.rollout import Rollout, Stage
from antiphon.core.traffic.standing import Rollouts, SetRollout
from antiphon.engine.rollouts import FRESH_MS, RolloutTable
from antiphon.stores.base import Store
from tests.support.clock import SimulatedClock

WAIT_S = 20.0


class Slow:
    """A store that answers with what it held when it was asked, once it is let."""

    def __init__(self, *held: Rollout) -> None:
        self.held = {one.model: one for one in held}
        self.go = asyncio.Event()

    async def answer(self, question: Rollouts) -> list[Rollout]:
        seen = list(self.held.values())
        await self.go.wait()
        return seen

    async def change(self, command: SetRollout) -> Rollout:
        self.held[command.rollout.model] = command.rollout
        return command.rollout


def rollout(stage: Stage) -> Rollout:
    return Rollout(tenant=LOCAL_TENANT, model="fast", stage=stage)


async def known(store: Slow) -> tuple[RolloutTable, SimulatedClock]:
    """Return a table that has looked once, a while ago."""
    clock = SimulatedClock()
    table = RolloutTable(cast("Store", store), cast("Any", clock))
    store.go.set()
    await table.refresh()
    store.go.clear()
    await clock.advance(FRESH_MS / 1000 + 1)
    return table, clock


async def test_what_is_set_while_somebody_looks_holds_at_once_and_stays() -> None:
    store = Slow(rollout(Stage.SHADOW))
    table, _ = await known(store)
    looking = asyncio.create_task(table.refresh())
    await asyncio.sleep(0)
    await table.set(rollout(Stage.OFF))
    store.go.set()
    await asyncio.wait_for(looking, WAIT_S)
    found = table.of(LOCAL_TENANT, "fast")
    assert found is not None
    assert found.stage is Stage.OFF
