"""Readers: a few threads, each with a connection that cannot write. They never block the loop."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from antiphon.errors import StoreError
from antiphon.stores.sql.statements import Statements
from antiphon.stores.sqlite.connections import open_reader, translated
from antiphon.stores.sqlite.statements import SqliteStatements

T = TypeVar("T")

READERS: Final = 3


class Readers:
    """Runs reads in threads, each in one transaction, so that a read is one snapshot."""

    def __init__(self, path: Path, count: int = READERS) -> None:
        self._path = path
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="antiphon-reader")
        self._own = threading.local()
        self._all: list[sqlite3.Connection] = []
        self._closed = False

    async def read(self, question: Callable[[Statements], T]) -> T:
        """Return the answer to `question` on one snapshot."""
        if self._closed:
            raise StoreError("The store is closed.", code="store_closed")
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._ask, question)

    def _ask(self, question: Callable[[Statements], T]) -> T:
        try:
            connection: sqlite3.Connection | None = getattr(self._own, "connection", None)
            if connection is None:
                connection = self._own.connection = open_reader(self._path)
                self._all.append(connection)
            connection.execute("BEGIN")
            try:
                return question(SqliteStatements(connection))
            finally:
                connection.execute("ROLLBACK")
        except (sqlite3.Error, OSError) as error:
            raise translated(error, str(self._path)) from None

    def close(self) -> None:
        """Wait for reads that run and close the connections; blocks."""
        self._closed = True
        self._pool.shutdown(wait=True)
        for connection in self._all:
            connection.close()
