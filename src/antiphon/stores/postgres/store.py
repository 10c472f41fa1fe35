"""The store on PostgreSQL: several processes work in one database."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from antiphon.core.commands import Fence
from antiphon.core.ids import NodeId
from antiphon.errors import StoreError
from antiphon.stores.addresses import shown
from antiphon.stores.postgres.connections import (
    PROBLEMS,
    Connections,
    close_connection,
    open_connection,
    translated,
)
from antiphon.stores.postgres.nodes import NOW, PostgresNodes
from antiphon.stores.postgres.readers import READERS, PostgresReader
from antiphon.stores.postgres.schema import migrate, require
from antiphon.stores.postgres.writer import WRITERS, Writers, writers
from antiphon.stores.sql.readers import Readers
from antiphon.stores.sql.recent import News
from antiphon.stores.sql.store import SqlStore, forget_keys
from antiphon.stores.sql.transaction import Transaction
from antiphon.stores.sql.writer import LINGER_S

_JOIN = f"""
INSERT INTO node (id, epoch, address, joined_ms, lease_until_ms, secret)
VALUES (?, 1, ?, ?, {NOW} + ?, ?)
ON CONFLICT (id) DO UPDATE SET epoch = node.epoch + 1, address = excluded.address,
  joined_ms = excluded.joined_ms, lease_until_ms = excluded.lease_until_ms,
  secret = excluded.secret
RETURNING epoch
"""

_FORGET = "DELETE FROM batch WHERE at < now() - INTERVAL '1 day'"
"""Outcomes that writers have left which were killed. Nobody asks for one so late."""

FIRST_LEASE_MS: Final = 10_000
"""How long who has joined may take to renew its lease for the first time."""


class PostgresStore(SqlStore):
    """A `Store` that other processes may change too: nothing is answered from memory."""

    def __init__(
        self,
        connections: Connections,
        writers: Writers | None,
        readers: Readers,
        new_key: Callable[[], bytes],
    ) -> None:
        super().__init__(writers, readers)
        self._writers = writers
        self._new_key = new_key
        self._nodes = PostgresNodes(connections, self)

    @property
    def nodes(self) -> PostgresNodes:
        """The other processes that work in this database."""
        return self._nodes

    def publish(self, news: News) -> None:
        """Tell this process's listeners what was committed, and the other nodes where."""
        super().publish(news)
        if news.events:
            self._nodes.changed({event.conversation for event in news.events})

    async def join(self, node: NodeId, address: str | None, now_ms: int) -> Fence:
        """Register this process as `node`; its epoch is compared in every transaction then."""
        if self._writers is None:
            raise StoreError("This store was opened for reading only.", code="read_only")
        self._writers.join_as(None)  # it may have been held for dead under the last one

        def work(tx: Transaction) -> Fence:
            values = (node, address, now_ms, FIRST_LEASE_MS, self._new_key().hex())
            row = tx.one(_JOIN, values)
            assert row is not None
            forget_keys(tx, now_ms)
            tx.execute(_FORGET)
            return Fence(node=node, epoch=row[0])

        fence = cast("Fence", await self.write(work))
        self._writers.join_as(fence)
        return fence

    async def close(self) -> None:
        """Finish what was queued, then let go of the database."""
        await asyncio.to_thread(self._nodes.close)
        await super().close()


async def open_postgres(
    address: str,
    *,
    read_only: bool = False,
    count: int = WRITERS,
    linger_s: float = LINGER_S,
    new_key: Callable[[], bytes] = secrets.token_bytes,
) -> PostgresStore:
    """Open the database at a `postgresql://` address; its tables are made if they are not there.

    Args:
        address: As libpq takes it.
        read_only: Change nothing.
        count: How many connections write.
        linger_s: How long submitted commands may wait for company.
        new_key: Where tenants' digest keys come from.

    Raises:
        StoreTooNew: A newer release wrote it.
        StoreError: It cannot be used; `code` says why.
    """
    loop = asyncio.get_running_loop()
    store: PostgresStore | None = None

    def publish(news: News) -> None:
        if store is not None:
            store.publish(news)

    def opened() -> PostgresStore:
        db = open_connection(address)
        try:
            if read_only:
                require(db)
            else:
                migrate(db)
        except PROBLEMS as error:
            raise translated(error, shown(address)) from None
        finally:
            close_connection(db)
        connections = Connections(address)
        readers = Readers(partial(PostgresReader, connections), READERS)
        if read_only:
            return PostgresStore(connections, None, readers, new_key)
        mine = writers(
            connections, count, loop=loop, new_key=new_key, publish=publish, linger_s=linger_s
        )
        mine.start()
        return PostgresStore(connections, mine, readers, new_key)

    store = await loop.run_in_executor(None, opened)
    return store
