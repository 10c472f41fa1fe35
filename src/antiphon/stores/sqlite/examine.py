"""Examining a database: does everything hash to what was recorded, does nothing dangle.

Reads only, on one snapshot, and trusts no row: what cannot be read is a problem to report, not
an exception. Nothing is repaired here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from antiphon.core.blocks import Message, Origin, message_digest
from antiphon.core.digests import digest, fold
from antiphon.core.dispatch import ACTIVE
from antiphon.core.ids import ConversationId, Digest
from antiphon.core.listing import read_stretch
from antiphon.core.manifest import Manifest, manifest_digest
from antiphon.errors import AntiphonError
from antiphon.stores.sql import reads
from antiphon.stores.sql.places import span
from antiphon.stores.sql.rows import pack, unpack
from antiphon.stores.sqlite.connections import check_file, open_reader
from antiphon.stores.sqlite.statements import SqliteStatements

MOST_FILE_PROBLEMS: Final = 20

_Unreadable = (AntiphonError, msgspec.MsgspecError, UnicodeDecodeError, KeyError, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that is not as it was written. `at` is the id it is about."""

    code: str
    at: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One examination: how many things were looked at, and what was wrong with them."""

    name: str
    looked_at: int
    problems: tuple[Problem, ...]


def examine(path: Path) -> list[Check]:
    """Return every check of the database at `path`.

    Raises:
        StoreError: It is not ours, or of a newer release.
        sqlite3.Error: It cannot even be opened.
    """
    check_file(path)
    with closing(open_reader(path)) as db:
        db.execute("BEGIN")
        file = _counted("file", _file, db)
        if file.problems:
            return [file]  # what else is wrong follows from that
        return [
            file,
            _counted("messages", _messages, db),
            _counted("dispatches", _manifests, db),
            _counted("references", _references, db),
            _counted("events", _events, db),
        ]


def _counted(
    name: str,
    work: Callable[[sqlite3.Connection], Iterator[Problem | None]],
    db: sqlite3.Connection,
) -> Check:
    """Run one check; it yields None or a problem for everything that it looked at."""
    found: list[Problem] = []
    looked_at = 0
    try:
        for problem in work(db):
            looked_at += 1
            if problem is not None:
                found.append(problem)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        # Where the schema itself is damaged, SQLite's own words may be no text.
        found.append(Problem(code="file_damaged", at=name, message=f"SQLite: {error}."))
    return Check(name=name, looked_at=looked_at, problems=tuple(found))


def _file(db: sqlite3.Connection) -> Iterator[Problem | None]:
    for (told,) in db.execute(f"PRAGMA quick_check({MOST_FILE_PROBLEMS})"):
        yield None if told == "ok" else Problem(code="file_damaged", at="file", message=str(told))
    for table, row, target, _ in db.execute("PRAGMA foreign_key_check"):
        yield Problem(
            code="dangling_row",
            at=f"{table} {row}",
            message=f"It refers to a row of {target} that is not there.",
        )


def _conversations(db: sqlite3.Connection) -> list[tuple[int, ConversationId, bytes]]:
    return db.execute(
        """SELECT c.number, c.id, t.digest_key FROM conversation AS c
        JOIN tenant AS t ON t.id = c.tenant ORDER BY c.number"""
    ).fetchall()


def _messages(db: sqlite3.Connection) -> Iterator[Problem | None]:
    """Every message hashes to its digest, and every path to its own, root first.

    What was erased has its digest only.
    """
    for number, conversation, key in _conversations(db):
        paths: dict[int, Digest] = {}
        rows = db.execute(
            """SELECT place, parent, id, digest, path_digest FROM message
            WHERE place BETWEEN ? AND ? ORDER BY place""",
            span(number),
        ).fetchall()
        for place, parent, name, own, path in rows:
            paths[place] = unpack(path)
            message = _message(db, conversation, name)
            if isinstance(message, Problem):
                yield message
            elif message.erased and not _may_be_erased(db, number, message):
                yield Problem(
                    code="content_missing",
                    at=name,
                    message="What the message said is not there, and nobody erased it.",
                )
            elif not message.erased and message_digest(key, message) != unpack(own):
                yield Problem(
                    code="message_digest",
                    at=name,
                    message="The message is not what was written: its digest differs.",
                )
            elif fold(key, paths.get(parent), unpack(own)) != unpack(path):
                yield Problem(
                    code="path_digest",
                    at=name,
                    message="The path to this message is not the one it was written under.",
                )
            else:
                yield None


def _may_be_erased(db: sqlite3.Connection, number: int, message: Message) -> bool:
    """Whether a message without content was erased, here or where it was brought from."""
    (erased_ms,) = db.execute(
        "SELECT erased_ms FROM conversation WHERE number = ?", (number,)
    ).fetchone()
    return erased_ms is not None or message.origin is Origin.IMPORTED


def _message(db: sqlite3.Connection, conversation: ConversationId, name: str) -> Message | Problem:
    try:
        return reads.message(SqliteStatements(db), conversation, name)  # type: ignore[arg-type]  # as stored
    except _Unreadable as error:
        return Problem(code="unreadable", at=name, message=f"The message cannot be read: {error}")


def _manifests(db: sqlite3.Connection) -> Iterator[Problem | None]:
    """Every manifest hashes to its digest, and what it was rendered from is there, unchanged."""
    keys = {conversation: key for _, conversation, key in _conversations(db)}
    sound: set[tuple[bytes, Digest]] = set()
    for (operation,) in db.execute("SELECT operation FROM manifest ORDER BY place").fetchall():
        try:
            manifest, recorded = reads.manifest(SqliteStatements(db), operation)
        except _Unreadable as error:
            yield Problem(
                code="unreadable", at=operation, message=f"The manifest cannot be read: {error}"
            )
            continue
        key = keys[manifest.conversation]
        if manifest_digest(key, manifest) != recorded:
            yield Problem(
                code="manifest_digest",
                at=operation,
                message="The manifest is not what was written: its digest differs.",
            )
            continue
        erased = _erased(db, manifest)
        yield (
            _stored(db, manifest, key, manifest.policy_digest, erased=erased)
            or _stored(db, manifest, key, manifest.toolset_digest, erased=erased)
            or _listed(db, manifest, key, sound)
        )


def _erased(db: sqlite3.Connection, manifest: Manifest) -> bool:
    """Whether what the request of a dispatch was made of was erased."""
    (erased_ms,) = db.execute(
        "SELECT erased_ms FROM conversation WHERE id = ?", (manifest.conversation,)
    ).fetchone()
    return erased_ms is not None


def _stored(
    db: sqlite3.Connection, manifest: Manifest, key: bytes, wanted: Digest, *, erased: bool
) -> Problem | None:
    data = _content(db, manifest, wanted)
    if data is None:
        if erased:
            return None
        return Problem(
            code="content_missing",
            at=manifest.operation,
            message="What its request was made of is not stored: it cannot be rendered again.",
        )
    if digest(key, "stored", data) != wanted:
        return Problem(
            code="content_digest",
            at=manifest.operation,
            message="What its request was made of is not what was written.",
        )
    return None


def _listed(
    db: sqlite3.Connection, manifest: Manifest, key: bytes, sound: set[tuple[bytes, Digest]]
) -> Problem | None:
    """Follow the list of a dispatch's mappings back to where it was found `sound` before."""
    newest = manifest.mappings_digest
    while newest is not None and (key, newest) not in sound:
        data = _content(db, manifest, newest)
        if data is None:
            return Problem(
                code="content_missing",
                at=manifest.operation,
                message="The list of what its profile changed is not stored.",
            )
        found = read_stretch(key, newest, data)
        if found is None:
            return Problem(
                code="content_digest",
                at=manifest.operation,
                message="The list of what its profile changed is not what was written.",
            )
        sound.add((key, newest))
        newest = found.after
    return None


