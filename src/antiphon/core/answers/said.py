"""What a provider says in place of an answer, in its own words: content, and none of our secrets.

A provider that refuses a key may quote parts of it, and its words are shown to whoever reads the
attempt. So every word that could be of the key is struck out before anything is kept.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

LONGEST: Final = 1000
QUOTED: Final = 4
"""As many first or last characters of a key tell it apart from a word that means something else."""

ABOUT_US: Final = frozenset({401, 402, 403, 407})
"""Statuses that speak of our account at the provider, which is no business of a client's."""

_BLANK: Final = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


class Said(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A provider's own words on why there is no answer, and what they mean.

    Attributes:
        message: Its sentence, in one line, or ours where it had none.
        status: The HTTP status that it came with; None inside an answer.
        retryable: Whether the same request may be answered later.
        retry_after_ms: How long the provider asks to wait, if it does.
    """

    message: str
    status: int | None = None
    retryable: bool = False
    retry_after_ms: int | None = None

    @property
    def for_clients(self) -> str:
        """The sentence, where it is about the request and not about our account; else nothing."""
        return "" if self.status in ABOUT_US else self.message


def in_its_words(message: str, key: str | None) -> str:
    r"""Return what a provider said, in one line of bounded length, without any part of `key`.

    Example:
        >>> in_its_words("Bad key:\n sk-pro***9xyz, see https://e.test", "sk-proj-1239xyz")
        'Bad key: (key) see https://e.test'
    """
    line = _BLANK.sub(" ", message).strip()
    if key:
        line = line.replace(key, "(key)")
    if key and len(key) >= 2 * QUOTED:
        ends = (key[:QUOTED], key[-QUOTED:])
        line = " ".join(
            "(key)" if any(end in word for end in ends) else word for word in line.split(" ")
        )
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"
