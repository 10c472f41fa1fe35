"""What can be read: one function per question, on a connection that need not write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from antiphon.core.blocks import Message
from antiphon.core.dispatch import State
from antiphon.core.ids import (
    ConversationId,
    Digest,
    MessageId,
    NodeId,
    OperationId,
    ResponseId,
    RunId,
    SessionId,
    TenantId,
)
from antiphon.core.manifest import Manifest
from antiphon.core.records import (
    OPEN_RUN,
    Attempt,
    Call,
    Cause,
    Conversation,
    Quarantined,
    Response,
    Run,
    RunStatus,
    Session,
    StoredEvent,
)
from antiphon.errors import NotFound
from antiphon.stores.sql.call_rows import CALL, read_call
from antiphon.stores.sql.message_rows import MESSAGE, message_record
from antiphon.stores.sql.packing import pack, unpack
from antiphon.stores.sql.paths import NO_LIMIT, read_path, session_ids
from antiphon.stores.sql.places import number_of, place, span
from antiphon.stores.sql.rows import (
    ATTEMPT,
    CONVERSATION,
    MANIFEST,
    RESPONSE,
    RUN,
    AttemptRow,
    ConversationRow,
    ResponseRow,
    RunRow,
    manifest_record,
    read_handover,
)
from antiphon.stores.sql.statements import Row, Statements

_read_message = msgspec.json.Decoder(Message).decode


class _About(msgspec.Struct):
    """The part of a stored event that says which run it is about."""

    run: RunId | None = None


_about = msgspec.json.Decoder(_About).decode


def number(db: Statements, conversation: ConversationId) -> int:
    """Return the conversation's number. Raises `NotFound`."""
    row = db.one("SELECT number FROM conversation WHERE id = ?", (conversation,))
    if row is None:
        raise NotFound("There is no such conversation.", at=conversation)
    return int(row[0])


def addresses(db: Statements) -> dict[NodeId, str]:
    """Return where nodes listen, as they said when they joined."""
    rows = db.all("SELECT id, address FROM node WHERE address IS NOT NULL")
    return dict(rows)


def tenant_key(db: Statements, tenant: TenantId) -> bytes:
    """Return a tenant's digest key. Raises `NotFound`."""
    row = db.one("SELECT digest_key FROM tenant WHERE id = ?", (tenant,))
    if row is None:
        raise NotFound("There is no such tenant.", at=tenant)
    return bytes(row[0])


def conversation(db: Statements, conversation: ConversationId) -> Conversation:
    """Return one conversation. Raises `NotFound`."""
    row = db.one(CONVERSATION + "WHERE c.id = ?", (conversation,))
    if row is None:
        raise NotFound("There is no such conversation.", at=conversation)
    return _conversation(db, row)


def _conversation(db: Statements, row: tuple[Any, ...]) -> Conversation:
    c = ConversationRow(*row)
    return c.record(_deleted(db, c.number, c.revision))


def _deleted(db: Statements, number: int, revision: int) -> frozenset[MessageId]:
    rows = db.all(
        """SELECT m.id FROM deletion AS d JOIN message AS m ON m.place = d.message
        WHERE d.message BETWEEN ? AND ? AND d.revision <= ?""",
        (*span(number), revision),
    )
    return frozenset(row[0] for row in rows)


def deletions_at(
    db: Statements, conversation: ConversationId, revision: int
) -> frozenset[MessageId]:
    """Return what was deleted at `revision`."""
    return _deleted(db, number(db, conversation), revision)


_HOLDS: Final = """
AND ({titled} OR EXISTS (
  SELECT 1 FROM message AS m
  WHERE m.place BETWEEN c.number << 32 AND (c.number << 32) + 4294967295
  AND NOT EXISTS (SELECT 1 FROM deletion AS d WHERE d.message = m.place) AND {says}))
"""
"""The title holds the words, or a text that was said and not deleted. It reads what it searches."""


