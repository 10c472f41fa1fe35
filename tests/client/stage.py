"""A real server on a real socket, over a scripted provider, and the client of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import antiphon
from antiphon import client
from antiphon.client.wire import Patience
from antiphon.engine.engine import Engine
from antiphon.engine.settings import Settings
from antiphon.engine.tools import Function
from antiphon.server.app import build
from antiphon.server.http.serving import listen, serve, url_of
from tests.support.engines import app_on
from tests.support.provider import ScriptedProvider

QUICK = Patience(total_s=15.0, answer_s=5.0, silence_s=5.0)
SETTINGS = Settings(retry_base_s=0.0, cancel_grace_s=0.0, port=0, drain_s=0.0)


@dataclass(frozen=True, slots=True)
class Stage:
    """A server, where it is, and a client of it."""

    engine: Engine
    url: str
    app: client.Client
    library: antiphon.Antiphon


@asynccontextmanager
async def listening(
    db: Path,
    provider: ScriptedProvider | None = None,
    *,
    settings: Settings = SETTINGS,
    functions: Iterable[Function] = (),
) -> AsyncIterator[tuple[antiphon.Antiphon, str]]:
    """Serve `db` on a port of its own; give the engine's side and the address."""
    async with app_on(
        db, provider or ScriptedProvider(), settings=settings, functions=functions
    ) as library:
        stop, started = asyncio.Event(), asyncio.Event()
        with listen(settings) as listener:
            task = asyncio.create_task(
                serve(build(library.engine), listener, stop=stop, started=started.set)
            )
            try:
                await asyncio.wait_for(started.wait(), 10)
                yield library, url_of(listener)
            finally:
                stop.set()
                await asyncio.wait_for(task, 20)


@asynccontextmanager
async def staged(
    db: Path,
    provider: ScriptedProvider | None = None,
    *,
    settings: Settings = SETTINGS,
    functions: Iterable[Function] = (),
) -> AsyncIterator[Stage]:
    """Serve `db`, and open a client of it."""
    async with (
        listening(db, provider, settings=settings, functions=functions) as (library, url),
        client.open(url, patience=QUICK) as app,
    ):
        yield Stage(library.engine, url, app, library)
