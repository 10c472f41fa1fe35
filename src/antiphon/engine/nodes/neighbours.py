"""Working beside other nodes: what they change is noticed here, and what they leave is taken over.

The database is asked; what other nodes say of it only makes that sooner. A node that was held for
dead, because it was frozen or cut off, has lost what it worked on: it lets go of all of it and
joins anew, under another epoch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from antiphon.core.ids import ConversationId, NodeId, RunId
from antiphon.core.records import Run, RunStatus
from antiphon.engine.nodes.relay import Relay
from antiphon.engine.runs.startup import adopt
from antiphon.engine.world import World
from antiphon.errors import NotFound, StoreError
from antiphon.stores.base import Nodes

log = logging.getLogger("antiphon.engine.nodes")

LOOK_S: Final = 0.2
"""How often the database is asked what changed in the conversations that are followed here."""

SWEEP_S: Final = 0.5
"""How often it is asked for runs without an owner."""

AT_ONCE: Final = 32
"""How many of these one node takes at a time, so that others have their share."""


class Neighbours:
    """One node's part in a database that others work in too."""

    def __init__(
        self,
        world: World,
        nodes: Nodes,
        *,
        under_way: Callable[[], Mapping[ConversationId, Sequence[RunId]]],
        kick: Callable[[ConversationId], None],
        canceled: Callable[[ConversationId, RunId], Awaitable[None]],
        rejoin: Callable[[], Awaitable[None]],
        refresh: Callable[[], Awaitable[None]],
    ) -> None:
        """Begin with `start`.

        Args:
            world: The parts of this engine.
            nodes: How the store knows the other nodes.
            under_way: Which runs this node works on.
            kick: Lets a conversation's worker look for work.
            canceled: Lets go of a run that another node has canceled.
            rejoin: Lets go of everything and joins under another epoch.
            refresh: Reads anew what is held in memory of what other nodes may change.
        """
        self._world = world
        self._nodes = nodes
        self._under_way = under_way
        self._kick = kick
        self._canceled = canceled
        self._rejoin = rejoin
        self._refresh = refresh
        self._relay = Relay(world, nodes)
        self._looked: dict[ConversationId, int] = {}
        self._wake = asyncio.Event()
        self._swept: float | None = None
        self._claimed: list[Run] = []
        """Runs that are this node's now, and of which it has not yet settled what was in flight."""
        self._task: asyncio.Task[None] | None = None
        self._joining: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Keep this node's lease, and begin to look."""
        self._nodes.start(
            self._world.fence,
            self._world.settings.lease_s,
            fenced=self._fenced,
            buried=self._buried,
            told=self._told,
        )
        if self._task is None:
            self._task = asyncio.create_task(self._watch(), name="neighbours")

    async def close(self) -> None:
        """Look no more, and tell the others that this node is gone."""
        for task in (self._task, self._joining):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self._relay.close()
        await asyncio.to_thread(self._nodes.close)

    # What the store says of other nodes.

    def _buried(self, dead: Sequence[NodeId]) -> None:
        log.warning("%d nodes are gone; what they worked on is taken over", len(dead))
        self._swept = None
        self._wake.set()

    def _told(self, conversations: Sequence[ConversationId]) -> None:
        self._wake.set()

    def _fenced(self) -> None:
        log.error("Others hold this node for dead: it lets go of its runs and joins anew")
        self._joining = asyncio.create_task(self._join_anew(), name="join anew")

    async def _join_anew(self) -> None:
        await asyncio.to_thread(self._nodes.close)
        while True:
            try:
                await self._rejoin()
            except StoreError:
                await asyncio.sleep(SWEEP_S)
            except Exception:
                # As below: a node that others hold for dead does nothing until it has joined.
                log.exception("Joining anew failed")
                await asyncio.sleep(SWEEP_S)
            else:
                self._swept = None
                self._claimed.clear()  # under an epoch that counts no more
                self.start()
                return

    # Looking.

    async def _watch(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._sweep()
                if self._nodes.others:
                    await self._look()
            except StoreError as error:
                log.warning("Looking after other nodes failed: %s", error.code)
            except Exception:
                # A bug in one look: without the next ones this node would be deaf for ever.
                log.exception("Looking after other nodes failed")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), LOOK_S)

    async def _sweep(self) -> None:
        """Take over runs without an owner, some at a time."""
        now = asyncio.get_running_loop().time()
        if self._swept is not None and now < self._swept + SWEEP_S:
            return
        self._swept = now
        await self._refresh()
        world = self._world
        runs = await self._nodes.claim(world.fence, world.clock.now_ms(), AT_ONCE)
        self._claimed += runs
        for conversation in await adopt(world, self._claimed):
            self._kick(conversation)
        self._claimed.clear()
        if len(runs) == AT_ONCE:
            self._swept = None

    async def _look(self) -> None:
        """Bring readers what other nodes have told, and workers what they have canceled."""
        working = self._under_way()
        followed = self._world.broker.followed()
        names = {*working, *followed}
        self._looked = {name: seq for name, seq in self._looked.items() if name in names}
        await self._relay.only(followed)
        if not names:
            return
        for conversation, last in (await self._nodes.last_events(names)).items():
            if self._looked.get(conversation) == last:
                continue
            self._looked[conversation] = last
            self._world.broker.reached(conversation, last)
            if conversation in followed:
                await self._relay.look(conversation)
            for run in working.get(conversation, ()):
                try:
                    row = await self._world.store.run(conversation, run)
                except NotFound:
                    continue  # the transaction that starts it is still under way
                if row.status is RunStatus.CANCELED:
                    await self._canceled(conversation, run)
