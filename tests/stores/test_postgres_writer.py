"""Commits whose answer is lost, servers that go away: everything or nothing, and the truth about it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest

from antiphon.core.commands import SetTitle
from antiphon.core.dispatch import Denied
from antiphon.errors import InvalidInput, NotDurable, StoreError
from antiphon.stores.postgres import open_postgres, writer
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
                    back.cancel()
                    writer.transport.abort()
                    if self.arrives:
                        ours.write(data)
                        await ours.drain()
                        with contextlib.suppress(ConnectionError, TimeoutError):
                            async with asyncio.timeout(PATIENCE_S):
                                await theirs.read(1)  # it has answered: it is done
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
    wire: Wire
    store: PostgresStore
    talk: Talk


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    server = await asyncio.to_thread(shared_server)
    address = await asyncio.to_thread(server.database)
    wire = Wire(server.port)
    between = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    port = between.sockets[0].getsockname()[1]
    store = await open_postgres(
        address.replace(f":{urlsplit(address).port}/", f":{port}/"), count=1
    )
    yield Setting(wire, store, await Talk.begin(store))
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


async def test_a_text_that_this_database_cannot_hold_is_the_callers_fault(
    setting: Setting,
) -> None:
    with pytest.raises(InvalidInput) as caught:
        await setting.store.do(SetTitle(**setting.talk.head(), title="a\0b"))
    assert caught.value.code == "nul_character"
    assert (await setting.talk.row()).title is None


@pytest.fixture(scope="module")
def durable() -> Server:
    """A server that keeps what it has acknowledged, as one in earnest does."""
    return new_server((("fsync", "on"), ("max_connections", "50")))


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
