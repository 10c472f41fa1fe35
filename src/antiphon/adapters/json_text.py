"""JSON as servers send it: half a character where text was cut, and bodies cut at their end."""

from __future__ import annotations

import json
import re
from typing import Final, TypeVar

import msgspec

SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
WHERE: Final = re.compile(r"\(byte (\d+)\)\Z")

T = TypeVar("T")


def decode_lenient(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    """Return what `decoder` makes of `data`, with half a character left in its text as it is.

    Servers that count in UTF-16 cut text inside a character; the assembler joins the halves.

    Raises:
        ValueError: It is not JSON, or with a field of the wrong type.
    """
    try:
        return decoder.decode(data)
    except RecursionError:
        raise ValueError("nested too deep") from None
    except ValueError:
        if SURROGATE.search(data) is None:
            raise
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            value = None
        if value is None:
            raise
    return msgspec.convert(value, decoder.type)


def is_cut(data: bytes, error: ValueError) -> bool:
    """Say whether what a decoder missed is at the very end of the body.

    It says so in words only. The tests cut answers at every byte, so other words show there.
    """
    words = str(error)
    place = None if "trailing" in words else WHERE.search(words)
    return "truncated" in words or (place is not None and int(place[1]) == len(data))
