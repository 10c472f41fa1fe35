"""Keys of principals: they belong to no conversation, so they are no commands."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.core.ids import TenantId
from antiphon.core.traffic.keys import NO_TERMS, Key, KeyTerms, Right
from antiphon.errors import NotFound
from antiphon.stores.sql.packing import pack, unpack
from antiphon.stores.sql.statements import Statements
from antiphon.stores.sql.transaction import Transaction

_KEY = """
SELECT id, tenant, name, rights, secret_digest, created_ms, expires_ms, revoked_ms, terms
FROM principal_key
"""


def read(db: Statements) -> list[Key]:
    """Return every key, in the order in which they were made."""
    return [_record(row) for row in db.all(_KEY + "ORDER BY created_ms, id")]


def add(tx: Transaction, key: Key) -> Key:
    """Keep a new key."""
    tx.execute(
        """INSERT INTO principal_key
        (id, tenant, name, rights, secret_digest, created_ms, expires_ms, revoked_ms, terms)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            key.id,
            key.tenant,
            key.name,
            " ".join(sorted(key.rights)),
            pack(key.secret_digest),
            key.created_ms,
            key.expires_ms,
            key.revoked_ms,
            None if key.terms == NO_TERMS else msgspec.json.encode(key.terms),
        ),
    )
    return key


def revoke(tx: Transaction, key: str, now_ms: int) -> Key:
    """Take a key's power away; once revoked it stays as it was then.

    Raises:
        NotFound: There is none with this id.
    """
    tx.execute(
        "UPDATE principal_key SET revoked_ms = ? WHERE id = ? AND revoked_ms IS NULL",
        (now_ms, key),
    )
    row = tx.one(_KEY + "WHERE id = ?", (key,))
    if row is None:
        raise NotFound("There is no such key.", at=key)
    return _record(row)


def _record(row: tuple[Any, ...]) -> Key:
    return Key(
        id=row[0],
        tenant=TenantId(row[1]),
        name=row[2],
        rights=frozenset(Right(word) for word in row[3].split()),
        secret_digest=unpack(row[4]),
        created_ms=row[5],
        expires_ms=row[6],
        revoked_ms=row[7],
        terms=NO_TERMS if row[8] is None else msgspec.json.decode(row[8], type=KeyTerms),
    )
