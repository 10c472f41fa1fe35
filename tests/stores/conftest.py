"""The stores that the contract suite runs over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from antiphon.stores.base import Store
from antiphon.stores.postgres import open_postgres
from antiphon.stores.postgres import writer as postgres_writer
from antiphon.stores.sql.packing import pack
from antiphon.stores.sql.recent import News, news_of
from antiphon.stores.sql.transaction import Transaction
from antiphon.stores.sqlite import open_sqlite, writer
from tests.stores.talk import Talk
from tests.support.postgres import shared_server

Opener: TypeAlias = Callable[[], Awaitable[Store]]


@pytest.fixture(autouse=True)
def what_the_writer_knows_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare what a writer knows with what is stored, at the end of each transaction."""

    def checked(tx: Transaction) -> News:
        news = news_of(tx)
        compare(tx)
        return news

    monkeypatch.setattr(writer, "news_of", checked)
    monkeypatch.setattr(postgres_writer, "left_by", compare)


def compare(tx: Transaction) -> None:
    """Fail where a row that is known differs from the row that is stored."""
    fresh = Transaction(tx._connection, lambda: b"")
    for number, known in tx._knowledge._known.items():
        c = fresh.row(number)
        assert known.row == c
        if known.runs is not None:
            assert list(known.runs.values()) == fresh.open_runs(c)
        for attempt in known.attempts.values():
            assert attempt == fresh.attempt(c.id, attempt.operation)
        for run, calls in known.calls.items():
            assert list(calls.values()) == fresh.calls_of_run(c, fresh.run(c, run))
        for digest in known.contents:
            assert fresh.one(
                """SELECT 1 FROM content_use AS u JOIN content AS c
                ON c.tenant = u.tenant AND c.digest = u.digest
                WHERE u.conversation = ? AND u.tenant = ? AND u.digest = ?""",
                (number, c.tenant, pack(digest)),
            )
        if known.deletions is not None:
            assert known.deletions == fresh.deletions(number)
        for message, node in known.nodes.items():
            assert node == fresh.node(number, message)
        for table, last in known.last.items():
            assert last == fresh.next_place(table, number) - 1
    for tenant, key in tx._knowledge.keys.items():
        assert key == fresh.tenant_key(tenant)


@pytest.fixture(
    params=["memory", "file", pytest.param("postgres", marks=pytest.mark.needs("postgres"))]
)
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opener]:
    """Opens a new, empty store of one kind, as often as a test wants one; closes them all."""
    opened: list[Store] = []
    taken: list[str] = []
    server = await asyncio.to_thread(shared_server) if request.param == "postgres" else None

    async def opener() -> Store:
        # What a power cut may take is tested elsewhere; here only time would go by.
        if server is not None:
            taken.append(await asyncio.to_thread(server.database))
            opened.append(await open_postgres(taken[-1]))
        else:
            where = ":memory:" if request.param == "memory" else tmp_path / f"{len(opened)}.db"
            opened.append(await open_sqlite(where, synchronous="OFF"))
        return opened[-1]

    yield opener
    for store in opened:
        await store.close()
    for address in taken:
        assert server is not None
        await asyncio.to_thread(server.give_back, address)


@pytest.fixture
async def store(open_store: Opener) -> Store:
    """An empty store."""
    return await open_store()


@pytest.fixture
async def talk(store: Store) -> Talk:
    """A new conversation in it."""
    return await Talk.begin(store)
