"""Nodes: the processes that work in one database, which of them live, and what they tell each other.

A node lives as long as its lease, which it renews, and which ends by the database's clock: no
clock of any node is compared with another's. Whose lease has ended is *buried* by whoever notices:
its epoch moves on, under a lock for which every transaction that it has begun is waited. From
then on it can change nothing, and what it worked on may be claimed.

All of this happens in a thread of its own, with a connection of its own, so that a node that is
busy is not taken for dead. Where the database has not answered it for as long as a lease is, the
node gives up all its connections: what waits on them is told of as lost, or as of unknown outcome,
and is looked up, while others may already hold this node for dead. Word of what has changed travels by NOTIFY, gathered for a moment and
outside of every turn's transaction; losing it costs time and never truth, since everybody looks
for himself every now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, cast

from antiphon.core.commands import Fence
from antiphon.core.ids import ConversationId, NodeId
from antiphon.core.records import Run
from antiphon.errors import StoreError
from antiphon.stores.base import Reach
from antiphon.stores.postgres.connections import PROBLEMS, Connections, connect
from antiphon.stores.sql.store import SqlStore
from antiphon.stores.sql.transaction import Transaction

log = logging.getLogger("antiphon.stores.postgres")

CHANNEL: Final = "antiphon"
GATHER_S: Final = 0.02
"""How long word of changes is gathered before it is sent."""

NAMED_AT_ONCE: Final = 150
"""Conversations in one notification, whose text is limited to 8,000 bytes."""

OTHERS_S: Final = 10.0
"""How long what another node did may still have to be looked for after it has gone."""

BEATS: Final = 4
"""How often a lease is renewed in its own length."""

NOW: Final = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"

_RENEW: Final = f"""
UPDATE node SET lease_until_ms = {NOW} + $3 WHERE id = $1 AND epoch = $2 RETURNING epoch
"""

# Locked first, so that the transactions that hold a dead node's row are over before its epoch
# moves. Who holds it longer than that is frozen: the server ends it, and it is tried again.
_BURY: Final = f"""
WITH dead AS MATERIALIZED (
  SELECT id FROM node WHERE lease_until_ms BETWEEN 1 AND {NOW} - 1 ORDER BY id
  FOR UPDATE SKIP LOCKED
)
UPDATE node SET epoch = node.epoch + 1, lease_until_ms = 0
FROM dead WHERE node.id = dead.id RETURNING node.id
"""

_LEAVE: Final = """
UPDATE node SET epoch = epoch + 1, lease_until_ms = 0, address = NULL WHERE id = $1 AND epoch = $2
"""

_ALIVE: Final = f"SELECT count(*) FROM node WHERE lease_until_ms >= {NOW}"


# What belongs to a node that is gone, and what belongs to nobody and could begin. Two nodes that
# look at the same time take different ones.
_UNOWNED: Final = """
SELECT c.id, r.id FROM run AS r JOIN conversation AS c ON c.number = r.place >> 32
WHERE r.ended_ms IS NULL AND (
  r.node IS NOT NULL
  AND r.epoch <> coalesce((SELECT n.epoch FROM node AS n WHERE n.id = r.node), 0)
  OR r.node IS NULL AND c.slot IS NULL AND r.created_ms < ?)
