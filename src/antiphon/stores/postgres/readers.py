"""Reading PostgreSQL: each question on one snapshot, on a connection of its thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import asyncpg

from antiphon.stores.addresses import shown
from antiphon.stores.postgres.connections import (
    LOST,
    Connections,
    close_connection,
    translated,
)
from antiphon.stores.postgres.statements import PostgresStatements
from antiphon.stores.sql.statements import Statements

T = TypeVar("T")

READERS: Final = 4


class PostgresReader:
    """One connection that reads, made when it is first asked, and again where it is lost."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._db: PostgresStatements | None = None

    def ask(self, question: Callable[[Statements], T]) -> T:
        """Return the answer to `question` on one snapshot."""
        if self._db is not None and self._db.given_up:
            self.close()
        fresh = self._db is None
        try:
            return self._ask(question)
        except LOST as error:
            self.close()
            if fresh:
                raise translated(error, shown(self._connections.address)) from None
        # The connection was an old one: the server may have been started anew since.
        try:
            return self._ask(question)
        except LOST as error:
            self.close()
            raise translated(error, shown(self._connections.address)) from None

    def _ask(self, question: Callable[[Statements], T]) -> T:
        if self._db is None:
            self._db = self._connections.open()
        self._db.script("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            return question(self._db)
        except asyncpg.PostgresError as error:
            if isinstance(error, LOST):
                raise
            raise translated(error, shown(self._connections.address)) from None
        finally:
            if not self._db.connection.is_closed():
                self._db.script("ROLLBACK")

    def close(self) -> None:
        """Let go of the connection."""
        db, self._db = self._db, None
        if db is not None:
            close_connection(db)
