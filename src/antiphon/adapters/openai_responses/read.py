"""Reads answers of OpenAI Responses, streamed or whole: events in, deltas out.

An answer is a list of items, and each item is closed by itself: what it then says of itself is
the copy that counts, and what came before in pieces has to agree with it. The answer has ended
with the event that holds the whole response. Other servers number no events and no items, or
send no pieces at all; a stream that was taken up again begins in the midst of an item, and may
repeat what had come before. None of that makes a difference to what is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from antiphon.adapters.answers import AnswerReader
from antiphon.adapters.json_text import decode_lenient
from antiphon.adapters.openai_chat.errors import stream_failure
from antiphon.adapters.openai_responses.errors import response_failure
from antiphon.adapters.openai_responses.items import State
from antiphon.core.answers.deltas import (
    ArgumentsDelta,
    BlockStopped,
    CallOpened,
    Channel,
    Delta,
    Failed,
    Finished,
    Meaning,
    Note,
    OpaqueState,
    Opened,
    TextDelta,
    Usage,
)
from antiphon.core.blocks import Opaque
from antiphon.core.wire.body import EVENT_STREAM, Body
from antiphon.core.wire.events import Event
from antiphon.core.wire.limits import DEFAULT_LIMITS, Limits

PROFILE: Final = "openai-responses"
PARTS: Final = 1 << 20
"""Numbers that the parts of one item may have, so that blocks sort as the items do."""

INCOMPLETE: Final[Mapping[str, Meaning]] = {
    "max_output_tokens": Meaning.TRUNCATED,
    "max_messages": Meaning.TRUNCATED,
    "steered": Meaning.TRUNCATED,
    "content_filter": Meaning.FILTERED,
}
RUNNING: Final = frozenset({"queued", "in_progress"})
ENDINGS: Final = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}
)
PIECES: Final[Mapping[str, Channel]] = {
    "response.output_text.delta": Channel.TEXT,
    "response.refusal.delta": Channel.REFUSAL,
    "response.reasoning_summary_text.delta": Channel.REASONING,
    "response.reasoning_text.delta": Channel.REASONING,
}
PLAIN: Final = (Channel.TEXT, Channel.REFUSAL)
BETWEEN: Final = "\n\n"
"""Stands between two parts of a summary, which are paragraphs."""


class _Part(msgspec.Struct):
    type: str = ""
    text: str = ""
    refusal: str = ""


class _Item(msgspec.Struct):
    """Any item: its fields are those of its type."""

    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    status: str | None = None
    phase: str | None = None
    content: list[_Part] | None = None
    summary: list[_Part] | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Tokens(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    input_tokens_details: _Details | None = None
    output_tokens_details: _Details | None = None


class _Reason(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    """The response as a whole: in the first events, in the last one, and for a whole answer.

    A server that repeats the limit that it was given keeps to the words of its end; of others
    it is known that they call everything completed.
    """

    id: str = ""
    model: str | None = None
    status: str | None = None
    output: list[msgspec.Raw] | None = None
    error: Any = None
    incomplete_details: _Reason | None = None
    usage: Any = None
    max_output_tokens: Any = msgspec.UNSET


class _Event(msgspec.Struct):
    """Any event of a stream: its fields are those of its type."""

    type: str = ""
    sequence_number: int | None = None
    response: _Response | None = None
    item: msgspec.Raw = msgspec.Raw(b"")
    item_id: str | None = None
    output_index: int | None = None
    content_index: int = 0
    summary_index: int = 0
    delta: Any = None
    error: Any = None
    code: Any = None
    message: str | None = None


@dataclass(slots=True)
class _Open:
    """An item that has begun. `begun` is false where its beginning never came."""

    index: int
    type: str = ""
    name: str | None = None
    begun: bool = True
    closed: bool = False
    pieces: dict[int, list[str]] = field(default_factory=dict)  # by block
    waits: bool = False  # whether arguments came, and no call that they are of
    summary: int = 0  # the paragraph that its reasoning has come to

    def block(self, part: int = 0) -> int:
        """Return the number of the block that a part of it is."""
        return self.index * PARTS + part

    def so_far(self, block: int) -> str:
        """Return what has come of a block, its characters whole."""
        text = "".join(self.pieces.get(block, ()))
        return text if text.isascii() else _mended(text)


_event: Final = msgspec.json.Decoder(_Event)
_response: Final = msgspec.json.Decoder(_Response)
_item: Final = msgspec.json.Decoder(_Item)
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class Reader(AnswerReader):
    """Reads one answer. Feed it the body as it comes, then say `end`."""

    def __init__(self, content_type: str = EVENT_STREAM, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(content_type, limits)
        self._handle: str | None = None
        self._model: str | None = None
        self._items: dict[int, _Open] = {}
        self._by_name: dict[str, _Open] = {}
        self._arrived: dict[int | None, tuple[int, int]] = {}  # event: block, and place in it
        self._last: int | None = None

    @property
    def position(self) -> str | None:
        """The number of the last event that was read whole, or None where none had a number."""
        return None if self._last is None else str(self._last)

    def reopen(self, content_type: str) -> None:
        """Read on from another body, which begins behind `position`."""
        self._body = Body(content_type, self._limits)
        self._closed = False

    def _event(self, event: Event, deltas: list[Delta]) -> None:
        try:
            said = decode_lenient(_event, event.data)
        except ValueError as error:
            self._no_event(event, error, deltas)
            return
        if event.unterminated:
            deltas.append(Note("unterminated_event"))
        if self._handle and said.response and said.response.id not in ("", self._handle):
            # Before its number is looked at: another answer counts from zero again.
            self._fail(deltas, "malformed_event", "The stream changed to another answer.")
            return
        kind, number = said.type or event.name, said.sequence_number
        channel = PIECES.get(kind)
        if channel is not None:
            self._piece(said, channel, deltas)
        elif kind == "response.function_call_arguments.delta":
            self._piece(said, None, deltas)
        elif number is not None and self._last is not None and number <= self._last:
            deltas.append(Note("repeated_event"))
            return
        else:
            self._other(kind, said, deltas)
        if number is not None and (self._last is None or number > self._last):
            self._last = number

    def _other(self, kind: str, said: _Event, deltas: list[Delta]) -> None:
        if said.response is not None:
            self._begin(said.response, deltas)
        if kind in ENDINGS:
            self._finish(said.response or _Response(status=kind.partition(".")[2]), deltas)
        elif kind == "response.output_item.added":
            self._added(said, deltas)
        elif kind == "response.output_item.done":
            self._done(said.output_index, bytes(said.item), deltas)
        elif kind == "error" or said.error is not None:
            flat = {"code": said.code, "message": said.message}
            deltas.append(stream_failure(said.error or flat))
            self._closed = True
        elif not kind.startswith("response."):
            deltas.append(Note("unknown_event"))

    def _failure(self, error: object) -> Failed:
        return stream_failure(error)

    def _whole(self, data: bytes, deltas: list[Delta]) -> None:
        said = self._read_whole(_response, data, deltas)
        if said is None:
            return
        if said.status is None and said.error is not None:
            deltas.append(stream_failure(said.error))
            self._closed = True
        elif said.status is None and said.output is None:
            self._fail(deltas, "malformed_event", "The answer is no response.")
        else:
            self._begin(said, deltas)
            self._finish(said, deltas)

    # The response around its items.

    def _begin(self, response: _Response, deltas: list[Delta]) -> None:
        self._model = response.model or self._model
        if response.id and response.id != self._handle:
            self._handle = response.id
            deltas.append(Opened(response.id))

    def _finish(self, response: _Response, deltas: list[Delta]) -> None:
        """Read the response as it stands at its end: what it holds has been said, or is said now."""
        status = response.status or "completed"
        if status in ("completed", "incomplete"):
            for index, raw in enumerate(response.output or ()):
                self._done(index, bytes(raw), deltas)
                if self._closed:
                    return
            if any(item.waits and not item.begun for item in self._items.values()):
                self._fail(
                    deltas, "orphan_argument_delta", "Arguments came for a call that never did."
                )
                return
        self._count(response.usage, deltas)
        match status:
            case "completed":
                tells_cut = response.max_output_tokens is not msgspec.UNSET
                deltas.append(Finished(status, Meaning.COMPLETE, tells_cut))
            case "incomplete":
                reason = (response.incomplete_details or _Reason()).reason or "unknown"
                meaning = INCOMPLETE.get(reason, Meaning.UNKNOWN)
                deltas.append(Finished(f"{status}:{reason}", meaning))
            case "failed" | "cancelled":
                deltas.append(Finished(status, Meaning.ERROR))
                if response.error is not None:
                    deltas.append(response_failure(response.error))
            case _ if status not in RUNNING:
                deltas.append(Finished(status, Meaning.UNKNOWN))
            case _:
                pass  # the body ends, and the response does not
        self._closed = True

    def _count(self, usage: object, deltas: list[Delta]) -> None:
        if usage is None:
            return
        try:
            told = msgspec.convert(usage, _Tokens, strict=False)
        except msgspec.ValidationError:
            deltas.append(Note("unreadable_usage"))
            return
        asked = told.input_tokens_details or _Details()
        deltas.append(
            Usage(
                input=told.input_tokens,
                output=told.output_tokens,
                total=told.total_tokens,
                cached=asked.cached_tokens,
                cache_write=asked.cache_write_tokens,
                reasoning=(told.output_tokens_details or _Details()).reasoning_tokens,
            )
        )

    # Items, as they come in pieces.

    def _added(self, said: _Event, deltas: list[Delta]) -> None:
        item = self._decoded(bytes(said.item), deltas)
        if item is None:
            return
        index = len(self._items) if said.output_index is None else said.output_index
        if index in self._items:
            self._fail(deltas, "malformed_event", f"Item {index} began twice.")
            return
        self._open(index, item, deltas)

    def _open(self, index: int, item: _Item, deltas: list[Delta]) -> _Open:
        opened = self._items.setdefault(index, _Open(index))
        opened.type, opened.name = item.type, item.name
        for name in (item.id, item.call_id):
            if name:
                self._by_name[name] = opened
        if item.type == "function_call":
            call_id = item.call_id or None
            deltas.append(CallOpened(opened.block(), call_id, item.name, needs_stop=True))
        return opened

    def _at(self, said: _Event, deltas: list[Delta]) -> _Open:
        """Return the item that an event is about: by its number, by its name, or the last."""
        item: _Open | None
        if said.output_index is not None:
            item = self._items.get(said.output_index)
        else:
            item = self._by_name.get(said.item_id or "")
            if item is None and self._items:
                item = self._items[max(self._items)]
        if item is None:
            deltas.append(Note("missing_block_start"))
            index = len(self._items) if said.output_index is None else said.output_index
            item = self._items[index] = _Open(index, begun=False)
        return item

    def _piece(self, said: _Event, channel: Channel | None, deltas: list[Delta]) -> None:
        """Take a piece of text, or of a call's arguments where there is no channel."""
        item = self._at(said, deltas)
        if not isinstance(said.delta, str):
            self._fail(deltas, "malformed_event", "A piece of text is no text.")
        elif said.sequence_number in self._arrived:
            deltas.append(Note("repeated_event"))
            block, place = self._arrived[said.sequence_number]
            deltas.append(_delta(block, channel, said.delta, place))
        elif item.closed:
            self._fail(deltas, "malformed_event", f"Item {item.index} went on after its end.")
        else:
            block = item.block(said.content_index if channel in PLAIN else 0)
            if channel is Channel.REASONING and said.summary_index != item.summary:
                item.summary = said.summary_index
                self._say(item, block, channel, BETWEEN, None, deltas)
            self._say(item, block, channel, said.delta, said.sequence_number, deltas)

    def _say(
        self,
        item: _Open,
        block: int,
        channel: Channel | None,
        text: str,
        number: int | None,
        deltas: list[Delta],
    ) -> None:
        pieces = item.pieces.setdefault(block, [])
        place = len(pieces)
        pieces.append(text)
        if number is not None:
            self._arrived[number] = (block, place)
        if item.begun or channel is not None:
            deltas.append(_delta(block, channel, text, None if number is None else place))
        else:  # the arguments of a call whose beginning never came wait for its end
            item.waits = True

    # Items, as they are at their end.

    def _done(self, index: int | None, raw: bytes, deltas: list[Delta]) -> None:
        """Read an item as it says at its end that it is: what had come has to agree with it."""
        said = self._decoded(raw, deltas)
        if said is None:
            return
        item = self._same(index, said)
        if item is None:
            taken = index is None or index in self._items
            item = self._open(
                max(self._items, default=-1) + 1 if taken else index or 0, said, deltas
            )
        if item.closed:
            return
        match said.type:
            case "message":
                self._close_message(item, said, deltas)
            case "function_call":
                self._close_call(item, said, deltas)
            case "reasoning":
                whole = BETWEEN.join(p.text for p in (*(said.summary or ()), *(said.content or ())))
                if not item.pieces and whole:
                    self._say(item, item.block(), Channel.REASONING, whole, None, deltas)
                self._keep(item.block(), raw, deltas)
            case _:
                self._keep(item.block(), raw, deltas, work=True)
        item.closed = True

    def _same(self, index: int | None, said: _Item) -> _Open | None:
        """Return the item that this one is the end of, or None where it never began."""
        for name in (said.id, said.call_id):
            if name and name in self._by_name:
                return self._by_name[name]
        item = None if index is None else self._items.get(index)
        return item if item is not None and item.type in ("", said.type) else None

    def _close_message(self, item: _Open, said: _Item, deltas: list[Delta]) -> None:
        state = None
        if said.phase is not None:
            state = _encode(State(phase=said.phase))
        for number, part in enumerate(said.content or ()):
            block = item.block(number)
            if part.type == "refusal":
                self._complete(item, block, Channel.REFUSAL, part.refusal, deltas)
            elif part.type == "output_text":
                self._complete(item, block, Channel.TEXT, part.text, deltas)
                if state is not None and part.text:
                    self._keep(block, state, deltas)
            else:
                deltas.append(Note("skipped_part"))
        last = item.block(len(said.content or ()))
        if any(block >= last for block in item.pieces):
            self._differs(item, deltas)

    def _close_call(self, item: _Open, said: _Item, deltas: list[Delta]) -> None:
        if not item.begun:
            item.pieces.clear()
            item.begun = True
            self._open(item.index, said, deltas)
        if said.name != item.name:
            self._fail(deltas, "malformed_function_call", "A call changed the name of its tool.")
            return
        self._complete(item, item.block(), None, said.arguments or "", deltas)
        if said.status in (None, "completed"):
            deltas.append(BlockStopped(item.block()))

    def _complete(
        self, item: _Open, block: int, channel: Channel | None, whole: str, deltas: list[Delta]
    ) -> None:
        """Say what has not been said yet of a block that is `whole`."""
        came = item.so_far(block)
        if came == whole or (not item.begun and whole.endswith(came)):
            return
        if item.begun and whole.startswith(came):
            self._say(item, block, channel, whole[len(came) :], None, deltas)
        else:
            self._differs(item, deltas)

    def _differs(self, item: _Open, deltas: list[Delta]) -> None:
        self._fail(
            deltas, "malformed_event", f"Item {item.index} is not what had come of it in pieces."
        )

    def _keep(self, block: int, value: bytes, deltas: list[Delta], *, work: bool = False) -> None:
        kept = Opaque(profile=PROFILE, value=msgspec.Raw(value), model=self._model, work=work)
        deltas.append(OpaqueState(block, kept))

    def _decoded(self, raw: bytes, deltas: list[Delta]) -> _Item | None:
        try:
            return decode_lenient(_item, raw)
        except ValueError as error:
            self._fail(deltas, "malformed_event", f"An item cannot be read: {error}")
            return None


def _delta(block: int, channel: Channel | None, text: str, place: int | None) -> Delta:
    if channel is None:
        return ArgumentsDelta(block, text, place)
    return TextDelta(block, channel, text, place)


def _mended(text: str) -> str:
    """Return text with the characters whole that were cut between two pieces."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
