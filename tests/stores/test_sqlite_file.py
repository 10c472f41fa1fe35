"""The file: who may open it, what is refused and left alone, and what a full disk does."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from antiphon.core.blocks import Text
from antiphon.core.commands import AddMessages, SetTitle
from antiphon.core.ids import LOCAL_TENANT, MessageId
from antiphon.errors import NotDurable, StoreError, StoreLocked, StoreTooNew
from antiphon.stores.sql import migrations
from antiphon.stores.sqlite import connections, open_sqlite, schema
from antiphon.stores.sqlite import store as store_module
from antiphon.stores.sqlite.examine import examine
from tests.stores.talk import Talk


async def refused(path: Path, *, read_only: bool = False) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await open_sqlite(path, read_only=read_only)
    return caught.value


async def test_a_new_file_is_made_and_opened_again_with_all_that_was_written(
    tmp_path: Path,
) -> None:
    store = await open_sqlite(tmp_path / "a db?.db")
    talk = await Talk.begin(store)
    await talk.answered()
    row, tree = await talk.row(), await store.tree(talk.conversation)
    await store.close()
    store = await open_sqlite(tmp_path / "a db?.db")
    assert await store.conversation(talk.conversation) == row
    assert await store.tree(talk.conversation) == tree
    await store.close()


async def test_a_file_in_a_folder_that_takes_no_files_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    store = await open_sqlite(path)
    talk = await Talk.begin(store)
    await talk.answered()
    row = await talk.row()
    await store.close()
    # Whoever runs tests as root may write anywhere: say that this folder is read-only.
    monkeypatch.setattr("antiphon.stores.sqlite.connections.os.access", lambda *_: False)
    store = await open_sqlite(path, read_only=True)
    assert await store.conversation(talk.conversation) == row
    await store.close()
    assert not (tmp_path / "a.db-shm").exists()


async def test_a_store_in_memory_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = await open_sqlite(":memory:")
    await Talk.begin(store)
    assert os.listdir(tmp_path)
    await store.close()
    assert not os.listdir(tmp_path)


async def test_a_closed_store_says_that_it_is_closed(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "a.db")
    talk = await Talk.begin(store)
    await store.close()
    await store.close()
    for work in (
        store.do(SetTitle(**talk.head(), title="x")),
        store.conversation(talk.conversation),
    ):
        with pytest.raises(StoreError) as caught:
            await work
        assert caught.value.code == "store_closed"


# One process at a time.


async def test_a_second_store_on_the_file_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "a.db")
    error = await refused(tmp_path / "a.db")
    assert isinstance(error, StoreLocked)
    assert (error.code, error.at) == ("store_locked", str(os.getpid()))
    assert str(os.getpid()) in error.message
    await store.close()
    await (await open_sqlite(tmp_path / "a.db")).close()


HOLD = """
    import asyncio, sys
    from antiphon.stores.sqlite import open_sqlite

    async def hold():
        store = await open_sqlite(sys.argv[1])
        print("open", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        await store.close()

    asyncio.run(hold())
"""


@pytest.fixture
def holder(tmp_path: Path) -> Callable[[], subprocess.Popen[str]]:
    """Starts another process that has the database open."""

    def hold() -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(HOLD), str(tmp_path / "a.db")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        return child

    return hold


async def test_another_process_is_named_and_its_death_frees_the_file(
    tmp_path: Path, holder: Callable[[], subprocess.Popen[str]]
) -> None:
    child = await asyncio.to_thread(holder)
    error = await refused(tmp_path / "a.db")
    assert (error.code, error.at) == ("store_locked", str(child.pid))
    child.kill()
    await asyncio.to_thread(child.communicate)
    await (await open_sqlite(tmp_path / "a.db")).close()


async def test_a_reader_takes_no_lock_and_sees_what_the_writer_commits(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "a.db")
    talk = await Talk.begin(store)
    reader = await open_sqlite(tmp_path / "a.db", read_only=True)
    assert await reader.conversation(talk.conversation) == await talk.row()
    await talk.answered()
    assert await reader.tree(talk.conversation) == await store.tree(talk.conversation)
    assert await reader.tenant_key((await talk.row()).tenant) == talk.key
    with pytest.raises(StoreError) as caught:
        await reader.do(SetTitle(**talk.head(), title="x"))
    assert caught.value.code == "read_only"
    await store.close()
    # It outlives the writer, and hinders nobody.
    assert len(await reader.tree(talk.conversation)) == 2
    await (await open_sqlite(tmp_path / "a.db")).close()
    await reader.close()


# Files that are refused and left as they are.


async def test_a_reader_makes_no_database(tmp_path: Path) -> None:
    assert (await refused(tmp_path / "a.db", read_only=True)).code == "no_such_database"
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"no database at all, but long enough to be taken for one" * 40, "not_a_database"),
        (b"short", "not_a_database"),
    ],
    ids=["long", "short"],
)
async def test_a_file_that_is_no_database_is_refused_untouched(
    tmp_path: Path, content: bytes, code: str, read_only: bool
) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(content)
    error = await refused(path, read_only=read_only)
    assert (error.code, error.at) == (code, str(path))
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["a.db"]


async def test_a_reader_refuses_what_an_older_release_left_until_it_was_opened_to_work_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    with monkeypatch.context() as older:
        older.setattr(schema, "known", lambda: migrations.known()[:-1])
        await (await open_sqlite(path)).close()
    content = path.read_bytes()
    assert (await refused(path, read_only=True)).code == "store_too_old"
    with pytest.raises(StoreError) as caught:
        await asyncio.to_thread(examine, path)
    assert caught.value.code == "store_too_old"
    assert path.read_bytes() == content
    await (await open_sqlite(path)).close()
    await (await open_sqlite(path, read_only=True)).close()


async def test_a_database_of_another_program_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (a)")
    db.close()
    content = path.read_bytes()
    assert (await refused(path)).code == "foreign_database"
    assert path.read_bytes() == content


async def test_a_directory_and_a_missing_directory_are_named(tmp_path: Path) -> None:
    error = await refused(tmp_path)
    assert (error.code, error.at) == ("is_a_directory", str(tmp_path))
    error = await refused(tmp_path / "nowhere" / "a.db")
    assert (error.code, error.at) == ("no_such_directory", str(tmp_path / "nowhere" / "a.db"))


async def test_a_database_of_a_newer_release_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    await (await open_sqlite(path)).close()
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO migration (number, name) VALUES (9999, 'later')")
    db.close()
    content = path.read_bytes()
    for read_only in (False, True):
        error = await refused(path, read_only=read_only)
        assert isinstance(error, StoreTooNew)
        assert "9999" in error.message
    assert path.read_bytes() == content


async def test_an_empty_file_is_a_new_database(tmp_path: Path) -> None:
    (tmp_path / "a.db").touch()
    store = await open_sqlite(tmp_path / "a.db")
    await Talk.begin(store)
    await store.close()


async def test_an_sqlite_that_is_too_old_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    assert (await refused(tmp_path / "a.db")).code == "sqlite_too_old"


async def test_a_failed_open_lets_go_of_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("no")

    with monkeypatch.context() as patched:
        patched.setattr(connections, "migrate", fail)
        assert (await refused(tmp_path / "a.db")).code == "store_error"
    await (await open_sqlite(tmp_path / "a.db")).close()


# Migrations.


async def test_a_migration_is_whole_or_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    first = await asyncio.to_thread(migrations.known)
    number = first[-1][0] + 1
    numbers = [*((n,) for n, _, _ in first), (number,)]
    with monkeypatch.context() as patched:
        half = [*first, (number, "half", "CREATE TABLE half (a);\nCREATE TABLE half (a);\n")]
        patched.setattr(schema, "known", lambda: half)
        assert (await refused(path)).code == "store_error"
    with sqlite3.connect(path) as db:
        rows = db.execute("SELECT number FROM migration ORDER BY number").fetchall()
        assert rows == numbers[:-1]
        assert not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'half'").fetchall()
    db.close()
    later = [*first, (number, "later", "CREATE TABLE later (a);\n")]
    monkeypatch.setattr(schema, "known", lambda: later)
    await (await open_sqlite(path)).close()
    with sqlite3.connect(path) as db:
        rows = db.execute("SELECT number FROM migration ORDER BY number").fetchall()
        assert rows == numbers
    db.close()


def test_migrations_are_numbered_from_one_upwards_and_no_number_is_given_twice() -> None:
    numbers = [number for number, _, _ in migrations.known()]
    assert numbers[0] == 1
    assert numbers == sorted(set(numbers))


async def test_a_migration_whose_number_was_given_out_of_turn_is_applied_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    first = await asyncio.to_thread(migrations.known)
    number = first[-1][0]
    later = (number + 2, "later", "CREATE TABLE later (a);\n")
    between = (number + 1, "between", "CREATE TABLE between_them (a);\n")
    for known in ([*first, later], [*first, between, later]):
        monkeypatch.setattr(schema, "known", lambda known=known: known)
        await (await open_sqlite(path)).close()
    with sqlite3.connect(path) as db:
        rows = db.execute("SELECT number FROM migration ORDER BY number").fetchall()
    db.close()
    assert rows[-2:] == [(number + 1,), (number + 2,)]


def test_a_script_is_split_where_its_statements_end() -> None:
    script = "-- a;\nCREATE TABLE a (\n  b TEXT DEFAULT ';'\n);\nCREATE INDEX c ON a (b);\n"
    assert [s.splitlines()[-1] for s in schema.split(script)] == [
        ");",
        "CREATE INDEX c ON a (b);",
    ]


# The disk is full.


async def test_on_a_full_disk_the_whole_batch_is_known_not_to_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[sqlite3.Connection] = []

    def open_and_keep(*args: object, **more: object) -> sqlite3.Connection:
        opened.append(connections.open_writer(*args, **more))  # type: ignore[arg-type]  # passed on
        return opened[-1]

    monkeypatch.setattr(store_module, "open_writer", open_and_keep)
    store = await open_sqlite(tmp_path / "a.db")
    talk = await Talk.begin(store)
    await talk.answered()
    before, tree = await talk.row(), await store.tree(talk.conversation)

    def limit(pages: int) -> None:
        opened[-1].execute(f"PRAGMA max_page_count = {pages}")

    await asyncio.to_thread(limit, 1)  # the least that SQLite takes: what there is already
    large = talk.message("m9", "x" * 100_000)
    answers = await asyncio.gather(
        store.do(SetTitle(**talk.head(), title="innocent")),
        store.do(AddMessages(**talk.head(), messages=(large,), head=None)),
        store.do(SetTitle(**talk.head(), title="innocent too")),
        return_exceptions=True,
    )
    lost = [answer for answer in answers if isinstance(answer, NotDurable)]
    assert isinstance(answers[1], NotDurable)
    assert {error.code for error in lost} == {"disk_full"}
    # Those that were told so left nothing; those that were not are there.
    title = (await talk.row()).title
    assert (title is None) == (len(lost) == 3)
    assert await store.tree(talk.conversation) == tree
    assert (await talk.row()).revision == before.revision
    # Once there is room, everything goes on.
    await asyncio.to_thread(limit, 1_000_000)
    await talk.do(AddMessages(**talk.head(), messages=(large,), head=None))
    assert (await store.message(talk.conversation, MessageId("m9"))).blocks == (
        Text(text="x" * 100_000),
    )
    await store.close()
    with sqlite3.connect(tmp_path / "a.db") as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


def test_sqlites_errors_have_codes_of_ours(tmp_path: Path) -> None:
    connection = connections.open_writer(tmp_path / "a.db")
    reader = connections.open_reader(tmp_path / "a.db")
    with pytest.raises(sqlite3.Error) as caught:
        reader.execute("DELETE FROM node")
    assert connections.translated(caught.value, "a.db").code == "read_only"
    reader.close()
    connection.close()
    for error, code in ((PermissionError(), "cannot_open"), (OSError(), "store_error")):
        assert connections.translated(error).code == code


AS_ANYBODY = """
import os, sys
from antiphon.stores.sqlite.connections import translated
if os.getuid() == 0:
    os.setuid(65534)
print(translated(PermissionError(), sys.argv[1]).message)
"""


def test_a_file_that_cannot_be_opened_says_what_hinders_it(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    inner.chmod(0o555)
    file = str(inner / "a.db")
    told = subprocess.run(
        [sys.executable, "-c", AS_ANYBODY, file], capture_output=True, text=True, check=True
    )
    assert told.stdout == (
        "The file cannot be opened. It needs others beside it, and this user may not write in "
        f"{inner}.\n"
    )


# The flaw of some SQLite releases.


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ((3, 6, 23), False),
        ((3, 7, 0), True),
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 53, 0), False),
    ],
)
def test_versions_with_the_wal_reset_bug_are_known(
    version: tuple[int, int, int], affected: bool
) -> None:
    assert connections.has_wal_reset_bug(version) is affected


async def test_the_flaw_is_noted_once_per_process_for_writers_and_warns_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store_module, "_noted", False)
    monkeypatch.setattr(store_module, "has_wal_reset_bug", lambda version: True)
    with caplog.at_level(logging.INFO):
        await (await open_sqlite(tmp_path / "a.db")).close()
        await (await open_sqlite(tmp_path / "a.db")).close()
        await (await open_sqlite(tmp_path / "a.db", read_only=True)).close()
    assert [record.levelname for record in caplog.records] == ["INFO"]


async def test_a_closed_database_is_one_file_again(tmp_path: Path) -> None:
    for turn in range(5):  # the order in which threads end is theirs
        store = await open_sqlite(tmp_path / "a.db")
        talk = await Talk.begin(store, f"conv_{turn}")
        assert talk.conversation in [row.id for row in await store.conversations(LOCAL_TENANT)]
        await store.close()
        assert set(os.listdir(tmp_path)) == {"a.db", "a.db.lock"}


def test_nothing_is_opened_or_started_by_an_import() -> None:
    script = textwrap.dedent(
        """
        import threading
        import antiphon.stores.sqlite
        print(threading.active_count())
        """
    )
    child = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert child.stdout == "1\n"
