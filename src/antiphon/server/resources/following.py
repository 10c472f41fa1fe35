"""The events of several conversations in one stream.

A browser opens six connections to a host that speaks HTTP/1.1, and every stream holds one. So
whoever looks at many conversations asks for all of them at once: each event is named after its
conversation, and its data are the frame that the conversation's own stream would have told.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from antiphon.core.ids import ConversationId
from antiphon.core.telling.attach import Ending, Frame
from antiphon.errors import AntiphonError, InvalidInput
from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.http.body import Query, engine_of, queried
from antiphon.server.http.faults import Error, ErrorBody, error_body, status_of
from antiphon.server.http.sse import EventStream, Streams, frame
from antiphon.server.resources.events import Teller, reached, written
from antiphon.server.rights.scope import view_of

MOST: Final = 100
"""So many conversations in one stream: more than anybody looks at, and an address of 5 KB."""


class Cursors(Query, frozen=True, kw_only=True):
    """From where in each: `conv_…:12,conv_…:0`, the last event that the client has of it."""

    after: Annotated[
        str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}:[0-9]{1,15}(,[A-Za-z0-9_-]{1,64}:[0-9]{1,15})*$")
    ]


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused", tag_field="type"):
    """Nothing will come of a conversation: what its own stream would have been answered."""

    status: int
    error: Error


async def _events(request: Request) -> Response:
    """Follow several conversations at once; each event is named after the one that it is of.

    One that cannot be followed says so by a `refused` of its own, and the others go on.
    """
    engine = engine_of(request)
    view = view_of(request)
    tellers: dict[ConversationId, Teller] = {}
    refused: list[bytes] = []
    for name, after in _cursors(queried(request, Cursors).after).items():
        try:
            tellers[name] = Teller(reached(after, await view.conversation(name)))
        except AntiphonError as error:
            refused.append(frame(msgspec.json.encode(_refused(request, error)), event=name))

    async def told() -> AsyncGenerator[bytes, None]:
        for answer in refused:
            yield answer
        sources = {
            name: teller.frames(engine.follow(name, teller.seq)) for name, teller in tellers.items()
        }
        async with contextlib.aclosing(together(sources)) as frames:
            async for name, one in frames:
                yield written(one, of=name)

    def farewell(reason: Ending) -> bytes:
        ends = {name: teller.end(reason) for name, teller in tellers.items()}
        return b"".join(written(end, of=name) for name, end in ends.items())

    streams = request.app.state.streams
    assert isinstance(streams, Streams)
    return EventStream(told(), streams, engine.world.settings, farewell=farewell)


def _cursors(given: str) -> Mapping[ConversationId, int]:
    """Return the cursor of each conversation that is named; of one named twice, the last.

    Raises:
        InvalidInput: `too_many_conversations`.
    """
    pairs = [one.partition(":") for one in given.split(",")]
    if len(pairs) > MOST:
        raise InvalidInput(
            f"One stream tells of {MOST} conversations at most.",
            code="too_many_conversations",
            at="after",
        )
    return {ConversationId(name): int(after) for name, _, after in pairs}


def _refused(request: Request, error: AntiphonError) -> Refused:
    body = error_body(error, request.url.path, request.scope["state"].get("request_id", ""))
    assert isinstance(body, ErrorBody)
    return Refused(status=status_of(error), error=body.error)


async def together(
    sources: Mapping[ConversationId, AsyncGenerator[Frame, None]],
) -> AsyncGenerator[tuple[ConversationId, Frame], None]:
    """Yield the frames of all sources as they come, and close these at its own end.

    The next frame of a source is asked for once its last has been taken, so a slow reader
    costs no more than one of each.
    """
    asked: dict[asyncio.Task[Frame | None], ConversationId] = {}

    def ask(name: ConversationId) -> None:
        asked[asyncio.create_task(_next(sources[name]))] = name

    try:
        for name in sources:
            ask(name)
        while asked:
            done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                name = asked.pop(task)
                told = task.result()
                if told is not None:
                    yield name, told
                    ask(name)
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        for source in sources.values():
            await source.aclose()


async def _next(source: AsyncGenerator[Frame, None]) -> Frame | None:
    return await anext(source, None)


routes: Final = [
    Endpoint(
        "GET",
        "/antiphon/v1/events",
        _events,
        query=Cursors,
        answer=Frame | Refused,
        media_type="text/event-stream",
    ),
]
