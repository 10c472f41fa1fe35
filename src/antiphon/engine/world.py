"""Everything that one engine works with, in one place and passed by hand.

There are no globals: two engines in one process share nothing, and a test swaps any part.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from antiphon.core.commands import Fence
from antiphon.core.records import Run
from antiphon.core.retrieval import Retriever
from antiphon.engine.dispatch.lines import LineCache
from antiphon.engine.edge.entropy import Ids
from antiphon.engine.edge.signing import AwsSigner
from antiphon.engine.live import Broker
from antiphon.engine.ports import Clock, Entropy, Signer, Transport
from antiphon.engine.settings import Settings
from antiphon.engine.tools.toolbox import Toolbox
from antiphon.stores.base import Store


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
    retrievers: tuple[Retriever, ...] = ()

    def owns(self, run: Run) -> bool:
        """Say whether the run was placed or claimed by this engine, and by nobody since."""
        return (run.node, run.epoch) == (self.fence.node, self.fence.epoch)

    def new_id(self, prefix: str) -> str:
        """Return a new id with `prefix` that sorts by time."""
        return self.ids.new_id(prefix)
