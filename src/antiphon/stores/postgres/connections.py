"""Connections to PostgreSQL, and the one place where its errors become ours."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Final
from weakref import WeakKeyDictionary

import asyncpg
from asyncpg import exceptions as pg

from antiphon.errors import InvalidInput, NotDurable, StoreError
from antiphon.stores.addresses import shown
from antiphon.stores.postgres.schema import SCHEMA
from antiphon.stores.postgres.statements import PostgresStatements

CONNECT_S: Final = 5.0
ANSWER_S: Final = 60.0
"""How long an answer is waited for before the connection counts as lost. Some questions take long:
that the database has fallen silent is noticed by the node's own beat, and much sooner."""

IDLE_MS: Final = 3_000
"""A process that is frozen in a transaction holds its locks no longer than this."""

LOCK_MS: Final = 10_000

STATEMENTS: Final = 512
"""How many prepared statements a connection keeps."""


def open_connection(address: str) -> PostgresStatements:
    """Connect, on an event loop of its own; blocks.

    Raises:
        StoreError: `database_unreachable`, or what else is wrong with it.
    """
    loop = asyncio.new_event_loop()
    try:
        db = PostgresStatements(loop.run_until_complete(connect(address)), loop)
        _check(db)
    except BaseException as error:
        loop.close()
        if isinstance(error, PROBLEMS):
            raise translated(error, shown(address)) from None
        raise
    return db


class Connections:
    """Those of one process to its database, which are given up together where it falls silent."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._opened: WeakKeyDictionary[PostgresStatements, float] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def open(self) -> PostgresStatements:
        """Open one more; blocks, as `open_connection` does."""
        db = open_connection(self.address)
        with self._lock:
            self._opened[db] = time.monotonic()
        return db

    def give_up(self, silent_since: float) -> None:
        """Wait for no answer on those that are older than the silence; from any thread."""
        with self._lock:
            old = [db for db, opened in self._opened.items() if opened <= silent_since]
        for db in old:
            db.give_up()


async def connect(address: str, answer_s: float = ANSWER_S) -> asyncpg.Connection[asyncpg.Record]:
    """Connect, as every connection of ours is."""
    return await asyncpg.connect(
        address,
        timeout=CONNECT_S,
        command_timeout=answer_s,
        statement_cache_size=STATEMENTS,
        max_cached_statement_lifetime=0,
        server_settings={
            "application_name": "antiphon",
            "search_path": SCHEMA,
            "idle_in_transaction_session_timeout": str(IDLE_MS),
            "standard_conforming_strings": "on",
            "lock_timeout": str(LOCK_MS),
            "default_transaction_isolation": "read committed",
        },
    )


def _check(db: PostgresStatements) -> None:
    """See to it that the server keeps what it acknowledges, and any text."""
    row = db.one("SELECT current_setting('server_encoding'), current_setting('synchronous_commit')")
    assert row is not None
    if row[0] != "UTF8":
        raise StoreError(
            f"The database stores texts in {row[0]}; it has to be UTF8.", code="database_encoding"
        )
    if row[1] == "off":
        db.script("SET synchronous_commit = on")


def close_connection(db: PostgresStatements) -> None:
    """Let go of a connection, whatever state it is in."""
    try:
        db.wait(db.connection.close(timeout=CONNECT_S))
    except PROBLEMS:
        db.connection.terminate()
    finally:
        db.close()


log = logging.getLogger("antiphon.stores.postgres")

PROBLEMS: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
    ValueError,
    OverflowError,
)
"""Whatever asyncpg and the network raise."""

LOST: Final = (
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the driver's word for a server that ends between two messages
    pg.PostgresConnectionError,
    pg.OperatorInterventionError,
    pg.IdleInTransactionSessionTimeoutError,
    OSError,
    TimeoutError,
)
"""After these the connection is of no use; what it was doing was not committed by them."""

AGAIN: Final = (pg.DeadlockDetectedError, pg.SerializationError)
"""Another node was in the way: the same may go well now."""


REFUSED: Final = (
    pg.DataError,
    pg.CardinalityViolationError,
    pg.IntegrityConstraintViolationError,
    pg.SyntaxOrAccessError,
)
"""A statement of some request is at fault: one that divides by zero foresaw what is not so."""


def answered(error: BaseException) -> bool:
    """Whether the server has answered with this, and lives: what it was asked is undone."""
    return (
        isinstance(error, asyncpg.PostgresError)
        and not isinstance(error, LOST)
        and error.severity_en not in ("FATAL", "PANIC")
    )


def _code(error: BaseException) -> str:
    match error:
        case pg.DiskFullError() | pg.OutOfMemoryError():
            return "disk_full"
        case pg.ReadOnlySQLTransactionError():
            return "read_only"
        case pg.LockNotAvailableError() | pg.QueryCanceledError():
            return "store_busy"
        case pg.TooManyConnectionsError():
            return "too_many_connections"
        case pg.InvalidCatalogNameError():
            return "no_such_database"
        case pg.InvalidAuthorizationSpecificationError() | pg.InsufficientPrivilegeError():
            return "database_refused"
        case asyncpg.PostgresError() if not isinstance(error, LOST):
            return "store_error"
        case _:
            return "database_unreachable"


_WORDS: Final = {
    "disk_full": "The database server has no room left.",
    "read_only": "The database cannot be written to; it may be a standby.",
    "store_busy": "Another program holds what was asked for in the database.",
    "too_many_connections": "The database server takes no more connections.",
    "no_such_database": "There is no such database on the server.",
    "database_refused": "The database server does not let this user in.",
    "database_unreachable": "The database server cannot be reached, or went away.",
}


def translated(error: BaseException, at: str | None = None) -> StoreError:
    """Return our error for one of PostgreSQL's or of the network's."""
    code = _code(error)
    log.debug("PostgreSQL: %r", error)
    # The server's own words may quote what was said in a conversation: its number must do.
    state = getattr(error, "sqlstate", None) or type(error).__name__
    return StoreError(_WORDS.get(code, f"The database failed ({state})."), code=code, at=at)


def not_durable(error: BaseException) -> NotDurable:
    """Return what each request of a failed batch is told."""
    meant = error if isinstance(error, StoreError) else translated(error)
    return NotDurable(
        f"Nothing was written. {meant.message}",
        code=meant.code if meant.code in _WORDS else None,
    )


def undone(error: asyncpg.PostgresError) -> StoreError:
    """Return what one request is told that was undone; what may go well later may be tried again."""
    return not_durable(error) if _code(error) in _WORDS else translated(error)


def unstorable(error: Exception) -> InvalidInput | None:
    """Return what a value that PostgreSQL cannot hold means to who brought it."""
    if isinstance(error, (pg.CharacterNotInRepertoireError, pg.UntranslatableCharacterError)):
        return InvalidInput("A text holds a NUL character.", code="nul_character")
    return None


def constraint(error: pg.IntegrityConstraintViolationError) -> str:
    """Return the name of the constraint that refused a row."""
    name = str(error.constraint_name or "")
    if isinstance(error, pg.ForeignKeyViolationError):
        return "foreign_key"
    return _PRIMARY.get(name, name)


_PRIMARY: Final = {"attempt_pkey": "attempt_number"}
