"""What happens in a conversation, as it happens, with two cursors.

Durable events are numbered and come again after any number: `?after=`, or `Last-Event-ID`.
Preview text has no number: it is addressed by run, generation, block and offset, and whoever
attaches gets the whole of it once. So nothing is missed and nothing is told twice, and an end
in good order (`end`) differs from a connection that broke.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from antiphon.core.events import CaughtUp, Durable, Preview, StreamItem
from antiphon.core.ids import ConversationId, RunId
from antiphon.core.records import Conversation
from antiphon.core.telling.attach import (
    Delta,
    End,
    Ending,
    Frame,
    Frames,
    Held,
    Numbered,
    Reached,
    Snapshot,
)
from antiphon.errors import InvalidInput
from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.http.body import Query, answer, engine_of, queried
from antiphon.server.http.sse import EventStream, Streams, frame
from antiphon.server.resources.conversations import ONE
from antiphon.server.rights.scope import view_of

POLL_S: Final = 25.0
"""How long a poll waits for news: less than what stands between usually waits for an answer."""

PREVIEW_POLL_S: Final = 1.0
"""How long it waits for more of an answer that is being shown."""


class After(Query, frozen=True, kw_only=True):
    """From where: the number of the last durable event that the client has."""

    after: Annotated[int, Meta(ge=0)] = 0


def after_of(request: Request, row: Conversation) -> int:
    """Return the cursor that the client has; the header is newer than the address.

    Raises:
        InvalidInput: `bad_cursor`: no number, or one from the future.
    """
    after = queried(request, After).after
    last = request.headers.get("last-event-id", "")
    if last:
        if not (last.isascii() and last.isdigit()):
            raise InvalidInput("A cursor is a number.", code="bad_cursor", at=last[:80])
        after = int(last)
    return reached(after, row)


def reached(after: int, row: Conversation) -> int:
    """Return a cursor that the conversation has come to.

    Raises:
        InvalidInput: `bad_cursor`: it is from the future.
    """
    if after > row.last_event:
        raise InvalidInput(
            f"This cursor is from the future: the conversation has {row.last_event} events.",
            code="bad_cursor",
            at=str(after),
        )
    return after


async def _events(request: Request) -> Response:
    """Follow a conversation: what came after the cursor, then what comes."""
    row = await view_of(request).conversation(request.path_params["conversation"])
    after = after_of(request, row)
    engine = engine_of(request)
    teller = Teller(after)
    streams = request.app.state.streams
    assert isinstance(streams, Streams)
    return EventStream(
        teller.written(engine.follow(row.id, after)),
        streams,
        engine.world.settings,
        farewell=teller.farewell,
    )


async def _poll(request: Request) -> Response:
    """Return what came after the cursor, at once or as soon as there is anything.

    For those whose way here keeps a stream until it is whole. Where an answer is being shown,
    this returns at least once a second, with all of it so far.
    """
    row = await view_of(request).conversation(request.path_params["conversation"])
    teller = Teller(after_of(request, row))
    engine = engine_of(request)
    told: list[Frame] = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(min(POLL_S, engine.world.settings.stream_s)) as patience:
            async with contextlib.aclosing(
                teller.frames(engine.follow(row.id, teller.seq))
            ) as frames:
                async for told_now in frames:
                    told.append(told_now)
                    if not teller.caught_up:
                        continue
                    if not isinstance(told_now, Reached) or _has_news(told):
                        break
                    if len(told) > 1:  # a preview, of which the client may have all
                        patience.reschedule(asyncio.get_running_loop().time() + PREVIEW_POLL_S)
    return answer(Frames(frames=tuple(told)))


def _has_news(told: list[Frame]) -> bool:
    return any(isinstance(frame, Numbered) for frame in told)


class Teller:
    """Puts what a follower is told into frames, and knows how far it has come."""

    def __init__(self, after: int) -> None:
        self.seq = after
        self.caught_up = False

    async def frames(self, stream: AsyncGenerator[StreamItem, None]) -> AsyncGenerator[Frame, None]:
        """Yield the frames of `stream`."""
        held: list[Preview] = []
        async with contextlib.aclosing(stream):
            async for item in stream:
                if isinstance(item, Preview):
                    if self.caught_up:
                        yield _delta(item)
                    else:
                        held.append(item)
                    continue
                for snapshot in _snapshots(held):
                    yield snapshot
                held.clear()
                match item:
                    case Durable():
                        self.seq = item.seq
                        yield Numbered(seq=item.seq, at_ms=item.at_ms, event=item.event)
                    case CaughtUp():
                        self.caught_up = True
                        yield Reached(seq=item.seq)

    async def written(
        self, stream: AsyncGenerator[StreamItem, None]
    ) -> AsyncGenerator[bytes, None]:
        """Yield the frames of `stream` as bytes."""
        async with contextlib.aclosing(self.frames(stream)) as frames:
            async for told in frames:
                yield written(told)

    def farewell(self, reason: Ending) -> bytes:
        """Return the last frame of a stream that the server closes."""
        return written(self.end(reason))

    def end(self, reason: Ending) -> End:
        """Return what a follower is told where the server closes its stream."""
        retry_ms = 0 if reason is Ending.RECYCLED else 1_000
        return End(reason=reason, seq=self.seq, retry_ms=retry_ms)


def written(told: Frame, *, of: ConversationId | None = None) -> bytes:
    """Return a frame as bytes: named after what it is or, beside others, after its conversation."""
    named = told.event if isinstance(told, Numbered) else told
    return frame(
        msgspec.json.encode(told),
        event=of or str(type(named).__struct_config__.tag),
        number=told.seq if isinstance(told, Numbered) else None,
    )


def _delta(piece: Preview) -> Delta:
    return Delta(
        run=piece.run,
        generation=piece.generation,
        block=piece.block,
        channel=piece.channel,
        offset=piece.offset,
        text=piece.text,
    )


def _snapshots(pieces: list[Preview]) -> list[Snapshot]:
    """Return one snapshot per run: nothing was told of it before, so the pieces are all there is."""
    blocks: dict[tuple[RunId, int], list[Held]] = {}
    for piece in pieces:
        held = Held(block=piece.block, channel=piece.channel, text=piece.text)
        blocks.setdefault((piece.run, piece.generation), []).append(held)
    return [
        Snapshot(run=run, generation=generation, blocks=tuple(held))
        for (run, generation), held in blocks.items()
    ]


routes: Final = [
    Endpoint(
        "GET",
        ONE + "/events",
        _events,
        query=After,
        answer=Frame,
        media_type="text/event-stream",
    ),
    Endpoint("GET", ONE + "/events/poll", _poll, query=After, answer=Frames),
]