def _content(db: sqlite3.Connection, manifest: Manifest, wanted: Digest) -> bytes | None:
    row = db.execute(
        "SELECT data FROM content WHERE digest = ? "
        "AND tenant = (SELECT tenant FROM conversation WHERE id = ?)",
        (pack(wanted), manifest.conversation),
    ).fetchone()
    return None if row is None else bytes(row[0])


def _references(db: sqlite3.Connection) -> Iterator[Problem | None]:
    """Heads, slots and active operations name what is there and stands where it should."""
    active = ", ".join(f"'{state}'" for state in sorted(ACTIVE))
    for name, head, slot, operation, head_there, slot_open, operation_active in db.execute(
        f"""SELECT c.id, c.head, c.slot, c.active_operation,
          EXISTS (SELECT 1 FROM message AS m WHERE m.place >> 32 = c.number AND m.id = c.head),
          EXISTS (SELECT 1 FROM run AS r WHERE r.id = c.slot AND r.ended_ms IS NULL),
          EXISTS (SELECT 1 FROM manifest AS m JOIN attempt AS a ON a.manifest = m.place
            WHERE m.operation = c.active_operation AND a.state IN ({active}))
        FROM conversation AS c"""
    ).fetchall():
        if head is not None and not head_there:
            yield _dangling(name, f"Its head {head} is not there.")
        elif slot is not None and not slot_open:
            yield _dangling(name, f"The run {slot} holds its slot and is not open.")
        elif operation is not None and not operation_active:
            yield _dangling(name, f"The operation {operation} holds it and is not active.")
        else:
            yield None
    for (operation,) in db.execute(
        f"""SELECT m.operation FROM attempt AS a JOIN manifest AS m ON m.place = a.manifest
        JOIN conversation AS c ON c.number = m.place >> 32
        WHERE a.purpose = 'turn' AND a.state IN ({active})
          AND c.active_operation IS NOT m.operation"""
    ).fetchall():
        yield _dangling(operation, "It is active, and its conversation does not know.")


def _dangling(at: str, message: str) -> Problem:
    return Problem(code="dangling", at=at, message=message)


def _events(db: sqlite3.Connection) -> Iterator[Problem | None]:
    """Durable events are numbered without gaps."""
    for name, last, count, highest in db.execute(
        """SELECT c.id, c.last_event, count(e.place), coalesce(max(e.place & 4294967295), 0)
        FROM conversation AS c LEFT JOIN event AS e
          ON e.place BETWEEN c.number << 32 AND (c.number << 32) | 4294967295
        GROUP BY c.number"""
    ).fetchall():
        if last == count == highest:
            yield None
        else:
            yield Problem(
                code="event_gap",
                at=name,
                message=f"{last} events were told, {count} are stored, the last is {highest}.",
            )
