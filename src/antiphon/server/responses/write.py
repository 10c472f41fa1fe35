"""A response as numbered events: what is durable and what is shown, told so that it can be resumed.

Every event has a place, W * 2^32 + S + T: attempts withdrawn, structural events and code points
of text so far. Structure takes one place each, a piece of text one for each of its code points,
and a piece is numbered by its last. So the numbers depend on what was said and on nothing else:
not on how previews were cut, nor on when a reader came, nor on whether the text came live or is
read from the store. A reader that has number n has everything up to n, and whoever writes anew
from the start leaves out just that, even inside a text.

A commit is written from the stored message, from the place at which its attempt began: what the
preview has told already falls out by its number. What an attempt added that was withdrawn takes
no place at all; the next one goes on from where it began, under a higher W.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

import msgspec

from antiphon.core import events
from antiphon.core.answers.deltas import Channel
from antiphon.core.answers.usage import Used, together
from antiphon.core.blocks import Message
from antiphon.core.events import DurableEvent, Preview
from antiphon.core.ids import CallId, MessageId, RunId
from antiphon.core.records import TERMINAL_CALL, Call, RunStatus
from antiphon.core.tools.loop import APPROVAL_REQUIRED
from antiphon.errors import AntiphonError
from antiphon.server.responses.output import (
    Asked,
    Item,
    Json,
    Part,
    Ran,
    Said,
    Thought,
    as_json,
    is_clients,
    item_id,
    listed,
    part_json,
    ran,
)

WITHDRAWAL: Final = 1 << 32
NOTHING_TOLD: Final = -1


class Status(StrEnum):
    """Where a response stands, in the words of the wire."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN: Final = frozenset({Status.QUEUED, Status.IN_PROGRESS})

FINAL_EVENT: Final = {
    Status.COMPLETED: "response.completed",
    Status.INCOMPLETE: "response.incomplete",
    Status.FAILED: "response.failed",
    Status.CANCELLED: "response.failed",
}
"""There is no event for a response that was canceled: no answer came, and its status says why."""

FOR_PEOPLE: Final = frozenset({"tool_unknown", APPROVAL_REQUIRED})
"""Codes of a run that waits for a person, not for the client that asked: it is not over for that one."""

CUT: Final = {
    "length": "max_output_tokens",
    "truncated_by_length": "max_output_tokens",
    "content_filter": "content_filter",
}
"""Codes of an answer that is not whole, in the wire's words."""


HAS_ALL: Final = 2**63 - 1
"""The number of a reader who wants nothing told: what is asked for is how far a response has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """How far a response has come: what one reads of it, apart from what was asked."""

    status: Status = Status.QUEUED
    items: tuple[Item, ...] = ()
    last: MessageId | None = None
    code: str | None = None
    used: Used | None = None
    ended_ms: int | None = None
    failure: AntiphonError | None = None

    @property
    def over(self) -> bool:
        """Whether nothing will be added to it."""
        return self.status not in OPEN

    @property
    def cut(self) -> str | None:
        """Why it is incomplete, in the wire's words."""
        return CUT.get(self.code or "") if self.status is Status.INCOMPLETE else None


class Event(msgspec.Struct, frozen=True):
    """One event of the stream. A struct, since one is made for every piece of text."""

    number: int
    type: str
    fields: Json

    def as_json(self) -> Json:
        """Return its data."""
        return {"type": self.type, "sequence_number": self.number, **self.fields}


@dataclass(slots=True)
class _Attempt:
    """What is shown of an answer that is not committed yet."""

    generation: int
    answer: MessageId
    block: int = -1
    items: list[Item] = field(default_factory=list)  # those that were told to their end
    opened: int = 0
    said: bool = False


@dataclass(slots=True)
class _OpenSaid:
    """A message item that is being told."""

    id: str
    parts: list[Part] = field(default_factory=list)


@dataclass(slots=True)
class _OpenPart:
    """A text that is being told, and where it stands."""

    item: str
    place: Json
    channel: Channel
    texts: list[str] = field(default_factory=list)


