"""Call ids as a provider takes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from antiphon.adapters.naming.spellings import Spellings
from antiphon.core.digests import NO_KEY, digest
from antiphon.core.ids import CallId
from antiphon.core.rules.profile import Profile
from antiphon.errors import InvalidInput

BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
PAIRS: Final = [first + second for first in BASE62 for second in BASE62]
OF_PAIRS: Final = len(PAIRS)
WHOLE: Final = 43
"""So many of them say a whole digest."""

POWERS: Final = [62**n for n in range(WHOLE + 2)]
SHOWN: Final = 24
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
            own = digest(NO_KEY, "call id", call_id.encode(), str(number).encode())
            spelling = next(filter(self._fits, _spelled(int(own, 16), self._limit)), None)
            if spelling is not None:
                fitting = True
                yield spelling
            elif not fitting:
                break
        pattern = self._pattern.pattern if self._pattern else f"at most {self._limit} characters"
        raise InvalidInput(
            f"No call id could be made that fits {pattern}.", code="bad_call_id", at=call_id
        )


def _spelled(number: int, limit: int | None) -> Iterator[str]:
    """Yield a digest as ids of all the forms that some provider takes."""
    text = _base62(number, SHOWN)
    yield f"call_{text}"
    for length in LENGTHS:
        yield text[:length] if length <= SHOWN else _base62(number, length)
    yield _base62(number, WHOLE if limit is None else min(limit, WHOLE))


def _base62(number: int, length: int) -> str:
    """Return the first so many of the 43 letters and digits of a digest, most significant first."""
    number = number * 62 // POWERS[WHOLE + 1 - length - length % 2]
    pairs = []
    for _ in range(0, length, 2):
        number, rest = divmod(number, OF_PAIRS)
        pairs.append(PAIRS[rest])
    pairs.reverse()
    return "".join(pairs)[:length]
