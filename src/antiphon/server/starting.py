"""What a call that starts a run says beside its body: its key, and what to do where one works."""

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
BUSY: Final = "antiphon-when-busy"
LONGEST: Final = 255


def alone(request: Request) -> bool:
    """Return whether the run is to be refused, instead of queued, where another one works.

    Raises:
        InvalidInput: The header says neither.
    """
    word = request.headers.get(BUSY, "queue")
    if word not in ("queue", "refuse"):
        raise InvalidInput("It is queue or refuse.", at=BUSY)
    return word == "refuse"


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
