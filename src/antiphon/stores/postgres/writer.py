"""Writers: a few threads with a connection each; a conversation's commands go to one of them.

A transaction first compares this node's epoch and locks the rows of the conversations that its
batch is about, in the order of their ids, so that nodes cannot lock each other out. While they
are locked nothing of these conversations changes but here, and what the batch has read of them
stays true to its end. Its last statement touches these rows: so whoever finds the row as his own
last transaction has left it knows that all else is as it was, too, and need not read it again.

Statements that wait for no answer are held back and sent together (`PostgresStatements`): what a
transition costs is journeys to the server. A batch is first carried out on what is foreseen: that
each attempt moves by the row of the table that its command means, and that nothing is a repetition.
The statements carry the conditions all the same, and go to the server together, with the commit
behind them: three journeys for a batch of any size. What its requests say alike of their different
conversations goes as one statement over all of these rows (`gathering`). Where one does not do as foreseen, nothing is
kept, and the batch is carried out anew with every answer awaited.

The node's own row is held too, weakly: whoever declares this node dead waits for the transactions
that it has begun, and lets it begin no other. So a node that was frozen, and wakes up, changes
nothing any more.

Where the connection breaks while a commit is under way, nobody knows its outcome but the database.
Each transaction leaves a row with a number of ours, and whoever asks for it writes into its place
that the transaction is lost: what was there first is the outcome, and stays it. PostgreSQL's own
number of the transaction would not do. A server that crashes forgets what it had not yet written
down, and gives that number to another, which it then says was committed. Where the database cannot
be asked, the callers are told so (`commit_unknown`): everything or nothing was kept. Nothing more is
written then before it could be asked, and what turns out to have been kept is told to whoever follows.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Final
from zlib import crc32

from asyncpg import exceptions as pg

from antiphon.core.commands import Fence
from antiphon.core.dispatch import Denied
from antiphon.core.ids import TenantId
from antiphon.core.records import StoredEvent
from antiphon.errors import AntiphonError, StoreError
from antiphon.stores.postgres.connections import (
    AGAIN,
    LOST,
    REFUSED,
    Connections,
    answered,
    close_connection,
    constraint,
    not_durable,
    undone,
    unstorable,
)
from antiphon.stores.postgres.statements import PostgresStatements
from antiphon.stores.sql.known import CONVERSATIONS, Knowledge, Known
from antiphon.stores.sql.recent import News
from antiphon.stores.sql.transaction import Outrun, Transaction
from antiphon.stores.sql.writer import (
    LINGER_S,
    BatchLost,
    BatchWriter,
    Outcome,
    Request,
    carry_out,
)

WRITERS: Final = 4
BATCH: Final = 64
TRIES: Final = 5
"""How often a request is carried out anew because others were in the way."""

ASK_S: Final = 30.0
ASK_EVERY_S: Final = 0.2
"""How long, and how often, the outcome of a commit is asked for."""

_BEGIN: Final = """
WITH mine AS MATERIALIZED (
  SELECT epoch FROM node WHERE id = :node AND epoch = :epoch FOR KEY SHARE
), held AS MATERIALIZED (
  SELECT number, CAST(xmin AS TEXT) AS writer FROM conversation
  WHERE id = ANY (:about) ORDER BY id FOR UPDATE
), left_here AS (
  INSERT INTO batch (writer, number) VALUES (:writer, :batch)
)
SELECT CAST(pg_current_xact_id() AS TEXT), (SELECT count(*) FROM mine), held.number, held.writer
FROM (SELECT 1) AS always LEFT JOIN held ON true
"""

_TOUCH: Final = "UPDATE conversation SET last_event = last_event WHERE number IN ({})"

_SAVE: Final = "SAVEPOINT request"

_ASK: Final = """
INSERT INTO batch (writer, number, kept) VALUES (?, ?, false)
ON CONFLICT (writer, number) DO UPDATE SET number = excluded.number RETURNING kept
"""
"""Waits for a transaction that is still under way there."""

OUTCOMES: Final = 256
"""How many outcomes a writer leaves before it takes them away, all in one statement."""

_FORGET: Final = "DELETE FROM batch WHERE writer = ? AND number BETWEEN ? AND ?"

_AGAIN: Final = frozenset({"conversation_id", "content_use_content"})
"""Constraints that only a node that was first can have broken: the command will see its work."""


class Writer(BatchWriter):
    """One thread, one connection."""

    def __init__(
        self,
        connect: Callable[[], PostgresStatements],
        *,
        loop: asyncio.AbstractEventLoop,
        new_key: Callable[[], bytes],
        publish: Callable[[News], None],
        linger_s: float = LINGER_S,
        name: str = "antiphon-writer",
    ) -> None:
        super().__init__(loop=loop, publish=publish, linger_s=linger_s, batch=BATCH, name=name)
        self._connect = connect
        self._new_key = new_key
        self._db: PostgresStatements | None = None
        self._kept: OrderedDict[int, tuple[str, Known]] = OrderedDict()
        """What is known of a conversation, and which transaction of ours left it so."""
        self._keys: dict[TenantId, bytes] = {}  # these never change
        self._id = secrets.randbits(63)
        self._numbers = count(1)
        self._number = 0
        """That of the transaction which was begun last."""
        self._oldest = 1  # whose outcome is still there
        self._untold: News | None = None
        """What the last transaction has changed, if it was committed, which nobody could say."""
        self.fence: Fence | None = None
        """The epoch under which this process works, once it has joined."""

    def _open(self) -> None:
        """Connect when there is something to do; what is wrong was told by who opened the store."""

    def _opened(self) -> PostgresStatements:
        if self._db is not None and self._db.given_up:
            self._close()
        if self._db is None:
            self._db = self._connect()
        return self._db

    def _close(self) -> None:
        if self._db is not None:
            close_connection(self._db)
            self._db = None

    def _patience_s(self) -> float | None:
        return None if self._untold is None else ASK_EVERY_S

    def _look_after(self) -> None:
        found = self._found()
        if found.events:
            self._tell(found, [])

    def _found(self) -> News:
        """Return what the last transaction has changed, once it is known to have been committed."""
        untold = self._untold
        if untold is None or (kept := self._asked()) is None:
            return News()
        self._untold = None
        return untold if kept else News()

    def _commit(self, batch: list[Request]) -> tuple[News, list[Outcome]]:
        found = self._found()
        if self._untold is not None:  # else this would be told of before what came before it
            lost = not_durable(ConnectionError())
            return News(), [Outcome(request, error=lost) for request in batch]
        news, outcomes = self._carried_out(batch)
        return News([*found.events, *news.events]), outcomes

    def _carried_out(self, batch: list[Request]) -> tuple[News, list[Outcome]]:
        for foresees in (True, False):
            try:
                return self._attempt(batch, foresees=foresees)
            except Misjudged:
                continue
            except Outrun:
                break
            except Exception as error:  # noqa: BLE001 - whatever it is, the thread goes on
                return News(), [Outcome(request, error=error) for request in batch]
        events: list[StoredEvent] = []
        outcomes: list[Outcome] = []
        for request in batch:
            news, outcome = self._alone(request)
            events += news.events
            outcomes.append(outcome)
        return News(events), outcomes

    def _alone(self, request: Request) -> tuple[News, Outcome]:
        """Carry out one request that others were in the way of, as often as it takes."""
        for _ in range(TRIES):
            try:
                news, (outcome,) = self._attempt([request], foresees=False)
            except Outrun:
                continue
            except Exception as error:  # noqa: BLE001 - as above
                return News(), Outcome(request, error=error)
            else:
                return news, outcome
        busy = StoreError("Other nodes are in the way; try again.", code="store_busy")
        return News(), Outcome(request, error=busy)

    def _attempt(self, batch: Sequence[Request], *, foresees: bool) -> tuple[News, list[Outcome]]:
        """Carry out a batch in one transaction.

        Raises:
            Misjudged: Nothing of it was kept, and nothing is to be foreseen the next time.
            Outrun: Nothing of it was kept, and it may go well now.
            StoreError: Nothing of it was kept; `commit_unknown`: nobody knows.
        """
        number = ""
        try:
            db, alone = self._opened(), len(batch) == 1
            db.foresees = foresees
            savepoints = _Savepoints(db, partial(self._begin, db, batch))
            savepoints.begin()
            knowledge = self._known_still(savepoints.held)
            tx = Transaction(db, self._new_key, knowledge)
            outcomes: list[Outcome] = []
            for request in batch:
                db.about = request.about
                outcomes.append(carry_out(savepoints, tx, request, alone=alone))
            if savepoints.let_go:
                knowledge.clear()
            left_by(tx)
            news = News(tx.events)
            number, held = savepoints.number, savepoints.held
            untouched = [at for at in held if savepoints.used or at not in tx.rewritten]
            if untouched:
                db.script(_TOUCH.format(", ".join(map(str, untouched))), later=True)
            forgets = self._number - self._oldest >= OUTCOMES
            if forgets:
                db.execute(_FORGET, (self._id, self._oldest, self._number - 1))
        except Outrun:
            self._recover()
            raise
        except Exception as error:
            self._recover()
            if isinstance(error, AGAIN):
                raise Outrun from error
            if isinstance(error, StoreError) and error.code == "node_fenced":
                raise
            if foresees and isinstance(error, REFUSED):
                raise Misjudged from error
            cause = error.__cause__ if isinstance(error, BatchLost) else error
            raise not_durable(cause or error) from None
        try:
            db.script("COMMIT")
        except Exception as error:
            self._recover()
            if isinstance(error, AGAIN):
                raise Outrun from error
            if foresees and isinstance(error, REFUSED):
                raise Misjudged from error
            if answered(error) or not self._was_committed(news):
                raise not_durable(error) from None
        if forgets:
            self._oldest = self._number
        self._keep(number, held, knowledge)
        return news, outcomes

    def _known_still(self, held: Mapping[int, str]) -> Knowledge:
        """Return what is known of the conversations that are held, and is still true."""
        knowledge = Knowledge()
        knowledge.keys, knowledge.fence = self._keys, self.fence
        for number, writer in held.items():
            left_by, known = self._kept.pop(number, ("", None))
            if known is not None and left_by == writer:
                knowledge.adopt(known)
        return knowledge

    def _keep(self, transaction: str, held: Iterable[int], knowledge: Knowledge) -> None:
        """Keep what is known of conversations that a transaction has touched at its end."""
        writer = str(int(transaction) & 0xFFFFFFFF)  # a row names its writer in half the bits
        for number in held:
            known = knowledge.at(number)
            if known is not None:
                self._kept[number] = (writer, known)
        while len(self._kept) > CONVERSATIONS:
            self._kept.popitem(last=False)

    def _begin(
        self, db: PostgresStatements, batch: Sequence[Request]
    ) -> tuple[str, dict[int, str]]:
        """Begin a transaction; return its number, and what it has locked with who wrote it last."""
        db.begin()
        fence, self._number = self.fence, next(self._numbers)
        rows = db.all(
            _BEGIN,
            {
                "node": fence.node if fence else None,
                "epoch": fence.epoch if fence else 0,
                "about": list({name for request in batch for name in request.about}),
                "writer": self._id,
                "batch": self._number,
            },
        )
        if fence is not None and not rows[0][1]:
            raise StoreError(
                "Others hold this node for dead and have taken over its work; start it again.",
                code="node_fenced",
                at=fence.node,
            )
        return rows[0][0], {row[2]: row[3] for row in rows if row[2] is not None}

    def _was_committed(self, news: News) -> bool:
        """Ask what became of the last transaction, whose commit was not answered.

        Raises:
            StoreError: `commit_unknown`: the database cannot be asked. Its `news` are told of later.
        """
        until = time.monotonic() + ASK_S
        while time.monotonic() < until:
            kept = self._asked()
            if kept is not None:
                return kept
            time.sleep(ASK_EVERY_S)
        self._untold = news
        raise StoreError(
            "The connection to the database broke during a commit, and it cannot be asked: "
            "everything or nothing of this was kept.",
            code="commit_unknown",
        )

    def _asked(self) -> bool | None:
        """Ask once whether the last transaction was committed; None where there is no answer."""
        try:
            row = self._opened().one(_ASK, (self._id, self._number))
        except (*LOST, pg.PostgresError, StoreError):
            self._recover()
            return None
        assert row is not None
        return bool(row[0])

    def _recover(self) -> None:
        """Leave no transaction open; where that fails, begin anew with another connection."""
        self._keys.clear()  # one of them may have been made in what is undone
        db = self._db
        if db is None:
            return
        try:
            if db.connection.is_closed():
                raise ConnectionError
            db.drop()
            if db.connection.is_in_transaction():
                db.script("ROLLBACK")
        except Exception:  # noqa: BLE001 - it is of no use any more
            self._db = None
            close_connection(db)


class Misjudged(Outrun):
    """Not all was as foreseen: the transaction is to be done anew, each answer awaited."""


class _Savepoints:
    """Requests within a transaction of PostgreSQL."""

    def __init__(
        self, db: PostgresStatements, begin: Callable[[], tuple[str, dict[int, str]]]
    ) -> None:
        self._db = db
        self._begin = begin
        self._mark = db.mark()
        self.number = ""
        """What the database calls the transaction."""
        self.held: dict[int, str] = {}
        """The conversations that are locked, and the transactions that wrote their rows."""
        self.used = False
        """Whether rows may name a savepoint as their writer, and not the transaction."""
        self.let_go = False
        """Whether the locks were let go of in between."""

    def begin(self) -> None:
        """Begin the transaction."""
        self.number, self.held = self._begin()

    def savepoint(self, *, alone: bool) -> None:
        self._mark = self._db.mark()
        if not alone:
            self._db.script(_SAVE, later=True)

    def settle(self, tx: Transaction, *, alone: bool) -> None:
        tx.flush()
        if not self._db.foresees:
            self._db.settle()

    def undo(self, *, alone: bool) -> None:
        if self._db.foreseen(self._mark):
            self._db.settle()  # a refusal follows from what is stored, not from what was foreseen
        sent = not self._db.unsent(self._mark)
        self._db.drop(self._mark)
        if not sent:
            self.savepoint(alone=alone)  # for what is put aside
        elif alone:
            self._db.script("ROLLBACK")
            self.let_go = True
            self.begin()
        else:
            self._db.script("ROLLBACK TO request", later=True)

    def release(self, *, alone: bool) -> None:
        if alone:
            return
        if self._db.unsent(self._mark):
            self._db.strike(self._mark)  # nothing will be undone that was sent with it
        else:
            self.used = True
            self._db.script("RELEASE request", later=True)

    def judge(self, error: Exception) -> Denied | AntiphonError | None:
        match error:
            case _ if isinstance(error, LOST):
                raise BatchLost from error
            case _ if isinstance(error, AGAIN):
                raise Outrun from error
            case pg.PostgresError() if self._db.foresees:
                # What was held back is sent with what follows it, so this may be the answer to a
                # request that has been told of as done: each is carried out with its own answer.
                raise Misjudged from error
            case pg.IntegrityConstraintViolationError():
                name = str(error.constraint_name)
                if name in _AGAIN:
                    raise Outrun from error
                return Denied(constraint(error))
            case pg.PostgresError():
                return unstorable(error) or undone(error)
            case _:
                return None


class Writers:
    """All writers of a process; each conversation's commands go to one of them, in order."""

    def __init__(self, writers: Sequence[Writer]) -> None:
        self._writers = writers

    def join_as(self, fence: Fence | None) -> None:
        """Compare this epoch in every transaction from now on."""
        for writer in self._writers:
            writer.fence = fence

    def start(self) -> None:
        """Begin."""
        for writer in self._writers:
            writer.start()

    def put(self, request: Request) -> None:
        """Queue a request; called on the loop."""
        first = request.about[0] if request.about else ""
        self._writers[crc32(first.encode()) % len(self._writers)].put(request)

    def nudge(self) -> None:
        """Let what was queued linger no longer."""
        for writer in self._writers:
            writer.nudge()

    def stop(self) -> None:
        """Take no more requests; what was queued is still carried out."""
        for writer in self._writers:
            writer.stop()

    def join(self) -> None:
        """After `stop`: wait until all is carried out; blocks."""
        for writer in self._writers:
            writer.join()


def left_by(tx: Transaction) -> None:
    """Called at the end of each transaction; tests compare here what is known with what is stored."""


def writers(
    connections: Connections,
    count: int,
    *,
    loop: asyncio.AbstractEventLoop,
    new_key: Callable[[], bytes],
    publish: Callable[[News], None],
    linger_s: float,
) -> Writers:
    """Return the writers of a process; none has a connection yet."""
    return Writers(
        [
            Writer(
                connections.open,
                loop=loop,
                new_key=new_key,
                publish=publish,
                linger_s=linger_s,
                name=f"antiphon-writer-{number}",
            )
            for number in range(count)
        ]
    )
