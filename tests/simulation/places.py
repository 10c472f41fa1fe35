"""Where a simulated history is kept: a file, or PostgreSQL with a driver that fails.

The real store is behind both. PostgreSQL is a server with processes of its own, and a history on it
follows from its seed all the same: it is asked one thing at a time, between two steps of the
simulated process, by one writer, and nothing that a transition says depends on when it was asked. So
no second model of the database is needed, and what fails at the driver's boundary fails in the very
code that has to bear it.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol
from unittest import mock

from asyncpg import exceptions as pg

from antiphon.core.telling.examination import Check
from antiphon.stores.base import Store
from antiphon.stores.postgres import open_postgres, writer
from antiphon.stores.postgres.statements import PostgresStatements
from antiphon.stores.postgres.whole import whole
from antiphon.stores.sql.examine import examined
from antiphon.stores.sqlite import open_sqlite
from antiphon.stores.sqlite.examine import examine
from tests.simulation.chance import Chance

NewKey = Callable[[], bytes]


class Place(Protocol):
    """A kind of database, as a simulation needs it."""

    def open(self, new_key: NewKey) -> Awaitable[Store]:
        """Open it as another process would, which knows only what is stored."""

    def checks(self) -> list[Check]:
        """Return what `antiphon doctor` would say of it."""

    def at_work(self) -> AbstractContextManager[None]:
        """Let it fail, as it does, while a command is carried out."""

    def calm(self) -> None:
        """Let nothing fail any more."""


@dataclass(frozen=True, slots=True)
class File:
    """SQLite."""

    path: Path

    def open(self, new_key: NewKey) -> Awaitable[Store]:
        return open_sqlite(self.path, synchronous="OFF", new_key=new_key)

    def checks(self) -> list[Check]:
        return examine(self.path)

    def at_work(self) -> AbstractContextManager[None]:
        return nullcontext()

    def calm(self) -> None:
        """The weather before the store is all that fails here."""


FAULTS: Final = ("cut before", "cut after", "serialization", "deadlock")


@dataclass(slots=True)
class Driver:
    """How the driver of a writer fails: so often, of a thousand journeys to the server.

    A reader that fails is the weather's: what is read is asked again, or refused as unreadable.
    """

    chance: Chance
    of_thousand: float
    say: Callable[[str], None] = field(default=lambda line: None)
    _wait: Any = PostgresStatements.wait

    @contextmanager
    def between(self) -> Generator[None, None, None]:
        """Let every journey of this process pass here."""

        def wait(db: PostgresStatements, answer: Any) -> Any:
            return self._passed(db, answer)

        with (
            mock.patch.object(PostgresStatements, "wait", wait),
            mock.patch.object(writer, "ASK_EVERY_S", 0.0),
        ):
            yield

    def _passed(self, db: PostgresStatements, answer: Any) -> Any:
        writes = threading.current_thread().name.startswith("antiphon-writer")
        if not writes or db.connection.is_closed():
            return self._wait(db, answer)
        if not self.chance.of_hundred(self.of_thousand / 10):
            return self._wait(db, answer)
        fault = self.chance.one_of(FAULTS)
        self.say(f"driver: {fault}")
        match fault:
            case "cut before":
                answer.close()
                db.connection.terminate()
                raise ConnectionResetError("The connection broke before anything was sent.")
            case "cut after":
                self._wait(db, answer)
                db.connection.terminate()
                raise ConnectionResetError("The connection broke, and the server has done it.")
            case _ if not db.connection.is_in_transaction():
                return self._wait(db, answer)  # nobody can be in the way of nothing
            case "serialization":
                answer.close()
                raise pg.SerializationError("Another transaction was in the way.")
            case _:
                answer.close()
                raise pg.DeadlockDetectedError("Two transactions were in each other's way.")


@dataclass(frozen=True, slots=True)
class Shared:
    """PostgreSQL, in an empty database of its own."""

    address: str
    driver: Driver | None = None

    def open(self, new_key: NewKey) -> Awaitable[Store]:
        return open_postgres(self.address, count=1, new_key=new_key)

    def checks(self) -> list[Check]:
        with whole(self.address, source=True) as db:
            return examined(db)

    def at_work(self) -> AbstractContextManager[None]:
        return nullcontext() if self.driver is None else self.driver.between()

    def calm(self) -> None:
        if self.driver is not None:
            self.driver.of_thousand = 0.0
