"""Where a place stands in a JSON text, and the lines around it for a person to look at."""

from __future__ import annotations

import re
from json import JSONDecoder
from typing import Final

import click

PLACE: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
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


def excerpt(text: str, offset: int) -> list[str]:
    """Return the line of `offset` with its neighbours and a mark, cut to the width of a screen."""
    lines = text.splitlines() or [""]
    number = text.count("\n", 0, offset)
    column = offset - (text.rfind("\n", 0, offset) + 1)
    shown: list[str] = []
    for near in range(max(0, number - 1), min(len(lines), number + 3)):
        line, start = _window(lines[near], column if near == number else 0)
        gutter = click.style(f"{near + 1:>6} │ ", dim=True)
        shown.append(gutter + line)
        if near == number:
            mark = " " * (column - start) + "^"
            shown.append(
                click.style("       │ ", dim=True) + click.style(mark, fg="red", bold=True)
            )
    return shown


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