def conversations(
    db: Statements,
    tenant: TenantId,
    limit: int,
    before: ConversationId | None,
    words: str | None = None,
) -> list[Conversation]:
    """Return the tenant's conversations, last changed first; with `words` those that hold them."""
    bound = (1 << 62, 0)
    if before is not None:
        found = db.one(
            "SELECT updated_ms, number FROM conversation WHERE id = ? AND tenant = ?",
            (before, tenant),
        )
        if found is None:
            raise NotFound("There is no such conversation.", at=before)
        bound = found
    rows = db.all(
        CONVERSATION
        + "WHERE c.tenant = :tenant AND (c.updated_ms, c.number) < (:ms, :number) AND c.deleted = 0 "
        + (_HOLDS.format(titled=db.dialect.titled, says=db.dialect.says) if words else "")
        + "ORDER BY c.updated_ms DESC, c.number DESC LIMIT :limit",
        {
            "tenant": tenant,
            "ms": bound[0],
            "number": bound[1],
            "limit": limit,
            **({"words": _containing(words)} if words else {}),
        },
    )
    return [_conversation(db, row) for row in rows]


def _containing(words: str) -> str:
    """Return the pattern of what holds `words`, each sign of which means itself."""
    for sign in ("\\", "%", "_"):
        words = words.replace(sign, f"\\{sign}")
    return f"%{words}%"


def unerased(db: Statements, tenant: TenantId, before_ms: int) -> list[ConversationId]:
    """Return the tenant's conversations that are not erased and did not change since."""
    rows = db.all(
        "SELECT id FROM conversation WHERE tenant = ? AND updated_ms <= ? AND erased_ms IS NULL "
        "ORDER BY updated_ms, number",
        (tenant, before_ms),
    )
    return [row[0] for row in rows]


_SESSION: Final = """
SELECT s.id, s.goal, s.active, CASE WHEN s.active = 1 THEN c.head ELSE s.head END, s.created_ms,
       p.id, s.cause, s.precis, s.handover, s.archived_ms
FROM session AS s JOIN conversation AS c ON c.number = s.place >> 32
LEFT JOIN session AS p ON p.place = s.previous
WHERE s.place BETWEEN ? AND ?
"""


def sessions(db: Statements, conversation: ConversationId, newest: int | None) -> list[Session]:
    """Return the sessions in their order, all or the newest of them."""
    most = NO_LIMIT if newest is None else newest
    rows = db.all(
        _SESSION + "ORDER BY s.place DESC LIMIT ?", (*span(number(db, conversation)), most)
    )
    return [_session(conversation, row) for row in reversed(rows)]


def session(db: Statements, conversation: ConversationId, session: SessionId) -> Session:
    """Return one session. Raises `NotFound`."""
    row = db.one(_SESSION + "AND s.id = ?", (*span(number(db, conversation)), session))
    if row is None:
        raise NotFound("There is no such session in this conversation.", at=session)
    return _session(conversation, row)


def _session(conversation: ConversationId, row: Row) -> Session:
    return Session(
        id=row[0],
        conversation=conversation,
        goal=row[1],
        active=bool(row[2]),
        head=row[3],
        created_ms=row[4],
        previous=row[5],
        cause=None if row[6] is None else Cause(row[6]),
        precis=row[7],
        handover=None if row[8] is None else read_handover(row[8]),
        archived_ms=row[9],
    )


def _messages(
    db: Statements, conversation: ConversationId, at: int, condition: str, *values: object
) -> list[Message]:
    """Return messages with their parents' ids, in the order in which they came."""
    rows = db.all(
        f"""{MESSAGE}, p.id FROM message AS m
        LEFT JOIN message AS p ON p.place = m.parent WHERE {condition} ORDER BY m.place""",
        values,
    )
    names = session_ids(db, at, {row[5] for row in rows})
    return [message_record(row[:-1], conversation, row[-1], names) for row in rows]


def message(db: Statements, conversation: ConversationId, message: MessageId) -> Message:
    """Return one message. Raises `NotFound`."""
    at = number(db, conversation)
    found = _messages(db, conversation, at, "m.place >> 32 = ? AND m.id = ?", at, message)
    if not found:
        raise NotFound("There is no such message in this conversation.", at=message)
    return found[0]


def has_message(db: Statements, tenant: TenantId, message: MessageId) -> bool:
    """Return whether any conversation of the tenant holds a message of this id."""
    return bool(homes(db, tenant, message))


