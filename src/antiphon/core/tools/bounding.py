"""How much of a tool's result the model is shown. The ledger keeps the whole of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from antiphon.core.blocks import ResultPart, Text

NEAR: Final = 0.1
"""A cut goes back to the end of a line or a word that lies within this share of the limit."""


def bounded(parts: Sequence[ResultPart], limit: int) -> tuple[ResultPart, ...]:
    """Return `parts` with no more than `limit` characters of text, and a notice of the cut.

    0 is no limit. Images and files stay: their size is the profile's affair.
    """
    kept = _kept(parts, limit)
    shown, total = _characters(kept), _characters(parts)
    return kept if shown == total else (*kept, Text(text=notice(shown, total)))


def shown_of(parts: Sequence[ResultPart], limit: int) -> tuple[int, int]:
    """Return how many characters of `parts` the model is shown, and how many there are.

    Example:
        >>> shown_of([Text(text="x" * 50)], 20)
        (20, 50)
    """
    return _characters(_kept(parts, limit)), _characters(parts)


def notice(shown: int, total: int) -> str:
    """Return what stands behind a result that was cut."""
    return (
        f"\n[The first {shown} of {total} characters are shown, {total - shown} are omitted. "
        "Ask for a smaller part to see the rest.]"
    )


def _kept(parts: Sequence[ResultPart], limit: int) -> tuple[ResultPart, ...]:
    whole = limit <= 0 or _characters(parts) <= limit
    return tuple(parts) if whole else tuple(_cut(parts, limit))


def _characters(parts: Iterable[ResultPart]) -> int:
    return sum(len(part.text) for part in parts if isinstance(part, Text))


def _cut(parts: Iterable[ResultPart], limit: int) -> Iterator[ResultPart]:
    room = limit
    for part in parts:
        if not isinstance(part, Text):
            yield part
        elif room > 0:
            text = part.text if len(part.text) <= room else part.text[: _boundary(part.text, room)]
            room = 0 if len(text) < len(part.text) else room - len(text)
            yield Text(text=text)


def _boundary(text: str, limit: int) -> int:
    """Return where to cut `text`: after a line or a word if one ends near enough."""
    least = int(limit * (1 - NEAR))
    for separator in ("\n", " "):
        at = text.rfind(separator, least, limit)
        if at >= 0:
            return at + 1
    return limit
