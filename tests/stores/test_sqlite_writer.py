"""The writer: one commit for all that waits, each request apart, and nobody told too early."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from antiphon.core.commands import AddMessages, SetTitle
from antiphon.core.dispatch import Condition, Denied, State
from antiphon.core.ids import ConversationId
from antiphon.core.records import Attempt, StoredEvent
from antiphon.errors import InternalError, InvalidInput, NotDurable, StoreError
from antiphon.stores.sql import conditions
from antiphon.stores.sql.recent import News
from antiphon.stores.sql.transaction import Transaction
from antiphon.stores.sql.writer import BATCH, Request
from antiphon.stores.sqlite import connections, open_sqlite
from antiphon.stores.sqlite.connections import open_writer
from antiphon.stores.sqlite.writer import Writer
from tests.stores.talk import Talk

PATIENCE_S = 30.0
REAL_CONNECT = sqlite3.connect


class Commits(sqlite3.Connection):
    """Counts what is committed, and fails where a test says so."""

    statements: list[str]
    failing: str | None = None

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if not hasattr(self, "statements"):
            self.statements = []
        self.statements.append(sql)
        if self.failing is not None and sql.startswith(self.failing):
            self.failing = None
            raise sqlite3.OperationalError("planted")
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        rows = list(parameters)
        self.statements.extend([sql] * len(rows))  # a row is what costs
        return super().executemany(sql, rows)


@dataclass(slots=True)
class Bench:
    """A writer on a table of its own, whose batches a test puts together."""

    writer: Writer
    path: Path
    opened: list[Commits]
    told: list[News] = field(default_factory=list)

    def put(self, work: Callable[[Transaction], Any], *, waits: bool = True) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.writer.put(Request(work=work, future=future, waits=waits))
        return future

    def note(self, word: str, *, waits: bool = True) -> asyncio.Future[Any]:
        return self.put(partial(note, word=word), waits=waits)

    async def together(
        self,
        *works: Callable[[Transaction], Any],
        first: Callable[[Transaction], Any] = lambda tx: None,
    ) -> list[Any]:
        """Carry these out as one batch, and return their results and errors.

        `first` is done at the end of the transaction before.
        """
        entered, go = threading.Event(), threading.Event()

        def hold(tx: Transaction) -> None:
            entered.set()
            assert go.wait(PATIENCE_S)
            first(tx)

        held = self.put(hold)
        assert await asyncio.to_thread(entered.wait, PATIENCE_S)
        futures = [self.put(work) for work in works]
        go.set()
        await held
        return await asyncio.gather(*futures, return_exceptions=True)

    def kept(self) -> list[str]:
        with REAL_CONNECT(self.path) as db:
            words = [word for (word,) in db.execute("SELECT id FROM node ORDER BY joined_ms, id")]
        db.close()
        return words

    def commits(self) -> int:
        return sum(c.statements.count("COMMIT") for c in self.opened)


def note(tx: Transaction, word: str) -> str:
    tx.execute("INSERT INTO node (id, epoch, joined_ms) VALUES (?, 1, 0)", (word,))
    return word


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    opened: list[Commits] = []

    def connect(*args: Any, **more: Any) -> Commits:
        opened.append(REAL_CONNECT(*args, **more, factory=Commits))
        return opened[-1]

    path = tmp_path / "a.db"
    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", connect)
        told: list[News] = []
        writer = Writer(
            partial(open_writer, path),
            loop=asyncio.get_running_loop(),
            new_key=lambda: b"key",
            publish=told.append,
            linger_s=PATIENCE_S,
        )
        await asyncio.to_thread(writer.start)
        bench = Bench(writer, path, opened, told)
        yield bench
        writer.stop()
        await asyncio.to_thread(writer.join)


async def test_what_waits_is_committed_together(bench: Bench) -> None:
    await bench.note("first")
    before = bench.commits()
    words = [f"w{n}" for n in range(20)]
    assert await bench.together(*(partial(note, word=word) for word in words)) == words
    # One for the request that held the others up, one for all of them.
    assert bench.commits() == before + 2
    assert set(await asyncio.to_thread(bench.kept)) == {"first", *words}


async def test_what_one_turn_of_the_loop_asks_for_is_committed_together(bench: Bench) -> None:
    before = bench.commits()
    await asyncio.gather(*(bench.note(f"w{n}") for n in range(5)))
    assert bench.commits() == before + 1


async def test_a_batch_has_a_size(bench: Bench) -> None:
    before = bench.commits()
    await bench.together(*(partial(note, word=f"w{n}") for n in range(BATCH + 1)))
    assert bench.commits() == before + 3


def broken(tx: Transaction) -> None:
    note(tx, "half done")
    raise ZeroDivisionError


def refused(tx: Transaction) -> None:
    note(tx, "half done")
    raise InvalidInput("no")


def denied(tx: Transaction) -> Denied:
    note(tx, "half done")
    return Denied("because")


def doubled(tx: Transaction) -> None:
    note(tx, "half done")
    tx.execute(
        "INSERT INTO conversation (number, id, tenant, session, created_ms, updated_ms) VALUES (1, 'c', 't', 1, 0, 0)"
    )


def misspelled(tx: Transaction) -> None:
    note(tx, "half done")
    tx.execute("SELECT nothing FROM nowhere")


def titled(tx: Transaction, title: str) -> None:
    c = tx.conversation(ConversationId("c"))
    tx.change_conversation(c.number, title=title)


def born(tx: Transaction) -> None:
    tx.execute("INSERT INTO tenant (id, digest_key) VALUES ('t', x'00')")
    tx.execute("INSERT INTO session (place, id, active, created_ms) VALUES (4294967297, 's', 1, 0)")
    tx.execute(
        "INSERT INTO conversation (number, id, tenant, session, created_ms, updated_ms) "
        "VALUES (1, 'c', 't', 4294967297, 0, 0)"
    )


async def test_a_row_that_several_requests_change_is_written_once(bench: Bench) -> None:
    await bench.put(born)
    (connection,) = bench.opened
    connection.statements.clear()
    await bench.together(*(partial(titled, title=str(n)) for n in range(5)))
    assert connection.statements.count("UPDATE conversation SET title = ? WHERE number = ?") == 1
    assert "SAVEPOINT request" not in connection.statements
    # Where one of them is undone, those around it are kept apart from it.
    results = await bench.together(partial(titled, title="x"), denied, partial(titled, title="y"))
    assert results == [None, Denied("because"), None]
    assert connection.statements.count("SAVEPOINT request") == 3
    with REAL_CONNECT(bench.path) as db:
        assert db.execute("SELECT title FROM conversation").fetchall() == [("y",)]
    db.close()


@pytest.mark.parametrize("value", ["half \ud83d", 2**63], ids=["half_a_character", "too_large"])
async def test_a_value_that_no_column_holds_costs_nobody_else_what_he_wrote(
    bench: Bench, value: Any
) -> None:
    await bench.put(born)
    kept, wrong = await bench.together(partial(titled, title="kept"), partial(titled, title=value))
    assert kept is None
    assert isinstance(wrong, (UnicodeEncodeError, OverflowError))
    with REAL_CONNECT(bench.path) as db:
        assert db.execute("SELECT title FROM conversation").fetchall() == [("kept",)]
    db.close()


@pytest.mark.parametrize("alone", [False, True], ids=["in_company", "alone"])
async def test_a_request_that_fails_leaves_no_trace_and_the_others_go_on(
    bench: Bench, alone: bool
) -> None:
    works = [broken, refused, denied, doubled, misspelled]
    if alone:
        results = [(await bench.together(work))[0] for work in works]
        kept = []
    else:
        before = bench.commits()
        results = await bench.together(partial(note, word="a"), *works, partial(note, word="b"))
        assert bench.commits() == before + 2
        assert (results.pop(0), results.pop()) == ("a", "b")
        kept = ["a", "b"]
    assert isinstance(results[0], ZeroDivisionError)
    assert isinstance(results[1], InvalidInput)
    assert results[2] == Denied("because")
    assert results[3] == Denied("foreign_key")
    assert isinstance(results[4], StoreError)
    assert await asyncio.to_thread(bench.kept) == kept
    assert await bench.note("after") == "after"


@pytest.mark.parametrize("failing", ["COMMIT", "BEGIN", "RELEASE", "SAVEPOINT"])
async def test_where_the_transaction_fails_all_of_the_batch_is_known_not_to_be_kept(
    bench: Bench, failing: str
) -> None:
    def plant(tx: Transaction) -> None:
        bench.opened[-1].failing = failing

    await bench.note("before")
    if failing == "COMMIT":
        works: list[Callable[[Transaction], Any]] = [partial(note, word="x"), plant]
        results = await bench.together(*works, partial(note, word="y"))
    else:
        # Savepoints are for batches of which a part is to be undone.
        results = await bench.together(
            partial(note, word="x"), denied, partial(note, word="y"), first=plant
        )
    assert {type(result) for result in results} == {NotDurable}
    assert await asyncio.to_thread(bench.kept) == ["before"]
    assert await bench.note("after") == "after"


async def test_a_transaction_that_sqlite_gave_up_is_not_continued(bench: Bench) -> None:
    # After SQLITE_FULL there is no savepoint any more, and the next statement would be kept
    # whatever became of its batch.
    def gives_up(tx: Transaction) -> None:
        bench.opened[-1].rollback()
        raise sqlite3.OperationalError("database or disk is full")

    results = await bench.together(partial(note, word="x"), gives_up, partial(note, word="y"))
    assert [type(result) for result in results] == [NotDurable] * 3
    assert await asyncio.to_thread(bench.kept) == []
    assert await bench.note("after") == "after"


async def test_where_even_the_rollback_fails_another_connection_is_opened(bench: Bench) -> None:
    def closes(tx: Transaction) -> None:
        bench.opened[-1].close()
        raise sqlite3.OperationalError("planted")

    assert isinstance((await bench.together(closes))[0], NotDurable)
    lost = bench.opened[-1]
    assert await bench.note("after") == "after"
    assert bench.opened[-1] is not lost


async def test_nobody_hears_of_a_result_before_it_is_durable(bench: Bench) -> None:
    seen: list[bool] = []

    async def wait(word: str) -> None:
        await bench.note(word)
        seen.append(word in await asyncio.to_thread(bench.kept))

    await asyncio.gather(*(wait(f"w{n}") for n in range(10)))
    assert seen == [True] * 10


async def test_work_whose_caller_was_canceled_is_done_all_the_same(bench: Bench) -> None:
    entered, go = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> None:
        entered.set()
        assert go.wait(PATIENCE_S)
        note(tx, "done")

    future = bench.put(hold)
    assert await asyncio.to_thread(entered.wait, PATIENCE_S)
    future.cancel()
    go.set()
    await bench.note("after")
    assert await asyncio.to_thread(bench.kept) == ["after", "done"]


async def test_what_nobody_waits_for_rides_along_with_the_next_that_comes(bench: Bench) -> None:
    await bench.note("first")
    before = bench.commits()
    lazy = [bench.note(f"lazy{n}", waits=False) for n in range(3)]
    assert await bench.note("eager") == "eager"
    assert bench.commits() == before + 1
    assert [future.result() for future in lazy] == ["lazy0", "lazy1", "lazy2"]


async def test_what_nobody_waits_for_lingers_until_somebody_does(bench: Bench) -> None:
    # The linger of this writer is longer than any test: without the nudge this would hang.
    future = bench.note("lazy", waits=False)
    bench.writer.nudge()
    assert await asyncio.wait_for(future, PATIENCE_S / 2) == "lazy"


async def test_stopping_carries_out_what_was_queued(bench: Bench) -> None:
    futures = [bench.note("a", waits=False), bench.note("b")]
    bench.writer.stop()
    assert await asyncio.gather(*futures) == ["a", "b"]
    with pytest.raises(StoreError):
        bench.note("late")


async def test_a_listener_that_fails_keeps_nobody_waiting(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "a.db")
    talk = await Talk.begin(store)

    def fail(events: list[StoredEvent]) -> None:
        raise ZeroDivisionError

    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    store.on_events(fail)
    await asyncio.wait_for(talk.placed(), PATIENCE_S)
    assert {type(error["exception"]) for error in errors} == {ZeroDivisionError}
    await store.close()


async def test_submitted_commands_come_before_later_ones_and_can_be_waited_for(
    tmp_path: Path,
) -> None:
    store = await open_sqlite(tmp_path / "a.db", linger_s=PATIENCE_S)
    talk = await Talk.begin(store)
    await talk.accepted()
    written: Awaitable[Attempt | Denied] = store.submit(talk.written("op_1", 1))
    opened = store.submit(talk.opened("op_1", 1))
    run = await talk.do(talk.commit("op_1", 1, talk.answer("a1")))
    assert run.committed == 1
    states = [
        attempt.state for attempt in (await written, await opened) if isinstance(attempt, Attempt)
    ]
    assert states == [State.SENT, State.STREAMING]
    title = store.submit(SetTitle(**talk.head(), title="x"))
    assert (await asyncio.wait_for(title, PATIENCE_S / 2)).title == "x"  # type: ignore[union-attr]  # not denied
    store.submit(SetTitle(**talk.head(), title="y"))
    await store.close()
    store = await open_sqlite(tmp_path / "a.db")
    assert (await store.conversation(talk.conversation)).title == "y"
    await store.close()


async def test_what_a_denied_request_changed_is_not_written_by_the_next_one(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "a.db", synchronous="OFF")
    talk = await Talk.begin(store)
    await talk.placed()
    before = await talk.row()
    entered, go = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> None:
        entered.set()
        assert go.wait(PATIENCE_S)

    held = store._put(hold)
    assert await asyncio.to_thread(entered.wait, PATIENCE_S)
    # Both are in one batch: the first moves revision and numbers events, then it is denied.
    message = talk.message("m9")
    added = AddMessages(**talk.head(), messages=(message,), head=message.id)
    denied = asyncio.ensure_future(
        store.do_all(added, talk.place("run_1", parent=None, revision=0))
    )
    titled = asyncio.ensure_future(store.do(SetTitle(**talk.head(), title="x")))
    await asyncio.sleep(0)
    go.set()
    await held
    assert await denied == Denied("run_queued")
    await titled
    await store.close()
    store = await open_sqlite(tmp_path / "a.db")
    row = await store.conversation(talk.conversation)
    assert (row.title, row.revision, row.head) == ("x", before.revision, before.head)
    assert row.last_event == before.last_event
    assert len(await store.events(talk.conversation, 0)) == before.last_event
    await store.close()


async def test_the_log_is_copied_into_the_file_as_it_grows_and_begins_anew_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 64 << 10
    monkeypatch.setattr(connections, "LOG_BYTES", limit)
    store = await open_sqlite(tmp_path / "a.db", synchronous="OFF")
    talk = await Talk.begin(store)
    lengths: list[int] = []
    parent = None
    for n in range(8):
        await talk.answered(f"run_{n}", f"op_{n}", name=f"m{n}", parent=parent, answer=f"a{n}")
        log = await asyncio.to_thread((tmp_path / "a.db-wal").stat)
        lengths.append(log.st_size)
        parent = f"a{n}"
    # A turn writes some 25 kB: without help the log would be three times as long.
    assert max(lengths) < limit + (32 << 10)
    # It is not cut and made longer again, which every flush would pay for.
    assert min(lengths[4:]) >= limit
    await store.close()


async def test_a_checkpoint_that_fails_harms_nobody(bench: Bench) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("planted")

    bench.writer._tend = fail
    assert await bench.note("a") == "a"
    assert await bench.note("b") == "b"


async def test_a_store_that_disagrees_with_the_table_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    store = await open_sqlite(tmp_path / "a.db")
    talk = await Talk.begin(store)
    await talk.placed()
    await talk.do(talk.prepare("run_1", "op_1", base="m1", revision=1, answer="a1"))
    monkeypatch.setitem(conditions.CONDITIONS, Condition.REVISION, "0")
    request.addfinalizer(conditions.update.cache_clear)
    conditions.update.cache_clear()
    with pytest.raises(InternalError) as caught:
        await store.do(talk.accept("op_1"))
    assert (caught.value.code, caught.value.at) == ("table_mismatch", "op_1")
    await store.close()
