"""An engine over a real store, with a scripted provider and a clock that the test moves."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from antiphon.core.knowledge.retrieval import Retriever
from antiphon.engine.assembly import open_world
from antiphon.engine.engine import Engine
from antiphon.engine.ports import Clock
from antiphon.engine.settings import Settings
from antiphon.engine.tools.function import Function
from antiphon.handles.chat import Chat
from antiphon.library import Antiphon
from tests.support.clock import Seeded, SimulatedClock
from tests.support.provider import ScriptedProvider

_SEEDS = itertools.count()
"""Another one for each process that a test plays, or two of them would make the same ids."""


@asynccontextmanager
async def app_on(
    db: Path | str,
    provider: ScriptedProvider,
    *,
    clock: Clock | None = None,
    functions: Iterable[Function] = (),
    settings: Settings | None = None,
    retrievers: Iterable[Retriever] = (),
) -> AsyncIterator[Antiphon]:
    """Open the library on `db`; what is in flight at the end is left as a shutdown leaves it."""
    async with open_world(
        db,
        settings=settings or Settings(retry_base_s=0.0, cancel_grace_s=0.0),
        functions=functions,
        retrievers=retrievers,
        transport=provider,
        clock=clock or SimulatedClock(),
        entropy=Seeded(next(_SEEDS)),
    ) as world:
        engine = Engine(world)
        await engine.start()
        try:
            yield Antiphon(engine)
        finally:
            await engine.close()


async def talk(chat: Chat, text: str) -> str:
    """Say `text` and return the answer's text."""
    return (await (await chat.send(text)).result()).text
