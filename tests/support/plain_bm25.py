"""Plain BM25, as the books have it: the baseline that our ranking is held against.

Words for English; single characters for Chinese and Japanese, which have no others without a
dictionary.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

SETS: Final = Path(__file__).parent.parent / "data" / "retrieval"
LANGUAGES: Final = ("en", "zh", "ja")


def read_set(language: str) -> dict[str, Any]:
    """The passages and questions of one language; each question with the number of its passage."""
    told: dict[str, Any] = json.loads((SETS / f"{language}.json").read_text("utf-8"))
    return told


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def characters(text: str) -> list[str]:
    return [char for char in text if char.isalnum()]


BASELINES: Final[Mapping[str, Callable[[str], list[str]]]] = {
    "en": words,
    "zh": characters,
    "ja": characters,
}


class PlainBm25:
    """One document a passage, every document looked at for every question."""

    def __init__(self, texts: Sequence[str], tokens: Callable[[str], list[str]]) -> None:
        self._tokens = tokens
        self._counts = [Counter(tokens(text)) for text in texts]
        self._lengths = [sum(count.values()) for count in self._counts]
        self._having = Counter(term for count in self._counts for term in count)

    def best(self, question: str, most: int = 5) -> list[int]:
        """The numbers of the best passages, best first."""
        asked, total = set(self._tokens(question)), len(self._counts)
        usual = sum(self._lengths) / total
        scored = []
        for number, count in enumerate(self._counts):
            norm = 1.2 * (0.25 + 0.75 * self._lengths[number] / usual)
            score = 0.0
            for term in asked & count.keys():
                rarity = math.log(
                    1 + (total - self._having[term] + 0.5) / (self._having[term] + 0.5)
                )
                score += rarity * count[term] * 2.2 / (count[term] + norm)
            if score:
                scored.append((-score, number))
        return [number for _, number in sorted(scored)[:most]]
