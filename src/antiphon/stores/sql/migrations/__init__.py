"""The schema of every database, as numbered steps forward. How they are written: see `stores.sql`."""

from __future__ import annotations

from importlib import resources
from typing import Final

TOO_OLD: Final = (
    "An older release wrote this database, and what only reads cannot bring it up to date. "
    "`antiphon recover --settle` does; a server of that release has to be stopped before."
)
"""What whoever reads as things stand is told (`store_too_old`)."""


def known() -> list[tuple[int, str, str]]:
    """Return number, name and statements of every migration, in order."""
    found = []
    for entry in resources.files(__package__).iterdir():
        if entry.name.endswith(".sql"):
            number, _, name = entry.name.removesuffix(".sql").partition("_")
            found.append((int(number), name, entry.read_text(encoding="utf-8")))
    return sorted(found)
