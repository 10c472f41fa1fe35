"""Amazon's event stream: bytes in, whole frames out, each held against both of its checksums.

A frame is a prelude (length of the frame, length of its headers, checksum of the two), typed
headers, a payload, and a checksum of all before it; every number is big endian. A length that
its checksum does not vouch for is never waited for, and bytes that fail one are never read:
what follows a broken frame is lost, because nobody knows where the next one begins.

What a frame means is told by its headers, and known to its reader only.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec

from antiphon.core.wire.events import Broken

MEDIA_TYPE: Final = "application/vnd.amazon.eventstream"
MAX_HEADER_BYTES: Final = 128 * 1024
MAX_PAYLOAD_BYTES: Final = 24 * 1024 * 1024

PRELUDE: Final = struct.Struct(">III")
CHECKSUM: Final = struct.Struct(">I")
LENGTH: Final = struct.Struct(">H")

FIXED_BYTES: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Header values without a length of their own: true, false, integers, a time, a UUID."""
BYTES: Final = 6
STRING: Final = 7


class Frame(msgspec.Struct, frozen=True):
    """One frame: its headers that are strings, and its payload."""

    headers: dict[str, str]
    payload: bytes


Framed: TypeAlias = Frame | Broken


class FrameStream:
    """Splits one body into its frames, in linear time and bounded memory."""

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._held = bytearray()  # the frame that has not ended yet
        self._wanted = PRELUDE.size  # bytes without which nothing more can be said
        self._closed = False

    def feed(self, data: bytes) -> list[Framed]:
        """Take the next bytes and return the frames that they complete. Nothing follows `Broken`."""
        if self._closed:
            return []
        self._held += data
        if len(self._held) < self._wanted:
            return []
        framed: list[Framed] = []
        view, at = bytes(self._held), 0
        while len(view) - at >= PRELUDE.size:
            size = self._size(view, at)
            if isinstance(size, Broken):
                return self._break(framed, size)
            self._wanted = size
            if len(view) - at < size:
                break
            frame = _frame(view, at, size)
            if isinstance(frame, Broken):
                return self._break(framed, frame)
            framed.append(frame)
            at += size
            self._wanted = PRELUDE.size
        del self._held[:at]
        return framed

    def end(self) -> list[Framed]:
        """The body is over: say so if it ended inside a frame."""
        if self._closed or not self._held:
            return []
        had = f"{len(self._held)} of {self._wanted} bytes of it had come"
        broken = Broken("stream_incomplete", f"The body ended in the middle of a frame: {had}.")
        return self._break([], broken)

    def _size(self, view: bytes, at: int) -> int | Broken:
        """Return how long the frame at `at` is, once its own checksum vouches for that."""
        size, header_bytes, checksum = PRELUDE.unpack_from(view, at)
        if zlib.crc32(view[at : at + 8]) != checksum:
            return Broken("malformed_event", "The checksum of a frame's prelude is wrong.")
        payload_bytes = size - header_bytes - PRELUDE.size - CHECKSUM.size
        if payload_bytes < 0:
            return Broken("malformed_event", "A frame is shorter than its headers.")
        limit = self._max_frame_bytes
        if size > limit:
            return Broken("event_too_large", f"A frame of {size} bytes is larger than {limit}.")
        if header_bytes > MAX_HEADER_BYTES or payload_bytes > MAX_PAYLOAD_BYTES:
            return Broken(
                "event_too_large",
                f"A frame of {size} bytes is larger than the format allows.",
            )
        return int(size)

    def _break(self, framed: list[Framed], broken: Broken) -> list[Framed]:
        self._closed = True
        self._held.clear()
        framed.append(broken)
        return framed


def _frame(view: bytes, at: int, size: int) -> Framed:
    checked = view[at : at + size - CHECKSUM.size]
    (checksum,) = CHECKSUM.unpack_from(view, at + size - CHECKSUM.size)
    if zlib.crc32(checked) != checksum:
        return Broken("malformed_event", "The checksum of a frame is wrong.")
    _, header_bytes, _ = PRELUDE.unpack_from(checked)
    payload_at = PRELUDE.size + header_bytes
    try:
        headers = dict(_headers(checked[PRELUDE.size : payload_at]))
    except (struct.error, IndexError, KeyError, UnicodeDecodeError):
        return Broken("malformed_event", "The headers of a frame cannot be read.")
    return Frame(headers, checked[payload_at:])


def _headers(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the headers whose values are strings.

    Raises:
        struct.error, IndexError, KeyError, UnicodeDecodeError: They are cut, or of no known type.
    """
    at = 0
    while at < len(data):
        name_at = at + 1
        kind_at = name_at + data[at]
        name, kind = data[name_at:kind_at].decode(), data[kind_at]
        at = kind_at + 1
        if kind in (BYTES, STRING):
            (length,) = LENGTH.unpack_from(data, at)
            at += LENGTH.size
        else:
            length = FIXED_BYTES[kind]
        value = data[at : at + length]
        if len(value) < length:
            raise IndexError("the last header is cut")
        if kind == STRING:
            yield name, value.decode()
        at += length
