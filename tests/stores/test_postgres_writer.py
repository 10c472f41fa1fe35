"""Commits whose answer is lost, servers that go away: everything or nothing, and the truth about it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
from asyncpg import exceptions as pg

from antiphon.core.commands import SetTitle
from antiphon.core.dispatch import Denied
from antiphon.core.records import StoredEvent
from antiphon.errors import InvalidInput, NotDurable, StoreError
from antiphon.stores.postgres import open_postgres, writer
from antiphon.stores.postgres.statements import PostgresStatements
from antiphon.stores.postgres.store import PostgresStore
from tests.stores.talk import Talk
from tests.support.postgres import Server, new_server, shared_server

pytestmark = [pytest.mark.needs("postgres")]

PATIENCE_S = 30.0


@dataclass(slots=True)
class Wire:
    """Stands between store and server, and cuts where it is told to."""

    port: int
    cut_at: bytes | None = None
    """The connection is cut when the store has sent this."""
    arrives: bool = False
    """Whether the server gets it all the same."""
    meanwhile: Callable[[], Awaitable[None]] | None = None
    """What befalls the server then; nobody is let through before it is over."""
    down: bool = False
    cuts: int = 0
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.down:
            writer.close()
            return
        theirs, ours = await asyncio.open_connection("127.0.0.1", self.port)
        back = asyncio.create_task(self._copy(theirs, writer))
        self.tasks.add(back)
        try:
            while data := await reader.read(65536):
                if self.cut_at is not None and self.cut_at in data:
                    self.cut_at, self.cuts = None, self.cuts + 1
                    self.down = self.meanwhile is not None
                    back.cancel()
                    await asyncio.gather(back, return_exceptions=True)
                    writer.transport.abort()
                    if self.arrives:
                        ours.write(data)
                        await ours.drain()
                        with contextlib.suppress(ConnectionError, TimeoutError):
                            async with asyncio.timeout(PATIENCE_S):
                                await theirs.read(1)  # it has answered: it is done
                    if self.meanwhile is not None:
                        await self.meanwhile()
                        self.down = False
                    return
                ours.write(data)
                await ours.drain()
        except ConnectionError:
            pass
        finally:
            ours.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()


@dataclass(slots=True)
class Setting:
    address: str
    wire: Wire
    store: PostgresStore
    talk: Talk


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    async with set_up(await asyncio.to_thread(shared_server)) as made:
        yield made


@contextlib.asynccontextmanager
async def set_up(server: Server) -> AsyncIterator[Setting]:
    """Give a store with one writer, a wire's length from its server."""
    address = await asyncio.to_thread(server.database)
    wire = Wire(server.port)
    between = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    port = between.sockets[0].getsockname()[1]
    store = await open_postgres(
        address.replace(f":{urlsplit(address).port}/", f":{port}/"), count=1
    )
    yield Setting(address, wire, store, await Talk.begin(store))
    wire.down = False
    await store.close()
    between.close()
    for task in wire.tasks:
        task.cancel()
    await asyncio.gather(*wire.tasks, return_exceptions=True)
    await asyncio.to_thread(server.give_back, address)


@pytest.mark.req("M56", "M90")
async def test_a_commit_that_was_kept_and_not_answered_is_found_and_told_as_done(
    setting: Setting,
) -> None:
    setting.wire.cut_at, setting.wire.arrives = b"COMMIT", True
    done = await setting.store.do(SetTitle(**setting.talk.head(), title="kept"))
    assert setting.wire.cuts == 1
    assert not isinstance(done, Denied)
    assert (done.title, (await setting.talk.row()).title) == ("kept", "kept")


@pytest.mark.req("M56", "M90")
async def test_a_commit_that_never_arrived_is_told_as_not_durable(setting: Setting) -> None:
    setting.wire.cut_at = b"COMMIT"
    with pytest.raises(NotDurable):
        await setting.store.do(SetTitle(**setting.talk.head(), title="lost"))
    assert setting.wire.cuts == 1
    assert (await setting.talk.row()).title is None
    await setting.talk.do(SetTitle(**setting.talk.head(), title="then"))


