"""Previews of runs that another node works on: fetched from it while somebody here follows.

They are mirrored into this node's broker, so that readers see no difference. Where the other node
cannot be reached, readers see the durable events alone: the text comes with its commit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Collection
from typing import TYPE_CHECKING, Final

import msgspec

from antiphon.core.events import Preview
from antiphon.core.ids import ConversationId, NodeId, RunId
from antiphon.core.records import RunStatus
from antiphon.engine.world import World
from antiphon.errors import StoreError
from antiphon.stores.base import Nodes, Reach

if TYPE_CHECKING:
    import aiohttp

PATH: Final = "/antiphon/nodes/previews"
"""Where a node answers other nodes: every piece of preview as one event, in JSON."""

CONNECT_S: Final = 2.0
AGAIN_S: Final = 0.5
SILENCE_S: Final = 60.0
"""How long the other node may say nothing, not even that it lives."""

DATA: Final = b"data: "

_read = msgspec.json.Decoder(Preview).decode
_AT_WORK: Final = frozenset({RunStatus.PENDING, RunStatus.UNKNOWN})


class Relay:
    """The previews that this node fetches from others."""

    def __init__(self, world: World, nodes: Nodes) -> None:
        self._world = world
        self._nodes = nodes
        self._session: aiohttp.ClientSession | None = None
        self._tasks: dict[ConversationId, asyncio.Task[None]] = {}

    async def look(self, conversation: ConversationId) -> None:
        """Begin to fetch, where a run of this conversation is at work elsewhere."""
        if conversation not in self._tasks and await self._owner(conversation) is not None:
            task = asyncio.create_task(
                self._fetch(conversation), name=f"previews of {conversation}"
            )
            self._tasks[conversation] = task
            task.add_done_callback(lambda _: self._tasks.pop(conversation, None))

    async def only(self, conversations: Collection[ConversationId]) -> None:
        """Fetch for these conversations and no others."""
        for conversation, task in list(self._tasks.items()):
            if conversation not in conversations:
                task.cancel()

    async def close(self) -> None:
        """Fetch nothing any more."""
        await self.only(())
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def _owner(self, conversation: ConversationId) -> NodeId | None:
        """Return the other node that works on a run of this conversation, if one does."""
        for run in await self._world.store.runs(conversation, _AT_WORK):
            if run.node is not None and not self._world.owns(run):
                return run.node
        return None

    async def _fetch(self, conversation: ConversationId) -> None:
        """Fetch previews while a run is at work elsewhere, from whoever works on it."""
        import aiohttp

        mirrored: set[RunId] = set()
        try:
            while (node := await self._owner(conversation)) is not None:
                reach = await self._nodes.reach(node)
                if reach is not None:
                    with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                        async for piece in self._pieces(conversation, reach):
                            self._take(conversation, piece)
                            mirrored.add(piece.run)
                await asyncio.sleep(AGAIN_S)
        except StoreError:
            return  # whoever follows hears of that from the store itself
        finally:
            for run in mirrored:
                live = self._world.broker.preview(run)
                if live is not None and live.mirrored:
                    self._world.broker.drop(run)

    async def _pieces(
        self, conversation: ConversationId, reach: Reach
    ) -> AsyncGenerator[Preview, None]:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=False)
        async with self._session.get(
            reach.address + PATH,
            params={"conversation": conversation},
            headers={"authorization": f"Bearer {reach.secret}"},
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_S, sock_read=SILENCE_S),
        ) as answer:
            if answer.status == 200:
                async for line in answer.content:
                    if line.startswith(DATA):
                        yield _read(line.removeprefix(DATA))

    def _take(self, conversation: ConversationId, piece: Preview) -> None:
        """Append a piece to the preview that readers here see; what is known already falls out."""
        broker = self._world.broker
        live = broker.preview(piece.run)
        if live is None or live.generation < piece.generation:
            live = broker.open(conversation, piece.run, piece.generation, piece.message)
            live.mirrored = True
        if live.mirrored and live.generation == piece.generation and not live.over:
            live.mirror(piece)
            broker.publish(live)
