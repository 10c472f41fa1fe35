"""What the parsers of clients' requests share: how they say that something cannot be read."""

from __future__ import annotations

import re
from typing import Final, Self

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


class Spelled(float):
    """A number that is written back as it was spelled: `1.10`, or more digits than a double holds."""

    __slots__ = ("word",)

    def __new__(cls, word: str) -> Self:
        """Return the number that `word` spells."""
        made = super().__new__(cls, word)
        made.word = word
        return made

    word: str


def number(word: str) -> float:
    """Return the number that `word` spells, as a `Spelled` where it could not be told from the value.

    Example:
        >>> encode({"price": number("1.10")})
        b'{"price":1.10}'
    """
    plain = float(word)
    return plain if repr(plain) == word else Spelled(word)


def _as_spelled(value: object) -> msgspec.Raw:
    if isinstance(value, Spelled):
        return msgspec.Raw(value.word.encode())
    raise TypeError(f"{type(value).__name__} is no JSON value")


_encode: Final = msgspec.json.Encoder(enc_hook=_as_spelled).encode


def encode(value: object) -> bytes:
    """Return a value of a request as JSON, its numbers digit for digit.

    Raises:
        InvalidInput: `invalid_unicode`: it holds half a character.
    """
    try:
        return _encode(value)
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
