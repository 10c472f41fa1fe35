"""Whether the server is up, for whoever looks after it."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from antiphon.server.body import answer
from antiphon.server.endpoints import Endpoint


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The server answers, and what an earlier process left behind has been decided."""

    status: str


async def _health(request: Request) -> Response:
    """Say that the server is up; it listens only once start-up recovery has been decided."""
    return answer(Health(status="ok"))


routes: Final = [Endpoint("GET", "/healthz", _health, answer=Health, public=True)]
