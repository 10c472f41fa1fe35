"""Following a conversation over a network that cuts, stalls and hides: nothing missed or doubled.

A stream is only a way to get frames; what they mean is decided by `antiphon.client.state`. When
one breaks, goes silent or leaves a gap, another is attached at the cursor. When streams come to
nothing twice in a row, as behind something that keeps an answer until it is whole, the same
frames are asked for by polling, and a stream is tried again from time to time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import aiohttp
import msgspec

from antiphon.client.state import State, attached, fresh, reduce
from antiphon.client.wire import Lost, Pause, Wire, lost_by, not_antiphon
from antiphon.core.events import CaughtUp, Durable, StreamItem
from antiphon.core.telling.attach import Ending, Frame, Frames, Numbered
from antiphon.core.wire.events import Broken, Event
from antiphon.core.wire.sse import EventStream

MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
"""A whole preview is one frame."""

FRUITLESS: Final = 2
"""So many streams in a row that did not come so far as to be caught up, and polling begins."""

POLLS: Final = 20
"""So many polls, and a stream is tried again."""

AFTER_SHUTDOWN_S: Final = 1.0

_decode = msgspec.json.Decoder(Frame).decode


class Feed:
    """One follower of one conversation.

    Attributes:
        state: What it knows; as frames come, never ahead of what it has yielded.
    """

    def __init__(self, wire: Wire, path: str, after: int) -> None:
        self.state = State(seq=after)
        self._wire = wire
        self._path = path
        self._fruitless = 0
        self._polls = 0

    async def items(self) -> AsyncGenerator[StreamItem, None]:
        """Yield what came after the cursor, previews, and what comes, for ever.

        Raises:
            ServerUnavailable: Nothing came for as long as patience lasts.
            AntiphonError: What the server says: unknown conversation, no right to see it.
        """
        loop, pause = asyncio.get_running_loop(), Pause()
        heard_at = loop.time()
        told_caught_up = False
        while True:
            self.state = attached(self.state)
            lost: Lost | None = None
            try:
                async with aclosing(self._frames()) as frames:
                    async for frame in frames:
                        before, self.state = self.state, reduce(self.state, frame)
                        for item in told(before, self.state, frame):
                            if not isinstance(item, CaughtUp) or not told_caught_up:
                                yield item
                            told_caught_up |= isinstance(item, CaughtUp)
                        heard_at = loop.time()
                        if self.state.behind or self.state.ended is not None:
                            break
            except (Lost, aiohttp.ClientError, TimeoutError) as error:
                lost = error if isinstance(error, Lost) else lost_by(error)
            if self.state.caught_up:
                pause.reset()
                self._fruitless = 0
            elif lost is None or lost.sent:
                self._fruitless += 1
            if lost is not None and loop.time() - heard_at > self._wire.patience.total_s:
                raise self._wire.unavailable(lost)
            if self.state.ended is Ending.SHUTDOWN:
                await asyncio.sleep(AFTER_SHUTDOWN_S)
            elif self.state.ended is None and not (self._polling and self.state.caught_up):
                await asyncio.sleep(pause.seconds())

    @property
    def _polling(self) -> bool:
        return self._polls > 0

    def _frames(self) -> AsyncGenerator[Frame, None]:
        if self._fruitless >= FRUITLESS:
            self._fruitless, self._polls = 0, POLLS
        if self._polls > 0:
            self._polls -= 1
            return self._polled()
        return self._streamed()

    async def _polled(self) -> AsyncGenerator[Frame, None]:
        path = f"{self._path}/poll?after={self.state.seq}"
        async with self._wire.answered("GET", path) as answer:
            data = await answer.read()
        try:
            frames = msgspec.json.decode(data, type=Frames).frames
        except msgspec.DecodeError as error:
            raise not_antiphon(str(error)) from None
        for frame in frames:
            yield frame

    async def _streamed(self) -> AsyncGenerator[Frame, None]:
        path = f"{self._path}?after={self.state.seq}"
        async with self._wire.answered("GET", path, streamed=True) as answer:
            if answer.content_type != "text/event-stream":
                raise not_antiphon(f"a stream of {answer.content_type}")
            events = EventStream(MAX_FRAME_BYTES)
            async for data in answer.content.iter_any():
                for event in events.feed(data):
                    yield _frame(event)
        # What the end of the body left unterminated was cut off, and comes again.


def _frame(event: object) -> Frame:
    match event:
        case Event(data=data):
            try:
                frame: Frame = _decode(data)
            except msgspec.DecodeError as error:
                problem = str(error)
            else:
                return frame
        case Broken(message=message):
            problem = message
        case _:
            problem = "an event without a frame"
    raise not_antiphon(problem)


def told(before: State, after: State, frame: Frame) -> list[StreamItem]:
    """Return what the step from `before` to `after` tells a reader."""
    if isinstance(frame, Numbered) and after.seq > before.seq:
        return [Durable(frame.seq, frame.at_ms, frame.event)]
    if after.caught_up and not before.caught_up:
        return [CaughtUp(after.seq)]
    return list(fresh(before, after))
