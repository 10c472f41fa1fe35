"""Reading the file, on connections that cannot write."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from antiphon.stores.sql.statements import Statements
from antiphon.stores.sqlite.connections import open_reader, translated
from antiphon.stores.sqlite.statements import SqliteStatements

T = TypeVar("T")

READERS: Final = 3


class FileReader:
    """One connection that cannot write, made when it is first asked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def ask(self, question: Callable[[Statements], T]) -> T:
        """Return the answer to `question` on one snapshot."""
        try:
            if self._connection is None:
                self._connection = open_reader(self._path)
            self._connection.execute("BEGIN")
            try:
                return question(SqliteStatements(self._connection))
            finally:
                self._connection.execute("ROLLBACK")
        except (sqlite3.Error, OSError) as error:
            raise translated(error, str(self._path)) from None

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
