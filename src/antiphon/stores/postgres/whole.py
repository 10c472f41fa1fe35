"""A database in one transaction, for what moves all of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from antiphon.stores.addresses import shown
from antiphon.stores.postgres.connections import (
    PROBLEMS,
    close_connection,
    open_connection,
    translated,
)
from antiphon.stores.postgres.schema import migrate, require
from antiphon.stores.postgres.statements import PostgresStatements


@contextmanager
def whole(address: str, *, source: bool) -> Iterator[PostgresStatements]:
    """See the database as it stands now; what was written is kept if the block ends well.

    Nodes may go on working in a source: they are not in this picture of it.

    Raises:
        StoreError: `no_such_database`, or it cannot be used.
    """
    db = open_connection(address)
    try:
        if source:
            require(db)
        migrate(db)
        # The other database may keep us waiting.
        db.script("SET idle_in_transaction_session_timeout = 0")
        db.script("BEGIN ISOLATION LEVEL REPEATABLE READ")
        yield db
        db.script("COMMIT")
    except PROBLEMS as error:
        raise translated(error, shown(address)) from None
    finally:
        close_connection(db)
