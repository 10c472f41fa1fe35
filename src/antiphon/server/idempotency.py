"""Start-idempotency: the same call again is the same run."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from antiphon.core.commands import StartKey
from antiphon.core.digests import digest
from antiphon.errors import InvalidInput
from antiphon.server.body import engine_of
from antiphon.server.principals import principal_of

KEPT_MS: Final = 24 * 3600 * 1000
HEADER: Final = "idempotency-key"
LONGEST: Final = 255


async def start_key(request: Request) -> StartKey | None:
    """Return the key that the call brought, bound to who calls, what, and with which bytes.

    Raises:
        InvalidInput: `bad_idempotency_key`.
    """
    key = request.headers.get(HEADER)
    if key is None:
        return None
    if not 0 < len(key) <= LONGEST:
        raise InvalidInput(
            f"An idempotency key has 1 to {LONGEST} characters.", code="bad_idempotency_key"
        )
    principal = principal_of(request)
    world = engine_of(request).world
    return StartKey(
        scope=f"{principal.tenant} {principal.id} {request.method} {request.url.path}",
        key=key,
        body_digest=digest(
            await world.store.tenant_key(principal.tenant), "body", await request.body()
        ),
        expires_ms=world.clock.now_ms() + KEPT_MS,
    )
