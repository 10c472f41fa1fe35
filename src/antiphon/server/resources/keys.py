"""Keys of principals, where the database is held by a server."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from antiphon.core.ids import LOCAL_TENANT, TenantId
from antiphon.core.traffic.keys import USUAL_RIGHTS, Key, KeyTerms, Right
from antiphon.core.traffic.standing import Spending, SpendingSince, day_of
from antiphon.errors import Forbidden, NotFound
from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.http.body import Body, answer, decoded, engine_of
from antiphon.server.rights.admission import month_began_ms
from antiphon.server.rights.principals import Keyring, Principal, principal_of

PATH: Final = "/antiphon/v1/keys"

Tenant = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")]


Most = Annotated[int, Meta(ge=0, le=2**53)]


class NewTerms(Body, frozen=True, kw_only=True):
    """What the key may use; what is left out has no limit. Money is in millionths of a dollar."""

    models: frozenset[str] | None = None
    repairs: bool = False
    requests_per_minute: Annotated[int, Meta(ge=1)] | None = None
    concurrent: Annotated[int, Meta(ge=1)] | None = None
    tokens_per_day: Most | None = None
    micros_per_month: Most | None = None


class NewKey(Body, frozen=True, kw_only=True):
    """A key to be. Nobody can give a right that they have not."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    tenant: Tenant | None = None
    rights: frozenset[Right] = USUAL_RIGHTS
    expires_ms: Annotated[int, Meta(ge=0)] | None = None
    terms: NewTerms = msgspec.field(default_factory=lambda: NewTerms())


class KeyTold(msgspec.Struct, frozen=True, kw_only=True):
    """A key, without its secret."""

    id: str
    tenant: TenantId
    name: str
    rights: frozenset[Right]
    created_ms: int
    expires_ms: int | None
    revoked_ms: int | None
    terms: KeyTerms


class KeyMade(KeyTold, frozen=True, kw_only=True):
    """A new key with its secret, which is never told again."""

    secret: str


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What a key has used; money is in millionths of a dollar, at the prices of then."""

    today: Spending
    month: Spending


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
        tenant=tenant,
        name=new.name,
        rights=new.rights,
        expires_ms=new.expires_ms,
        terms=msgspec.convert(new.terms, KeyTerms, from_attributes=True),
    )
    return answer(KeyMade(secret=secret, **msgspec.structs.asdict(_told(key))), 201)


async def _list(request: Request) -> Response:
    """List the keys of the tenant, or of every tenant for who runs the server."""
    who = principal_of(request)
    keys = _keyring(request).all(None if _runs_the_server(who) else who.tenant)
    return answer(Keys(data=[_told(key) for key in keys]))


async def _revoke(request: Request) -> Response:
    """Take a key's power away, for good."""
    return answer(_told(await _keyring(request).revoke(_visible(request).id)))


async def _usage(request: Request) -> Response:
    """Tell what a key has used, today and this month, by days and months in UTC."""
    key, world = _visible(request), engine_of(request).world
    now_ms = world.clock.now_ms()
    today = SpendingSince(key=key.id, day=day_of(now_ms))
    month = SpendingSince(key=key.id, day=day_of(month_began_ms(now_ms)))
    return answer(
        Usage(today=await world.store.answer(today), month=await world.store.answer(month))
    )


def _visible(request: Request) -> Key:
    """Return the key that is named, where whoever asks may look after it.

    Raises:
        NotFound: There is none, or it is another tenant's.
    """
    who, name = principal_of(request), request.path_params["key"]
    for key in _keyring(request).all(None if _runs_the_server(who) else who.tenant):
        if key.id == name:
            return key
    raise NotFound("There is no such key.", at=name)


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
    Endpoint("GET", PATH + "/{key}/usage", _usage, answer=Usage, right=Right.ADMIN),
]