class Writer:
    """Writes one response. Feed it the run's events and previews in their order.

    It is given events from the first of the response on, whatever the reader has; `after` is the
    number that the reader has already.
    """

    def __init__(
        self,
        run: RunId,
        describe: Callable[[Stretch], Json],
        *,
        after: int = NOTHING_TOLD,
        takes_withdrawals: bool = False,
        fine: bool = False,
    ) -> None:
        """Start before the first event.

        Args:
            run: Whose events count.
            describe: Makes the response object of a stretch.
            after: The number of the last event that the reader has.
            takes_withdrawals: Whether the reader can take back what it has shown. One that
                cannot is told no more text after a withdrawal, only the end with the whole
                output.
            fine: Whether text is told one code point at a time. Then any number of any other
                stream of this response is the number of an event of this one.
        """
        self.stretch = Stretch()
        self.fine = fine
        self._run = run
        self._describe = describe
        self._told = after
        self._takes_withdrawals = takes_withdrawals
        self._withdrawn = 0
        self._at = 0
        self._index = 0
        self._begun = False
        self._muted = False
        self._attempt: _Attempt | None = None
        self._base = (0, 0)  # place and output index at which the newest attempt began
        self._gone = 0  # the newest generation of which nothing more may be shown
        self._part: _OpenPart | None = None
        self._said: _OpenSaid | None = None

    # What happened.

    def tell(
        self,
        event: DurableEvent,
        at_ms: int,
        *,
        message: Message | None = None,
        calls: Mapping[CallId, Call] | None = None,
        failure: AntiphonError | None = None,
    ) -> Iterator[Event]:
        """Take a durable event; yield what the reader is told of it.

        Args:
            event: The next one.
            at_ms: When it happened.
            message: The message of a commit.
            calls: The calls of a commit, or the one that changed.
            failure: What went wrong, where the run ended in an error.
        """
        if self.stretch.over or getattr(event, "run", None) != self._run:
            return
        yield from self._beginning()
        if failure is not None:
            self._move(failure=failure)
        match event:
            case events.RunChanged(status=status, code=code):
                yield from self._changed(status, code, at_ms)
            case events.Withdrawn(generation=generation, reason=reason):
                yield from self._withdraw(generation, reason)
            case events.Committed() if message is not None:
                yield from self._commit(event, message, calls or {})
            case events.CallChanged(call=call, state=state) if state in TERMINAL_CALL:
                closed = (calls or {}).get(call)
                if closed is not None and not is_clients(closed):
                    yield from self._whole(ran(closed))
                    self._set_base()
            case _:
                pass

    def read(
        self,
        event: DurableEvent,
        at_ms: int,
        *,
        message: Message | None = None,
        calls: Mapping[CallId, Call] | None = None,
        failure: AntiphonError | None = None,
    ) -> None:
        """Take a durable event, and tell nobody: only `stretch` is wanted."""
        for _ in self.tell(event, at_ms, message=message, calls=calls, failure=failure):
            pass

    def show(self, preview: Preview) -> Iterable[Event]:
        """Take a piece of preview; return what the reader is told of it.

        What stands after a call waits for the commit, since the call itself does.
        """
        answer, attempt = preview.message, self._attempt
        if preview.run != self._run or answer is None or preview.generation <= self._gone:
            return ()
        if self.stretch.over or preview.after_call or not preview.text:
            return ()
        if (
            attempt is not None
            and attempt.generation == preview.generation
            and attempt.block == preview.block
        ):
            return self._text(preview.text)  # as nearly every piece
        return self._show_block(preview, answer)

    def _show_block(self, preview: Preview, answer: MessageId) -> Iterator[Event]:
        """Show the first piece of a block."""
        yield from self._beginning()
        attempt = self._attempt
        if attempt is None or attempt.generation != preview.generation:
            attempt = self._attempt = _Attempt(preview.generation, answer)
        if preview.block < attempt.block:
            return  # it goes back to a block that was left: the commit tells where it belongs
        attempt.block = preview.block
        yield from self._open_block(attempt, preview.channel)
        yield from self._text(preview.text)

    # The response.

    def _beginning(self) -> Iterator[Event]:
        if not self._begun:
            self._begun = True
            for kind in ("response.created", "response.queued"):
                yield from self._emit(kind, lambda: {"response": self._describe(self.stretch)})
            self._set_base()

    def _changed(self, status: RunStatus, code: str | None, at_ms: int) -> Iterator[Event]:
        match status:
            case RunStatus.PENDING | RunStatus.UNKNOWN:
                if self.stretch.status is Status.QUEUED:
                    self._move(status=Status.IN_PROGRESS)
                    yield from self._emit(
                        "response.in_progress", lambda: {"response": self._describe(self.stretch)}
                    )
                    self._set_base()
            case RunStatus.WAITING:
                if code not in FOR_PEOPLE:
                    yield from self._end(Status.COMPLETED, None, at_ms)
            case RunStatus.SUCCESS:
                cut = Status.INCOMPLETE if code in CUT else Status.COMPLETED
                yield from self._end(cut, code, at_ms)
            case RunStatus.ERROR:
                self._drop()
                cut = Status.INCOMPLETE if code in CUT else Status.FAILED
                yield from self._end(cut, code, at_ms)
            case RunStatus.CANCELED:
                self._drop()
                yield from self._end(Status.CANCELLED, code, at_ms)
            case RunStatus.QUEUED:
                pass

    def _end(self, status: Status, code: str | None, at_ms: int) -> Iterator[Event]:
        self._move(status=status, code=code, ended_ms=at_ms)
        self._muted = False
        yield from self._emit(
            FINAL_EVENT[status], lambda: {"response": self._describe(self.stretch)}
        )

    def _withdraw(self, generation: int, reason: str) -> Iterator[Event]:
        """Take back what was shown; without a reader that can, show it nothing more."""
        began = self._number(self._base[0])
        self._gone = max(self._gone, generation)
        self._drop()
        number = self._number(self._at)
        self._at += 1
        self._set_base()
        if self._told < began or self._told > number:
            return  # nothing of it was told to this reader, or it has gone on since
        if self._told < number and not self._muted:
            self._told = number
            yield Event(
                number,
                "antiphon:preview.withdrawn",
                {"generation": generation, "reason": reason, "output_index": self._index},
            )
        self._muted = self._muted or not self._takes_withdrawals

    def _drop(self) -> None:
        """Go back to where the newest attempt began, and count it as withdrawn."""
        self._withdrawn += 1
        self._back()

    def _back(self) -> None:
        self._at, self._index = self._base
        self._attempt = self._part = self._said = None

    def _set_base(self) -> None:
        self._base = (self._at, self._index)

    def _commit(
        self, event: events.Committed, message: Message, calls: Mapping[CallId, Call]
    ) -> Iterator[Event]:
        """Write the message from where its attempt began; numbers leave out what was told."""
        self._gone = max(self._gone, event.generation)
        items = listed(message, calls)
        if self._attempt is not None and not self._fits(self._attempt, items):
            self._muted = True  # what was shown stands elsewhere now: only the end can tell
        self._back()
        for item in items:
            yield from self._whole(item)
        self._set_base()
        self._move(
            last=message.id,
            used=together(self.stretch.used, event.used),
        )

    def _fits(self, attempt: _Attempt, items: tuple[Item, ...]) -> bool:
        """Whether the committed items begin with what was shown."""
        closed = len(attempt.items)
        if list(items[:closed]) != attempt.items or attempt.opened > len(items):
            return False
        if self._part is None:
            return True
        shown = "".join(self._part.texts)
        match items[closed]:
            case Said(parts=parts) if self._said is not None:
                before = self._said.parts
                if list(parts[: len(before)]) != before or len(parts) == len(before):
                    return False
                part = parts[len(before)]
                return part.channel is self._part.channel and part.text.startswith(shown)
            case Thought(text=text) if self._said is None:
                return text.startswith(shown)
            case _:
                return False

    # Items.

    def _open_block(self, attempt: _Attempt, channel: Channel) -> Iterator[Event]:
        """A block of the preview begins: a part of the open message, or an item of its own."""
        yield from self._close_part()
        if channel is Channel.REASONING:
            yield from self._close_said()
            own = f"{attempt.answer}.{attempt.opened}"
            attempt.opened += 1
            yield from self._emit_added(Thought(own, ""))
        elif self._said is not None:
            own = self._said.id
        else:
            own = item_id(attempt.answer, attempt.opened, said_before=attempt.said)
            attempt.opened += 1
            attempt.said = True
            yield from self._open_said(own)
        yield from self._open_part(own, channel)

    def _whole(self, item: Item) -> Iterator[Event]:
        """Write an item from its beginning to its end."""
        match item:
            case Said(id=own, parts=parts):
                yield from self._open_said(own)
                for part in parts:
                    yield from self._open_part(own, part.channel)
                    yield from self._text(part.text)
                    yield from self._close_part()
                yield from self._close_said()
            case Thought(id=own, text=text):
                yield from self._emit_added(item)
                yield from self._open_part(own, Channel.REASONING)
                yield from self._text(text)
                yield from self._close_part()
            case Asked():
                yield from self._emit_added(item)
                where = {"item_id": item.id, "output_index": self._index}
                yield from self._emit(
                    "response.function_call_arguments.delta",
                    lambda: {**where, "delta": item.arguments},
                )
                yield from self._emit(
                    "response.function_call_arguments.done",
                    lambda: {**where, "name": item.name, "arguments": item.arguments},
                )
                yield from self._emit_done(item)
            case Ran():
                yield from self._emit_added(item)
                yield from self._emit_done(item)
        self._move(items=(*self.stretch.items, item))

    def _emit_added(self, item: Item) -> Iterator[Event]:
        yield from self._emit(
            "response.output_item.added",
            lambda: {"output_index": self._index, "item": as_json(item, done=False)},
        )

    def _emit_done(self, item: Item) -> Iterator[Event]:
        yield from self._emit(
            "response.output_item.done",
            lambda: {"output_index": self._index, "item": as_json(item)},
        )
        self._index += 1
        if self._attempt is not None:
            self._attempt.items.append(item)

    def _open_said(self, own: str) -> Iterator[Event]:
        self._said = _OpenSaid(own)
        yield from self._emit_added(Said(own, ()))

    def _close_said(self) -> Iterator[Event]:
        if self._said is not None:
            said, self._said = self._said, None
            yield from self._emit_done(Said(said.id, tuple(said.parts)))

    def _open_part(self, own: str, channel: Channel) -> Iterator[Event]:
        place = {
            "item_id": own,
            "output_index": self._index,
            "content_index": 0 if self._said is None else len(self._said.parts),
        }
        part = self._part = _OpenPart(own, place, channel)
        yield from self._emit(
            "response.content_part.added",
            lambda: {**part.place, "part": _content(channel, "")},
        )

    def _close_part(self) -> Iterator[Event]:
        if self._part is None:
            return
        part, self._part = self._part, None
        channel, text = part.channel, "".join(part.texts)
        yield from self._emit(
            f"{_TEXT_EVENT[channel]}.done",
            lambda: {**part.place, **_said_whole(channel, text)},
        )
        yield from self._emit(
            "response.content_part.done",
            lambda: {**part.place, "part": _content(channel, text)},
        )
        if self._said is not None:
            self._said.parts.append(Part(channel, text))
        else:
            yield from self._emit_done(Thought(part.item, text))

    # Numbers.

    def _number(self, at: int) -> int:
        return self._withdrawn * WITHDRAWAL + at

    def _emit(self, kind: str, fields: Callable[[], Json]) -> Iterator[Event]:
        number = self._number(self._at)
        self._at += 1
        if number > self._told and not self._muted:
            self._told = number
            yield Event(number, kind, fields())

    def _text(self, text: str) -> list[Event]:
        """Return a piece of text: what of it the reader does not have."""
        assert self._part is not None
        part = self._part
        part.texts.append(text)
        first = self._number(self._at)
        self._at += len(text)
        if first + len(text) - 1 <= self._told or self._muted or not text:
            return []
        told: list[Event] = []
        start = max(0, self._told + 1 - first)
        step = 1 if self.fine else len(text)
        for offset in range(start, len(text), step):
            piece = text[offset : offset + step]
            self._told = first + offset + len(piece) - 1
            delta = {**part.place, "delta": piece}
            if part.channel is Channel.TEXT:
                delta["logprobs"] = []
            told.append(Event(self._told, f"{_TEXT_EVENT[part.channel]}.delta", delta))
        return told

    def _move(self, **changes: object) -> None:
        self.stretch = replace(self.stretch, **changes)  # type: ignore[arg-type]  # its own fields


_TEXT_EVENT: Final = {
    Channel.TEXT: "response.output_text",
    Channel.REFUSAL: "response.refusal",
    Channel.REASONING: "response.reasoning_text",
}


def _content(channel: Channel, text: str) -> Json:
    if channel is Channel.REASONING:
        return {"type": "reasoning_text", "text": text}
    return part_json(Part(channel, text))


def _said_whole(channel: Channel, text: str) -> Json:
    match channel:
        case Channel.TEXT:
            return {"text": text, "logprobs": []}
        case Channel.REASONING:
            return {"text": text}
        case Channel.REFUSAL:
            return {"refusal": text}
