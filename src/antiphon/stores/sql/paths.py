"""Lines of the tree, read from the database.

A short piece of a long line is walked parent by parent, in one bounded recursive query. A
whole line is usually most of its conversation, and then one pass over the conversation's
range, joined up afterwards, is several times faster; which of the two it is can be told from
the leaf's depth. Either way a broken link is an error and never a silent stop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from antiphon.core.blocks import Message
from antiphon.core.ids import ConversationId, MessageId, SessionId
from antiphon.errors import NotFound, Refused
from antiphon.stores.sql.message_rows import MESSAGE, message_record
from antiphon.stores.sql.places import conversation_of, span
from antiphon.stores.sql.statements import Row, Statements

NO_LIMIT: Final = 1 << 62
SCAN_SHARE: Final = 3
"""A line is read by scanning while it is at least one in so many of the rows scanned."""

FEW_SESSIONS: Final = 16
_SCAN: Final = (
    f"{MESSAGE} FROM message AS m WHERE m.place BETWEEN :first AND :leaf ORDER BY m.place DESC"
)

_WALK: Final = f"""
WITH RECURSIVE line (at, steps) AS (
  SELECT CAST(:leaf AS BIGINT), 1
  UNION ALL
  SELECT m.parent, line.steps + 1 FROM line JOIN message AS m ON m.place = line.at
  WHERE m.parent < m.place AND line.steps < CAST(:limit AS BIGINT)
    AND m.parent IS DISTINCT FROM CAST(:until AS BIGINT)
)
{MESSAGE} FROM line JOIN message AS m ON m.place = line.at ORDER BY line.steps
"""


def read_path(
    connection: Statements,
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
    found = connection.one(
        "SELECT place, depth FROM message WHERE place >> 32 = ? AND id = ?", (number, leaf)
    )
    if found is None:
        raise NotFound("There is no such message in this conversation.", at=leaf)
    if leaf == until or limit == 0:
        return []
    place, depth = found
    stop = None
    if until is not None:
        row = connection.one(
            "SELECT place FROM message WHERE place >> 32 = ? AND id = ?", (number, until)
        )
        stop = None if row is None else row[0]
    first, _ = span(number)
    if limit is None and stop is None and place - first <= depth * SCAN_SHARE:
        rows = connection.all(_SCAN, {"first": first, "leaf": place})
    else:
        bound = limit if limit is not None else NO_LIMIT
        rows = connection.all(_WALK, {"leaf": place, "limit": bound, "until": stop})
    sessions = session_ids(connection, number, {row[5] for row in rows})
    line: list[Message] = []
    below: Row | None = None
    # A message is built once the row above it is here, since only that knows its parent's id.
    for row in _links(rows, number, place, stop, limit):
        if below is not None:
            line.append(message_record(below, conversation, row[2], sessions))
        below = row
    assert below is not None
    line.append(message_record(below, conversation, _parent(connection, number, below), sessions))
    line.reverse()
    return line


def _links(
    rows: Iterable[Row], number: int, leaf: int, stop: int | None, limit: int | None
) -> Iterator[Row]:
    """Yield the rows that lead from `leaf` to the root, to `stop`, or as far as `limit` allows.

    `rows` come in descending order of their places, other branches between them.
    """
    first, _ = span(number)
    wanted: int | None = leaf
    left = NO_LIMIT if limit is None else limit
    last: Row | None = None
    for row in rows:
        if row[0] == wanted:
            yield row
            last, wanted, left = row, row[1], left - 1
            if wanted is None or wanted == stop or not left:
                return
            if wanted < first:
                break
    assert last is not None
    raise _broken(last, number)


def _parent(connection: Statements, number: int, row: Row) -> MessageId | None:
    """Return the id of the parent of the first message of a line."""
    if row[1] is None:
        return None
    above = connection.one("SELECT id FROM message WHERE place = ?", (row[1],))
    if above is None or conversation_of(row[1]) != number or row[1] >= row[0]:
        raise _broken(row, number)
    return MessageId(above[0])


def _broken(row: Row, number: int) -> Refused:
    """Say what is wrong with the link from this row to its parent."""
    if conversation_of(row[1]) != number:
        return Refused(
            "The parent of this message is in another conversation.",
            code="foreign_parent",
            at=row[2],
        )
    if row[1] >= row[0]:
        return Refused("The parents of this message form a circle.", code="cycle", at=row[2])
    return Refused("The parent of this message is not there.", code="missing_parent", at=row[2])


def session_ids(
    connection: Statements, number: int, places: Collection[int] | None = None
) -> dict[int, SessionId]:
    """Return the ids of a conversation's sessions by their places; of these few, or of all."""
    if places is not None and not places:
        return {}
    if places is not None and len(places) <= FEW_SESSIONS:
        marks = ", ".join("?" * len(places))
        return dict(
            connection.all(f"SELECT place, id FROM session WHERE place IN ({marks})", [*places])
        )
    return dict(
        connection.all("SELECT place, id FROM session WHERE place BETWEEN ? AND ?", span(number))
    )
