"""The schema in a file. Each migration is one transaction with the row that records it."""

from __future__ import annotations

import sqlite3
from typing import Final

from antiphon.errors import StoreError, StoreTooNew
from antiphon.stores.sql.migrations import TOO_OLD, known

APPLICATION_ID: Final = 0x416E7470
"""Stands in the file's header, so that a database of somebody else is never taken for ours."""

RECORD: Final = """
CREATE TABLE migration (
  number INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  applied_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
) STRICT
"""


def version(connection: sqlite3.Connection) -> int:
    """Return the number of the last migration of this database; 0 where it is empty.

    Raises:
        StoreTooNew: A newer release wrote it.
        StoreError: `foreign_database`: it is a database of some other program.
    """
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if not tables:
        return 0
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        raise StoreError("This database belongs to another program.", code="foreign_database")
    (number,) = connection.execute("SELECT max(number) FROM migration").fetchone()
    newest = known()[-1][0]
    if number > newest:
        raise StoreTooNew(
            f"A newer release wrote this database (schema {number}; this one knows {newest}). "
            "It was left as it is: use that release, or a newer one.",
            at=connection.execute("PRAGMA database_list").fetchone()[2] or None,
        )
    return int(number or 0)


def require(connection: sqlite3.Connection) -> None:
    """Look that what this release reads is in this database.

    Raises:
        StoreError: `store_too_old`: an older release wrote it, and nothing was opened to work
            in it since.
    """
    if any(number not in _applied(connection) for number, _, _ in known()):
        raise StoreError(TOO_OLD, code="store_too_old")


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the database to the newest schema."""
    version(connection)
    for number, name, statements in known():
        if number in _applied(connection):  # asked each time: the first one makes the record
            continue
        connection.execute("BEGIN IMMEDIATE")
        try:
            if number == 1:
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(RECORD)
            for statement in split(statements):
                connection.execute(statement)
            connection.execute("INSERT INTO migration (number, name) VALUES (?, ?)", (number, name))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _applied(connection: sqlite3.Connection) -> set[int]:
    """Return the numbers of those that are in this database: some were given out of turn."""
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'migration'").fetchone()
    if found is None:
        return set()
    return {number for (number,) in connection.execute("SELECT number FROM migration")}


def split(script: str) -> list[str]:
    """Return the statements of a script; `executescript` would commit between them."""
    statements, so_far = [], ""
    for line in script.splitlines(keepends=True):
        so_far += line
        if sqlite3.complete_statement(so_far):
            statements.append(so_far)
            so_far = ""
    return statements
