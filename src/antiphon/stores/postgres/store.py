"""The store on PostgreSQL: several processes work in one database."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from functools import partial

from antiphon.core.commands import Fence
from antiphon.core.ids import NodeId
from antiphon.stores.addresses import shown
from antiphon.stores.postgres.connections import (
    PROBLEMS,
    close_connection,
    open_connection,
    translated,
)
from antiphon.stores.postgres.readers import READERS, PostgresReader
from antiphon.stores.postgres.schema import migrate, require
from antiphon.stores.postgres.writer import WRITERS, Writers, writers
from antiphon.stores.sql.readers import Readers
from antiphon.stores.sql.recent import News
from antiphon.stores.sql.store import SqlStore
from antiphon.stores.sql.writer import LINGER_S


class PostgresStore(SqlStore):
    """A `Store` that other processes may change too: nothing is answered from memory."""

    def __init__(self, writers: Writers | None, readers: Readers) -> None:
        super().__init__(writers, readers)
        self._writers = writers

    async def join(self, node: NodeId, address: str | None, now_ms: int) -> Fence:
        """Register this process as `node`; its epoch is compared in every transaction then."""
        fence = await super().join(node, address, now_ms)
        assert self._writers is not None
        self._writers.join_as(fence)
        return fence


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
        readers = Readers(partial(PostgresReader, address), READERS)
        if read_only:
            return PostgresStore(None, readers)
        mine = writers(
            address, count, loop=loop, new_key=new_key, publish=publish, linger_s=linger_s
        )
        mine.start()
        return PostgresStore(mine, readers)

    store = await loop.run_in_executor(None, opened)
    return store
