"""Responses: each request of a client as a stretch of a run, and the keys under which it came."""

from __future__ import annotations

from typing import Final

from antiphon.core.commands import DeleteResponse, OpenResponse, StartKey
from antiphon.core.dispatch import Denied
from antiphon.core.records import Response, RunStatus
from antiphon.errors import NotFound
from antiphon.stores.sql.packing import pack
from antiphon.stores.sql.places import conversation_of
from antiphon.stores.sql.rows import RESPONSE, ResponseRow
from antiphon.stores.sql.transaction import Outrun, Transaction


def begin(tx: Transaction, command: OpenResponse) -> Response | Denied:
    """Insert the response where its request is no repetition."""
    c = tx.conversation(command.conversation)
    if command.key is not None and command.attach:
        denied = _repeats(tx, command.key, command.now_ms)
        if denied is not None:
            return denied
    if command.continues and tx.run(c, command.run).status != RunStatus.WAITING:
        return Denied("run_waiting")
    row = ResponseRow.opened(command, tx.next_place("response", c.number), c.last_event)
    marks = ", ".join("?" * len(row))
    tx.execute(f"INSERT INTO response ({', '.join(row._fields)}) VALUES ({marks})", row)
    if command.key is not None:
        _remember(tx, command, command.key, row.place)
    return row.record(c.id)


_KEY: Final = "SELECT body_digest FROM response_key WHERE scope = ? AND key = ? AND expires_ms > ?"


def _repeats(tx: Transaction, key: StartKey, now_ms: int) -> Denied | None:
    under = (key.scope, key.key, now_ms)
    if tx.absent(_KEY, under):
        return None
    found = tx.one(_KEY, under)
    assert found is not None
    return Denied("response_known" if found[0] == pack(key.body_digest) else "idempotency_conflict")


def _remember(tx: Transaction, command: OpenResponse, key: StartKey, response: int) -> None:
    """Put a response under its key. Raises `Outrun`: something else has just come under it."""
    taken = tx.took(
        """INSERT INTO response_key (scope, key, response, body_digest, expires_ms)
        VALUES (?, ?, ?, ?, ?) ON CONFLICT (scope, key) DO UPDATE SET
          response = excluded.response, body_digest = excluded.body_digest,
          expires_ms = excluded.expires_ms
        WHERE response_key.expires_ms <= ? OR ? = 0""",
        (
            key.scope,
            key.key,
            response,
            pack(key.body_digest),
            key.expires_ms,
            command.now_ms,
            int(command.attach),
        ),
    )
    if not taken:
        raise Outrun


def delete(tx: Transaction, command: DeleteResponse) -> Response:
    """Mark the response as deleted."""
    c = tx.conversation(command.conversation)
    found = tx.one(RESPONSE + "WHERE r.id = ?", (command.response,))
    if found is None or conversation_of(found[1]) != c.number:
        raise NotFound("There is no such response in this conversation.", at=command.response)
    row = ResponseRow._make(found[1:])._replace(deleted=True)
    tx.execute("UPDATE response SET deleted = 1 WHERE place = ?", (row.place,))
    return row.record(c.id)
