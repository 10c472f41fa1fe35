"""Many streams at once on each store, in short: nothing fails, and memory does not grow with them.

`make bench ARGS="--only streams"` has 200 of them at 20 deltas a second, 500 at 5, and how late a delta is.
"""

from __future__ import annotations

import asyncio

import pytest

from bench.load import waves
from tests.support.postgres import shared_server

STREAMS, RATE, SECONDS = 30, 10, 1.0


async def judged(db: str | None) -> None:
    lived = await waves(STREAMS, RATE, SECONDS, 2, db)
    assert lived.wrong == []
    assert len(lived.late_ms) == 2 * STREAMS * RATE * SECONDS, "a word came twice, or never"
    first, second = lived.memory_mib
    assert second < first * 1.2


@pytest.mark.req("M76", "M90")
async def test_many_streams_at_once_are_whole_and_leave_nothing_behind_in_memory() -> None:
    await judged(None)


@pytest.mark.needs("postgres")
@pytest.mark.req("M76", "M90")
async def test_on_postgresql_too_many_streams_are_whole_and_leave_nothing_behind() -> None:
    server = await asyncio.to_thread(shared_server)
    database = await asyncio.to_thread(server.database)
    await judged(database)
    await asyncio.to_thread(server.give_back, database)
