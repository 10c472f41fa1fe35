"""What text can be kept and sent at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from antiphon.errors import InvalidInput


@contextmanager
def storable(at: str) -> Iterator[None]:
    """Tell of text that no file and no request can hold, with its place.

    Raises:
        InvalidInput: `invalid_unicode`: half a surrogate pair. Nothing was stored.
    """
    try:
        yield
    except UnicodeEncodeError:
        raise InvalidInput(
            "The text holds half a surrogate pair, which can neither be stored nor sent.",
            code="invalid_unicode",
            at=at,
        ) from None
