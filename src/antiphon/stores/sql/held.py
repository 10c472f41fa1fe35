"""Rows that a transaction has changed and not written yet.

A row that is changed several times is written once, and one that was inserted and then changed is
inserted as it stands then. What is written alike goes together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from antiphon.stores.sql.statements import Parameters, Statements, update

TABLES: Final = ("run", "message", "manifest", "call")
"""Whose rows are held, in an order in which each names only rows of those before it."""


class Held:
    """New rows and changed columns, by the places of their rows."""

    def __init__(self) -> None:
        self._new: dict[str, dict[int, dict[str, object]]] = {}
        self._changed: dict[str, dict[int, dict[str, object]]] = {}

    def __bool__(self) -> bool:
        return bool(self._new or self._changed)

    def insert(self, table: str, place: int, values: dict[str, object]) -> None:
        """Hold a new row: all rows of a table with the same columns, in the same order."""
        self._new.setdefault(table, {})[place] = values

    def change(self, table: str, place: int, values: Mapping[str, object]) -> None:
        """Hold a row's new values."""
        row = self._new.get(table, {}).get(place)
        if row is None:
            row = self._changed.setdefault(table, {}).setdefault(place, {})
        row.update(values)

    def write(self, db: Statements) -> None:
        """Write all of it, and hold nothing any more."""
        new, changed = self._new, self._changed
        self._new, self._changed = {}, {}
        for table in TABLES:
            rows = [*new.get(table, {}).values()]
            if rows:
                db.insert(table, tuple(rows[0]), [tuple(row.values()) for row in rows])
        for table in TABLES:
            alike: dict[tuple[str, ...], list[tuple[object, ...]]] = {}
            for place, values in changed.get(table, {}).items():
                alike.setdefault(tuple(values), []).append((*values.values(), place))
            for columns, many in alike.items():
                db.many(update(table, "place", columns), many)

    def clear(self) -> None:
        """Forget it: it is undone."""
        self._new.clear()
        self._changed.clear()


class Holding:
    """Statements on one connection. None of them sees a row otherwise than as it stands now."""

    def __init__(self, connection: Statements) -> None:
        self._connection = connection
        self._held = Held()

    def _settled(self) -> Statements:
        if self._held:
            self._held.write(self._connection)
        return self._connection

    def execute(self, sql: str, parameters: Parameters = ()) -> None:
        """Carry out a statement; what is wrong with it may be told later in this request."""
        self._settled().execute(sql, parameters)

    def many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        """Carry out a statement once for each of `rows`, as `execute` would."""
        if rows:
            self._settled().many(sql, rows)

    def changed(self, sql: str, parameters: Parameters = ()) -> int:
        """Carry out a statement and return how many rows it changed."""
        return self._settled().changed(sql, parameters)

    def took(self, sql: str, parameters: Parameters = (), *, foreseen: bool = True) -> bool:
        """Carry out a statement that changes one row unless its own conditions forbid it.

        Whether it did; what was `foreseen` wrongly is noticed before anything is durable.
        """
        return self._settled().took(sql, parameters, foreseen=foreseen)

    def absent(self, sql: str, parameters: Parameters = ()) -> bool:
        """Whether a question finds no row; most often it does not, and that is foreseen."""
        return self._settled().absent(sql, parameters)

    def one(self, sql: str, parameters: Parameters = ()) -> tuple[Any, ...] | None:
        """Return the first row, or None."""
        return self._settled().one(sql, parameters)

    def all(self, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """Return every row."""
        return self._settled().all(sql, parameters)
