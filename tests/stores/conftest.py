"""The stores that the contract suite runs over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from antiphon.stores.base import Store
from antiphon.stores.sqlite import open_sqlite
from tests.stores.talk import Talk

Opener: TypeAlias = Callable[[], Awaitable[Store]]


@pytest.fixture(params=["memory", "file"])
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opener]:
    """Opens a new, empty store of one kind, as often as a test wants one; closes them all."""
    opened: list[Store] = []

    async def opener() -> Store:
        where = ":memory:" if request.param == "memory" else tmp_path / f"{len(opened)}.db"
        # What a power cut may take is tested elsewhere; here only time would go by.
        opened.append(await open_sqlite(where, synchronous="OFF"))
        return opened[-1]

    yield opener
    for store in opened:
        await store.close()


@pytest.fixture
async def store(open_store: Opener) -> Store:
    """An empty store."""
    return await open_store()


@pytest.fixture
async def talk(store: Store) -> Talk:
    """A new conversation in it."""
    return await Talk.begin(store)