ORDER BY r.node IS NULL, c.id LIMIT ? FOR UPDATE OF c SKIP LOCKED
"""

ABANDONED_MS: Final = 2_000
"""After this time a run that nobody has begun may have lost the node on which it was started."""


class PostgresNodes:
    """What a process does as one node among several. Started once it has joined."""

    def __init__(self, connections: Connections, store: SqlStore) -> None:
        self._connections = connections
        self._store = store
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._untold: set[ConversationId] = set()
        self._stop = asyncio.Event()
        self._others_until = 0.0
        self._asked = 0.0
        """When the database was last asked something that it may not have answered."""

    @property
    def others(self) -> bool:
        """Whether there are other nodes, or were a moment ago."""
        return time.monotonic() < self._others_until

    def start(
        self,
        fence: Fence,
        lease_s: float,
        *,
        fenced: Callable[[], None],
        buried: Callable[[Sequence[NodeId]], None],
        told: Callable[[Sequence[ConversationId]], None],
    ) -> None:
        """Keep the lease, bury the dead and pass on word, until `close`."""
        here = asyncio.get_running_loop()

        def on_loop(call: Callable[..., None], *values: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left
                here.call_soon_threadsafe(call, *values)

        def run() -> None:
            asyncio.run(self._live(fence, lease_s, on_loop, fenced, buried, told))

        self._thread = threading.Thread(target=run, name="antiphon-node", daemon=True)
        self._thread.start()

    def changed(self, conversations: Iterable[ConversationId]) -> None:
        """Tell the other nodes, if there are any, that these have changed; from any thread."""
        loop = self._loop
        if loop is not None and self.others:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._untold.update, tuple(conversations))

    def close(self) -> None:
        """Give the lease back and stop; blocks."""
        loop, thread = self._loop, self._thread
        if loop is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._stop.set)
        if thread is not None:
            thread.join()
        self._loop = self._thread = None
        self._stop = asyncio.Event()

    # Questions and claims.

    async def claim(self, fence: Fence, now_ms: int, limit: int) -> list[Run]:
        """Take runs over whose owners are gone; return them, and runs that nobody has begun."""

        def work(tx: Transaction) -> list[Run]:
            found = []
            for conversation, name in tx.all(_UNOWNED, (now_ms - ABANDONED_MS, limit)):
                c = tx.conversation(conversation)
                run = tx.run(c, name)
                if run.node is not None:
                    run = tx.change_run(run, node=fence.node, epoch=fence.epoch)
                    tx.execute(
                        # Whoever knows this conversation has to read it again.
                        "UPDATE conversation SET last_event = last_event WHERE number = ?",
                        (c.number,),
                    )
                found.append(run.record(c.id))
            return found

        return cast("list[Run]", await self._store.write(work))

    async def last_events(
        self, conversations: Collection[ConversationId]
    ) -> dict[ConversationId, int]:
        """Return the number of the newest event of each."""
        marks = ", ".join("?" * len(conversations))
        rows = await self._store.ask(
            lambda db: db.all(
                f"SELECT id, last_event FROM conversation WHERE id IN ({marks})",
                tuple(conversations),
            )
        )
        return dict(rows)

    async def reach(self, node: NodeId) -> Reach | None:
        """Return how a node is asked for previews, if it lives and listens."""
        row = await self._store.ask(
            lambda db: db.one(
                f"""SELECT address, secret FROM node
                WHERE id = ? AND lease_until_ms >= {NOW} AND address IS NOT NULL""",
                (node,),
            )
        )
        return None if row is None else Reach(address=row[0], secret=row[1])

    # In the thread.

    async def _live(
        self,
        fence: Fence,
        lease_s: float,
        on_loop: Callable[..., None],
        fenced: Callable[[], None],
        buried: Callable[[Sequence[NodeId]], None],
        told: Callable[[Sequence[ConversationId]], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()

        def heard(_: object, process: int, channel: str, payload: object) -> None:
            sender, *conversations = str(payload).split()
            if sender != fence.node:
                on_loop(told, [ConversationId(name) for name in conversations])

        while not self._stop.is_set():
            self._asked = time.monotonic()
            try:
                connection = await connect(self._connections.address, lease_s)
                try:
                    await connection.add_listener(CHANNEL, heard)
                    await self._beat(connection, fence, lease_s, on_loop, buried)
                finally:
                    connection.terminate()
            except _Fenced:
                on_loop(fenced)
                return
            except (*PROBLEMS, StoreError) as error:
                # The lease may end meanwhile, and others go on with what is here: that is its use.
                log.warning("The database cannot be reached: %s", type(error).__name__)
                if isinstance(error, TimeoutError):
                    self._connections.give_up(self._asked)
                await _until(self._stop, lease_s / BEATS)

    async def _beat(
        self,
        connection: Any,  # noqa: ANN401 - asyncpg has no types
        fence: Fence,
        lease_s: float,
        on_loop: Callable[..., None],
        buried: Callable[[Sequence[NodeId]], None],
    ) -> None:
        lease_ms = int(lease_s * 1000)
        while not self._stop.is_set():
            self._asked = time.monotonic()
            if await connection.fetchval(_RENEW, fence.node, fence.epoch, lease_ms) is None:
                raise _Fenced
            dead = [NodeId(row[0]) for row in await connection.fetch(_BURY)]
            if dead:
                on_loop(buried, dead)
            if await connection.fetchval(_ALIVE) > 1:
                self._others_until = time.monotonic() + OTHERS_S
            due = self._time() + lease_s / BEATS
            while (left := due - self._time()) > 0 and not self._stop.is_set():
                await _until(self._stop, min(left, GATHER_S) if self.others else left)
                await self._tell(connection, fence)
        await connection.execute(_LEAVE, fence.node, fence.epoch)

    async def _tell(self, connection: Any, fence: Fence) -> None:  # noqa: ANN401 - as above
        names = sorted(self._untold)
        self._untold.clear()
        for at in range(0, len(names), NAMED_AT_ONCE):
            words = " ".join((fence.node, *names[at : at + NAMED_AT_ONCE]))
            await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, words)

    def _time(self) -> float:
        assert self._loop is not None
        return self._loop.time()


class _Fenced(Exception):
    """Others hold this node for dead."""


async def _until(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