def homes(db: Statements, tenant: TenantId, message: MessageId) -> list[ConversationId]:
    """Return the tenant's conversations that hold a message of this id, at most two."""
    # With a sign before it, the number finds messages, and messages do not find conversations.
    rows = db.all(
        """SELECT c.id FROM conversation AS c
        JOIN message AS m ON m.place >> 32 = +c.number AND m.id = ?
        WHERE c.tenant = ? LIMIT 2""",
        (message, tenant),
    )
    return [row[0] for row in rows]


def tree(db: Statements, conversation: ConversationId) -> list[Message]:
    """Return every message."""
    at = number(db, conversation)
    names = session_ids(db, at)
    ids: dict[int, MessageId] = {}
    messages = []
    for row in db.all(
        f"{MESSAGE} FROM message AS m WHERE m.place BETWEEN ? AND ? ORDER BY m.place",
        span(at),
    ):
        ids[row[0]] = row[2]
        messages.append(message_record(row, conversation, ids.get(row[1]), names))
    return messages


def excerpt(
    db: Statements, conversation: ConversationId, leaf: MessageId | None, newest: int
) -> tuple[list[Message], bool]:
    """Return the newest messages of a line with all that stand beside them, and whether that is all."""
    at = number(db, conversation)
    first, last = span(at)
    held = db.one(
        "SELECT count(*) FROM (SELECT 1 FROM message WHERE place BETWEEN ? AND ? LIMIT ?) AS few",
        (first, last, newest + 1),
    )
    if held is None or held[0] <= newest:
        return tree(db, conversation), True
    line = [] if leaf is None else read_path(db, at, conversation, leaf, None, newest)
    above = {leaf, *(message.parent for message in line)}
    named = [name for name in above if name is not None]
    under = [] if None not in above else ["m.parent IS NULL"]
    if named:
        places = f"SELECT place FROM message WHERE place >> 32 = ? AND {_any('id', named)}"
        under.append(f"m.parent IN ({places})")
    values = (at, at, *named) if named else (at,)
    beside = _messages(
        db, conversation, at, f"m.place >> 32 = ? AND ({' OR '.join(under)})", *values
    )
    return beside, False


def children(
    db: Statements, conversation: ConversationId, parent: MessageId | None
) -> list[Message]:
    """Return the children of a message, or the roots."""
    at = number(db, conversation)
    under = None
    if parent is not None:
        found = db.one("SELECT place FROM message WHERE place >> 32 = ? AND id = ?", (at, parent))
        if found is None:
            raise NotFound("There is no such message in this conversation.", at=parent)
        under = found[0]
    if under is None:
        return _messages(db, conversation, at, "m.place >> 32 = ? AND m.parent IS NULL", at)
    return _messages(db, conversation, at, "m.place >> 32 = ? AND m.parent = ?", at, under)


_RUN = f"""
SELECT (SELECT c.id FROM conversation AS c WHERE c.number = run.place >> 32), {RUN} FROM run
"""


def _run(row: tuple[Any, ...]) -> Run:
    return RunRow(*row[1:]).record(row[0])


def run(db: Statements, conversation: ConversationId | None, run: RunId) -> Run:
    """Return one run; of any conversation where none is named. Raises `NotFound`."""
    row = db.one(_RUN + "WHERE id = ?", (run,))
    if row is None or conversation not in (None, row[0]):
        raise NotFound("There is no such run.", at=run)
    return _run(row)


def runs(
    db: Statements, conversation: ConversationId, statuses: Iterable[RunStatus] | None
) -> list[Run]:
    """Return a conversation's runs in the order they were started."""
    wanted = list(RunStatus) if statuses is None else list(statuses)
    # Open runs have an index of their own; without this word of help it would not be used.
    hint = "AND ended_ms IS NULL" if OPEN_RUN.issuperset(wanted) else ""
    rows = db.all(
        _RUN + f"WHERE place BETWEEN ? AND ? AND {_any('status', wanted)} {hint} ORDER BY place",
        (*span(number(db, conversation)), *wanted),
    )
    return [_run(row) for row in rows]


def open_runs(db: Statements) -> list[Run]:
    """Return every open run."""
    rows = db.all(_RUN + "WHERE ended_ms IS NULL ORDER BY created_ms, place")
    return [_run(row) for row in rows]


