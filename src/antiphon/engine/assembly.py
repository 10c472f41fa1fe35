"""Putting the real parts together: store, transport, clock, settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from antiphon.core.ids import NodeId
from antiphon.core.knowledge.retrieval import Retriever
from antiphon.engine.dispatch.lines import LineCache
from antiphon.engine.edge.clock import SystemClock
from antiphon.engine.edge.entropy import Ids, SystemEntropy
from antiphon.engine.knowledge.named import open_retrievers
from antiphon.engine.live import Broker
from antiphon.engine.ports import Clock, Entropy, Transport
from antiphon.engine.settings import Settings
from antiphon.engine.tools.function import Function
from antiphon.engine.tools.toolbox import open_toolbox
from antiphon.engine.world import World
from antiphon.errors import InvalidInput
from antiphon.stores.addresses import POSTGRES, SQLITE, is_shared
from antiphon.stores.base import Store


@asynccontextmanager
async def open_world(
    db: str | Path | None = None,
    *,
    settings: Settings | None = None,
    functions: Iterable[Function] = (),
    transport: Transport | None = None,
    clock: Clock | None = None,
    entropy: Entropy | None = None,
    address: str | None = None,
    retrievers: Iterable[Retriever] = (),
) -> AsyncIterator[World]:
    """Open what an engine needs, and close it again. A test gives its own parts."""
    settings = settings or Settings.load()
    clock = clock or SystemClock()
    entropy = entropy or SystemEntropy()
    store = await open_store(str(db) if db is not None else settings.db)
    wire = transport
    try:
        if wire is None:
            from antiphon.engine.edge.http import open_transport

            wire = open_transport(settings)
        ids = Ids(clock, entropy)
        node = NodeId("local" if store.nodes is None else ids.new_id("node_"))
        fence = await store.join(node, address, clock.now_ms())
        async with (
            open_toolbox(functions, settings.mcp, clock) as toolbox,
            open_retrievers(settings.retrievers) as named,
        ):
            yield World(
                store=store,
                transport=wire,
                clock=clock,
                entropy=entropy,
                ids=ids,
                settings=settings,
                broker=Broker(store),
                lines=LineCache(store),
                fence=fence,
                functions=toolbox,
                address=address,
                retrievers=(*retrievers, *named),
            )
    finally:
        if wire is not None:
            await wire.close()
        await store.close()


async def open_store(address: str, *, read_only: bool = False) -> Store:
    """Open the store that `address` names: a path, `:memory:`, `sqlite:///path`, `postgresql://…`.

    Raises:
        InvalidInput: `unknown_database`: no store of this release takes it, or its driver is not
            installed.
    """
    if is_shared(address):
        try:
            from antiphon.stores.postgres import open_postgres
        except ModuleNotFoundError:
            raise InvalidInput(
                "PostgreSQL needs one more package: pip install 'antiphon[postgres]'.",
                code="unknown_database",
                at=POSTGRES[0],
            ) from None
        return await open_postgres(address, read_only=read_only)
    if "://" in address and not address.startswith(SQLITE):
        raise InvalidInput(
            "Conversations are kept in SQLite or PostgreSQL: give a path, sqlite:///path or "
            "postgresql://host/database.",
            code="unknown_database",
            at=address.split("://", 1)[0] + "://",
        )
    path = address.removeprefix(SQLITE)
    if not path or "\0" in path:
        raise InvalidInput(
            "The address of the database names no file.", code="unknown_database", at=address
        )
    from antiphon.stores.sqlite import open_sqlite

    return await open_sqlite(path, read_only=read_only)
