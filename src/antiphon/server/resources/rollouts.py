"""Rollouts: which way the traffic of a tenant goes, changed at once, and what the shadow found."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from antiphon.adapters import registry
from antiphon.core.ids import LOCAL_TENANT, ConversationId, TenantId
from antiphon.core.traffic.keys import Right
from antiphon.core.traffic.rollout import EVERY_MODEL, Difference, Rollout, Stage, Tally
from antiphon.core.traffic.standing import Differences, ForgetShadow, Tallies
from antiphon.errors import Forbidden, InvalidInput
from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.http.body import Body, Query, answer, decoded, engine_of, queried
from antiphon.server.resources.keys import Tenant
from antiphon.server.rights.principals import principal_of

PATH: Final = "/antiphon/v1/rollouts"


class NewRollout(Body, frozen=True, kw_only=True):
    """What is to hold for a model, or for every one (`*`), from now on."""

    stage: Stage
    model: Annotated[str, Meta(min_length=1, max_length=200)] = EVERY_MODEL
    tenant: Tenant | None = None
    share: Annotated[int, Meta(ge=0, le=100)] = 100
    adapter_version: Annotated[int, Meta(ge=0)] | None = None


class Which(Query, frozen=True, kw_only=True):
    """Which rollout is meant."""

    model: str = EVERY_MODEL
    tenant: str | None = None


class RolloutTold(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout; `paused` are conversations that wait, each with the block that is not known."""

    tenant: TenantId
    model: str
    stage: Stage
    share: int
    adapter_version: int | None
    updated_ms: int
    by: str
    requests: list[Tally]


class RolloutList(msgspec.Struct, frozen=True, kw_only=True):
    """Every rollout that whoever asks may see, and what is paused by them."""

    data: list[RolloutTold]
    paused: dict[ConversationId, str]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What the shadow found, most frequent first."""

    requests: list[Tally]
    differences: list[Difference]


async def _list(request: Request) -> Response:
    """List rollouts, with how many requests came out how."""
    world, who = engine_of(request).world, principal_of(request)
    await world.rollouts.refresh()
    every = who.tenant == LOCAL_TENANT
    told = [await _told(request, one) for one in world.rollouts.all(None if every else who.tenant)]
    paused = {}
    for conversation, kind in world.rollouts.paused.items():
        row = await world.store.conversation(conversation)
        if every or row.tenant == who.tenant:
            paused[conversation] = kind
    return answer(RolloutList(data=told, paused=paused))


async def _set(request: Request) -> Response:
    """Set how far a tenant's traffic for a model goes; it holds for the next request."""
    engine, who = engine_of(request), principal_of(request)
    new = await decoded(request, NewRollout)
    tenant = _tenant(request, new.tenant)
    if new.model != EVERY_MODEL:
        model = engine.world.settings.models.get(new.model)
        if model.name != new.model:
            raise InvalidInput(f"This is an alias of {model.name}: name that.", at="model")
        if new.adapter_version is not None:
            registry.get(model.profile, model.facts, new.adapter_version)
    elif new.adapter_version is not None:
        raise InvalidInput("A version is one of a model's dialect: name the model.", at="model")
    done = await engine.roll(
        Rollout(
            tenant=tenant,
            model=new.model,
            stage=new.stage,
            share=new.share,
            adapter_version=new.adapter_version,
            updated_ms=engine.world.clock.now_ms(),
            by=who.id,
        )
    )
    return answer(await _told(request, done))


async def _found(request: Request) -> Response:
    """Tell what differed between what clients sent and what ours would have been, by cause."""
    which, store = queried(request, Which), engine_of(request).world.store
    tenant = _tenant(request, which.tenant)
    return answer(
        Found(
            requests=await store.answer(Tallies(tenant=tenant, model=which.model)),
            differences=await store.answer(Differences(tenant=tenant, model=which.model)),
        )
    )


async def _forget(request: Request) -> Response:
    """Begin to count and compare anew."""
    which, store = queried(request, Which), engine_of(request).world.store
    tenant = _tenant(request, which.tenant)
    await store.change(ForgetShadow(tenant=tenant, model=which.model))
    return answer(Found(requests=[], differences=[]))


def _tenant(request: Request, named: str | None) -> TenantId:
    """Return whose traffic is meant: one's own, or any for who runs the server.

    Raises:
        Forbidden: Another tenant's.
    """
    who = principal_of(request)
    if named in (None, who.tenant):
        return who.tenant
    if who.tenant != LOCAL_TENANT:
        raise Forbidden("This is another tenant's traffic.", at="tenant")
    return TenantId(str(named))


async def _told(request: Request, one: Rollout) -> RolloutTold:
    store = engine_of(request).world.store
    tallies = await store.answer(Tallies(tenant=one.tenant, model=one.model))
    return RolloutTold(requests=tallies, **msgspec.structs.asdict(one))


routes: Final = [
    Endpoint("GET", PATH, _list, answer=RolloutList, right=Right.ADMIN),
    Endpoint("PUT", PATH, _set, body=NewRollout, answer=RolloutTold, right=Right.ADMIN),
    Endpoint("GET", PATH + "/differences", _found, query=Which, answer=Found, right=Right.ADMIN),
    Endpoint(
        "DELETE", PATH + "/differences", _forget, query=Which, answer=Found, right=Right.ADMIN
    ),
]
