"""A database that falls silent, as behind a cut cable: nobody waits long, and nobody is told a lie."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest

from antiphon.core.commands import SetTitle
from antiphon.core.dispatch import Denied
from antiphon.errors import NotDurable, StoreError
from antiphon.stores.postgres import open_postgres
from antiphon.stores.postgres.store import PostgresStore
from tests.stores.talk import Talk
from tests.support.postgres import shared_server

pytestmark = [pytest.mark.needs("postgres")]

LEASE_S = 2.0
PATIENCE_S = 20.0
"""A third of what a connection by itself would wait for an answer."""


@dataclass(slots=True)
class Cable:
    """Between store and server; nothing that comes back passes while it is silent."""

    port: int
    silent: asyncio.Event = field(default_factory=asyncio.Event)
    silent_at: bytes | None = None
    """It falls silent when the store has sent this, which still arrives."""
    heals: bool = False
    """Whether whoever connects anew is answered."""
    made: int = 0
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.made += 1
        dead = self.silent.is_set() and not self.heals
        theirs, ours = await asyncio.open_connection("127.0.0.1", self.port)
        if not dead:
            there = asyncio.create_task(self._back(theirs, writer, self.silent.is_set()))
            self.tasks.add(there)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                if self.silent_at is not None and self.silent_at in data:
                    self.silent.set()
                ours.write(data)
        writer.close()
        ours.close()

    async def _back(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, new: bool
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                if self.silent.is_set() and not new:
                    continue
                writer.write(data)
        if new or not self.silent.is_set():
            writer.close()


@dataclass(slots=True)
class Setting:
    cable: Cable
    store: PostgresStore
    talk: Talk
    fenced: asyncio.Event


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    server = await asyncio.to_thread(shared_server)
    address = await asyncio.to_thread(server.database)
    cable = Cable(server.port)
    between = await asyncio.start_server(cable.serve, "127.0.0.1", 0)
    port = between.sockets[0].getsockname()[1]
    store = await open_postgres(
        address.replace(f":{urlsplit(address).port}/", f":{port}/"), count=1
    )
    talk, fenced = await Talk.begin(store), asyncio.Event()
    store.nodes.start(
        talk.fence,
        LEASE_S,
        fenced=fenced.set,
        buried=lambda dead: None,
        told=lambda conversations: None,
    )
    yield Setting(cable, store, talk, fenced)
    cable.silent.set()
    cable.heals = True
    await store.close()
    between.close()
    for task in cable.tasks:
        task.cancel()
    await asyncio.gather(*cable.tasks, return_exceptions=True)
    await asyncio.to_thread(server.give_back, address)


@pytest.mark.req("M56", "M61", "M90")
async def test_what_a_silent_database_was_asked_is_given_up_by_the_nodes_own_beat(
    setting: Setting,
) -> None:
    await setting.talk.row()  # a reader is connected
    setting.cable.silent.set()
    async with asyncio.timeout(PATIENCE_S):
        told = await asyncio.gather(
            setting.store.do(SetTitle(**setting.talk.head(), title="lost")),
            setting.talk.row(),
            return_exceptions=True,
        )
    assert [type(one) for one in told] == [NotDurable, StoreError]
    setting.cable.heals = True
    async with asyncio.timeout(PATIENCE_S):
        assert (await setting.talk.row()).title is None
        await setting.talk.do(SetTitle(**setting.talk.head(), title="then"))


@pytest.mark.req("M56", "M90")
async def test_a_commit_that_a_silent_database_has_kept_is_found_and_told_as_done(
    setting: Setting,
) -> None:
    setting.cable.silent_at, setting.cable.heals = b"COMMIT", True
    async with asyncio.timeout(PATIENCE_S):
        done = await setting.store.do(SetTitle(**setting.talk.head(), title="kept"))
        assert setting.cable.silent.is_set()
        assert not isinstance(done, Denied)
        assert (done.title, (await setting.talk.row()).title) == ("kept", "kept")
