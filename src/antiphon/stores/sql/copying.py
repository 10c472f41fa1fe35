"""Copying a database into an empty one, row for row, whatever databases the two are.

All of it arrives in one transaction of the target's, or nothing. Every row is read back and must
hash to what was read from the source; then what has arrived is examined as `antiphon doctor`
would.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from antiphon.errors import Conflict, DigestMismatch, StoreError
from antiphon.stores.sql.examine import examined
from antiphon.stores.sql.migrations import known
from antiphon.stores.sql.statements import Row, Statements

BATCH: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with its columns; those of its key come in the key's order."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """How much has arrived, by table."""

    rows: dict[str, int]


def tables(db: Statements) -> list[Table]:
    """Return every table of ours, those first that others refer to: as the migrations made them."""
    found: dict[str, list[tuple[str, int]]] = {}
    for table, column, place in db.all(db.dialect.columns):
        found.setdefault(table, []).append((column, place))
    made = [
        name
        for _, _, script in known()
        for name in re.findall(r"^CREATE TABLE (\w+)", script, re.M)
    ]
    return [
        Table(
            name=name,
            columns=tuple(column for column, _ in found[name]),
            key=tuple(
                column
                for column, _ in sorted(
                    (one for one in found[name] if one[1]), key=lambda one: one[1]
                )
            ),
        )
        for name in made
    ]


def copy(source: Statements, target: Statements) -> Copied:
    """Copy everything; the caller holds a transaction on each, and commits the target's.

    Raises:
        Conflict: `not_empty`: there is something in the target.
        StoreError: `schema_differs`: the two are not of the same release.
        DigestMismatch: What has arrived is not what was read.
    """
    there, here = tables(source), tables(target)
    if there != here:
        raise StoreError(
            "The two databases are not of the same release: open both with this one first.",
            code="schema_differs",
        )
    for table in here:
        if target.one(f"SELECT 1 FROM {table.name} LIMIT 1") is not None:
            raise Conflict(
                f"There is something in the target already, in {table.name}; "
                "a copy goes into an empty database.",
                code="not_empty",
                at=table.name,
            )
    rows: dict[str, int] = {}
    for table in there:
        read = _Sum()
        rows[table.name] = 0
        for batch in _batches(source, table):
            read.take(batch)
            _insert(target, table, batch)
            rows[table.name] += len(batch)
        arrived = _Sum()
        for batch in _batches(target, table):
            arrived.take(batch)
        if arrived.total != read.total:
            raise DigestMismatch("What has arrived is not what was read.", at=table.name)
    for statement in target.dialect.copied:
        target.one(statement)
    _require_sound(source, target)
    return Copied(rows=rows)


def _require_sound(source: Statements, target: Statements) -> None:
    """Look that nothing is wrong with the copy that was not wrong with what was copied."""
    wrong = {problem for check in examined(target) for problem in check.problems}
    if wrong:
        wrong -= {problem for check in examined(source) for problem in check.problems}
    if wrong:
        worst = min(wrong, key=lambda problem: (problem.code, problem.at))
        raise DigestMismatch(f"The copy is not sound: {worst.message}", at=worst.at)


class _Sum:
    """The hashes of rows added up: the same in whatever order they come.

    Databases do not agree on the order of texts.
    """

    def __init__(self) -> None:
        self.total = 0
        self._encode = msgspec.msgpack.Encoder().encode

    def take(self, rows: Sequence[Row]) -> None:
        """Add some rows."""
        for row in rows:
            own = hashlib.blake2b(self._encode(row), digest_size=32).digest()
            self.total = (self.total + int.from_bytes(own, "big")) % 2**256


def _batches(db: Statements, table: Table) -> Iterator[list[Row]]:
    """Yield every row in the order of the key, some at a time."""
    names, key = ", ".join(table.columns), ", ".join(table.key)
    places = [table.columns.index(column) for column in table.key]
    after, values = "", list[object]()
    while True:
        batch = db.all(
            f"SELECT {names} FROM {table.name} {after} ORDER BY {key} LIMIT {BATCH}", values
        )
        if not batch:
            return
        yield batch
        after = f"WHERE ({key}) > ({', '.join('?' * len(places))})"
        values = [batch[-1][place] for place in places]


def _insert(db: Statements, table: Table, rows: Sequence[Row]) -> None:
    marks = f"({', '.join('?' * len(table.columns))})"
    most = max(1, 900 // len(table.columns))
    for first in range(0, len(rows), most):
        some = rows[first : first + most]
        db.execute(
            f"INSERT INTO {table.name} ({', '.join(table.columns)}) "
            f"VALUES {', '.join([marks] * len(some))}",
            [value for row in some for value in row],
        )
