"""Who asks: the local owner where no keys are defined, otherwise whoever a key stands for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from antiphon.core.ids import LOCAL_TENANT, Digest, TenantId
from antiphon.core.traffic.keys import (
    EVERY_RIGHT,
    NO_TERMS,
    SECRET_BITS,
    Key,
    KeyTerms,
    Right,
    secret,
    secret_digest,
)
from antiphon.engine.world import World
from antiphon.errors import Forbidden, Unauthorized

BEARER: Final = "bearer "


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks, for whom, and what they may do."""

    id: str
    tenant: TenantId
    rights: frozenset[Right] = EVERY_RIGHT
    terms: KeyTerms = NO_TERMS

    def require(self, right: Right) -> None:
        """Raise `Forbidden` where the right is missing."""
        if right not in self.rights:
            raise Forbidden(f"This needs a key with the right to {right}.", at=right)


OWNER: Final = Principal(id="local", tenant=LOCAL_TENANT)
"""Whoever can reach a server that has no keys: it listens on loopback only."""


class Keyring:
    """The keys of a store, in memory. Where other nodes may change them, they are read anew."""

    def __init__(self, world: World, keys: Iterable[Key] = ()) -> None:
        self._world = world
        self._keys: dict[Digest, Key] = {key.secret_digest: key for key in keys}

    @classmethod
    async def load(cls, world: World) -> Keyring:
        """Return the keys that the store has."""
        return cls(world, await world.store.keys())

    async def reload(self) -> None:
        """Read the keys anew: another node may have made one, or revoked one."""
        self._keys = {key.secret_digest: key for key in await self._world.store.keys()}

    @property
    def empty(self) -> bool:
        """Whether no key was ever made. One that has ended still counts: nobody asked for none."""
        return not self._keys

    def all(self, tenant: TenantId | None = None) -> list[Key]:
        """Return the keys of a tenant, or every key."""
        return [key for key in self._keys.values() if tenant in (None, key.tenant)]

    async def make(
        self,
        *,
        tenant: TenantId,
        name: str,
        rights: frozenset[Right],
        expires_ms: int | None,
        terms: KeyTerms = NO_TERMS,
    ) -> tuple[Key, str]:
        """Make a key and return it with its secret, which nobody is told again."""
        text = secret(self._world.entropy.bits(SECRET_BITS))
        key = await self._world.store.add_key(
            Key(
                id=self._world.new_id("key_"),
                tenant=tenant,
                name=name,
                rights=rights,
                secret_digest=secret_digest(text),
                created_ms=self._world.clock.now_ms(),
                expires_ms=expires_ms,
                terms=terms,
            )
        )
        self._keys[key.secret_digest] = key
        return key, text

    async def revoke(self, key: str) -> Key:
        """Take a key's power away. Raises `NotFound`."""
        revoked = await self._world.store.revoke_key(key, self._world.clock.now_ms())
        self._keys[revoked.secret_digest] = revoked
        return revoked

    def principal(self, headers: Headers) -> Principal | None:
        """Return who a request comes from, None where its key opens nothing."""
        if self.empty:
            return OWNER
        brought = secret_of(headers)
        key = self._keys.get(secret_digest(brought)) if brought else None
        if key is None or not key.valid(self._world.clock.now_ms()):
            return None
        return Principal(id=key.id, tenant=key.tenant, rights=key.rights, terms=key.terms)


def secret_of(headers: Headers) -> str:
    """Return the key as either SDK sends it."""
    given = headers.get("authorization", "")
    if given.lower().startswith(BEARER):
        return given[len(BEARER) :].strip()
    return headers.get("x-api-key", "")


class Principals:
    """Settles who asks, before anything else is looked at."""

    def __init__(self, app: ASGIApp, keyring: Keyring) -> None:
        self._app = app
        self._keyring = keyring

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer within, for whoever asks."""
        if scope["type"] == "http":
            state = scope.setdefault("state", {})
            state["principal"] = self._keyring.principal(Headers(scope=scope))
        await self._app(scope, receive, send)


def principal_of(connection: HTTPConnection) -> Principal:
    """Return who asks.

    Raises:
        Unauthorized: Nobody whom this server knows.
    """
    principal = connection.state.principal
    if principal is None and secret_of(connection.headers):
        raise Unauthorized(
            "This server knows no such key, or knows it no longer: antiphon keys list shows which "
            "there are.",
            code="bad_key",
        )
    if principal is None:
        raise Unauthorized(
            "This server needs a key: send it as Authorization: Bearer KEY.", code="bad_key"
        )
    assert isinstance(principal, Principal)
    return principal