@pytest.mark.req("M56", "M90")
@pytest.mark.parametrize("arrives", [True, False])
async def test_who_asks_twice_what_became_of_a_commit_is_told_the_same(
    setting: Setting, arrives: bool
) -> None:
    async def asked() -> None:
        """The answer to the question is lost, too; what asking left behind is not."""
        setting.wire.cut_at, setting.wire.arrives = b"INSERT INTO batch (writer, number, k", True
        setting.wire.meanwhile = None

    setting.wire.cut_at, setting.wire.arrives = b"COMMIT", arrives
    setting.wire.meanwhile = asked
    titled = setting.store.do(SetTitle(**setting.talk.head(), title="said"))
    if arrives:
        await titled
    else:
        with pytest.raises(NotDurable):
            await titled
    assert setting.wire.cuts == 2
    assert (await setting.talk.row()).title == ("said" if arrives else None)


@pytest.mark.req("M56", "M90")
@pytest.mark.parametrize("severity", ["PANIC", "FATAL"])
async def test_a_server_that_says_at_its_death_that_a_commit_failed_is_not_believed(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, severity: str
) -> None:
    """Where the log's disk is full the record of a commit may be on it all the same."""
    wait = PostgresStatements.wait
    dying = pg.DiskFullError("could not write to file: No space left on device")
    dying.severity_en = severity

    def dies(db: PostgresStatements, answer: Any) -> Any:
        committing = db.connection.is_in_transaction()
        answered = wait(db, answer)
        if committing and not db.connection.is_in_transaction():
            monkeypatch.undo()
            db.connection.terminate()
            raise dying
        return answered

    monkeypatch.setattr(PostgresStatements, "wait", dies)
    done = await setting.store.do(SetTitle(**setting.talk.head(), title="kept"))
    assert not isinstance(done, Denied)
    assert (await setting.talk.row()).title == "kept"


@pytest.mark.req("M90")
async def test_what_became_of_transactions_is_forgotten_once_nobody_can_ask(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "OUTCOMES", 4)
    server = await asyncio.to_thread(shared_server)
    name = setting.address.rpartition("/")[2]
    for number in range(12):
        await setting.talk.do(SetTitle(**setting.talk.head(), title=str(number)))
        left = await asyncio.to_thread(server.sql, "SELECT count(*) FROM antiphon.batch", name)
        assert 1 <= int(left) <= 4


async def test_a_connection_that_breaks_before_the_commit_keeps_nothing(setting: Setting) -> None:
    setting.wire.cut_at = b"UPDATE conversation"
    with pytest.raises(NotDurable) as caught:
        await setting.store.do(SetTitle(**setting.talk.head(), title="lost"))
    assert caught.value.code == "database_unreachable"
    assert (await setting.talk.row()).title is None


async def test_where_nobody_can_say_what_became_of_a_commit_the_caller_is_told_so(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "ASK_S", 0.0)
    setting.wire.cut_at, setting.wire.arrives, setting.wire.down = b"COMMIT", True, False
    with pytest.raises(StoreError) as caught:
        await setting.store.do(SetTitle(**setting.talk.head(), title="who knows"))
    assert caught.value.code == "commit_unknown"


