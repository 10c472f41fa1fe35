"""Reading a response: from the store, as it stands, and as it goes on.

Whoever reads begins at the response's first event, so that every number comes out the same;
what the reader has already is left out by its number.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final, TypedDict

from antiphon.core import events
from antiphon.core.blocks import Message
from antiphon.core.events import CaughtUp, Durable, DurableEvent, Preview, decode_event
from antiphon.core.ids import CallId, ResponseId, TenantId
from antiphon.core.records import Call, Response, Run, RunStatus
from antiphon.engine.engine import Engine
from antiphon.errors import AntiphonError, Erased, NotFound, OutcomeUnknown
from antiphon.handles.run import RunHandle
from antiphon.library import Local
from antiphon.server.responses.output import Json
from antiphon.server.responses.request import Create, read_echo
from antiphon.server.responses.resource import resource
from antiphon.server.responses.write import HAS_ALL, NOTHING_TOLD, Event, Status, Stretch, Writer

UNKNOWN_GRACE_S: Final = 2.0
"""How long an unknown outcome may stay so before whoever waits is told. Most are settled at once:
the connection broke, so the request can no longer reach us, and it is tried again."""


class _Belongings(TypedDict, total=False):
    message: Message
    calls: Mapping[CallId, Call]
    failure: AntiphonError


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A response with what belongs to it: its run, and what was asked."""

    response: Response
    run: Run
    asked: Create

    def describe(self, stretch: Stretch) -> Json:
        """Return the response object as it stands after `stretch`."""
        return resource(self.response, self.asked, self.run.options.model, stretch)


async def find(engine: Engine, tenant: TenantId, response: str) -> Known:
    """Return a response of this tenant.

    Raises:
        NotFound: There is none, or it was deleted, or its conversation was.
        Erased: It is there, and what it said is not.
    """
    row = await engine.world.store.response(tenant, ResponseId(response))
    if row.deleted or (await engine.world.store.conversation(row.conversation)).deleted:
        raise NotFound("There is no such response.", at=response)
    return await known(engine, tenant, row)


async def known(
    engine: Engine, tenant: TenantId, response: Response, asked: Create | None = None
) -> Known:
    """Return what belongs to a response; `asked` is its request, where that is at hand.

    Raises:
        Erased: It was erased.
    """
    if response.erased:
        raise Erased("What this response was asked and said was erased.", at=response.id)
    store = engine.world.store
    run = await store.run(response.conversation, response.run)
    if asked is None:
        asked = Create()
        if response.request is not None:
            asked = read_echo(await store.content(tenant, response.request))
    return Known(response=response, run=run, asked=asked)


async def so_far(engine: Engine, known: Known) -> Stretch:
    """Return how far a response has come, by what is durable."""
    writer = Writer(known.run.id, known.describe, after=HAS_ALL)
    seq = known.response.since
    while rows := await engine.world.store.events(known.response.conversation, seq):
        for row in rows:
            event = decode_event(row.data)
            writer.read(event, row.at_ms, **await _belongings(engine, known, event))
            if writer.stretch.over:
                return writer.stretch
        seq = rows[-1].seq
    return writer.stretch


async def follow(
    engine: Engine,
    known: Known,
    *,
    after: int = NOTHING_TOLD,
    takes_withdrawals: bool = False,
    fine: bool = False,
) -> AsyncGenerator[Event, None]:
    """Yield the events of a response from number `after` on, until its last."""
    writer = Writer(
        known.run.id,
        known.describe,
        after=after,
        takes_withdrawals=takes_withdrawals,
        fine=fine,
    )
    stream = engine.follow(known.response.conversation, known.response.since)
    try:
        async for item in stream:
            told: Iterable[Event] = ()
            match item:
                case Preview():
                    told = writer.show(item)
                case Durable(event=event, at_ms=at_ms):
                    belongings = await _belongings(engine, known, event)
                    told = writer.tell(event, at_ms, **belongings)
                case CaughtUp():
                    writer.fine = False
            for one in told:
                yield one
            if isinstance(item, Durable) and writer.stretch.over:
                return
    finally:
        await stream.aclose()


async def ended(engine: Engine, known: Known) -> Stretch:
    """Wait for a response to end, and return it.

    Raises:
        OutcomeUnknown: Nobody knows what the provider did, and it does not show soon.
    """
    writer = Writer(known.run.id, known.describe, after=HAS_ALL)
    stream = engine.follow(known.response.conversation, known.response.since)
    unknown = False
    try:
        items = aiter(stream)
        while not writer.stretch.over:
            async with asyncio.timeout(UNKNOWN_GRACE_S) if unknown else nullcontext():
                item = await anext(items)
            if isinstance(item, Durable):
                event = item.event
                if isinstance(event, events.RunChanged) and event.run == known.run.id:
                    unknown = event.status is RunStatus.UNKNOWN
                belongings = await _belongings(engine, known, event)
                writer.read(event, item.at_ms, **belongings)
    except TimeoutError:
        raise unknown_outcome(known) from None
    finally:
        await stream.aclose()
    if writer.stretch.status is Status.FAILED and writer.stretch.code == "outcome_unknown":
        raise unknown_outcome(known)
    return writer.stretch


def unknown_outcome(known: Known) -> OutcomeUnknown:
    """Return the error of a response of which nobody knows what became."""
    return OutcomeUnknown(
        "The provider may have done the work; nothing came back, and it was not asked again. "
        f"See the response {known.response.id}.",
        at=known.run.id,
    )


async def _belongings(engine: Engine, known: Known, event: DurableEvent) -> _Belongings:
    """Return the rows that an event of this run names."""
    store, run = engine.world.store, known.run.id
    conversation = known.response.conversation
    match event:
        case events.Committed(run=of, message=message, calls=calls) if of == run:
            rows = await store.calls(conversation, run, message) if calls else []
            return {
                "message": await store.message(conversation, message),
                "calls": {call.call_id: call for call in rows},
            }
        case events.RunChanged(run=of, status=RunStatus.ERROR, code=code) if of == run:
            handle = RunHandle(Local(engine), known.run)
            return {"failure": await handle.failure(RunStatus.ERROR, code)}
        case events.CallChanged(run=of, call=call) if of == run:
            rows = [c for c in await store.calls(conversation, run) if c.call_id == call]
            return {"calls": {c.call_id: c for c in rows}}
        case _:
            return {}
