"""Newline-delimited JSON: bytes in, whole lines out.

The sibling of server-sent events for servers that send one JSON object a line. Lines are cut on
bytes before anything is decoded, so that a read may end inside a line end or a character. The
last line often comes without its end, and is told as `unterminated`: its reader takes it only
where it reads as whole.
"""

from __future__ import annotations

from antiphon.core.wire.events import Broken, Event
from antiphon.core.wire.sse import BYTE_ORDER_MARK


class LineStream:
    """Splits one body into its lines, in linear time and bounded memory. Blank ones are left out."""

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._held: list[bytes] = []  # of the line that has not ended yet
        self._held_bytes = 0
        self._at_start = True
        self._closed = False

    def feed(self, data: bytes) -> list[Event | Broken]:
        """Take the next bytes and return the lines that they complete. Nothing follows `Broken`."""
        if self._closed:
            return []
        *whole, rest = data.split(b"\n")
        lines: list[Event | Broken] = []
        for piece in whole:
            self._hold(piece)
            if not self._take(lines):
                return lines
        self._hold(rest)
        # One byte of grace, since it may be half of a line end: whether a line is too large must
        # not depend on where the read ended.
        if self._held_bytes > self._max_line_bytes + 1 + self._grace():
            self._break(lines, self._too_large())
        return lines

    def end(self) -> list[Event | Broken]:
        """The body is over: return the line that it left without an end, if there is one."""
        lines: list[Event | Broken] = []
        if not self._closed:
            self._take(lines, unterminated=True)
        self._closed = True
        return lines

    def _hold(self, piece: bytes) -> None:
        if piece:
            self._held.append(piece)
            self._held_bytes += len(piece)

    def _take(self, lines: list[Event | Broken], *, unterminated: bool = False) -> bool:
        """Move the held line to `lines`; say whether reading may go on."""
        line = b"".join(self._held)
        self._held, self._held_bytes = [], 0
        if self._at_start:
            line = line.removeprefix(BYTE_ORDER_MARK)
            self._at_start = False
        line = line.strip(b" \t\r")
        if len(line) > self._max_line_bytes:
            return self._break(lines, self._too_large())
        if not line:
            return True
        try:
            line.decode()
        except UnicodeDecodeError:
            if unterminated:
                return True  # a character was cut, and with it the body
            return self._break(
                lines, Broken("malformed_event", "A line of the stream is not valid UTF-8.")
            )
        lines.append(Event(line, unterminated=unterminated))
        return True

    def _grace(self) -> int:
        return len(BYTE_ORDER_MARK) if self._at_start else 0

    def _too_large(self) -> Broken:
        return Broken(
            "event_too_large",
            f"One line of the stream is larger than {self._max_line_bytes} bytes.",
        )

    def _break(self, lines: list[Event | Broken], broken: Broken) -> bool:
        self._closed = True
        self._held, self._held_bytes = [], 0
        lines.append(broken)
        return False
