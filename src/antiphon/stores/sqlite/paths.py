"""Lines of the tree, read from the file.

A short piece of a long line is walked parent by parent, in one bounded recursive query. A
whole line is usually most of its conversation, and then one pass over the conversation's
range, joined up afterwards, is several times faster; which of the two it is can be told from
the leaf's depth. Either way a broken link is an error and never a silent stop.
"""

from __future__ import annotations

import itertools
import sqlite3
from typing import Any, Final, TypeAlias

from antiphon.core.blocks import Message
from antiphon.core.ids import ConversationId, MessageId, SessionId
from antiphon.errors import NotFound, Refused
from antiphon.stores.sqlite.places import conversation_of, span
from antiphon.stores.sqlite.rows import MESSAGE_COLUMNS, message_record

_Row: TypeAlias = tuple[Any, ...]

SCAN_SHARE: Final = 3
"""A line is read by scanning while it is at least one in so many of the rows scanned."""

_WALK: Final = f"""
WITH RECURSIVE line (at, steps) AS (
  VALUES (:leaf, 1)
  UNION ALL
  SELECT m.parent, line.steps + 1 FROM line JOIN message AS m ON m.place = line.at
  WHERE m.parent IS NOT NULL AND m.parent < m.place AND line.steps < :limit
    AND m.parent IS NOT :until
)
SELECT {", ".join(f"m.{c}" for c in MESSAGE_COLUMNS.split(", "))}
FROM line JOIN message AS m ON m.place = line.at ORDER BY line.steps
"""


def read_path(
    connection: sqlite3.Connection,
    number: int,
    conversation: ConversationId,
    leaf: MessageId,
    until: MessageId | None,
    limit: int | None,
) -> list[Message]:
    """Return the line that ends in `leaf`, root first.

    Raises:
        NotFound: There is no such leaf here.
        Refused: `cycle`, `missing_parent` or `foreign_parent`: the tree is broken.
    """
    found = connection.execute(
        "SELECT place, depth FROM message WHERE place >> 32 = ? AND id = ?", (number, leaf)
    ).fetchone()
    if found is None:
        raise NotFound("There is no such message in this conversation.", at=leaf)
    if leaf == until:
        return []
    place, depth = found
    first, _ = span(number)
    stop = None
    if until is not None:
        row = connection.execute(
            "SELECT place FROM message WHERE place >> 32 = ? AND id = ?", (number, until)
        ).fetchone()
        stop = None if row is None else row[0]
    start = first if stop is None else stop
    bound = depth if limit is None else min(depth, limit)
    if limit is None and stop is None and (place - start) <= bound * SCAN_SHARE:
        rows = _scan(connection, first, place)
    else:
        rows = connection.execute(
            _WALK, {"leaf": place, "limit": limit if limit else -1 & 0x7FFFFFFF, "until": stop}
        ).fetchall()
    check(rows, number, stop, limit)
    return _records(connection, number, conversation, rows)


def _scan(connection: sqlite3.Connection, first: int, leaf: int) -> list[_Row]:
    """Return the line from the leaf to the root, out of one pass over the range before it."""
    rows = connection.execute(
        f"SELECT {MESSAGE_COLUMNS} FROM message WHERE place BETWEEN ? AND ? ORDER BY place DESC",
        (first, leaf),
    )
    line: list[_Row] = []
    wanted: int | None = leaf
    for row in rows:
        if row[0] == wanted:
            line.append(row)
            wanted = row[1]
            if wanted is None:
                break
    return line


def check(rows: list[_Row], number: int, stop: int | None, limit: int | None) -> None:
    """Make sure that `rows` (leaf first) is a whole line, or as much of one as was asked for."""
    for row, above in itertools.pairwise(rows):
        if row[1] != above[0]:
            raise _broken(row, number)
    last = rows[-1]
    if last[1] is not None and last[1] != stop and (limit is None or len(rows) < limit):
        raise _broken(last, number)


def _broken(row: _Row, number: int) -> Refused:
    if conversation_of(row[1]) != number:
        return Refused(
            "The parent of this message is in another conversation.",
            code="foreign_parent",
            at=row[2],
        )
    if row[1] >= row[0]:
        return Refused("The parents of this message form a circle.", code="cycle", at=row[2])
    return Refused("The parent of this message is not there.", code="missing_parent", at=row[2])


def _records(
    connection: sqlite3.Connection,
    number: int,
    conversation: ConversationId,
    rows: list[_Row],
) -> list[Message]:
    sessions = session_ids(connection, number)
    parent: MessageId | None = None
    if rows[-1][1] is not None:
        above = connection.execute(
            "SELECT id FROM message WHERE place = ?", (rows[-1][1],)
        ).fetchone()
        parent = above[0]
    line = []
    for row in reversed(rows):
        line.append(message_record(row, conversation, parent, sessions))
        parent = row[2]
    return line


def session_ids(connection: sqlite3.Connection, number: int) -> dict[int, SessionId]:
    """Return the ids of a conversation's sessions by their places."""
    return dict(
        connection.execute(
            "SELECT place, id FROM session WHERE place BETWEEN ? AND ?", span(number)
        )
    )
