"""Where a place stands in a JSON text, and the lines around it for a person to look at."""

from __future__ import annotations

import re
from json import JSONDecoder
from typing import Final

from antiphon.cli.view.text import Ink, cells, harmless

PLACE: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
SCALAR: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[-\w.+]+')
SPACE: Final = re.compile(r"[ \t\r\n]*")
WIDTH: Final = 96

_value: Final = JSONDecoder().raw_decode


def offset_of(text: str, place: str) -> int | None:
    """Return where the value at `place` begins in `text`, or as deep into it as there is one.

    Example:
        >>> offset_of('{"a": [1, {"b": 2}]}', "a[1].b")
        16
    """
    at = _space(text, 0)
    for match in PLACE.finditer(place):
        inner = _item(text, at, int(match[1])) if match[1] else _member(text, at, match[2])
        if inner is None:
            return at if match.start() else None
        at = inner
    return at


def excerpt(text: str, offset: int, ink: Ink) -> list[str]:
    """Return the line of `offset` with its neighbours, and a mark under the value that begins there.

    Lines are cut to the width of a screen, and what would move the cursor is shown instead.
    """
    lines = text.split("\n")
    number = text.count("\n", 0, offset)
    column = offset - (text.rfind("\n", 0, offset) + 1)
    shown: list[str] = []
    for near in range(max(0, number - 1), min(len(lines), number + 3)):
        cut, start = _window(lines[near].rstrip("\r"), column if near == number else 0)
        if near > number and not cut.strip():
            break  # the end of the file
        shown.append(ink(f"{near + 1:>6} │ ", "dim") + harmless(cut))
        if near == number:
            before, under = cut[: column - start], cut[column - start :]
            marked = "^" * (cells(harmless(under[: _scalar(under)])) or 1)
            mark = " " * cells(harmless(before)) + marked
            shown.append(ink("       │ ", "dim") + ink(mark, "bad", "bold"))
    return shown


def _scalar(text: str) -> int:
    """Return how much of `text` is the one plain value that it begins with; 1 where it is not."""
    match = SCALAR.match(text)
    return match.end() if match else 1


def _window(line: str, column: int) -> tuple[str, int]:
    """Return the part of a long line around `column`, and where that part begins."""
    if len(line) <= WIDTH:
        return line, 0
    start = max(0, min(column - WIDTH // 3, len(line) - WIDTH))
    cut = line[start : start + WIDTH]
    if start:
        cut = "…" + cut[1:]
    if start + WIDTH < len(line):
        cut = cut[:-1] + "…"
    return cut, start


def _space(text: str, at: int) -> int:
    match = SPACE.match(text, at)
    return match.end() if match else at


def _item(text: str, at: int, wanted: int) -> int | None:
    if text[at : at + 1] != "[":
        return None
    at = _space(text, at + 1)
    for number in range(wanted + 1):
        if text[at : at + 1] in ("]", ""):
            return None
        if number == wanted:
            return at
        _, at = _value(text, at)
        at = _space(text, _space(text, at) + 1)  # over the comma
    return None


def _member(text: str, at: int, wanted: str) -> int | None:
    if text[at : at + 1] != "{":
        return None
    at = _space(text, at + 1)
    while text[at : at + 1] == '"':
        name, at = _value(text, at)
        at = _space(text, _space(text, at) + 1)  # over the colon
        if name == wanted:
            return at
        _, at = _value(text, at)
        at = _space(text, _space(text, at) + 1)
    return None
