"""Looking after other nodes goes on, whatever it finds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from antiphon.core.ids import ConversationId, RunId
from antiphon.core.records import Run
from antiphon.engine.nodes.neighbours import Neighbours
from antiphon.engine.world import World
from antiphon.errors import NotFound, StoreError
from antiphon.stores.base import Nodes

CONVERSATION = ConversationId("conv_1")


class Database:
    """What other nodes have told, one event more at each look; its runs cannot be read."""

    others = True

    def __init__(self, error: Exception) -> None:
        self.looks = 0
        self.error = error
        self.fenced: Callable[[], None]

    async def run(self, conversation: ConversationId, run: RunId) -> Run:
        raise self.error

    async def claim(self, *_: object) -> list[Run]:
        return []

    async def last_events(self, names: object) -> Mapping[ConversationId, int]:
        self.looks += 1
        return {CONVERSATION: self.looks}

    def start(self, *_: object, fenced: Callable[[], None], buried: object, told: object) -> None:
        """There is nobody else, until a test says that they hold this node for dead."""
        self.fenced = fenced

    def close(self) -> None:
        """There was nobody else."""


async def nothing(*_: object) -> None:
    pass


def neighbours_in(
    database: Database,
    reached: Callable[[ConversationId, int], None] = lambda *_: None,
    rejoin: Callable[[], Awaitable[None]] = nothing,
) -> Neighbours:
    world = SimpleNamespace(
        store=database,
        fence=None,
        settings=SimpleNamespace(lease_s=1.0),
        clock=SimpleNamespace(now_ms=lambda: 0),
        broker=SimpleNamespace(followed=frozenset, reached=reached),
    )
    return Neighbours(
        cast("World", world),
        cast("Nodes", cast("Any", database)),
        under_way=lambda: {CONVERSATION: (RunId("run_1"),)},
        kick=lambda conversation: None,
        canceled=nothing,
        rejoin=rejoin,
        refresh=nothing,
    )


@pytest.mark.req("M63", "M90")
@pytest.mark.parametrize(
    "error",
    [
        pytest.param(
            NotFound("There is no such run.", at="run_1"), id="its beginning is not stored"
        ),
        pytest.param(StoreError("It is gone.", code="database_unreachable"), id="no database"),
        pytest.param(IndexError("a bug of ours"), id="a bug"),
    ],
)
async def test_no_run_that_cannot_be_read_makes_a_node_deaf(error: Exception) -> None:
    database, reached, third = Database(error), [], asyncio.Event()

    def reach(conversation: ConversationId, seq: int) -> None:
        reached.append(seq)
        if seq == 3:
            third.set()

    neighbours = neighbours_in(database, reach)
    neighbours.start()
    async with asyncio.timeout(10):
        await third.wait()
    await neighbours.close()
    assert reached[:3] == [1, 2, 3]


@pytest.mark.req("M63", "M90")
@pytest.mark.parametrize(
    "error",
    [
        pytest.param(StoreError("It is gone.", code="database_unreachable"), id="no database"),
        pytest.param(IndexError("a bug of ours"), id="a bug"),
    ],
)
async def test_a_node_that_was_held_for_dead_joins_anew_though_it_fails_at_first(
    error: Exception,
) -> None:
    database, joined, tries = Database(NotFound("", at="")), asyncio.Event(), [error]

    async def rejoin() -> None:
        if tries:
            raise tries.pop()
        joined.set()

    neighbours = neighbours_in(database, rejoin=rejoin)
    neighbours.start()
    database.fenced()
    async with asyncio.timeout(10):
        await joined.wait()
    await neighbours.close()
