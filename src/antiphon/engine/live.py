"""Live fan-out: durable events and previews to any number of readers, without a row per token.

A reader has two cursors: the number of the last durable event it saw, and per run how far it
has read the preview. It is woken, never fed: what it has not read yet waits in one shared
text, so a slow reader costs no memory and cannot hold up anybody. It gets the events after
its number, one whole preview per live run, `CaughtUp`, and then what comes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field
from typing import Final

from antiphon.core.answers.deltas import Channel
from antiphon.core.blocks import Opaque
from antiphon.core.events import (
    CaughtUp,
    Committed,
    Durable,
    DurableEvent,
    Preview,
    StreamItem,
    Withdrawn,
    decode_event,
)
from antiphon.core.ids import ConversationId, MessageId, RunId
from antiphon.core.records import StoredEvent
from antiphon.stores.base import Store

RING_EVENTS: Final = 256
DROPPED: Final = 4
"""How many previews of a followed conversation outlive their runs, for readers that are late."""


@dataclass(slots=True)
class _Text:
    channel: Channel
    parts: list[str] = field(default_factory=list)
    length: int = 0


class LiveRun:
    """The preview of one generation of one run: appended by its owner, read by many."""

    def __init__(
        self,
        conversation: ConversationId,
        run: RunId,
        generation: int,
        message: MessageId | None = None,
    ) -> None:
        self.conversation = conversation
        self.run = run
        self.generation = generation
        self.message = message
        self.over = False
        self.mirrored = False
        """Whether another node works on it, and this is what it showed."""
        self._first_call: int | None = None
        self._blocks: dict[int, _Text] = {}
        self._kept: dict[int, Opaque] = {}

    def append(self, block: int, channel: Channel, text: str) -> None:
        """Add a piece to a block."""
        held = self._blocks.get(block)
        if held is None:
            held = self._blocks[block] = _Text(channel)
        held.parts.append(text)
        held.length += len(text)

    def call_opened(self, block: int) -> None:
        """Note that a call begins here; of the call itself nothing is shown."""
        self._first_call = block if self._first_call is None else min(self._first_call, block)

    def keep(self, block: int, state: Opaque) -> None:
        """Hold what the provider wants back with a block: readers are not told of it."""
        self._kept[block] = state

    def kept(self, before: int) -> list[tuple[int, str, Opaque]]:
        """Return the blocks that came before block `before` and have a state, each with its text."""
        return [
            (number, "".join(self._blocks[number].parts if number in self._blocks else ()), state)
            for number, state in self._kept.items()
            if number < before
        ]

    def mirror(self, piece: Preview) -> None:
        """Add what another node has shown; what is known already falls out."""
        held = self._blocks.get(piece.block)
        known = held.length if held else 0
        if piece.offset <= known < piece.offset + len(piece.text):
            self.append(piece.block, piece.channel, piece.text[known - piece.offset :])
        if piece.after_call and self._first_call is None:
            self.call_opened(piece.block - 1)

    @property
    def shown(self) -> bool:
        """Whether there is any text that a reader may have seen."""
        return bool(self._blocks)

    def text(self, channel: Channel = Channel.TEXT) -> str:
        """Return all text of one channel so far."""
        return "".join("".join(b.parts) for b in self._blocks.values() if b.channel is channel)

    def unread(self, cursor: Cursor) -> list[Preview]:
        """Return what `cursor` has not read yet, one piece a block, and move it."""
        pieces = []
        for number, held in self._blocks.items():
            parts, offset = cursor.read.get(number, (0, 0))
            if parts < len(held.parts):
                pieces.append(
                    Preview(
                        run=self.run,
                        generation=self.generation,
                        block=number,
                        channel=held.channel,
                        offset=offset,
                        text="".join(held.parts[parts:]),
                        message=self.message,
                        after_call=self._first_call is not None and number > self._first_call,
                    )
                )
                cursor.read[number] = (len(held.parts), held.length)
        return pieces


@dataclass(slots=True)
class Cursor:
    """How far one reader has read one preview: per block, parts and code points."""

    live: LiveRun
    read: dict[int, tuple[int, int]] = field(default_factory=dict)


class _Topic:
    """What the readers of one conversation share while there are any."""

    def __init__(self) -> None:
        self.ring: deque[StoredEvent] = deque(maxlen=RING_EVENTS)
        self.dropped: deque[LiveRun] = deque(maxlen=DROPPED)
        self.readers = 0
        self.changes = 0
        self._asleep: set[asyncio.Future[None]] = set()
        self.newest: int | None = None  # None until the store was read once
        self.reading: dict[int, asyncio.Future[list[StoredEvent]]] = {}
        self.failure: BaseException | None = None

    def take(self, event: StoredEvent) -> None:
        """Hold an event that was told here. Another node may have told some before it."""
        if self.newest is not None:
            if event.seq <= self.newest:
                return
            if event.seq != self.newest + 1:
                self.ring.clear()
        self.ring.append(event)
        self.newest = event.seq
        self.wake()

    def read(self, seq: int, done: asyncio.Future[list[StoredEvent]]) -> None:
        """Let nobody share a reading any more that is over."""
        if self.reading.get(seq) is done:
            del self.reading[seq]

    def wake(self) -> None:
        """Have every reader look again; who looks just now finds `changes` moved."""
        self.changes += 1
        for reader in self._asleep:
            if not reader.done():
                reader.set_result(None)
        self._asleep.clear()

    async def changed(self, seen: int) -> None:
        """Wait until something has changed since `changes` was `seen`."""
        if self.changes != seen:
            return
        reader = asyncio.get_running_loop().create_future()
        self._asleep.add(reader)
        try:
            await reader
        finally:
            self._asleep.discard(reader)


class Broker:
    """In-process fan-out over one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._topics: dict[ConversationId, _Topic] = {}
        self._live: dict[RunId, LiveRun] = {}
        self._live_in: dict[ConversationId, dict[RunId, LiveRun]] = {}
        store.on_events(self._deliver)

    def _deliver(self, events: list[StoredEvent]) -> None:
        for event in events:
            if event.run in self._live:
                self._note_end(decode_event(event.data))
            topic = self._topics.get(event.conversation)
            if topic is not None:
                topic.take(event)

    def _note_end(self, event: DurableEvent) -> None:
        """Show a preview to nobody new once its generation is committed or withdrawn."""
        if isinstance(event, Committed | Withdrawn):
            live = self._live.get(event.run)
            if live is not None and event.generation == live.generation:
                live.over = True

    def followed(self) -> frozenset[ConversationId]:
        """Return the conversations that somebody follows."""
        return frozenset(self._topics)

    def reached(self, conversation: ConversationId, seq: int) -> None:
        """Learn that a conversation has events up to number `seq`, whoever has told them."""
        topic = self._topics.get(conversation)
        if topic is not None and (topic.newest is None or topic.newest < seq):
            topic.ring.clear()
            topic.reading.clear()  # what is being read may be older than this
            topic.newest = seq
            topic.wake()

    def open(
        self,
        conversation: ConversationId,
        run: RunId,
        generation: int,
        message: MessageId | None = None,
    ) -> LiveRun:
        """Begin the preview of a generation; it replaces the run's last one."""
        live = self._live[run] = LiveRun(conversation, run, generation, message)
        self._live_in.setdefault(conversation, {})[run] = live
        return live

    def publish(self, live: LiveRun) -> None:
        """Tell the readers that `live` has grown."""
        topic = self._topics.get(live.conversation)
        if topic is not None:
            topic.wake()

    def drop(self, run: RunId) -> None:
        """Forget a run's preview. Readers that follow it keep what they hold."""
        live = self._live.pop(run, None)
        if live is not None:
            here, topic = self._live_in[live.conversation], self._topics.get(live.conversation)
            if topic is not None:  # a reader may still be on its way to the commit of it
                topic.dropped.append(live)
            del here[run]
            if not here:
                del self._live_in[live.conversation]

    def fail(self, conversation: ConversationId, error: BaseException) -> None:
        """Raise `error` in everyone who follows the conversation: nothing more will come."""
        topic = self._topics.get(conversation)
        if topic is not None:
            topic.failure = error
            topic.wake()

    def preview(self, run: RunId) -> LiveRun | None:
        """Return the run's current preview."""
        return self._live.get(run)

    async def follow(
        self, conversation: ConversationId, after: int
    ) -> AsyncGenerator[StreamItem, None]:
        """Yield everything after durable event number `after`, for ever.

        Nothing is missed or told twice. A commit is told after all of its preview, so a
        reader that prints previews has printed the whole answer by then.
        """
        topic = self._topics.setdefault(conversation, _Topic())
        topic.readers += 1
        cursors: dict[RunId, Cursor] = {}
        seq, caught_up = after, False
        try:
            while True:
                seen = topic.changes
                while (topic.newest is None or topic.newest > seq) and (
                    rows := await self._after(topic, conversation, seq)
                ):
                    for row in rows:
                        event = decode_event(row.data)
                        for piece in self._before(event, topic, cursors):
                            yield piece
                        self._note_end(event)
                        seq = row.seq
                        yield Durable(seq, row.at_ms, event)
                        _let_go(event, cursors)
                for piece in self._grown(conversation, cursors):
                    yield piece
                if not caught_up:
                    caught_up = True
                    yield CaughtUp(seq)
                if topic.failure is not None:
                    raise topic.failure
                await topic.changed(seen)
        finally:
            topic.readers -= 1
            if not topic.readers:
                self._topics.pop(conversation, None)

    async def _after(
        self, topic: _Topic, conversation: ConversationId, seq: int
    ) -> Iterable[StoredEvent]:
        """Return events after `seq`: from memory where it reaches back so far."""
        if topic.ring and topic.ring[0].seq <= seq + 1:
            return [event for event in topic.ring if event.seq > seq]
        rows = self._store.events_at_hand(conversation, seq)
        if rows is None:
            rows = await self._read(topic, conversation, seq)
        newest = rows[-1].seq if rows else seq
        if topic.newest is None or topic.newest < newest:
            topic.newest = newest
            topic.wake()  # who sleeps has not read so far, and would not be told of it any more
        return rows

    async def _read(
        self, topic: _Topic, conversation: ConversationId, seq: int
    ) -> list[StoredEvent]:
        """Read events; readers who come together ask together: a hundred who attach cost one read."""
        reading = topic.reading.get(seq)
        if reading is None:
            reading = asyncio.ensure_future(self._store.events(conversation, seq))
            topic.reading[seq] = reading
            reading.add_done_callback(lambda done: topic.read(seq, done))
        return await asyncio.shield(reading)  # it is not this reader's alone

    def _before(
        self, event: DurableEvent, topic: _Topic, cursors: dict[RunId, Cursor]
    ) -> list[Preview]:
        """Return the rest of a preview that `event` makes obsolete by committing it."""
        if not isinstance(event, Committed):
            return []
        held = cursors.get(event.run)
        known = [held.live] if held else [self._live.get(event.run), *topic.dropped]
        for live in known:
            if live and (live.run, live.generation) == (event.run, event.generation):
                return live.unread(held or Cursor(live))
        return []

    def _grown(self, conversation: ConversationId, cursors: dict[RunId, Cursor]) -> list[Preview]:
        pieces: list[Preview] = []
        for run, live in self._live_in.get(conversation, {}).items():
            if live.over:
                continue
            cursor = cursors.get(run)
            if cursor is None or cursor.live is not live:
                cursor = cursors[run] = Cursor(live)
            pieces.extend(live.unread(cursor))
        return pieces


def _let_go(event: DurableEvent, cursors: dict[RunId, Cursor]) -> None:
    """Forget the preview that `event` has made obsolete, so that who stays for ever holds little."""
    if isinstance(event, Committed | Withdrawn):
        cursor = cursors.get(event.run)
        if cursor is not None and cursor.live.generation == event.generation:
            del cursors[event.run]
