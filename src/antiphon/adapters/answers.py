"""Reading an answer: what is the same in every dialect, whatever its events mean."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, TypeVar, assert_never

import msgspec

from antiphon.adapters.json_text import decode_lenient, is_cut
from antiphon.core.answers.deltas import Delta, Ended, Failed
from antiphon.core.wire.body import EVENT_STREAM, Body
from antiphon.core.wire.events import Broken, Event, Framed, Whole
from antiphon.core.wire.limits import DEFAULT_LIMITS, Limits

DONE: Final = b"[DONE]"

T = TypeVar("T")


class AnswerReader(ABC):
    """Reads one answer. Feed it the body as it comes, then say `end`.

    A dialect says what an event means, and what an answer in one piece does. Once one of them has
    closed the answer, whatever follows in the body is not read.
    """

    def __init__(self, content_type: str = EVENT_STREAM, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._body = Body(content_type, limits)
        self._closed = False

    def feed(self, data: bytes) -> list[Delta]:
        """Return what these bytes say. Where they were cut makes no difference."""
        return [] if self._closed else self._read(self._body.feed(data))

    def end(self) -> list[Delta]:
        """Return what the end of the body says."""
        if self._closed:
            return []
        deltas = self._read(self._body.end())
        if not self._closed:
            self._rest(deltas)
        self._closed = True
        return deltas

    def _read(self, framed: list[Framed]) -> list[Delta]:
        deltas: list[Delta] = []
        for item in framed:
            match item:
                case Event():
                    self._event(item, deltas)
                case Whole(data):
                    self._whole(data, deltas)
                case Broken(code, message):
                    self._fail(deltas, code, message)
                case _:
                    assert_never(item)
            if self._closed:
                break
        return deltas

    @abstractmethod
    def _event(self, event: Event, deltas: list[Delta]) -> None:
        """Add what one event says."""

    @abstractmethod
    def _whole(self, data: bytes, deltas: list[Delta]) -> None:
        """Add what an answer in one piece says."""

    @abstractmethod
    def _failure(self, error: object) -> Failed:
        """Return what an error means that the provider tells in its answer."""

    def _no_event(self, event: Event, error: ValueError, deltas: list[Delta]) -> None:
        """Take what a dialect cannot read as an event: an error in words, an end marker, or a cut."""
        if event.name == "error" and not event.unterminated:
            deltas.append(self._failure(event.data.decode()))
            self._closed = True
        elif event.data == DONE:
            deltas.append(Ended())
            self._closed = True
        elif event.data.strip() and not event.unterminated:
            self._fail(deltas, "malformed_event", f"An event cannot be read: {error}")
        # Half an event at the end of the body is a cut, and the missing end will say so.

    def _read_whole(
        self, decoder: msgspec.json.Decoder[T], data: bytes, deltas: list[Delta]
    ) -> T | None:
        """Return an answer in one piece; None where it cannot be read, which closes it."""
        try:
            return decode_lenient(decoder, data)
        except ValueError as error:
            code = "stream_incomplete" if is_cut(data, error) else "malformed_event"
            self._fail(deltas, code, f"The answer cannot be read: {error}")
            return None

    def _rest(self, deltas: list[Delta]) -> None:  # noqa: B027 - most dialects hold nothing back
        """Add what was held back for an end that did not come."""

    def _fail(self, deltas: list[Delta], code: str, message: str) -> None:
        """Close the answer: what comes of it, nobody can say."""
        deltas.append(Failed(code, message, retryable=code != "event_too_large", definite=False))
        self._closed = True
