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
from antiphon.server.http.body import answer, engine_of

PATIENCE_S: Final = 2.0
"""How long a store may take to answer that there is one."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The server answers, and what an earlier process left behind has been decided."""

    status: str


async def _health(request: Request) -> Response:
    """Say that the server is up; it listens only once start-up recovery has been decided."""
    return answer(Health(status="ok"))


async def _ready(request: Request) -> Response:
    """Say whether the server can work: 503 while its database answers nothing or takes nothing."""
    if await _store_works(engine_of(request).world):
        return answer(Health(status="ready"))
    return answer(Health(status="store_unavailable"), 503)


async def _store_works(world: World) -> bool:
    if world.waiting:
        return False
    try:
        async with asyncio.timeout(PATIENCE_S):
            await world.store.addresses()
    except (StoreError, TimeoutError):
        return False
    return True


routes: Final = [
    Endpoint("GET", "/healthz", _health, answer=Health, public=True),
    Endpoint("GET", "/readyz", _ready, answer=Health, public=True),
]
