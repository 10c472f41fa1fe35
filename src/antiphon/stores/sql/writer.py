"""A thread that carries out commands: one commit for all that waits, each request apart.

While a commit is being flushed, requests gather; the next transaction takes them all. One that
fails leaves no trace, and the others go on. Only after the
commit does any caller hear of its result. The flush before is the window in which a batch
gathers, and what one turn of the event loop asks for goes to the thread at once. Only requests
that nobody waits for (`submit`) know a timer: they are held for a moment, to ride along with the
next that comes.

What is the database's own is a subclass: how a transaction begins, what its errors mean.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from antiphon.core.dispatch import Denied
from antiphon.core.ids import ConversationId
from antiphon.errors import AntiphonError, StoreError
from antiphon.stores.sql.recent import News
from antiphon.stores.sql.transaction import Outrun, Transaction

BATCH: Final = 128
LINGER_S: Final = 0.25


@dataclass(slots=True, eq=False)
class Request:
    """Work for a writer, what it is about, and the future that waits for it."""

    work: Callable[[Transaction], Any]
    future: asyncio.Future[Any]
    waits: bool = True
    about: Sequence[ConversationId] = ()


@dataclass(slots=True)
class Outcome:
    """What became of a request: a result, or an error."""

    request: Request
    result: Any = None
    error: BaseException | None = None

    @property
    def undone(self) -> bool:
        """Whether nothing of it is kept."""
        return self.error is not None or isinstance(self.result, Denied)


class BatchLost(Exception):
    """The transaction of the whole batch is gone; nothing of it was kept."""


class Apart(Exception):
    """A request is to be undone: its batch is carried out again, each request apart."""


class Savepoints(Protocol):
    """What a connection does so that one request of a batch can be undone."""

    def savepoint(self, *, alone: bool) -> None:
        """Begin a request; one that is `alone` in its transaction needs no savepoint."""

    def undo(self, *, alone: bool) -> None:
        """Undo the request in the database; its transaction goes on, empty where `alone`.

        Raises:
            Apart: It cannot be undone without those before it.
        """

    def settle(self, tx: Transaction, *, alone: bool) -> None:
        """See to it that the database has judged all that the request did, or will in time."""

    def release(self, *, alone: bool) -> None:
        """End the request, whatever became of it."""

    def judge(self, error: Exception) -> Denied | AntiphonError | None:
        """Return what an error of the database means; None where it is none of its own.

        Raises:
            BatchLost: The whole transaction is given up.
            Outrun: The whole transaction is to be done anew.
        """


def carry_out(connection: Savepoints, tx: Transaction, request: Request, *, alone: bool) -> Outcome:
    """Do one request's work and undo it where it fails, and nothing else.

    Raises:
        Apart: It is to be undone, and cannot be without those before it.
        BatchLost: The database has given up the whole transaction.
        Outrun: Another node was first with something: all is to be done anew.
    """
    told, changed = len(tx.events), len(tx.messages)
    outcome = Outcome(request)
    connection.savepoint(alone=alone)
    try:
        outcome.result = request.work(tx)
        if not isinstance(outcome.result, Denied):
            connection.settle(tx, alone=alone)
    except AntiphonError as error:
        outcome.error = error
    except Outrun:
        raise
    except Exception as error:  # noqa: BLE001 - the caller is told; the batch goes on
        meant = connection.judge(error)
        if isinstance(meant, Denied):
            outcome.result = meant
        else:
            outcome.error = meant or error
    if outcome.undone:
        connection.undo(alone=alone)
        del tx.events[told:], tx.messages[changed:]
        tx.undo()
        for late in tx.late:
            tx.put_aside(late)
        if tx.late:
            tx.flush()
    tx.late.clear()
    connection.release(alone=alone)
    return outcome


class BatchWriter(ABC):
    """Carries out requests in the order in which they came, batch by batch, in its own thread."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        publish: Callable[[News], None],
        linger_s: float = LINGER_S,
        batch: int = BATCH,
        name: str = "antiphon-writer",
    ) -> None:
        self._loop = loop
        self._publish = publish
        self._linger_s = linger_s
        self._batch = batch
        self._held: list[Request] = []
        self._timer: asyncio.TimerHandle | None = None
        self._leaving = False
        self._queue: queue.SimpleQueue[list[Request] | None] = queue.SimpleQueue()
        self._taken: list[Request] = []  # by the thread
        self._more = True
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._closed = False

    # What the database does.

    @abstractmethod
    def _open(self) -> None:
        """Make the connection, so that what is wrong with it is told at once."""

    @abstractmethod
    def _commit(self, batch: list[Request]) -> tuple[News, list[Outcome]]:
        """Carry out a batch, durably; never raises."""

    def _look_after(self) -> None:  # noqa: B027 - most databases look after themselves
        """Do what is needed from time to time, once nobody waits for the commit."""

    def _patience_s(self) -> float | None:
        """Return after how long without a request `_look_after` wants to be called."""
        return None

    @abstractmethod
    def _close(self) -> None:
        """Let go of the connection."""

    # What all writers do.

    def start(self) -> None:
        """Open the connection and begin; blocks, so call it off the loop."""
        self._open()
        self._thread.start()

    def put(self, request: Request) -> None:
        """Queue a request; called on the loop."""
        if self._closed:
            raise StoreError("The store is closed.", code="store_closed")
        self._held.append(request)
        if not request.waits:
            if self._timer is None:
                self._timer = self._loop.call_later(self._linger_s, self.nudge)
        elif not self._leaving:
            self._leaving = True  # with all that comes in the same turn of the loop
            self._loop.call_soon(self.nudge)

    def nudge(self) -> None:
        """Let what was queued linger no longer: somebody waits for it after all."""
        self._leaving = False
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
        while self._more or self._taken:
            batch = self._gather()
            if batch:
                self._tell(*self._commit(batch))
            self._look_after()
        self._close()

    def _gather(self) -> list[Request]:
        """Return the next requests, as many as one batch takes; none after `_patience_s`."""
        while self._more and len(self._taken) < self._batch:
            try:
                some = self._queue.get(block=not self._taken, timeout=self._patience_s())
            except queue.Empty:
                break
            if some is None:
                self._more = False
            else:
                self._taken += some
        batch = self._taken[: self._batch]
        del self._taken[: self._batch]
        return batch

    def _tell(self, news: News, outcomes: list[Outcome]) -> None:
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


def _resolve(outcome: Outcome) -> None:
    future = outcome.request.future
    if future.done():  # its caller was canceled; the work was done all the same
        return
    if outcome.error is not None:
        future.set_exception(outcome.error)
    else:
        future.set_result(outcome.result)
