"""Everything that one engine works with, in one place and passed by hand.

There are no globals: two engines in one process share nothing, and a test swaps any part.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from antiphon.core.commands import Command, Fence
from antiphon.core.dispatch import Denied
from antiphon.core.knowledge.retrieval import Retriever
from antiphon.core.records import Run
from antiphon.engine.dispatch.counting import Counts
from antiphon.engine.dispatch.lines import LineCache
from antiphon.engine.dispatch.planning import Planner
from antiphon.engine.edge.entropy import Ids
from antiphon.engine.edge.signing import AwsSigner
from antiphon.engine.gates import Gates
from antiphon.engine.live import Broker
from antiphon.engine.ports import Clock, Entropy, Signer, Transport
from antiphon.engine.rollouts import RolloutTable
from antiphon.engine.settings import Settings
from antiphon.engine.tools.toolbox import Toolbox
from antiphon.errors import NotDurable
from antiphon.stores.base import Store

R = TypeVar("R")

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 5.0

log = logging.getLogger("antiphon.engine")


@dataclass(slots=True, kw_only=True)
class World:
    """The ports and shared parts of one engine."""

    store: Store
    transport: Transport
    clock: Clock
    entropy: Entropy
    ids: Ids
    settings: Settings
    broker: Broker
    lines: LineCache
    fence: Fence
    functions: Toolbox = field(default_factory=lambda: Toolbox(()))
    signer: Signer = field(default_factory=AwsSigner)
    address: str | None = None
    retrievers: tuple[Retriever, ...] = ()
    planner: Planner = field(init=False)
    counts: Counts = field(init=False)
    gates: Gates = field(init=False)
    rollouts: RolloutTable = field(init=False)
    waiting: int = field(default=0, init=False)
    """How much work waits because the store takes nothing."""

    def __post_init__(self) -> None:
        """Make what is this engine's own, of the parts that it was given."""
        self.planner = Planner(self.settings)
        self.counts = Counts(self.settings, self.transport, self.clock)
        self.gates = Gates(self.clock)
        self.rollouts = RolloutTable(self.store, self.clock)

    @property
    def alone(self) -> bool:
        """Whether no other process can work in this store: who opens it follows who is dead."""
        return self.store.nodes is None

    async def rejoin(self) -> None:
        """Join the store under another epoch: what was done under the last one counts no more."""
        self.fence = await self.store.join(self.fence.node, self.address, self.clock.now_ms())

    async def do(self, command: Command[R]) -> R | Denied:
        """Carry out a command of the engine's own work, however long the store takes nothing.

        A client is told at once that nothing was kept, and decides for itself. A worker has an
        answer in hand, or a result, that nobody will give it again: while it is known that
        nothing was kept, the very same command may be tried again.

        Raises:
            StoreError: It is not known whether it was kept: look at what is stored.
        """
        return await self._patiently(lambda: self.store.do(command))

    async def do_all(self, *commands: Command[Any]) -> tuple[Any, ...] | Denied:
        """Carry out several commands as one transaction, as patiently as `do`."""
        return await self._patiently(lambda: self.store.do_all(*commands))

    async def _patiently(self, work: Callable[[], Awaitable[R]]) -> R:
        try:
            return await work()
        except NotDurable as problem:
            log.warning("The store takes nothing; work waits for it: %s", problem.message)
        self.waiting += 1
        try:
            return await self._until_taken(work)
        finally:
            self.waiting -= 1

    async def _until_taken(self, work: Callable[[], Awaitable[R]]) -> R:
        pause_s = FIRST_PAUSE_S
        while True:
            await self.clock.sleep(pause_s)
            try:
                return await work()
            except NotDurable:
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def owns(self, run: Run) -> bool:
        """Say whether the run was placed or claimed by this engine, and by nobody since."""
        return (run.node, run.epoch) == (self.fence.node, self.fence.epoch)

    def new_id(self, prefix: str) -> str:
        """Return a new id with `prefix` that sorts by time."""
        return self.ids.new_id(prefix)
