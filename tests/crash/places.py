"""Where the conversations of a killed process are kept, and what is read there from outside.

A file has one process at a time: the next one follows the dead one. A database of PostgreSQL is
shared: another node stands by while the first is killed, and takes over what it held.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final, Protocol

from tests.support.postgres import Server, shared_server

LONG_LEASE_S: Final = 600.0
"""The lease of who is to be killed: it lives until it is killed, however busy the machine."""

SHORT_LEASE_S: Final = 1.0
"""The lease of who takes over: it looks four times in this time."""

ATTEMPTS: Final = """
SELECT m.operation, CASE WHEN a.state = 'FAILED' AND a.proof IS NOT NULL THEN 'ENDED'
  ELSE a.state END
FROM attempt AS a JOIN manifest AS m ON m.place = a.manifest ORDER BY a.number
"""
CALLS: Final = "SELECT call_id, state FROM call"

Stored = tuple[dict[str, str], dict[str, str]]


class Place(Protocol):
    """A kind of database, as a proof needs it."""

    shared: bool
    """Whether another node works in it while one is killed."""

    def new(self, folder: Path) -> str:
        """Return the address of an empty database of its own for a story that lies in `folder`."""

    def stored(self, address: str) -> Stored:
        """Return the states of attempts and calls as a dead process left them, read with plain SQL."""

    def gone(self, address: str) -> None:
        """Let the time pass for which others wait for a dead node."""

    def done(self, address: str) -> None:
        """Nobody is connected any more; what is there may go."""


class Files:
    """SQLite: a file in the story's folder."""

    shared = False

    def new(self, folder: Path) -> str:
        return str(folder / "talk.db")

    def stored(self, address: str) -> Stored:
        if not Path(address).exists():
            return {}, {}
        with closing(sqlite3.connect(f"file:{address}?mode=ro", uri=True)) as connection:
            try:
                attempts = dict(connection.execute(ATTEMPTS).fetchall())
                calls = dict(connection.execute(CALLS).fetchall())
            except sqlite3.OperationalError:
                return {}, {}  # it died before the tables were made
        return attempts, calls

    def gone(self, address: str) -> None:
        """Nobody waits: who opens the file knows that the one before is dead."""

    def done(self, address: str) -> None:
        """It goes with the folder."""


class Databases:
    """PostgreSQL: a database of the one server that the tests share."""

    shared = True

    def __init__(self) -> None:
        self._server: Server = shared_server()

    def new(self, folder: Path) -> str:
        return self._server.database()

    def stored(self, address: str) -> Stored:
        if not self._ask(address, "SELECT to_regclass('antiphon.attempt')"):
            return {}, {}
        attempts, calls = (
            dict(line.split("|", 1) for line in self._ask(address, query).splitlines())
            for query in (ATTEMPTS, CALLS)
        )
        return attempts, calls

    def gone(self, address: str) -> None:
        self._ask(
            address,
            "UPDATE node SET lease_until_ms = 1 "
            f"WHERE lease_until_ms > extract(epoch FROM clock_timestamp()) * 1000 + {60_000}",
        )

    def done(self, address: str) -> None:
        self._server.give_back(address)

    def _ask(self, address: str, query: str) -> str:
        name = address.rpartition("/")[2]
        return self._server.sql(f"SET search_path = antiphon; {query}", name)
