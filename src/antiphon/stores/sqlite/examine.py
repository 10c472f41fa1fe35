"""Examining the file: is it sound, as far as SQLite can tell, and is everything in it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from antiphon.core.telling.examination import Check, Problem
from antiphon.stores.sql.examine import counted, examined
from antiphon.stores.sqlite.connections import check_readable, open_reader
from antiphon.stores.sqlite.statements import SqliteStatements

MOST_FILE_PROBLEMS: Final = 20

_BROKEN: Final = (sqlite3.DatabaseError, UnicodeDecodeError)
"""Where the schema itself is damaged, SQLite's own words may be no text."""


def examine(path: Path) -> list[Check]:
    """Return every check of the database at `path`.

    Raises:
        StoreError: It is not ours, or of another release.
        sqlite3.Error: It cannot even be opened.
    """
    check_readable(path)
    with closing(open_reader(path)) as db:
        db.execute("BEGIN")
        file = counted("file", partial(_file, db), _BROKEN)
        if file.problems:
            return [file]  # what else is wrong follows from that
        return [file, *examined(SqliteStatements(db), _BROKEN)]


def _file(db: sqlite3.Connection) -> Iterator[Problem | None]:
    for (told,) in db.execute(f"PRAGMA quick_check({MOST_FILE_PROBLEMS})"):
        yield None if told == "ok" else Problem(code="file_damaged", at="file", message=str(told))
    for table, row, target, _ in db.execute("PRAGMA foreign_key_check"):
        yield Problem(
            code="dangling_row",
            at=f"{table} {row}",
            message=f"It refers to a row of {target} that is not there.",
        )
