"""Keys of principals, where the database is held by a server."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from antiphon.core.ids import LOCAL_TENANT, TenantId
from antiphon.core.keys import USUAL_RIGHTS, Key, Right
from antiphon.errors import Forbidden, NotFound
from antiphon.server.body import Body, answer, decoded
from antiphon.server.endpoints import Endpoint
from antiphon.server.principals import Keyring, Principal, principal_of

PATH: Final = "/antiphon/v1/keys"

Tenant = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")]


class NewKey(Body, frozen=True, kw_only=True):
    """A key to be. Nobody can give a right that they have not."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    tenant: Tenant | None = None
    rights: frozenset[Right] = USUAL_RIGHTS
    expires_ms: Annotated[int, Meta(ge=0)] | None = None


class KeyTold(msgspec.Struct, frozen=True, kw_only=True):
    """A key, without its secret."""

    id: str
    tenant: TenantId
    name: str
    rights: frozenset[Right]
    created_ms: int
    expires_ms: int | None
    revoked_ms: int | None


class KeyMade(KeyTold, frozen=True, kw_only=True):
    """A new key with its secret, which is never told again."""

    secret: str


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    """Keys, in the order in which they were made."""

    data: list[KeyTold]


async def _create(request: Request) -> Response:
    """Make a key; its secret is told here and nowhere else."""
    who = principal_of(request)
    new = await decoded(request, NewKey)
    for right in sorted(new.rights):
        who.require(right)
    tenant = TenantId(new.tenant) if new.tenant is not None else who.tenant
    if tenant != who.tenant and not _runs_the_server(who):
        raise Forbidden("A key belongs to its maker's tenant.", at="tenant")
    key, secret = await _keyring(request).make(
        tenant=tenant, name=new.name, rights=new.rights, expires_ms=new.expires_ms
    )
    return answer(KeyMade(secret=secret, **msgspec.structs.asdict(_told(key))), 201)


async def _list(request: Request) -> Response:
    """List the keys of the tenant, or of every tenant for who runs the server."""
    who = principal_of(request)
    keys = _keyring(request).all(None if _runs_the_server(who) else who.tenant)
    return answer(Keys(data=[_told(key) for key in keys]))


async def _revoke(request: Request) -> Response:
    """Take a key's power away, for good."""
    who = principal_of(request)
    keyring = _keyring(request)
    name = request.path_params["key"]
    visible = keyring.all(None if _runs_the_server(who) else who.tenant)
    if all(key.id != name for key in visible):
        raise NotFound("There is no such key.", at=name)
    return answer(_told(await keyring.revoke(name)))


def _runs_the_server(who: Principal) -> bool:
    return who.tenant == LOCAL_TENANT


def _keyring(request: Request) -> Keyring:
    keyring = request.app.state.keyring
    assert isinstance(keyring, Keyring)
    return keyring


def _told(key: Key) -> KeyTold:
    return msgspec.convert(key, KeyTold, from_attributes=True)


routes: Final = [
    Endpoint("POST", PATH, _create, body=NewKey, answer=KeyMade, status=201, right=Right.ADMIN),
    Endpoint("GET", PATH, _list, answer=Keys, right=Right.ADMIN),
    Endpoint("DELETE", PATH + "/{key}", _revoke, answer=KeyTold, right=Right.ADMIN),
]
