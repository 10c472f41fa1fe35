"""What the parsers of clients' requests share: how they say that something cannot be read."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from antiphon.errors import InvalidInput

DATA_URL: Final = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)
"""An address that holds what it names: its media type, and the data."""


class Malformed(Exception):
    """A part of a request cannot be read; `at` is the place inside what holds it."""

    def __init__(self, at: str, message: str, code: str = "malformed_item") -> None:
        super().__init__(message)
        self.at = at
        self.code = code


def encode(value: object) -> bytes:
    """Return a value of a request as JSON.

    Raises:
        InvalidInput: `invalid_unicode`: it holds half a character.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        raise InvalidInput(
            "The text holds half a surrogate pair, which no request can carry.",
            code="invalid_unicode",
        ) from None


def type_name(value: object) -> str:
    """Return what a value of a request is, in JSON's words."""
    names: dict[type, str] = {
        dict: "an object",
        list: "an array",
        str: "a string",
        bool: "a boolean",
    }
    return "null" if value is None else names.get(type(value), "a number")