@pytest.mark.req("M56", "M90")
@pytest.mark.parametrize("arrives", [True, False], ids=["kept", "lost"])
async def test_what_turns_out_to_have_been_kept_is_told_as_soon_as_the_database_can_be_asked(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    """Whoever follows a conversation is not left to wait for what happens in it next."""
    monkeypatch.setattr(writer, "ASK_S", 0.0)
    told: list[int] = []
    heard, gone = asyncio.Event(), asyncio.Event()

    def hear(events: list[StoredEvent]) -> None:
        told.extend(event.seq for event in events)
        heard.set()

    async def away() -> None:
        await gone.wait()

    setting.store.on_events(hear)
    before, wire, talk = (await setting.talk.row()).last_event, setting.wire, setting.talk
    wire.cut_at, wire.arrives, wire.meanwhile = b"COMMIT", arrives, away
    with pytest.raises(StoreError) as caught:
        await setting.store.do(talk.start("run_1", "m1"))
    assert caught.value.code == "commit_unknown"
    with pytest.raises(NotDurable):  # nothing is written before it is known what came before
        await setting.store.do(talk.start("run_2", "m2"))
    assert told == []
    gone.set()
    async with asyncio.timeout(PATIENCE_S):
        if not arrives:
            while wire.down:  # noqa: ASYNC110 - the wire tells nobody that it is there again
                await asyncio.sleep(0.01)
            await setting.store.do(talk.start("run_3", "m3"))
        await heard.wait()
    assert told == [before + 1]
    runs = await setting.store.runs(talk.conversation)
    assert [run.id for run in runs] == ["run_1" if arrives else "run_3"]


async def test_a_text_that_this_database_cannot_hold_is_the_callers_fault(
    setting: Setting,
) -> None:
    with pytest.raises(InvalidInput) as caught:
        await setting.store.do(SetTitle(**setting.talk.head(), title="a\0b"))
    assert caught.value.code == "nul_character"
    assert (await setting.talk.row()).title is None


@pytest.fixture(scope="module")
def durable() -> Server:
    """A server that keeps what it has acknowledged, as one in earnest does, and little else."""
    settings = {"fsync": "on", "wal_writer_delay": "10s", "max_connections": "50"}
    return new_server(tuple(settings.items()))


@pytest.mark.req("M54", "M90")
async def test_what_was_acknowledged_is_there_after_the_server_has_crashed(durable: Server) -> None:
    address = await asyncio.to_thread(durable.database)
    store = await open_postgres(address)
    talks = [await Talk.begin(store, f"conv_{number}") for number in range(8)]
    acknowledged: dict[str, str] = {}
    crashed = asyncio.Event()

    async def work(talk: Talk) -> None:
        number = 0
        while not crashed.is_set():
            title = f"{talk.conversation} {number}"
            try:
                await talk.do(SetTitle(**talk.head(), title=title))
            except StoreError:
                return
            acknowledged[talk.conversation] = title
            number += 1
            if number == 20:
                crashed.set()

    workers = [asyncio.create_task(work(talk)) for talk in talks]
    await crashed.wait()
    await asyncio.to_thread(durable.stop, at_once=True)
    await asyncio.gather(*workers)
    await asyncio.to_thread(durable.start)
    assert len(acknowledged) == len(talks)
    for talk in talks:
        title = (await talk.row()).title
        assert title is not None
        kept, told = int(title.split()[1]), int(acknowledged[talk.conversation].split()[1])
        assert told <= kept <= told + 1
    await store.close()


@pytest.mark.req("M54", "M56", "M90")
@pytest.mark.parametrize("arrives", [True, False])
async def test_a_commit_is_found_or_not_though_its_number_was_given_anew_after_a_crash(
    durable: Server, arrives: bool
) -> None:
    """What PostgreSQL had not written down at its death has not been, its numbers included."""

    async def crash() -> None:
        taken = durable.sql(
            "SELECT max(CAST(CAST(backend_xid AS TEXT) AS BIGINT)) FROM pg_stat_activity"
        )
        await asyncio.to_thread(durable.stop, at_once=True)
        await asyncio.to_thread(durable.start)
        others = durable.sql("CREATE TABLE IF NOT EXISTS others (); SELECT pg_current_xact_id()")
        if not arrives:
            assert int(others) >= int(taken)
            assert durable.sql(f"SELECT pg_xact_status('{taken}')") == "committed"

    async with set_up(durable) as setting:
        told: list[StoredEvent] = []
        setting.store.on_events(told.extend)
        setting.wire.cut_at, setting.wire.arrives = b"COMMIT", arrives
        setting.wire.meanwhile = crash
        started = setting.store.do(setting.talk.start("run", "m"))
        if arrives:
            assert not isinstance(await started, Denied)
        else:
            with pytest.raises(NotDurable):
                await started
        assert setting.wire.cuts == 1
        assert len(await setting.store.runs(setting.talk.conversation)) == len(told) == int(arrives)
