"""Text as terms, for an index: words where a script has spaces, pairs of letters where it has none.

Chinese, Japanese, Korean, Thai and their neighbours are cut into overlapping pairs, and single
characters stand by themselves beside them, so that a question meets a text without a dictionary
that both would have to share. Beside each longer word stands how it begins, so that `anchoring`
meets `anchor` in any language that inflects at the end. Width, case and compatibility forms are
folded.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

UNSPACED: Final = (
    "\u0e00-\u0e7f\u0e80-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Myanmar, Khmer
    "\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff"  # kana and the signs that go with it
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\u1100-\u11ff\uac00-\ud7af"  # Hangul: particles are written to the word
)
LONGEST_TERM: Final = 64

_RUNS: Final = re.compile(f"([{UNSPACED}]+)|([^\\W_{UNSPACED}]+)")
STEM: Final = 4
STOPPED: Final = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "been",
        "by",
        "can",
        "did",
        "do",
        "does",
        "for",
        "from",
        "has",
        "have",
        "how",
        "i",
        "if",
        "in",
        "is",
        "it",
        "its",
        "may",
        "me",
        "must",
        "my",
        "not",
        "of",
        "on",
        "or",
        "our",
        "that",
        "the",
        "their",
        "them",
        "there",
        "they",
        "this",
        "to",
        "was",
        "we",
        "what",
        "when",
        "where",
        "which",
        "who",
        "why",
        "will",
        "with",
        "would",
        "you",
        "your",
    ]
)
"""English words that say nothing about what a text is about; other languages pair theirs away."""


def terms(text: str) -> list[str]:
    """Return the terms of `text`, in their order, as often as they occur.

    Example:
        >>> terms("企业版 supports the SSO")
        ['企业', '业版', '企', '业', '版', 'supports', 'supp*', 'sso']
    """
    found: list[str] = []
    for unspaced, word in _RUNS.findall(unicodedata.normalize("NFKC", text).casefold()):
        if unspaced:
            found += (unspaced[n : n + 2] for n in range(len(unspaced) - 1))
            found += unspaced
        elif word not in STOPPED:
            found.append(word[:LONGEST_TERM])
            if len(word) >= STEM:
                found.append(f"{word[:STEM]}*")
    return found
