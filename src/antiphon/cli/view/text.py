"""Text for people: how wide it is, how it is cut, what colour it has, when it was.

A character is one or two cells wide, or none; columns align by cells. Text that somebody else
wrote is made harmless first: it may not move the cursor, ring, or write backwards.
"""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TextIO

import click

TAIL: Final = 6
"""How much of an id is shown where it only has to be told from its neighbours."""

_STYLES: Final[dict[str, dict[str, object]]] = {
    "plain": {},
    "dim": {"dim": True},
    "bold": {"bold": True},
    "good": {"fg": "green"},
    "bad": {"fg": "red"},
    "warn": {"fg": "yellow"},
    "mark": {"fg": "cyan"},
}


def colourful(stream: TextIO | None = None) -> bool:
    """Return whether colour may be written to `stream`, standard output by default."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return (stream or sys.stdout).isatty()


class Ink:
    """Paints text, or leaves it as it is: decided once, for one stream."""

    def __init__(self, colour: bool | None = None) -> None:
        self.colour = colourful() if colour is None else colour

    def __call__(self, text: str, *styles: str) -> str:
        """Return `text` in the given styles: plain, dim, bold, good, bad, warn, mark."""
        if not self.colour or not text:
            return text
        merged: dict[str, object] = {}
        for style in styles:
            merged.update(_STYLES[style])
        return click.style(text, **merged)  # type: ignore[arg-type]  # our own table


def screen_width(most: int = 100) -> int:
    """Return how many cells a line may have: the terminal's, within reason for reading."""
    return max(40, min(most, shutil.get_terminal_size((most, 24)).columns))


# Width.


def width_of(character: str) -> int:
    """Return the cells that one character takes: 0, 1 or 2."""
    if character < "\x7f":
        return 1
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def cells(text: str) -> int:
    """Return the cells that `text` takes. It holds no escape sequences."""
    return sum(map(width_of, text))


def clip(text: str, width: int) -> str:
    """Return `text` in at most `width` cells, with `…` where something was cut off."""
    if cells(text) <= width:
        return text
    kept, used = [], 1
    for character in text:
        used += width_of(character)
        if used > width:
            break
        kept.append(character)
    return "".join(kept).rstrip() + "…"


def pad(text: str, width: int) -> str:
    """Return `text` filled up to `width` cells."""
    return text + " " * (width - cells(text))


def wrap(text: str, width: int) -> list[str]:
    """Return `text` in rows of at most `width` cells, broken at blanks where that is possible."""
    rows: list[str] = []
    for line in text.split("\n"):
        rows.extend(_wrapped(line, width))
    return rows


def _wrapped(line: str, width: int) -> Iterator[str]:
    start = used = 0
    blank = -1
    for position, character in enumerate(line):
        taken = width_of(character)
        while used + taken > width and position > start:
            if character == " ":
                yield line[start:position]
                start, used, blank, taken = position + 1, 0, -1, 0
            elif blank >= start:
                yield line[start:blank]
                start, used, blank = blank + 1, cells(line[blank + 1 : position]), -1
            else:
                yield line[start:position]
                start, used = position, 0
        if character == " ":
            blank = position
        used += taken
    yield line[start:]


# Content.


_ESCAPED: Final = {
    code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (9, 10)
} | {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def harmless(text: str) -> str:
    """Return `text` with everything shown that would make a terminal do something.

    Escape sequences, other control characters, and those that turn the direction of writing.
    """
    return text.expandtabs(4).translate(_ESCAPED)


def one_line(text: str) -> str:
    """Return `text` as one harmless line, its blanks run together."""
    return harmless(" ".join(text.split()))


def short(name: str) -> str:
    """Return the end of an id, enough to tell it from its neighbours."""
    return name if len(name) <= TAIL + 2 else f"…{name[-TAIL:]}"


def table(rows: Iterable[Sequence[str]], *, gap: int = 2) -> list[str]:
    """Return rows of plain text with aligned columns; the last column is left as it is."""
    rows = [tuple(row) for row in rows]
    if not rows:
        return []
    widths = [max(cells(row[n]) for row in rows) for n in range(len(rows[0]) - 1)]
    return [
        "".join(pad(cell, width + gap) for cell, width in zip(row, widths, strict=False)) + row[-1]
        for row in rows
    ]


# Time and number.


def ago(ms: int, now_ms: int) -> str:
    """Return how long ago something was, in one unit."""
    seconds = max(0, now_ms - ms) // 1000
    for size, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {name} ago"
    return f"{seconds} s ago" if seconds else "just now"


def lasted(ms: int) -> str:
    """Return a length of time: `412 ms`, `2.31 s`, `3 min 4 s`."""
    if ms < 1000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.2f} s"
    return f"{ms // 60_000} min {ms % 60_000 // 1000} s"


def size(number: float) -> str:
    """Return a number of bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"


def count(number: int, one: str, many: str | None = None) -> str:
    """Return `1 message` or `2 messages`."""
    return f"{number} {one if number == 1 else many or one + 's'}"
