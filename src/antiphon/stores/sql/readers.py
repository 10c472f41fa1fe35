"""Readers: a few threads, each with a connection of its own. They never block the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from antiphon.errors import StoreError
from antiphon.stores.sql.statements import Statements

T = TypeVar("T")


class Reader(Protocol):
    """A connection that reads; used by one thread at a time."""

    def ask(self, question: Callable[[Statements], T]) -> T:
        """Return the answer to `question` on one snapshot. Raises `StoreError`."""

    def close(self) -> None:
        """Let go of the connection."""


class Readers:
    """Runs reads in threads, each in one transaction, so that a read is one snapshot."""

    def __init__(self, connect: Callable[[], Reader], count: int) -> None:
        self._connect = connect
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="antiphon-reader")
        self._own = threading.local()
        self._all: list[Reader] = []
        self._closed = False

    async def read(self, question: Callable[[Statements], T]) -> T:
        """Return the answer to `question` on one snapshot."""
        if self._closed:
            raise StoreError("The store is closed.", code="store_closed")
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._ask, question)

    def _ask(self, question: Callable[[Statements], T]) -> T:
        reader: Reader | None = getattr(self._own, "reader", None)
        if reader is None:
            reader = self._own.reader = self._connect()
            self._all.append(reader)
        return reader.ask(question)

    def close(self) -> None:
        """Wait for reads that run and close the connections; blocks."""
        self._closed = True
        self._pool.shutdown(wait=True)
        for reader in self._all:
            reader.close()
