"""Lines from a pipe, a file or a program: read in a thread, so that nothing waits for them."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Callable, Iterator
from typing import Final

from antiphon.errors import AntiphonError, InvalidInput

MAX_LINE_BYTES: Final = 16 * 1024 * 1024


def read(hand_over: Callable[[str | AntiphonError | None], None], whole: bool) -> None:
    """Read standard input in a thread of its own, so that nothing waits for it."""
    try:
        for line in _whole() if whole else _each():
            hand_over(line)
    except InvalidInput as error:
        hand_over(error)
    finally:
        hand_over(None)


def _chunks() -> Iterator[bytes]:
    # Not through sys.stdin: a thread that waits there holds a lock that the exit needs.
    try:
        descriptor = sys.stdin.fileno()
    except (OSError, ValueError):
        yield sys.stdin.buffer.read()
        return
    while data := os.read(descriptor, 64 * 1024):
        yield data


def _each() -> Iterator[str]:
    rest = b""
    for data in _chunks():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield _decoded(line)
        if len(rest) > MAX_LINE_BYTES:
            raise InvalidInput("This line is longer than any message.", code="line_too_long")
    if rest:
        yield _decoded(rest)


def _whole() -> Iterator[str]:
    data = b""
    for more in _chunks():
        data += more
        if len(data) > MAX_LINE_BYTES:
            raise InvalidInput("The input is longer than any message.", code="line_too_long")
    yield _decoded(data).removesuffix("\n")


def must_be_text(argument: str | None) -> None:
    """Return if an argument was UTF-8 when it was typed."""
    try:
        (argument or "").encode()
    except UnicodeEncodeError:
        raise InvalidInput("An argument is not UTF-8.", code="invalid_utf8") from None


def _decoded(data: bytes) -> str:
    try:
        return codecs.decode(data, "utf-8").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"The input is not UTF-8: byte {error.start} of a line.", code="invalid_utf8"
        ) from None
