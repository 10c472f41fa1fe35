"""The Responses API, one function a call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from antiphon.adapters.openai_responses.parse import parse
from antiphon.core.commands import DeleteResponse
from antiphon.core.events import CallChanged, decode_event
from antiphon.core.records import RunStatus
from antiphon.core.tools.ledger import result_of
from antiphon.core.traffic.keys import Right
from antiphon.engine.engine import Engine
from antiphon.errors import InvalidInput, OutcomeUnknown
from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.doors.relay import relayed
from antiphon.server.http.body import Query, answer, decoded, engine_of, misfit, queried
from antiphon.server.http.faults import BUSY, status_of
from antiphon.server.http.sse import EventStream, Streams, frame
from antiphon.server.mending import headers as repairs_told
from antiphon.server.responses.beginning import begun, counted
from antiphon.server.responses.compact import Compact, compact
from antiphon.server.responses.items import Listing, all_items, output_json, page_of
from antiphon.server.responses.output import Json
from antiphon.server.responses.reading import Known, ended, find, follow, known, so_far
from antiphon.server.responses.request import Asked, Create
from antiphon.server.responses.write import NOTHING_TOLD, Event, Status, Stretch
from antiphon.server.rights.principals import principal_of
from antiphon.server.starting import HEADER

PATH: Final = "/v1/responses"
ONE: Final = PATH + "/{response}"
WITHDRAW: Final = "antiphon-withdraw"
"""A client that says 1 can take back what it has shown, and is told the text that follows."""


class Retrieve(Query, frozen=True, kw_only=True):
    """How a response is to be had."""

    stream: bool = False
    starting_after: Annotated[int, Meta(ge=0)] | None = None
    include_obfuscation: bool = False


async def _create(request: Request) -> Response:
    """Start a response, and answer with its end, its events, or at once."""
    engine = engine_of(request)
    await engine.world.rollouts.refresh()
    if engine.world.rollouts.all(principal_of(request).tenant):
        as_sent = await decoded(request, dict[str, Any])
        if _whole_history(as_sent):
            old = await relayed(request, "openai-responses", as_sent, parse)
            if old is not None:
                return old
    body = await decoded(request, Create)
    # A repetition has the bytes of the first: what it was asked is at hand in any case.
    own = await known(
        engine, principal_of(request).tenant, await begun(request, body), asked=body.kept()
    )
    if body.stream:
        return _streamed(request, engine, own)
    if body.background:
        return answer(own.describe(await so_far(engine, own)), headers=_told(own))
    try:
        stretch = await ended(engine, own)
        if stretch.failure is not None and status_of(stretch.failure) in BUSY:
            raise stretch.failure  # as its provider would say it: the SDK waits, and asks again
        return answer(own.describe(stretch), headers=_told(own))
    finally:
        if not own.response.stored:
            _forget(request, own, had=not await request.is_disconnected())


def _whole_history(body: dict[str, Any]) -> bool:
    """Whether a request brings all that it is about: only such a one can go the old way."""
    kept = ("previous_response_id", "conversation", "background")
    return not any(body.get(name) for name in kept)


async def _retrieve(request: Request) -> Response:
    """Return a response as it stands, or its events after a number."""
    query = _retrieval(request)
    engine, own = await _found(request)
    if query.stream:
        after = query.starting_after
        if after is not None:
            await _check_cursor(engine, own, after)
        # A reader that does not say what it has may drop it by itself, number by number.
        fine = after is None
        return _streamed(
            request, engine, own, after=NOTHING_TOLD if after is None else after, fine=fine
        )
    return answer(own.describe(await _now(engine, own)))


async def _check_cursor(engine: Engine, own: Known, after: int) -> None:
    """Refuse a number that no event of this response has or will have.

    Of one that goes on nobody can say yet.

    Raises:
        InvalidInput: `bad_cursor`.
    """
    if not (await so_far(engine, own)).over:
        return
    last = 0
    async for event in follow(engine, own):
        last = event.number
    if after > last:
        raise InvalidInput(
            f"The last event of this response has the number {last}.",
            code="bad_cursor",
            at="starting_after",
        )


def _retrieval(request: Request) -> Retrieve:
    """Return the query, without the lists that SDKs add to it."""
    given = {k: v for k, v in request.query_params.items() if not k.startswith("include[")}
    given.pop("include", None)
    try:
        query = msgspec.convert(given, Retrieve, strict=False)
    except msgspec.ValidationError as error:
        told = misfit(error)
    else:
        return query
    raise told


async def _cancel(request: Request) -> Response:
    """Cancel a response that is at work or waits; what has ended stays as it is."""
    engine, own = await _found(request)
    newest = (await engine.world.store.responses(own.run.conversation, own.run.id))[-1]
    if newest.id == own.response.id:
        await engine.cancel(own.run.conversation, own.run.id)
        own = await known(engine, principal_of(request).tenant, own.response)
    return answer(own.describe(await _now(engine, own)))


async def _delete(request: Request) -> Response:
    """Answer for a response no longer; the conversation keeps what was said."""
    engine, own = await _found(request)
    await engine.world.store.do(
        DeleteResponse(
            conversation=own.run.conversation,
            now_ms=engine.world.clock.now_ms(),
            response=own.response.id,
        )
    )
    return answer({"id": own.response.id, "object": "response", "deleted": True})


async def _input_items(request: Request) -> Response:
    """List the items that a response's request brought."""
    listing = queried(request, Listing)
    engine, own = await _found(request)
    store, conversation = engine.world.store, own.run.conversation
    messages = []
    for name in own.response.input:
        waiting = await store.run_input(conversation, own.run.id) if name == own.run.input else None
        messages.append(waiting or await store.message(conversation, name))
    row = await store.conversation(conversation)
    items = [*await _outputs(engine, own), *await all_items(engine, row, messages)]
    return answer(page_of(items, listing))


