"""The writer: one thread, one connection, one commit for all that waits.

While a commit is being flushed, requests gather; the next transaction takes them all, about 128
at most, each in a savepoint of its own, so that one that fails leaves no trace and the others
go on. Only after the commit does any caller hear of its result. The flush before is the window
in which a batch gathers. Only requests that nobody waits for (`submit`) know a timer: they are
held for a moment, to ride along with the next that comes.

Where something was erased, the write-ahead log is emptied: before whoever was promised so is told,
and otherwise soon, once for all that was erased by then.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from antiphon.core.dispatch import Denied
from antiphon.errors import AntiphonError, StoreError
from antiphon.stores.sql.known import Knowledge
from antiphon.stores.sql.recent import News, news_of
from antiphon.stores.sql.transaction import Erased, Transaction
from antiphon.stores.sqlite.connections import constraint, empty_log, not_durable, translated
from antiphon.stores.sqlite.statements import SqliteStatements

BATCH: Final = 128
LINGER_S: Final = 0.25
EMPTY_S: Final = 1.0
"""How long what was erased may stay in the log where nobody waits for its end."""


@dataclass(slots=True, eq=False)
class Request:
    """Work for the writer, and the future that waits for it."""

    work: Callable[[Transaction], Any]
    future: asyncio.Future[Any]
    waits: bool = True


@dataclass(slots=True)
class _Outcome:
    request: Request
    result: Any = None
    error: BaseException | None = None


class BatchLost(Exception):
    """The transaction of the whole batch is gone; nothing of it was kept."""


class Writer:
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
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._loop = loop
        self._new_key = new_key
        self._publish = publish
        self._tend = tend
        self._knowledge = Knowledge()
        self._linger_s = linger_s
        self._empty_at: float | None = None  # when the log has to be emptied
        self._held: list[Request] = []
        self._timer: asyncio.TimerHandle | None = None
        self._queue: queue.SimpleQueue[list[Request] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="antiphon-writer", daemon=True)
        self._closed = False

    def start(self) -> None:
        """Open the connection and begin; blocks, so call it off the loop."""
        self._connection = self._connect()
        self._thread.start()

    def put(self, request: Request) -> None:
        """Queue a request; called on the loop."""
        if self._closed:
            raise StoreError("The store is closed.", code="store_closed")
        self._held.append(request)
        if request.waits:
            self.nudge()
        elif self._timer is None:
            self._timer = self._loop.call_later(self._linger_s, self.nudge)

    def nudge(self) -> None:
        """Let what was queued linger no longer: somebody waits for it after all."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._held:
            self._queue.put(self._held)
            self._held = []

    def stop(self) -> None:
        """Take no more requests; what was queued is still carried out."""
        if not self._closed:
            self._closed = True
            self.nudge()

    def join(self) -> None:
        """After `stop`: close the connection once all is carried out, and wait for it; blocks."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        more = True
        while more:
            batch, more = self._gather()
            if batch:
                self._commit(batch)
            self._look_after()
        if self._connection is not None:
            self._connection.close()

    def _gather(self) -> tuple[list[Request], bool]:
        """Return the next requests, none where the log is to be emptied; and whether more may come."""
        batch: list[Request] = []
        left_s = None if self._empty_at is None else max(0.0, self._empty_at - time.monotonic())
        try:
            more = self._queue.get(timeout=left_s)
        except queue.Empty:
            return batch, True
        while more is not None:
            batch += more
            if len(batch) >= BATCH:
                return batch, True
            try:
                more = self._queue.get_nowait()
            except queue.Empty:
                return batch, True
        return batch, False

    def _commit(self, batch: list[Request]) -> None:
        news = News()
        try:
            connection = self._opened()
            connection.execute("BEGIN IMMEDIATE")
            tx = Transaction(SqliteStatements(connection), self._new_key, self._knowledge)
            alone = len(batch) == 1
            outcomes = [_carry_out(connection, tx, request, alone=alone) for request in batch]
            left = news_of(tx)
            connection.execute("COMMIT")
            self._knowledge.trim()
            news = left
            self._note_erased(news)
        except Exception as error:  # noqa: BLE001 - whatever it is, the thread goes on
            self._knowledge.clear()
            lost = not_durable(error.__cause__ if isinstance(error, BatchLost) else error)
            outcomes = [_Outcome(request, error=lost) for request in batch]
            self._recover()
        self._tell(news, outcomes)

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
        """Do what the file needs from time to time, once nobody waits for the commit."""
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

    def _tell(self, news: News, outcomes: list[_Outcome]) -> None:
        def deliver() -> None:
            try:
                self._publish(news)
            finally:  # a listener's fault is no reason to keep anybody waiting
                for outcome in outcomes:
                    _resolve(outcome)

        try:
            self._loop.call_soon_threadsafe(deliver)
        except RuntimeError:
            return  # the loop is closed: nobody is left to be told


def _resolve(outcome: _Outcome) -> None:
    future = outcome.request.future
    if future.done():  # its caller was canceled; the work was done all the same
        return
    if outcome.error is not None:
        future.set_exception(outcome.error)
    else:
        future.set_result(outcome.result)


def _carry_out(
    connection: sqlite3.Connection, tx: Transaction, request: Request, *, alone: bool
) -> _Outcome:
    """Do one request's work and undo it where it fails, and nothing else.

    One that is `alone` in its transaction needs no savepoint.

    Raises:
        BatchLost: SQLite has given up the whole transaction.
    """
    told, changed = len(tx.events), len(tx.messages)
    outcome = _Outcome(request)
    if not alone:
        connection.execute("SAVEPOINT request")
    tx.begin()
    try:
        outcome.result = request.work(tx)
        if not isinstance(outcome.result, Denied):
            tx.flush()
    except sqlite3.IntegrityError as error:
        outcome.result = Denied(constraint(error))
    except sqlite3.Error as error:
        if not connection.in_transaction or _is_fatal(error):
            raise BatchLost from error
        outcome.error = translated(error)
    except AntiphonError as error:
        outcome.error = error
    except Exception as error:  # noqa: BLE001 - the caller is told; the batch goes on
        outcome.error = error
    if outcome.error is not None or isinstance(outcome.result, Denied):
        if alone:
            connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
        else:
            connection.execute("ROLLBACK TO request")
        del tx.events[told:], tx.messages[changed:]
        tx.undo()
        for late in tx.late:
            tx.put_aside(late)
    tx.late.clear()
    if not alone:
        connection.execute("RELEASE request")
    return outcome


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
