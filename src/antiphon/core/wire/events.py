"""What framing makes of bytes: events of a stream, a body in one piece, or the end of reading."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Event(msgspec.Struct, frozen=True):
    """One event of a stream. Its data is valid UTF-8; `name` is empty where none was given.

    `unterminated` means that the body ended before the event's own end: take it only if it
    reads as whole.
    """

    data: bytes
    name: str = ""
    unterminated: bool = False


class Whole(msgspec.Struct, frozen=True):
    """The body in one piece: it was JSON, not a stream."""

    data: bytes


class Broken(msgspec.Struct, frozen=True):
    """The body cannot be read on from here. Nothing follows it."""

    code: str
    message: str


Framed: TypeAlias = Event | Whole | Broken
