"""Erasure: what was said goes for good; structure, statuses and digests stay."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from antiphon.core.ids import LOCAL_TENANT, ConversationId, TenantId
from antiphon.core.records import Conversation
from antiphon.core.traffic.keys import Right
from antiphon.errors import Forbidden, NotFound
from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.http.body import Body, answer, decoded, engine_of
from antiphon.server.resources.conversations import ONE
from antiphon.server.resources.keys import Tenant
from antiphon.server.rights.principals import principal_of

PATH: Final = "/antiphon/v1/erasures"


class NewErasure(Body, frozen=True, kw_only=True):
    """What is to be erased: the tenant's conversations, or those unchanged for so many days.

    With all conversations goes all that is kept beside them: files, memories, instructions.
    """

    tenant: Tenant | None = None
    older_than_days: Annotated[int, Meta(ge=0, le=100_000)] = 0
    dry_run: bool = False


class ErasureTold(msgspec.Struct, frozen=True, kw_only=True):
    """The conversations that were erased, or would have been."""

    conversations: list[ConversationId]
    dry_run: bool


async def _content(request: Request) -> Response:
    """Erase what was said in it, for good, and cancel what works in it; the rest stays to be seen.

    A conversation that was deleted can be erased too.
    """
    name = ConversationId(request.path_params["conversation"])
    engine = engine_of(request)
    row = await engine.world.store.conversation(name)
    if row.tenant != principal_of(request).tenant:
        raise NotFound("There is no such conversation.", at=name)
    (erased,) = await engine.erasure.erase([row.id])
    return answer(erased)


async def _create(request: Request) -> Response:
    """Erase what a tenant has, or what of it is old; all of it or nothing."""
    who = principal_of(request)
    wanted = await decoded(request, NewErasure)
    tenant = who.tenant if wanted.tenant is None else TenantId(wanted.tenant)
    if tenant != who.tenant and who.tenant != LOCAL_TENANT:
        raise Forbidden("A key belongs to its maker's tenant.", at="tenant")
    erasure = engine_of(request).erasure
    found = await erasure.found(tenant, wanted.older_than_days)
    if not wanted.dry_run:
        await erasure.erase(found)
        if not wanted.older_than_days:
            await erasure.erase_kept(tenant)
    return answer(ErasureTold(conversations=found, dry_run=wanted.dry_run))


routes: Final = [
    Endpoint("DELETE", ONE + "/content", _content, answer=Conversation),
    Endpoint("POST", PATH, _create, body=NewErasure, answer=ErasureTold, right=Right.ADMIN),
]
