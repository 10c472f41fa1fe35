"""What a call that starts a run says beside its body: its key, and what to do where one works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from antiphon.core.commands import StartKey
from antiphon.core.digests import digest
from antiphon.core.records import Response, RunStatus
from antiphon.engine.engine import Engine
from antiphon.errors import Conflict, Erased, InvalidInput, ProviderFailed
from antiphon.handles.run import RunHandle
from antiphon.library import Local
from antiphon.server.http.body import engine_of
from antiphon.server.rights.principals import principal_of

KEPT_MS: Final = 24 * 3600 * 1000
RETRY_KEPT_MS: Final = 10 * 60 * 1000
RETRY_COUNT: Final = "x-stainless-retry-count"
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
        scope=f"{principal.tenant} {principal.id} {request.method} {request.scope['path']}",
        key=key,
        body_digest=digest(
            await world.store.tenant_key(principal.tenant), "body", await request.body()
        ),
        expires_ms=world.clock.now_ms() + KEPT_MS,
    )


@dataclass(frozen=True, slots=True)
class Key:
    """Under which a request is known, whether it may be a repetition, and who chose the key."""

    key: StartKey
    attach: bool
    brought: bool


async def key_of(request: Request) -> Key:
    """Return the key that the client brought, or one made of the request itself.

    Of the latter only a request that an SDK marks as its own repetition is one, and none of a
    request that was certainly not carried out and may be now.

    Raises:
        InvalidInput: `bad_idempotency_key`.
    """
    given = await start_key(request)
    if given is not None:
        return Key(given, attach=True, brought=True)
    world, principal = engine_of(request).world, principal_of(request)
    secret = await world.store.tenant_key(principal.tenant)
    body = digest(secret, "body", await request.body())
    count = request.headers.get(RETRY_COUNT, "0")
    made = StartKey(
        scope=f"{principal.tenant} {principal.id} retry {request.scope['path']}",
        key=body,
        body_digest=body,
        expires_ms=world.clock.now_ms() + RETRY_KEPT_MS,
    )
    again = count.isascii() and count.isdigit() and int(count) > 0
    attach = again and not await _may_begin_anew(engine_of(request), made)
    return Key(made, attach=attach, brought=False)


async def _may_begin_anew(engine: Engine, key: StartKey) -> bool:
    """Return whether what a key stands for came to a definite no, which may have passed by now."""
    known = await engine.world.store.response_of_key(
        key.scope, key.key, engine.world.clock.now_ms()
    )
    if known is None:
        return False
    run = await engine.world.store.run(known[0].conversation, known[0].run)
    if run.status is not RunStatus.ERROR:
        return False
    failure = await RunHandle(Local(engine), run).failure(run.status, run.error_code)
    return isinstance(failure, ProviderFailed) and failure.retryable


async def repeated(engine: Engine, key: Key) -> Response | None:
    """Return what the request's first sending began: what was acknowledged is never taken back.

    Raises:
        Conflict: `idempotency_conflict`: the key came with another body.
        Erased: It has ended, and what was said is gone.
    """
    if not key.attach:
        return None
    known = await engine.world.store.response_of_key(
        key.key.scope, key.key.key, engine.world.clock.now_ms()
    )
    if known is None:
        return None
    response, body = known
    if body != key.key.body_digest:
        raise Conflict("This key was used for another request.", code="idempotency_conflict")
    if response.erased:
        raise Erased("This was answered, and the answer was erased since.", at=response.id)
    return response