def open_statuses(
    db: Statements, conversations: list[ConversationId]
) -> dict[ConversationId, set[RunStatus]]:
    """Return the statuses of the open runs of these conversations, for those that have any."""
    found: dict[ConversationId, set[RunStatus]] = {}
    if conversations:
        rows = db.all(
            f"""SELECT c.id, r.status FROM conversation AS c JOIN run AS r
            ON r.place BETWEEN c.number << 32 AND (c.number << 32) + 4294967295
            WHERE {_any("c.id", conversations)} AND r.ended_ms IS NULL""",
            tuple(conversations),
        )
        for conversation, status in rows:
            found.setdefault(conversation, set()).add(RunStatus(status))
    return found


def run_input(db: Statements, conversation: ConversationId, run: RunId) -> Message | None:
    """Return a run's input, placed or waiting."""
    row = db.one(
        """SELECT r.input, r.input_waiting, c.number FROM run AS r
        JOIN conversation AS c ON c.number = r.place >> 32 WHERE r.id = ? AND c.id = ?""",
        (run, conversation),
    )
    if row is None:
        raise NotFound("There is no such run.", at=run)
    if row[0] is None:
        return None
    if row[1] is not None:
        return _read_message(row[1])
    placed = _messages(db, conversation, row[2], "m.place >> 32 = ? AND m.id = ?", row[2], row[0])
    return placed[0] if placed else None  # it was erased before it was placed


def response(db: Statements, tenant: TenantId, response: ResponseId) -> Response:
    """Return a response of this tenant. Raises `NotFound`."""
    row = db.one(RESPONSE + "WHERE r.id = ? AND c.tenant = ?", (response, tenant))
    if row is None:
        raise NotFound("There is no such response.", at=response)
    return _response(row)


def responses(db: Statements, conversation: ConversationId, run: RunId) -> list[Response]:
    """Return the responses of a run, first to last."""
    rows = db.all(RESPONSE + "WHERE r.run = ? AND c.id = ? ORDER BY r.place", (run, conversation))
    return [_response(row) for row in rows]


def response_of_key(
    db: Statements, scope: str, key: str, now_ms: int
) -> tuple[Response, Digest] | None:
    """Return what was begun under a key, and the digest of its body."""
    row = db.one(
        "SELECT response, body_digest FROM response_key "
        "WHERE scope = ? AND key = ? AND expires_ms > ?",
        (scope, key, now_ms),
    )
    if row is None:
        return None
    found = db.one(RESPONSE + "WHERE r.place = ?", (row[0],))
    assert found is not None
    return _response(found), unpack(row[1])


def unstored(db: Statements) -> list[Response]:
    """Return what is not to be stored, and still is."""
    rows = db.all(RESPONSE + "WHERE r.stored = 0 AND c.erased_ms IS NULL ORDER BY r.place")
    return [_response(row) for row in rows]


def _response(row: tuple[Any, ...]) -> Response:
    return ResponseRow._make(row[1:]).record(row[0])


def operations(db: Statements, conversation: ConversationId, run: RunId) -> list[OperationId]:
    """Return a run's operations, first to last."""
    rows = db.all(
        """SELECT m.operation FROM run AS r
        JOIN manifest AS m ON m.place BETWEEN r.first_operation AND r.operation AND m.run = r.place
        JOIN conversation AS c ON c.number = r.place >> 32
        WHERE r.id = ? AND c.id = ? AND m.purpose = 'turn' ORDER BY m.place""",
        (run, conversation),
    )
    return [row[0] for row in rows]


def questions(db: Statements, conversation: ConversationId, run: RunId) -> list[OperationId]:
    """Return the operations of a run's questions beside the turn, first to last."""
    rows = db.all(
        """SELECT m.operation FROM run AS r
        JOIN manifest AS m ON m.run = r.place AND m.purpose <> 'turn'
        JOIN conversation AS c ON c.number = r.place >> 32
        WHERE r.id = ? AND c.id = ? ORDER BY m.place""",
        (run, conversation),
    )
    return [row[0] for row in rows]


def manifest(db: Statements, operation: OperationId) -> tuple[Manifest, Digest]:
    """Return a manifest and its recorded digest. Raises `NotFound`."""
    row = db.one(MANIFEST + "WHERE m.operation = ?", (operation,))
    if row is None:
        raise NotFound("There is no such operation.", at=operation)
    return manifest_record(row)


