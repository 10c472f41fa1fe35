"""Call ids as a provider takes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from antiphon.adapters.spellings import Spellings
from antiphon.core.digests import NO_KEY, digest
from antiphon.core.ids import CallId
from antiphon.core.profile import Profile
from antiphon.errors import InvalidInput

BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
LENGTHS: Final = (9, 40, 32, 24, 16, 12, 8, 6)


class CallIds(Spellings[CallId]):
    """How the calls of one line are named to the provider."""

    __slots__ = ("_limit", "_pattern")

    def __init__(self, profile: Profile) -> None:
        super().__init__()
        self._limit = profile.call_id_safe or profile.call_id_max
        self._pattern = re.compile(profile.call_id_pattern) if profile.call_id_pattern else None

    def _fits(self, spelling: str) -> bool:
        short = self._limit is None or len(spelling) <= self._limit
        return short and (self._pattern is None or self._pattern.fullmatch(spelling) is not None)

    def _made_from(self, call_id: CallId) -> Iterator[str]:
        """Yield ids made from this one that the provider takes, without end if there is any.

        Raises:
            InvalidInput: `bad_call_id`: no id that can be made fits the profile's pattern.
        """
        fitting = False
        for number in range(1000):
            text = _base62(digest(NO_KEY, "call id", call_id.encode(), str(number).encode()))
            spellings = (f"call_{text[:24]}", *(text[:n] for n in LENGTHS), text[: self._limit])
            spelling = next((s for s in spellings if self._fits(s)), None)
            if spelling is not None:
                fitting = True
                yield spelling
            elif not fitting:
                break
        pattern = self._pattern.pattern if self._pattern else f"at most {self._limit} characters"
        raise InvalidInput(
            f"No call id could be made that fits {pattern}.", code="bad_call_id", at=call_id
        )


def _base62(hexadecimal: str) -> str:
    """Return a digest in letters and digits, most significant first, always 43 of them."""
    number, characters = int(hexadecimal, 16), []
    for _ in range(43):
        number, rest = divmod(number, 62)
        characters.append(BASE62[rest])
    return "".join(reversed(characters))
