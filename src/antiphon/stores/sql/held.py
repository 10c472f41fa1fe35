"""Rows that a transaction has changed and not written yet.

A row that is changed several times is written once, and one that was inserted and then changed is
inserted as it stands then. What is written alike goes together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from antiphon.stores.sql.statements import Statements, update

TABLES: Final = ("run", "message", "call")
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