def attempts(db: Statements, operation: OperationId) -> list[Attempt]:
    """Return an operation's attempts, first to last."""
    rows = db.all(ATTEMPT + "WHERE m.operation = ? ORDER BY a.number", (operation,))
    return [AttemptRow(*row).record() for row in rows]


def attempts_in(db: Statements, states: Iterable[State]) -> list[Attempt]:
    """Return the attempts that stand in one of `states`."""
    wanted = list(states)
    rows = db.all(
        ATTEMPT + f"WHERE {_any('a.state', wanted)} ORDER BY a.prepared_ms, a.manifest, a.number",
        wanted,
    )
    return [AttemptRow(*row).record() for row in rows]


def calls(
    db: Statements, conversation: ConversationId, run: RunId, message: MessageId | None
) -> list[Call]:
    """Return ledger rows in the calls' order."""
    rows = db.all(
        f"""{CALL} WHERE l.run = (SELECT place FROM run WHERE id = ? AND place >> 32 = ?)
        AND (CAST(? AS TEXT) IS NULL OR m.id = ?) ORDER BY l.place""",
        (run, number(db, conversation), message, message),
    )
    return [read_call(conversation, run, row).call for row in rows]


def content(db: Statements, tenant: TenantId, digest: Digest) -> bytes:
    """Return stored content. Raises `NotFound`."""
    row = db.one("SELECT data FROM content WHERE tenant = ? AND digest = ?", (tenant, pack(digest)))
    if row is None:
        raise NotFound("There is no such content.", at=digest)
    return bytes(row[0])


ASKED_AT_ONCE: Final = 500
"""Fewer than any database takes parameters."""


def contents(db: Statements, tenant: TenantId, digests: Sequence[Digest]) -> dict[Digest, bytes]:
    """Return what is stored under those of `digests` that there is anything under."""
    found: dict[Digest, bytes] = {}
    for start in range(0, len(digests), ASKED_AT_ONCE):
        wanted = digests[start : start + ASKED_AT_ONCE]
        marks = ", ".join("?" * len(wanted))
        rows = db.all(
            f"SELECT digest, data FROM content WHERE tenant = ? AND digest IN ({marks})",
            (tenant, *map(pack, wanted)),
        )
        found |= {unpack(digest): bytes(data) for digest, data in rows}
    return found


def stored(db: Statements, tenant: TenantId, digests: Sequence[Digest]) -> frozenset[Digest]:
    """Return those of `digests` under which there is content."""
    wanted = ", ".join("?" * len(digests))
    rows = db.all(
        f"SELECT digest FROM content WHERE tenant = ? AND digest IN ({wanted})",
        (tenant, *map(pack, digests)),
    )
    return frozenset(unpack(digest) for (digest,) in rows)


def events(
    db: Statements, conversation: ConversationId, after: int, limit: int
) -> list[StoredEvent]:
    """Return durable events with a number above `after`."""
    at = number(db, conversation)
    rows = db.all(
        "SELECT place, at_ms, data FROM event WHERE place BETWEEN ? AND ? ORDER BY place LIMIT ?",
        (place(at, max(after, 0) + 1), span(at)[1], limit),
    )
    return [
        StoredEvent(
            conversation=conversation,
            seq=number_of(row[0]),
            at_ms=row[1],
            run=_about(row[2]).run,
            data=msgspec.Raw(row[2]),
        )
        for row in rows
    ]


def quarantine(db: Statements, conversation: ConversationId) -> list[Quarantined]:
    """Return what was put aside, oldest first."""
    rows = db.all(
        """SELECT operation, generation, reason, data, at_ms FROM quarantine
        WHERE place BETWEEN ? AND ? ORDER BY place""",
        span(number(db, conversation)),
    )
    return [
        Quarantined(
            conversation=conversation,
            operation=row[0],
            generation=row[1],
            reason=row[2],
            data=row[3],
            at_ms=row[4],
        )
        for row in rows
    ]


def quarantined(db: Statements) -> dict[str, int]:
    """Return how much was put aside, by reason."""
    return dict(db.all("SELECT reason, count(*) FROM quarantine GROUP BY reason"))


def _any(column: str, values: list[Any]) -> str:
    return f"{column} IN ({', '.join('?' * len(values))})"
