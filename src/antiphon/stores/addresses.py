"""What an address of a database says: which kind it is of, and what of it a person may see."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

SQLITE: Final = "sqlite:///"
POSTGRES: Final = ("postgresql://", "postgres://")


def is_shared(address: str) -> bool:
    """Whether several processes may work in this database at once."""
    return address.startswith(POSTGRES)


def shown(address: str) -> str:
    """Return the address as a person may see it: without user, password and options.

    Example:
        >>> shown("postgresql://me:secret@db.example:5432/talks?sslmode=require")
        'postgresql://db.example:5432/talks'
        >>> shown("sqlite:///talks.db")
        'talks.db'
    """
    if not is_shared(address):
        return address.removeprefix(SQLITE)
    try:
        parts = urlsplit(address)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return POSTGRES[0]
    return f"{POSTGRES[0]}{parts.hostname or ''}{port}{parts.path}"
