"""Connections to the file, and the one place where SQLite's errors become ours."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from antiphon.errors import NotDurable, StoreError
from antiphon.stores.sqlite.schema import migrate, require, version

OLDEST_SQLITE: Final = (3, 39, 0)
"""IS NOT DISTINCT FROM; STRICT tables and RETURNING came before."""

PAGE_BYTES: Final = 512
"""A commit writes whole pages, and it touches some fifteen trees with a short row in each. A
turn with a tool writes 47 kB with pages of 512 bytes, 75 with 1,024 and 240 with 4,096."""

LOG_BYTES: Final = 1 << 20
"""How long the write-ahead log grows before it is copied into the file."""

SHORT_WAIT_MS: Final = 100
LONG_WAIT_MS: Final = 5_000
"""How long a lock of somebody else is waited for: where it is done again soon, and otherwise."""

MAPPED_BYTES: Final = 256 << 20
"""How much of the file readers map into memory: a long line is many small pages."""

_WAL_RESET_FIXED: Final = ((3, 44, 6), (3, 50, 7), (3, 51, 3))


def has_wal_reset_bug(sqlite: tuple[int, ...]) -> bool:
    """Whether this SQLite may corrupt a WAL database that two connections checkpoint.

    From 3.7.0 to 3.51.2, except where it was fixed in a 3.44 or 3.50 release. We are safe
    from it as long as a single connection of a single process writes, which the lock file
    sees to; a tool that writes to the file beside us is not.

    Example:
        >>> has_wal_reset_bug((3, 40, 1)), has_wal_reset_bug((3, 50, 7))
        (True, False)
    """
    if sqlite < (3, 7, 0) or sqlite >= _WAL_RESET_FIXED[-1]:
        return False
    return not any(fixed[:2] == sqlite[:2] and sqlite >= fixed for fixed in _WAL_RESET_FIXED)


def uri(path: Path, mode: str) -> str:
    """Return the URI of the file, whatever characters its name has."""
    return f"file:{quote(str(path.absolute()))}?mode={mode}"


def _read_uri(path: Path) -> str:
    """Return the URI for reading.

    SQLite wants to put files of its own beside a database with a log, even to read it. Where
    it may not, as on a medium that is read-only, and nobody has left or opened a log, the file
    is all there is.
    """
    alone = not os.access(path.parent, os.W_OK) and not os.path.exists(f"{path}-wal")
    return uri(path, "ro&immutable=1" if alone else "ro")


def open_writer(
    path: Path, *, synchronous: str = "FULL", page_bytes: int = PAGE_BYTES
) -> sqlite3.Connection:
    """Open the one connection that writes, with the newest schema.

    Raises:
        StoreError: The file cannot be used; `code` says why. It was not changed.
    """
    check_file(path)
    connection = sqlite3.connect(
        uri(path, "rwc"),
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    try:
        connection.execute(f"PRAGMA page_size = {page_bytes}")  # counts for a new file only
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        # Not within a commit, which somebody waits for, but after it: see `shorten_log`.
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        # Begun anew, it is written over in place: a flush that makes a file longer takes half as
        # long again. Of what was erased nothing stays behind its new end: see `empty_log`.
        connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        connection.execute("PRAGMA foreign_keys = ON")
        # What is deleted or moved is overwritten: an erasure is of no use while a free page has it.
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA busy_timeout = {LONG_WAIT_MS}")
        migrate(connection)
        empty_log(connection)  # a process that died may have left in it what it had erased
    except BaseException:
        connection.close()
        raise
    return connection


def shorten_log(connection: sqlite3.Connection, path: Path) -> None:
    """Copy the write-ahead log into the file if it has grown long; it then begins anew.

    Readers hinder neither this nor each other: what they still need is copied the next time.
    """
    try:
        long = os.stat(f"{path}-wal").st_size > LOG_BYTES  # after every commit: no path objects
    except FileNotFoundError:
        return
    if long:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def empty_log(connection: sqlite3.Connection) -> bool:
    """Copy the whole write-ahead log into the file and leave nothing in it.

    A reader that is at work may need it still: then it stays as it is, and this returns False.
    """
    connection.execute(f"PRAGMA busy_timeout = {SHORT_WAIT_MS}")
    try:
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {LONG_WAIT_MS}")
    return not busy


def open_reader(path: Path) -> sqlite3.Connection:
    """Open a connection that can only read, also while another process writes."""
    connection = sqlite3.connect(
        _read_uri(path),
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=128,
    )
    connection.execute("PRAGMA query_only = ON")
    connection.execute(f"PRAGMA mmap_size = {MAPPED_BYTES}")
    connection.execute(f"PRAGMA busy_timeout = {LONG_WAIT_MS}")
    return connection


def check_file(path: Path) -> int:
    """Look at the file without changing it and return its schema's number; 0 if it is new.

    Raises:
        StoreError: It is not ours, or cannot be used.
    """
    if path.is_dir():
        raise StoreError("This is a directory.", code="is_a_directory", at=str(path))
    if not path.parent.is_dir():
        raise StoreError("The directory does not exist.", code="no_such_directory", at=str(path))
    if not path.exists() or path.stat().st_size == 0:
        return 0
    with closing(sqlite3.connect(_read_uri(path), uri=True, isolation_level=None)) as connection:
        return version(connection)


def check_readable(path: Path) -> None:
    """Look that there is a database that this release can read as it stands.

    Raises:
        StoreError: `no_such_database`, `store_too_old`, or it cannot be used.
    """
    if check_file(path) == 0:
        raise StoreError(NOTHING_HERE, code="no_such_database", at=str(path))
    with closing(open_reader(path)) as connection:
        require(connection)


NOTHING_HERE: Final = (
    "There is no database here; a server or a chat makes one, and --db names another."
)

_CODES: Final = {
    sqlite3.SQLITE_FULL: "disk_full",
    sqlite3.SQLITE_READONLY: "read_only",
    sqlite3.SQLITE_CANTOPEN: "cannot_open",
    sqlite3.SQLITE_PERM: "cannot_open",
    sqlite3.SQLITE_NOTADB: "not_a_database",
    sqlite3.SQLITE_CORRUPT: "corrupt",
    sqlite3.SQLITE_BUSY: "store_busy",
    sqlite3.SQLITE_LOCKED: "store_busy",
    sqlite3.SQLITE_IOERR: "io_error",
}

_WORDS: Final = {
    "disk_full": "The disk is full, or the database has reached its limit.",
    "read_only": "The database cannot be written to.",
    "cannot_open": "The file cannot be opened.",
    "not_a_database": "The file is no SQLite database.",
    "corrupt": "The database is damaged.",
    "store_busy": "Another program holds the database.",
    "io_error": "Reading or writing the database failed.",
}


def translated(error: sqlite3.Error | OSError, at: str | None = None) -> StoreError:
    """Return our error for one of SQLite's or of the file system's."""
    code = code_of(error)
    words = _WORDS.get(code, f"The database failed: {error}")
    if code == "cannot_open" and at is not None:
        words += _hindrance(Path(at))
    return StoreError(words, code=code, at=at)


def _hindrance(path: Path) -> str:
    """Return what keeps a file from being opened, as far as the file system tells."""
    if os.path.exists(path) and not os.access(path, os.R_OK):
        return " This user may not read it."
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return (
            f" It needs others beside it, and this user may not write in {path.parent.absolute()}."
        )
    return ""


def not_durable(error: BaseException | None) -> NotDurable:
    """Return what each request of a failed batch is told."""
    code = error.code if isinstance(error, StoreError) else code_of(error)
    return NotDurable(
        f"Nothing was written. {_WORDS.get(code, f'The database failed: {error}')}",
        code=code if code in _WORDS else None,
    )


def code_of(error: BaseException | None) -> str:
    """Return the stable code for an error of SQLite."""
    if isinstance(error, PermissionError):
        return "cannot_open"
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return _CODES.get(primary, "store_error")


_CONSTRAINT: Final = re.compile(r"constraint failed: (?:index ')?([A-Za-z0-9_., ]+)")
_INDEXES: Final = {
    "conversation.id": "conversation_id",
    "run.id": "run_id",
    "response.id": "response_id",
    "manifest.operation": "manifest_operation",
    "call.run, call.call_id": "call_id",
    "attempt.manifest, attempt.number": "attempt_number",
}


def constraint(error: sqlite3.IntegrityError) -> str:
    """Return the name of the constraint that refused a row.

    SQLite names checks and indexes over expressions, but only the columns of other indexes,
    and no foreign key at all.
    """
    match = _CONSTRAINT.search(str(error))
    if match is None:
        return "foreign_key"
    return _INDEXES.get(match[1], match[1])
