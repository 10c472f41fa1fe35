"""The whole file in one hand and one transaction, for what moves all of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from antiphon.errors import StoreError
from antiphon.stores.sqlite.connections import NOTHING_HERE, check_file, open_writer, translated
from antiphon.stores.sqlite.lock import FileLock
from antiphon.stores.sqlite.statements import SqliteStatements


@contextmanager
def whole(path: Path, *, source: bool) -> Iterator[SqliteStatements]:
    """Hold the database alone; what was written is kept if the block ends well, else nothing of it.

    Args:
        path: The file; made where it is a target that is not there.
        source: It has to be there already.

    Raises:
        StoreLocked: Another process has it.
        StoreError: `no_such_database`, or it cannot be used.
    """
    new = check_file(path) == 0
    if new and source:
        raise StoreError(NOTHING_HERE, code="no_such_database", at=str(path))
    lock = FileLock(path)
    lock.acquire()
    kept = False
    try:
        with closing(_opened(path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield SqliteStatements(connection)
                connection.execute("COMMIT")
                kept = True
            except sqlite3.Error as error:
                raise translated(error, str(path)) from None
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
    finally:
        if new and not kept:
            path.unlink(missing_ok=True)  # it holds nothing but our tables
        lock.release()


def _opened(path: Path) -> sqlite3.Connection:
    try:
        return open_writer(path)
    except (sqlite3.Error, OSError) as error:
        raise translated(error, str(path)) from None