async def _outputs(engine: Engine, own: Known) -> list[Json]:
    """Return the outputs that a response began with: the first that its events tell of."""
    store, conversation = engine.world.store, own.run.conversation
    brought: list[Json] = []
    for row in await store.events(conversation, own.response.since):
        event = decode_event(row.data)
        if not isinstance(event, CallChanged):
            break
        call = next(
            c for c in await store.calls(conversation, event.run) if c.call_id == event.call
        )
        brought.append(output_json(result_of(call), f"{call.message}.o{call.order}"))
    return brought


async def _count(request: Request) -> Response:
    """Count the tokens of what a request would send: an upper estimate, by its size."""
    body = await decoded(request, Asked)
    return answer({"object": "response.input_tokens", "input_tokens": await counted(request, body)})


# Shared by them.


async def _found(request: Request) -> tuple[Engine, Known]:
    engine = engine_of(request)
    tenant = principal_of(request).tenant
    return engine, await find(engine, tenant, request.path_params["response"])


async def _now(engine: Engine, own: Known) -> Stretch:
    """Return how a response stands: as it ended, or canceled since, while it waited."""
    stretch = await so_far(engine, own)
    if stretch.status is Status.COMPLETED and own.run.status is RunStatus.CANCELED:
        newest = (await engine.world.store.responses(own.run.conversation, own.run.id))[-1]
        if newest.id == own.response.id:
            return replace(stretch, status=Status.CANCELLED, code=own.run.error_code)
    return stretch


def _streamed(
    request: Request,
    engine: Engine,
    own: Known,
    *,
    after: int = NOTHING_TOLD,
    fine: bool = False,
) -> EventStream:
    streams = request.app.state.streams
    assert isinstance(streams, Streams)
    events = follow(
        engine,
        own,
        after=after,
        takes_withdrawals=request.headers.get(WITHDRAW) == "1",
        fine=fine,
    )
    return EventStream(
        _frames(request, own, events), streams, engine.world.settings, headers=_told(own)
    )


def _told(own: Known) -> dict[str, str]:
    """Return what is said of a history that was repaired."""
    return repairs_told(own.run.options.repairs)


ACCEPTED_S: Final = 1.0
"""How long an unknown outcome is kept behind the event before it. The Vercel AI SDK sends a request again
whose failure follows `response.in_progress` within 50 ms; a stream's events have no word against that."""


async def _frames(
    request: Request, own: Known, events: AsyncGenerator[Event, None]
) -> AsyncGenerator[bytes, None]:
    had = False
    try:
        async for event in events:
            if _tells_unknown(event):
                await asyncio.sleep(ACCEPTED_S)
            yield frame(msgspec.json.encode(event.as_json()), event=event.type)
        had = True
    finally:
        await events.aclose()
        _forget(request, own, had=had)


def _tells_unknown(event: Event) -> bool:
    match event.fields.get("response"):
        case {"error": {"code": OutcomeUnknown.default_code}}:
            return True
        case _:
            return False


def _forget(request: Request, own: Known, *, had: bool) -> None:
    """Let what was not to be stored go, now that who asked for it has had it, or has left.

    A client that brought a key of its own may repeat the request, whatever it has had.
    """
    if not own.response.stored:
        had = had and HEADER not in request.headers
        engine_of(request).erasure.forget_later(own.response, had=had)


routes: Final = [
    Endpoint("POST", PATH, _create, body=Create, answer=dict[str, Any], starts=True),
    Endpoint(
        "POST", PATH + "/input_tokens", _count, body=Asked, answer=dict[str, Any], right=Right.READ
    ),
    Endpoint("POST", PATH + "/compact", compact, body=Compact, answer=dict[str, Any]),
    Endpoint("GET", ONE, _retrieve, query=Retrieve, answer=dict[str, Any]),
    Endpoint("DELETE", ONE, _delete, answer=dict[str, Any]),
    Endpoint("POST", ONE + "/cancel", _cancel, answer=dict[str, Any]),
    Endpoint("GET", ONE + "/input_items", _input_items, query=Listing, answer=dict[str, Any]),
]
