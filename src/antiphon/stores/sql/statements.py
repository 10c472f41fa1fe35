"""What a database gives to the code that is shared: statements, one at a time, and its own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeAlias

Parameters: TypeAlias = Sequence[object] | Mapping[str, object]
"""For `?` in their order, or for `:name`."""

Row: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The few things that no words of SQL say to every database."""

    says: str
    """A condition on message `m`: one of its texts is like `:words`, in either case."""
    titled: str
    """The same for the title of conversation `c`."""
    columns: str
    """Selects table, column and place in the primary key, 0 for none, of all tables, in order."""
    copied: tuple[str, ...] = ()
    """What is to be asked once rows have been copied in with the keys that they had."""


class Statements(Protocol):
    """A connection, within a transaction that somebody else begins and ends."""

    @property
    def dialect(self) -> Dialect:
        """What this database says in words of its own."""

    def execute(self, sql: str, parameters: Parameters = ()) -> None:
        """Carry out a statement, at the latest before the next that is asked for an answer."""

    def many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        """Carry out a statement once for each of `rows`, as `execute` would."""

    def insert(self, table: str, columns: tuple[str, ...], rows: Sequence[Row]) -> None:
        """Insert rows of these columns, in their order."""

    def changed(self, sql: str, parameters: Parameters = ()) -> int:
        """Carry out a statement and return how many rows it changed."""

    def took(self, sql: str, parameters: Parameters = (), *, foreseen: bool = True) -> bool:
        """Carry out a statement that changes one row, or none where its conditions do not hold.

        Where answers are far away, one that is `foreseen` is taken to have changed its row; the
        database compares all the same, and gives up the whole transaction where it has not.
        """

    def absent(self, sql: str, parameters: Parameters = ()) -> bool:
        """Whether a question that most often finds nothing finds no row; foreseen, as in `took`."""

    def one(self, sql: str, parameters: Parameters = ()) -> Row | None:
        """Return the first row, or None."""

    def all(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """Return every row."""


@cache
def update(table: str, key: str, columns: tuple[str, ...]) -> str:
    """Return the statement that sets these columns of a row, whose key comes last.

    Example:
        >>> update("run", "place", ("leaf", "answer"))
        'UPDATE run SET leaf = ?, answer = ? WHERE place = ?'
    """
    return f"UPDATE {table} SET {', '.join(f'{column} = ?' for column in columns)} WHERE {key} = ?"


@cache
def insertion(table: str, columns: tuple[str, ...], rows: int = 1) -> str:
    """Return the statement that inserts so many rows, one after the other.

    Example:
        >>> insertion("event", ("place", "data"), 2)
        'INSERT INTO event (place, data) VALUES (?, ?), (?, ?)'
    """
    marks = f"({', '.join('?' * len(columns))})"
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join([marks] * rows)}"
