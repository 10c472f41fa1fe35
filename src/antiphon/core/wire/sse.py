"""Server-sent events: bytes in, whole events out.

The event stream format of the HTML standard, cut on bytes before anything is decoded, so
that a read may end inside a line end, a character or the byte order mark. Two additions, for
what servers really send:

- The standard drops an event that the end of the body left without its blank line. Gateways
  forget that line, and with it the finish word of a whole answer would be lost, so `end`
  returns such an event, marked `unterminated`. Its reader takes it only where it reads as
  whole; half a JSON object never does.
- The standard drops a field named `error`. Older llama.cpp servers report failure in one, so
  it is returned as an event of that name.

`id` and `retry` are read past: a stream is resumed by what its events say, not by the framing.
"""

from __future__ import annotations

from typing import Final

from antiphon.core.wire.events import Broken, Event, Framed

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class EventStream:
    """Splits one body into its events, in linear time and bounded memory."""

    def __init__(self, max_event_bytes: int) -> None:
        self._max_event_bytes = max_event_bytes
        self._held = bytearray()  # the event that has not ended yet
        self._after_return = False  # the last byte was CR: a LF right after it is the same line end
        self._at_start = True
        self._closed = False

    def feed(self, data: bytes) -> list[Framed]:
        """Take the next bytes of the body and return the events that they complete."""
        if self._closed or not data:
            return []
        if self._after_return or b"\r" in data:
            data = self._with_line_feeds(data)
        held = self._held
        if held:
            ends = b"\n\n" in data or (data.startswith(b"\n") and held.endswith(b"\n"))
            held += data
            if not ends:
                return self._within_limit([])
            data = bytes(held)
            held.clear()
        frames = data.split(b"\n\n")
        rest = frames.pop()
        events: list[Framed] = []
        for frame in frames:
            if len(frame) > self._max_event_bytes:
                return self._break(events, self._too_large())
            if self._at_start:
                frame = self._begin(frame)
            # Nearly every frame is one line of data.
            if frame.startswith(b"data: ") and b"\n" not in frame:
                event: Event | None = Event(frame[6:])
            else:
                event = _parse(frame)
            if event is None:
                continue
            if not (event.data.isascii() or _is_utf8(event.data)):
                broken = Broken("malformed_event", "An event of the stream is not valid UTF-8.")
                return self._break(events, broken)
            events.append(event)
        if rest:
            held += rest
            return self._within_limit(events)
        return events

    def end(self) -> list[Framed]:
        """The body is over: return the event that it left unterminated, if there is one."""
        if self._closed:
            return []
        self._closed = True
        frame = bytes(self._held)
        event = _parse(self._begin(frame) if self._at_start else frame)
        if event is None or not _is_utf8(event.data):
            return []
        return [Event(event.data, event.name, unterminated=True)]

    def _with_line_feeds(self, data: bytes) -> bytes:
        """Return `data` with every line end written as LF; CR LF may be cut in two."""
        if self._after_return and data.startswith(b"\n"):
            data = data[1:]
        self._after_return = data.endswith(b"\r")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data

    def _begin(self, frame: bytes) -> bytes:
        self._at_start = False
        return frame.removeprefix(BYTE_ORDER_MARK)

    def _within_limit(self, events: list[Framed]) -> list[Framed]:
        # One byte of grace, since the first half of the blank line may be here already:
        # whether an event is too large must not depend on where the read ended.
        if len(self._held) > self._max_event_bytes + 1:
            return self._break(events, self._too_large())
        return events

    def _too_large(self) -> Broken:
        return Broken(
            "event_too_large",
            f"One event of the stream is larger than {self._max_event_bytes} bytes.",
        )

    def _break(self, events: list[Framed], broken: Broken) -> list[Framed]:
        self._closed = True
        self._held.clear()
        events.append(broken)
        return events


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _parse(frame: bytes) -> Event | None:
    """Return what the lines of one frame say, or None where they are comments only."""
    data: list[bytes] = []
    name = b""
    error: bytes | None = None
    for line in frame.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
        elif field == b"error":
            error = value
    if data:
        return Event(b"\n".join(data), name.decode(errors="replace"))
    return None if error is None else Event(error, "error")
