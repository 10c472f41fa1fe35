"""What happens in a conversation, as it happens, with two cursors.

Durable events are numbered and come again after any number: `?after=`, or `Last-Event-ID`.
Preview text has no number: it is addressed by run, generation, block and offset, and whoever
attaches gets the whole of it once. So nothing is missed and nothing is told twice, and an end
in good order (`end`) differs from a connection that broke.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from antiphon.core.deltas import Channel
from antiphon.core.events import CaughtUp, Durable, DurableEvent, Preview, StreamItem
from antiphon.core.ids import RunId
from antiphon.core.records import Conversation
from antiphon.errors import InvalidInput
from antiphon.server.body import Query, engine_of, queried
from antiphon.server.endpoints import Endpoint
from antiphon.server.resources.conversations import ONE
from antiphon.server.scope import view_of
from antiphon.server.sse import Ending, EventStream, Streams, frame


class After(Query, frozen=True, kw_only=True):
    """From where: the number of the last durable event that the client has."""

    after: Annotated[int, Meta(ge=0)] = 0


class Numbered(msgspec.Struct, frozen=True, kw_only=True, tag="durable", tag_field="type"):
    """A durable event with its number, which is the cursor to come back with."""

    seq: int
    at_ms: int
    event: DurableEvent


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """All text of one block so far."""

    block: int
    channel: Channel
    text: str


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, tag="preview.snapshot", tag_field="type"):
    """The whole preview of a live run: it stands for all that was shown of the run before."""

    run: RunId
    generation: int
    blocks: tuple[Held, ...]


class Delta(msgspec.Struct, frozen=True, kw_only=True, tag="preview.delta", tag_field="type"):
    """More text of a block, which may still be withdrawn; `offset` counts code points before it."""

    run: RunId
    generation: int
    block: int
    channel: Channel
    offset: int
    text: str


class Reached(msgspec.Struct, frozen=True, kw_only=True, tag="caught_up", tag_field="type"):
    """All up to `seq` has been told; what follows is happening now."""

    seq: int


class End(msgspec.Struct, frozen=True, kw_only=True, tag="end", tag_field="type"):
    """The server closes this stream in good order: come back with `seq`, after `retry_ms`."""

    reason: Ending
    seq: int
    retry_ms: int


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
        teller.frames(engine.follow(row.id, after)),
        streams,
        engine.world.settings,
        farewell=teller.farewell,
    )


class Teller:
    """Puts what a follower is told into frames, and knows how far it has come."""

    def __init__(self, after: int) -> None:
        self.seq = after
        self._caught_up = False

    async def frames(self, stream: AsyncGenerator[StreamItem, None]) -> AsyncGenerator[bytes, None]:
        """Yield the frames of `stream`."""
        held: list[Preview] = []
        try:
            async for item in stream:
                if isinstance(item, Preview):
                    if self._caught_up:
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
                        yield _durable(item)
                    case CaughtUp():
                        self._caught_up = True
                        yield _told(Reached(seq=item.seq))
        finally:
            await stream.aclose()

    def farewell(self, reason: Ending) -> bytes:
        """Return the last frame of a stream that the server closes."""
        retry_ms = 0 if reason is Ending.RECYCLED else 1_000
        return _told(End(reason=reason, seq=self.seq, retry_ms=retry_ms))


def _durable(item: Durable) -> bytes:
    name = type(item.event).__struct_config__.tag
    data = msgspec.json.encode(Numbered(seq=item.seq, at_ms=item.at_ms, event=item.event))
    return frame(data, event=str(name), number=item.seq)


def _told(event: Snapshot | Delta | Reached | End) -> bytes:
    return frame(msgspec.json.encode(event), event=str(type(event).__struct_config__.tag))


def _delta(piece: Preview) -> bytes:
    return _told(
        Delta(
            run=piece.run,
            generation=piece.generation,
            block=piece.block,
            channel=piece.channel,
            offset=piece.offset,
            text=piece.text,
        )
    )


def _snapshots(pieces: list[Preview]) -> list[bytes]:
    """Return one snapshot per run: nothing was told of it before, so the pieces are all there is."""
    blocks: dict[tuple[RunId, int], list[Held]] = {}
    for piece in pieces:
        held = Held(block=piece.block, channel=piece.channel, text=piece.text)
        blocks.setdefault((piece.run, piece.generation), []).append(held)
    return [
        _told(Snapshot(run=run, generation=generation, blocks=tuple(held)))
        for (run, generation), held in blocks.items()
    ]


routes: Final = [
    Endpoint(
        "GET",
        ONE + "/events",
        _events,
        query=After,
        answer=Numbered | Snapshot | Delta | Reached | End,
        media_type="text/event-stream",
    ),
]
