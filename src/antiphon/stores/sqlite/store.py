"""The store on one SQLite file: one process has it, one connection writes."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from antiphon.errors import StoreError
from antiphon.stores.sql.readers import Readers
from antiphon.stores.sql.recent import News, Recent
from antiphon.stores.sql.store import SqlStore
from antiphon.stores.sql.writer import LINGER_S
from antiphon.stores.sqlite.connections import (
    OLDEST_SQLITE,
    PAGE_BYTES,
    check_file,
    check_readable,
    has_wal_reset_bug,
    open_writer,
    shorten_log,
    translated,
)
from antiphon.stores.sqlite.lock import FileLock
from antiphon.stores.sqlite.readers import READERS, FileReader
from antiphon.stores.sqlite.writer import Writer

MEMORY: Final = ":memory:"

log = logging.getLogger("antiphon.stores.sqlite")


async def open_sqlite(
    path: str | os.PathLike[str],
    *,
    read_only: bool = False,
    synchronous: str = "FULL",
    page_bytes: int = PAGE_BYTES,
    linger_s: float = LINGER_S,
    new_key: Callable[[], bytes] = secrets.token_bytes,
) -> SqlStore:
    """Open the store at `path`, made if it is not there. Nothing is left open on an error.

    Args:
        path: The file; `:memory:` for a store that goes with its process (it is a temporary
            file, so that it behaves like any other).
        read_only: Take no lock and change nothing; works while another process writes.
        synchronous: `FULL`, or for benchmarks `NORMAL` or `OFF`, which may lose what was
            acknowledged when the machine loses power.
        page_bytes: Size of the file's pages, for a new file.
        linger_s: How long submitted commands may wait for company.
        new_key: Where tenants' digest keys come from.

    Raises:
        StoreLocked: Another process has it.
        StoreTooNew: A newer release wrote it.
        StoreError: It cannot be used; `code` says why.
    """
    loop = asyncio.get_running_loop()
    store: SqlStore | None = None

    def publish(news: News) -> None:
        if store is not None:
            store.publish(news)

    def opened() -> SqlStore:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise StoreError(
                f"SQLite {sqlite3.sqlite_version} is too old; 3.39 or newer is needed.",
                code="sqlite_too_old",
            )
        if os.fspath(path) == MEMORY:
            folder = Path(tempfile.mkdtemp(prefix="antiphon-"))
            return writable(
                folder / "memory.db", "OFF", partial(shutil.rmtree, folder, ignore_errors=True)
            )
        if read_only:
            return _readable(Path(path))
        lock = FileLock(Path(path))
        check_file(Path(path))
        lock.acquire()
        try:
            return writable(Path(path), synchronous, lock.release)
        except BaseException:
            lock.release()
            raise

    def writable(file: Path, level: str, release: Callable[[], None]) -> SqlStore:
        writer = Writer(
            partial(open_writer, file, synchronous=level, page_bytes=page_bytes),
            loop=loop,
            new_key=new_key,
            publish=publish,
            tend=partial(shorten_log, path=file),
            linger_s=linger_s,
        )
        writer.start()
        return SqlStore(writer, _readers(file), release, recent=Recent())

    try:
        store = await loop.run_in_executor(None, opened)
    except (sqlite3.Error, OSError) as error:
        raise translated(error, os.fspath(path)) from None
    if not read_only:
        _note_the_wal_reset_bug()
    return store


def _readable(file: Path) -> SqlStore:
    check_readable(file)
    return SqlStore(None, _readers(file))


def _readers(file: Path) -> Readers:
    return Readers(partial(FileReader, file), READERS)


_noted = False


def _note_the_wal_reset_bug() -> None:
    """Say once per process that a tool writing beside us could do harm with this SQLite.

    No warning, because Antiphon itself is safe from it; `antiphon doctor` tells it too.
    """
    global _noted
    if not _noted and has_wal_reset_bug(sqlite3.sqlite_version_info):
        _noted = True
        log.info(
            "SQLite %s can damage a database that two connections write to at the same time "
            "(fixed in 3.51.3). Antiphon writes through one; do not write to the file with "
            "other tools while it runs.",
            sqlite3.sqlite_version,
        )
