"""One schema in two dialects: the same tables, columns and refusals, and a database that is newer."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from asyncpg import exceptions as pg

from antiphon.errors import StoreError, StoreTooNew
from antiphon.stores.postgres import connections, open_postgres
from antiphon.stores.postgres.statements import PostgresStatements
from antiphon.stores.sqlite.connections import open_writer
from tests.stores.talk import Talk
from tests.stores.test_sqlite_schema import ATTACKS, furnish
from tests.support.postgres import Server, shared_server

pytestmark = [pytest.mark.needs("postgres")]


@pytest.fixture
async def server() -> Server:
    return await asyncio.to_thread(shared_server)


@pytest.fixture
async def address(server: Server) -> str:
    return await asyncio.to_thread(server.database)


@pytest.fixture(scope="module")
def furnished() -> Iterator[PostgresStatements]:
    """A conversation with a closed turn that had a tool, and one more in flight."""
    address = shared_server().database()

    async def fill() -> None:
        store = await open_postgres(address)
        await furnish(store)
        await store.close()

    asyncio.run(fill())
    db = connections.open_connection(address)
    yield db
    connections.close_connection(db)


@pytest.mark.req("M53", "M90", "M127")
@pytest.mark.parametrize("name", ATTACKS)
def test_what_no_command_would_write_is_refused_by_the_constraint_of_the_same_name(
    name: str, furnished: PostgresStatements
) -> None:
    furnished.script("BEGIN")
    with pytest.raises(pg.IntegrityConstraintViolationError) as caught:
        furnished.changed(ATTACKS[name])
    furnished.script("ROLLBACK")
    assert connections.constraint(caught.value) == name


def test_both_databases_have_the_same_tables_columns_and_indexes(
    furnished: PostgresStatements, tmp_path: Path
) -> None:
    with closing(open_writer(tmp_path / "a.db")) as file:
        theirs = columns_of(file)
        indexes = {
            name
            for (name,) in file.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"
            )
        }
    ours: dict[str, list[tuple[str, bool]]] = {}
    for table, column, nullable in furnished.all(
        """SELECT table_name, column_name, is_nullable = 'YES' FROM information_schema.columns
        WHERE table_schema = 'antiphon' ORDER BY table_name, ordinal_position"""
    ):
        ours.setdefault(table, []).append((column, nullable))
    assert ours.keys() - theirs.keys() == {"batch"}  # of its several writers
    for table in theirs.keys() - {"migration"}:
        assert ours[table] == theirs[table], table
    found = furnished.all("SELECT indexname FROM pg_indexes WHERE schemaname = 'antiphon'")
    assert indexes <= {name for (name,) in found}


def columns_of(file: sqlite3.Connection) -> dict[str, list[tuple[str, bool]]]:
    tables = [
        name
        for (name,) in file.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        if not name.startswith("sqlite_")
    ]
    return {
        table: [
            (name, not (needed or key))
            for _, name, _, needed, _, key in file.execute(f"PRAGMA table_info({table})")
        ]
        for table in tables
    }


async def test_nodes_that_start_together_make_one_schema(address: str) -> None:
    stores = await asyncio.gather(*(open_postgres(address) for _ in range(4)))
    await Talk.begin(stores[0])
    assert len(await stores[3].conversations(Talk.tenant())) == 1
    for store in stores:
        await store.close()


async def test_a_database_of_a_newer_release_is_refused_untouched(
    server: Server, address: str
) -> None:
    await (await open_postgres(address)).close()
    name = address.rpartition("/")[2]
    await asyncio.to_thread(
        server.sql, "INSERT INTO antiphon.migration (number, name) VALUES (9999, 'later')", name
    )
    for read_only in (False, True):
        with pytest.raises(StoreTooNew) as caught:
            await open_postgres(address, read_only=read_only)
        assert "9999" in caught.value.message


async def test_a_reader_refuses_a_database_of_an_older_release(
    server: Server, address: str
) -> None:
    await (await open_postgres(address)).close()
    last = (
        "DELETE FROM antiphon.migration WHERE number = (SELECT max(number) FROM antiphon.migration)"
    )
    await asyncio.to_thread(server.sql, last, address.rpartition("/")[2])
    with pytest.raises(StoreError) as caught:
        await open_postgres(address, read_only=True)
    assert caught.value.code == "store_too_old"


async def test_a_reader_makes_nothing_in_an_empty_database(server: Server, address: str) -> None:
    with pytest.raises(StoreError) as caught:
        await open_postgres(address, read_only=True)
    assert caught.value.code == "no_such_database"
    name = address.rpartition("/")[2]
    found = await asyncio.to_thread(
        server.sql, "SELECT count(*) FROM pg_namespace WHERE nspname = 'antiphon'", name
    )
    assert found == "0"


@pytest.mark.parametrize(
    ("port", "code"),
    [(None, "no_such_database"), (1, "database_unreachable"), (100_000, "database_unreachable")],
)
async def test_what_is_wrong_with_an_address_is_named_without_its_secrets(
    server: Server, port: int | None, code: str
) -> None:
    address = f"postgresql://antiphon:hidden@127.0.0.1:{port or server.port}/nothing"
    with pytest.raises(StoreError) as caught:
        await open_postgres(address)
    assert caught.value.code == code
    assert "hidden" not in str(caught.value)
