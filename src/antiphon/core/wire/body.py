"""The body of an answer, whichever way it is framed: a stream of events, or one JSON text.

The content type says which of the two is meant, and refuses anything else. The first byte
has the last word between them: servers send a plain JSON error where a stream was asked for,
and streams under the wrong label, and the two cannot be taken for each other.
"""

from __future__ import annotations

from typing import Final

from antiphon.core.wire.events import Broken, Framed, Whole
from antiphon.core.wire.limits import DEFAULT_LIMITS, Limits
from antiphon.core.wire.sse import BYTE_ORDER_MARK, EventStream

BLANK: Final = b" \t\r\n" + BYTE_ORDER_MARK
EVENT_STREAM: Final = "text/event-stream"


class Body:
    """Reads one body. `feed` it what arrives, then say `end`."""

    def __init__(self, content_type: str = EVENT_STREAM, limits: Limits = DEFAULT_LIMITS) -> None:
        self._media_type = content_type.partition(";")[0].strip().lower() or EVENT_STREAM
        self._limits = limits
        self._blank = bytearray()  # what came before the first byte that means something
        self._events: EventStream | None = None
        self._whole: bytearray | None = None
        self._broken = False

    def feed(self, data: bytes) -> list[Framed]:
        """Take the next bytes and return what they complete. After `Broken` nothing follows."""
        if self._broken:
            return []
        if self._events is None and self._whole is None:
            begun = data.lstrip(BLANK)
            if not begun:
                return self._hold(self._blank, data)
            refusal = self._refusal(begun[:1])
            if refusal is not None:
                return self._break(refusal)
            data = bytes(self._blank) + data
            if self._is_json(begun[:1]):
                self._whole = bytearray()
            else:
                self._events = EventStream(self._limits.max_event_bytes)
        if self._events is not None:
            return self._events.feed(data)
        assert self._whole is not None
        return self._hold(self._whole, data)

    def end(self) -> list[Framed]:
        """The body is over: return what only its end completes."""
        if self._broken:
            return []
        if self._events is not None:
            return self._events.end()
        if self._whole is not None:
            return [Whole(bytes(self._whole))]
        refusal = self._refusal(b"")
        return [] if refusal is None else self._break(refusal)

    def _is_json(self, first: bytes) -> bool:
        if first in b"{[":
            return True
        # No JSON text begins like a field of an event stream, or like a comment in it.
        return self._media_type != EVENT_STREAM and first not in b":deir"

    def _refusal(self, first: bytes) -> Broken | None:
        expected = self._media_type in (
            EVENT_STREAM,
            "application/json",
        ) or self._media_type.endswith("+json")
        if expected and first != b"<":
            return None
        what = "markup" if expected else self._media_type
        return Broken(
            "malformed_event",
            f"The answer is {what}, neither an event stream nor JSON. Is the base URL right?",
        )

    def _hold(self, held: bytearray, data: bytes) -> list[Framed]:
        held += data
        if len(held) > self._limits.max_answer_bytes:
            held.clear()
            limit = self._limits.max_answer_bytes
            return self._break(
                Broken("answer_too_large", f"The answer is larger than {limit} bytes.")
            )
        return []

    def _break(self, broken: Broken) -> list[Framed]:
        self._broken = True
        return [broken]
