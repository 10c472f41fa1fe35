"""How a process learns how far the traffic of its tenants has come."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from antiphon.core.traffic.standing import Question
from antiphon.engine.rollouts import FRESH_MS, RolloutTable
from antiphon.stores.base import Store
from antiphon.stores.sqlite import open_sqlite
from tests.support.clock import SimulatedClock


class Counted:
    """A store whose answers are counted."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked = 0

    async def answer(self, question: Question[Any]) -> Any:
        self.asked += 1
        return await self._store.answer(question)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def test_who_comes_together_looks_once_and_a_second_later_again(tmp_path: Path) -> None:
    clock = SimulatedClock()
    store: Any = Counted(await open_sqlite(tmp_path / "a.db"))
    table = RolloutTable(store, clock)
    await asyncio.gather(*[table.refresh() for _ in range(8)])
    assert store.asked == 1
    await table.refresh()
    assert store.asked == 1
    await clock.advance(FRESH_MS / 1000)
    await asyncio.gather(*[table.refresh() for _ in range(8)])
    assert store.asked == 2
    await store.close()
