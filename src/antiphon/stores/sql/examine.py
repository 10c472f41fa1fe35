"""Examining what is stored: does everything hash to what was recorded, does nothing dangle.

Reads only, on one snapshot, and trusts no row: what cannot be read is a problem to report, not
an exception. Nothing is repaired here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from antiphon.core.blocks import Message, Origin, ToolCall, message_digest
from antiphon.core.digests import digest, fold
from antiphon.core.ids import ConversationId, Digest
from antiphon.core.listing import read_stretch
from antiphon.core.manifest import Manifest, manifest_digest
from antiphon.core.telling.examination import Check, Problem
from antiphon.errors import AntiphonError
from antiphon.stores.sql import reads
from antiphon.stores.sql.commands.repairs import MENDINGS
from antiphon.stores.sql.contradictions import RULES
from antiphon.stores.sql.packing import pack, unpack
from antiphon.stores.sql.places import span
from antiphon.stores.sql.statements import Statements

_Unreadable = (AntiphonError, msgspec.MsgspecError, UnicodeDecodeError, KeyError, ValueError)


def examined(db: Statements, broken: tuple[type[Exception], ...] = ()) -> list[Check]:
    """Return every check of what is stored.

    Args:
        db: Within one snapshot.
        broken: What the database raises where it cannot be read at all.
    """
    return [
        counted(name, lambda work=work: work(db), broken)  # type: ignore[misc]  # bound at once
        for name, work in (
            ("messages", _messages),
            ("dispatches", _manifests),
            ("ledger", _ledger),
            ("rows", _rows),
        )
    ]


def counted(
    name: str, work: Callable[[], Iterator[Problem | None]], broken: tuple[type[Exception], ...]
) -> Check:
    """Run one check; it yields None or a problem for everything that it looked at."""
    found: list[Problem] = []
    looked_at = 0
    try:
        for problem in work():
            looked_at += 1
            if problem is not None:
                found.append(problem)
    except broken as error:
        found.append(Problem(code="file_damaged", at=name, message=f"The database: {error}."))
    return Check(name=name, looked_at=looked_at, problems=tuple(found))


def _conversations(db: Statements) -> list[tuple[int, ConversationId, bytes]]:
    return db.all(
        """SELECT c.number, c.id, t.digest_key FROM conversation AS c
        JOIN tenant AS t ON t.id = c.tenant ORDER BY c.number"""
    )


def _messages(db: Statements) -> Iterator[Problem | None]:
    """Every message hashes to its digest, and every path to its own, root first.

    What was erased has its digest only.
    """
    for number, conversation, key in _conversations(db):
        paths: dict[int, Digest] = {}
        rows = db.all(
            """SELECT place, parent, id, digest, path_digest FROM message
            WHERE place BETWEEN ? AND ? ORDER BY place""",
            span(number),
        )
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


def _may_be_erased(db: Statements, number: int, message: Message) -> bool:
    """Whether a message without content was erased, here or where it was brought from."""
    row = db.one("SELECT erased_ms FROM conversation WHERE number = ?", (number,))
    return message.origin is Origin.IMPORTED or (row is not None and row[0] is not None)


def _message(db: Statements, conversation: ConversationId, name: str) -> Message | Problem:
    try:
        return reads.message(db, conversation, name)  # type: ignore[arg-type]  # as stored
    except _Unreadable as error:
        return Problem(code="unreadable", at=name, message=f"The message cannot be read: {error}")


def _manifests(db: Statements) -> Iterator[Problem | None]:
    """Every manifest hashes to its digest, and what it was rendered from is there, unchanged."""
    keys = {conversation: key for _, conversation, key in _conversations(db)}
    sound: set[tuple[bytes, Digest]] = set()
    for (operation,) in db.all("SELECT operation FROM manifest ORDER BY place"):
        try:
            manifest, recorded = reads.manifest(db, operation)
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


def _erased(db: Statements, manifest: Manifest) -> bool:
    """Whether what the request of a dispatch was made of was erased."""
    row = db.one("SELECT erased_ms FROM conversation WHERE id = ?", (manifest.conversation,))
    return row is not None and row[0] is not None


def _stored(
    db: Statements, manifest: Manifest, key: bytes, wanted: Digest, *, erased: bool
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
    db: Statements, manifest: Manifest, key: bytes, sound: set[tuple[bytes, Digest]]
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


def _content(db: Statements, manifest: Manifest, wanted: Digest) -> bytes | None:
    row = db.one(
        "SELECT data FROM content WHERE digest = ? "
        "AND tenant = (SELECT tenant FROM conversation WHERE id = ?)",
        (pack(wanted), manifest.conversation),
    )
    return None if row is None else bytes(row[0])


def _ledger(db: Statements) -> Iterator[Problem | None]:
    """Every call of a committed answer has its row, and every row its call."""
    for number, conversation, _ in _conversations(db):
        rows = db.all(
            """SELECT n.id, l.call_id, l.name FROM call AS l JOIN message AS n ON n.place = l.message
            WHERE l.place BETWEEN ? AND ? ORDER BY l.place""",
            span(number),
        )
        ledger = {(message, call): name for message, call, name in rows}
        answers = db.all(
            """SELECT id FROM message WHERE place BETWEEN ? AND ? AND base_revision IS NOT NULL
            ORDER BY place""",
            span(number),
        )
        asked: dict[tuple[str, str], str] = {}
        for (name,) in answers:
            message = _message(db, conversation, name)
            if isinstance(message, Problem) or message.erased:
                continue  # the other check says so
            asked |= {
                (message.id, block.call_id): block.name
                for block in message.blocks
                if isinstance(block, ToolCall)
            }
        for at, tool in asked.items():
            if ledger.get(at) == tool:
                yield None
            else:
                yield Problem(
                    code="call_unrecorded",
                    at=at[1],
                    message=f"The message {at[0]} asks for it, and the ledger has no such call.",
                )
        orphans = {(m, c) for m, c, _ in rows} - asked.keys() - _erased_calls(db, number)
        for message_id, call_id in sorted(orphans):
            yield Problem(
                code="call_unasked",
                at=call_id,
                message=f"The ledger has a call of the message {message_id} that asks for none.",
            )


def _erased_calls(db: Statements, number: int) -> set[tuple[str, str]]:
    """Return the calls of messages that cannot be read any more, since they were erased."""
    rows = db.all(
        """SELECT n.id, l.call_id FROM call AS l JOIN message AS n ON n.place = l.message
        WHERE l.place BETWEEN ? AND ? AND (n.blocks IS NULL OR n.base_revision IS NULL)""",
        span(number),
    )
    return {(message, call) for message, call in rows}


def _rows(db: Statements) -> Iterator[Problem | None]:
    """No two rows contradict each other."""
    for rule in RULES:
        found = list(rule.find(db))
        for one in found:
            yield Problem(
                code=rule.code,
                at=one.at,
                message=one.message,
                conversation=one.conversation if rule.code in MENDINGS else None,
            )
        if not found:
            yield None
