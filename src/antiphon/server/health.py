"""Whether the server is up, and whether it can work, for whoever looks after it."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from antiphon.engine.world import World
from antiphon.errors import StoreError
from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.http.body import answer

PATIENCE_S: Final = 2.0
"""How long a store may take to answer that there is one."""


KEPT_S: Final = 1.0
"""How long what a store answered counts for whoever asks: nobody needs a key to ask."""


class Readiness:
    """Whether a store works, asked once a second however many want to know."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._asking = asyncio.Lock()
        self._known: bool | None = None

    async def now(self) -> bool:
        """Return whether the server can work: as it answered at most a second ago."""
        if self._world.waiting:
            return False
        async with self._asking:
            if self._known is None:
                self._known = await self._answers()
                self._world.clock.call_later(KEPT_S, self._forget)
            return self._known

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._world.store.addresses()
        except (StoreError, TimeoutError):
            return False
        return True

    def _forget(self) -> None:
        self._known = None


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The server answers, and what an earlier process left behind has been decided."""

    status: str


async def _health(request: Request) -> Response:
    """Say that the server is up; it listens only once start-up recovery has been decided."""
    return answer(Health(status="ok"))


async def _ready(request: Request) -> Response:
    """Say whether the server can work: 503 while its database answers nothing or takes nothing."""
    readiness = request.app.state.readiness
    assert isinstance(readiness, Readiness)
    if await readiness.now():
        return answer(Health(status="ready"))
    return answer(Health(status="store_unavailable"), 503)


routes: Final = [
    Endpoint("GET", "/healthz", _health, answer=Health, public=True),
    Endpoint("GET", "/readyz", _ready, answer=Health, public=True),
]
