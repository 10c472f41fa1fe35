"""SQLite's connection as the shared code sees it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from antiphon.stores.sql.statements import Dialect, Parameters, Row, insertion

DIALECT: Final = Dialect(
    says=r"""EXISTS (SELECT 1 FROM json_each(CAST(m.blocks AS TEXT)) AS b
      WHERE json_extract(b.value, '$.text') LIKE :words ESCAPE '\')""",
    titled=r"c.title LIKE :words ESCAPE '\'",
    columns="""SELECT t.name, i.name, i.pk FROM sqlite_schema AS t, pragma_table_info(t.name) AS i
      WHERE t.type = 'table' ORDER BY t.name, i.cid""",
)


class SqliteStatements:
    """Statements on one connection."""

    dialect = DIALECT

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Parameters = ()) -> None:
        """Carry out a statement."""
        self._connection.execute(sql, parameters)

    def many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        """Carry out a statement once for each of `rows`."""
        self._connection.executemany(sql, rows)

    def insert(self, table: str, columns: tuple[str, ...], rows: Sequence[Row]) -> None:
        """Insert rows of these columns."""
        self._connection.executemany(insertion(table, columns), rows)

    def changed(self, sql: str, parameters: Parameters = ()) -> int:
        """Carry out a statement and return how many rows it changed."""
        return self._connection.execute(sql, parameters).rowcount

    def took(self, sql: str, parameters: Parameters = (), *, foreseen: bool = True) -> bool:
        """Carry out a statement and return whether it changed a row."""
        return self.changed(sql, parameters) > 0

    def absent(self, sql: str, parameters: Parameters = ()) -> bool:
        """Whether a question finds no row."""
        return self.one(sql, parameters) is None

    def one(self, sql: str, parameters: Parameters = ()) -> Row | None:
        """Return the first row, or None."""
        row: Row | None = self._connection.execute(sql, parameters).fetchone()
        return row

    def all(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """Return every row."""
        return self._connection.execute(sql, parameters).fetchall()
