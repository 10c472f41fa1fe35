"""The file's writer: the one connection that writes, with what it knows between transactions.

Where something was erased, the write-ahead log is emptied: before whoever was promised so is told,
and otherwise soon, once for all that was erased by then.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from typing import Final

from antiphon.core.dispatch import Denied
from antiphon.errors import AntiphonError
from antiphon.stores.sql.known import Knowledge
from antiphon.stores.sql.recent import News, news_of
from antiphon.stores.sql.transaction import Erased, Transaction
from antiphon.stores.sql.writer import (
    LINGER_S,
    Apart,
    BatchLost,
    BatchWriter,
    Outcome,
    Request,
    carry_out,
)
from antiphon.stores.sqlite.connections import constraint, empty_log, not_durable, translated
from antiphon.stores.sqlite.statements import SqliteStatements

EMPTY_S: Final = 1.0
"""How long what was erased may stay in the log where nobody waits for its end."""


class Writer(BatchWriter):
    """Carries out requests in the order in which they came."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        *,
        loop: asyncio.AbstractEventLoop,
        new_key: Callable[[], bytes],
        publish: Callable[[News], None],
        tend: Callable[[sqlite3.Connection], None] = lambda connection: None,
        linger_s: float = LINGER_S,
    ) -> None:
        super().__init__(loop=loop, publish=publish, linger_s=linger_s)
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._new_key = new_key
        self._tend = tend
        self._knowledge = Knowledge()
        self._empty_at: float | None = None  # when the log has to be emptied

    def _open(self) -> None:
        self._connection = self._connect()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _patience_s(self) -> float | None:
        return None if self._empty_at is None else max(0.0, self._empty_at - time.monotonic())

    def _commit(self, batch: list[Request]) -> tuple[News, list[Outcome]]:
        try:
            connection = self._opened()
            try:
                tx, outcomes = self._carried_out(connection, batch, apart=False)
            except Apart:
                tx, outcomes = self._carried_out(connection, batch, apart=True)
            news = news_of(tx)
            connection.execute("COMMIT")
            self._knowledge.trim()
            self._note_erased(news)
        except Exception as error:  # noqa: BLE001 - whatever it is, the thread goes on
            self._knowledge.clear()
            lost = not_durable(error.__cause__ if isinstance(error, BatchLost) else error)
            self._recover()
            return News(), [Outcome(request, error=lost) for request in batch]
        return news, outcomes

    def _carried_out(
        self, connection: sqlite3.Connection, batch: list[Request], *, apart: bool
    ) -> tuple[Transaction, list[Outcome]]:
        """Carry out a batch in a transaction that is still to be committed.

        Raises:
            Apart: A request is to be undone, and was not carried out apart from the others. Nothing
                of the batch is left.
        """
        connection.execute("BEGIN IMMEDIATE")
        tx = Transaction(SqliteStatements(connection), self._new_key, self._knowledge)
        requests = _Requests(connection, apart=apart)
        try:
            alone = len(batch) == 1
            outcomes = [carry_out(requests, tx, request, alone=alone) for request in batch]
            requests.end(tx)
        except Apart:
            tx.undo()
            connection.execute("ROLLBACK")
            raise
        return tx, outcomes

    def _note_erased(self, news: News) -> None:
        """See to it that what was erased is in the log no longer."""
        erased = [change for change in news.messages if isinstance(change, Erased)]
        if erased and self._empty_at is None:
            self._empty_at = time.monotonic() + EMPTY_S
        if any(change.at_once for change in erased):
            self._empty()

    def _empty(self) -> None:
        done = self._connection is None  # the next one begins with an empty log
        try:
            if self._connection is not None:
                done = empty_log(self._connection)
        except sqlite3.Error:
            self._recover()  # it is tried again
        self._empty_at = None if done else time.monotonic() + EMPTY_S

    def _look_after(self) -> None:
        if self._empty_at is not None and time.monotonic() >= self._empty_at:
            self._empty()
        if self._connection is None:
            return
        try:
            self._tend(self._connection)
        except (sqlite3.Error, OSError):
            self._recover()  # it is done the next time; nothing that was told depends on it

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _recover(self) -> None:
        """Leave no transaction open; where that fails, begin anew with another connection."""
        if self._connection is None:
            return
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._connection.close()
            self._connection = None


class _Requests:
    """Requests within a transaction of SQLite.

    `apart` each has a savepoint of its own, and what it changes is written before the next. That is
    for the few batches in which one is to be undone; in all others a row that several of them
    change is written once.
    """

    def __init__(self, connection: sqlite3.Connection, *, apart: bool) -> None:
        self._connection = connection
        self._apart = apart

    def savepoint(self, *, alone: bool) -> None:
        if self._apart and not alone:
            self._connection.execute("SAVEPOINT request")

    def undo(self, *, alone: bool) -> None:
        if alone:
            self._connection.execute("ROLLBACK")
            self._connection.execute("BEGIN IMMEDIATE")
        elif self._apart:
            self._connection.execute("ROLLBACK TO request")
        else:
            raise Apart

    def settle(self, tx: Transaction, *, alone: bool) -> None:
        if self._apart or alone:
            tx.flush()

    def release(self, *, alone: bool) -> None:
        if self._apart and not alone:
            self._connection.execute("RELEASE request")

    def end(self, tx: Transaction) -> None:
        """Write what is held still. Raises `Apart`: one of the requests may not be kept."""
        try:
            tx.flush()
        except (sqlite3.IntegrityError, ValueError, OverflowError):
            raise Apart from None  # a constraint, or a value that no column holds

    def judge(self, error: Exception) -> Denied | AntiphonError | None:
        match error:
            case sqlite3.IntegrityError():
                return Denied(constraint(error))
            case sqlite3.Error():
                if not self._connection.in_transaction or _is_fatal(error):
                    raise BatchLost from error
                return translated(error)
            case _:
                return None


def _is_fatal(error: sqlite3.Error) -> bool:
    """Whether nothing after this error can be trusted to be kept."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_BUSY,
    )
