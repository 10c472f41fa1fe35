"""Who asks: the local owner where no keys are defined, otherwise whoever a key stands for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from antiphon.core.ids import LOCAL_TENANT, TenantId
from antiphon.errors import Forbidden


class Right(StrEnum):
    """What a key may do."""

    READ = "read"
    WRITE = "write"
    INSTRUCT = "instruct"  # write system and developer messages
    OPERATE = "operate"  # settle dispatches of unknown outcome


EVERY_RIGHT: Final = frozenset(Right)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks, for whom, and what they may do."""

    id: str
    tenant: TenantId
    rights: frozenset[Right] = EVERY_RIGHT

    def require(self, right: Right) -> None:
        """Raise `Forbidden` where the right is missing."""
        if right not in self.rights:
            raise Forbidden(f"This needs a key with the right to {right}.", at=right)


OWNER: Final = Principal(id="local", tenant=LOCAL_TENANT)
"""Whoever can reach a server that has no keys: it listens on loopback only."""


class Principals:
    """Settles who asks before anything else is looked at."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer within, for whoever asks."""
        if scope["type"] == "http":
            scope.setdefault("state", {})["principal"] = OWNER
        await self._app(scope, receive, send)


def principal_of(connection: HTTPConnection) -> Principal:
    """Return who asks."""
    principal = connection.state.principal
    assert isinstance(principal, Principal)
    return principal
