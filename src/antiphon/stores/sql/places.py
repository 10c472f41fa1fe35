"""Places: integer keys that begin with the conversation. See `migrations/0001_initial.sql`."""

from __future__ import annotations

from typing import Final

SHIFT: Final = 32
LAST: Final = (1 << SHIFT) - 1


def place(conversation: int, number: int) -> int:
    """Return the key of row `number` (from 1) of conversation number `conversation`."""
    return conversation << SHIFT | number


def conversation_of(place: int) -> int:
    """Return the number of the conversation that the row at `place` belongs to."""
    return place >> SHIFT


def number_of(place: int) -> int:
    """Return the row's own number within its conversation."""
    return place & LAST


def span(conversation: int) -> tuple[int, int]:
    """Return the first and the last key that a row of this conversation may have."""
    return conversation << SHIFT, conversation << SHIFT | LAST
