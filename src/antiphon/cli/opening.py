"""How commands get at a store: settings from flags, a world to read in, an engine to work with."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from antiphon.cli.output import note
from antiphon.core.commands import Fence
from antiphon.core.ids import NodeId
from antiphon.core.manifest import WireRequest
from antiphon.engine.assembly import open_store, open_world
from antiphon.engine.dispatch.lines import LineCache
from antiphon.engine.edge.clock import SystemClock
from antiphon.engine.edge.entropy import Ids, SystemEntropy
from antiphon.engine.live import Broker
from antiphon.engine.ports import Reply
from antiphon.engine.runs.startup import recover
from antiphon.engine.settings import Settings
from antiphon.engine.tools.function import Function
from antiphon.engine.world import World
from antiphon.errors import InternalError, InvalidInput, StoreLocked
from antiphon.handles.chat import Conversations
from antiphon.library import Antiphon
from antiphon.library import open as open_library
from antiphon.stores.addresses import is_shared, shown
from antiphon.stores.sqlite.lock import holder

T = TypeVar("T")

KEY_VARIABLE: Final = "ANTIPHON_KEY"
"""Holds the key by which a server knows whoever asks."""

SILENCE_S: Final = 1.0
"""How long the start of a server may take before a person is told what is waited for."""

READER: Final = Fence(node=NodeId("reader"), epoch=0)
"""Owns nothing and is refused everywhere: a reader changes nothing."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end, in an event loop of its own."""
    # What the store has to say about this machine is what `antiphon doctor` is asked for.
    logging.getLogger("antiphon").addHandler(logging.NullHandler())
    return asyncio.run(work)


def settings_of(db: str | None, config: str | None, **flags: object) -> Settings:
    """Return the settings, with what the command line said first.

    Raises:
        InvalidInput: A setting that does not exist or does not fit.
    """
    return Settings.load({"db": db, **flags}, config=config)


def place_of(settings: Settings) -> str:
    """Return where the data lies, as a person would write it."""
    return shown(settings.db)


def holder_of(settings: Settings) -> str | None:
    """Return the process that alone has the database open, or None."""
    if is_shared(settings.db):
        return None
    place = place_of(settings)
    return holder(Path(place)) if place else None


@asynccontextmanager
async def reading(settings: Settings) -> AsyncIterator[World]:
    """Open the store to look at it; works while another process has it.

    Raises:
        StoreError: There is none, or it cannot be read.
    """
    store = await open_store(settings.db, read_only=True)
    clock = SystemClock()
    entropy = SystemEntropy()
    try:
        yield World(
            store=store,
            transport=_NoTransport(),
            clock=clock,
            entropy=entropy,
            ids=Ids(clock, entropy),
            settings=settings,
            broker=Broker(store),
            lines=LineCache(store),
            fence=READER,
        )
    finally:
        await store.close()


@asynccontextmanager
async def working(
    settings: Settings, functions: Iterable[Function] = ()
) -> AsyncIterator[Antiphon]:
    """Open the store to work in it: what an earlier process left behind is settled first.

    Raises:
        StoreLocked: Another process has it.
    """
    silent = asyncio.get_running_loop().call_later(
        SILENCE_S, note, f"Waiting for MCP servers: {', '.join(settings.mcp)}."
    )
    if not settings.mcp:
        silent.cancel()
    async with open_library(settings=settings, functions=functions) as app:
        silent.cancel()
        for name, problem in app.engine.world.functions.missing().items():
            note(f"The MCP server {name} is not there; its tools come when it does. {problem}")
        yield app


@asynccontextmanager
async def conversing(
    settings: Settings, server: str | None, functions: Iterable[Function] = ()
) -> AsyncIterator[Conversations]:
    """Open conversations to talk in: those of `server`, or of the database itself.

    Raises:
        InvalidInput: Functions of this process, for a server that cannot call them.
        ServerUnavailable: Nobody answers there.
        StoreLocked: Another process, and no server, has the database.
    """
    if server is None:
        async with working(settings, functions) as app:
            yield app
        return
    if functions:
        raise InvalidInput(
            f"The tools of a talk through {server} are that server's own.", code="usage"
        )
    from antiphon.client import open as open_client

    async with open_client(server, key=os.environ.get(KEY_VARIABLE)) as client:
        yield client


async def server_of(settings: Settings) -> str | None:
    """Return where the server listens that has the database open; None where none has."""
    if await asyncio.to_thread(holder_of, settings) is None:
        return None
    async with reading(settings) as world:
        return next(iter((await world.store.addresses()).values()), None)


@asynccontextmanager
async def writing(settings: Settings) -> AsyncIterator[World]:
    """Open the store to change it without sending anything.

    What a dead process left in flight is settled first; runs that could go on are left for
    whoever opens the store to work in it.

    Raises:
        StoreLocked: Another process has it.
    """
    server = await server_of(settings)
    if server is not None:
        raise StoreLocked(
            f"The server at {server} has this database open. This command works on the file "
            "itself: stop the server first.",
            at=server,
        )
    async with open_world(settings=settings, transport=_NoTransport()) as world:
        if world.alone:
            await recover(world)
        yield world


class _NoTransport:
    """For those who send nothing."""

    async def send(
        self,
        request: WireRequest,
        *,
        api_key: str | None,
        connect_timeout_s: float,
        on_written: Callable[[], None],
    ) -> Reply:
        """Refuse."""
        raise InternalError("This command sends nothing.")

    async def close(self) -> None:
        """Nothing is open."""
