"""Which passages fit a question best: BM25 over the terms that they share.

An index is kept term by term, so that a question reads no more than its own terms, and whatever
database holds it, the order of the passages is worked out here and is the same.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from antiphon.core.knowledge.words import terms

SATURATION: Final = 1.2
LENGTH_WEIGHT: Final = 0.75
BACKGROUND: Final = 30
"""How many passages that lack every term are taken to stand beside those that there are: in a file
of three passages no word is common, and what a score means would depend on how few they are."""

Postings = list[int]
"""Number of a passage and how often the term stands in it, in turn, for each that has it."""


class Index(NamedTuple):
    """The index of one file, or the part of it that a question needs."""

    lengths: Sequence[int]
    """How many terms each passage has."""
    postings: Mapping[str, Postings]


class Ranked(NamedTuple):
    """A passage of a file that shares terms with the question.

    `score` is between 0 and 1: how much it has of what a passage could have that says every word
    of the question again and again.
    """

    file: str
    number: int
    score: float


def index(texts: Iterable[str]) -> Index:
    """Return the index of a file whose passages are these."""
    lengths: list[int] = []
    postings: dict[str, Postings] = {}
    for number, text in enumerate(texts):
        counts = Counter(terms(text))
        lengths.append(sum(counts.values()))
        for term, count in counts.items():
            postings.setdefault(term, []).extend((number, count))
    return Index(lengths, postings)


class Ranking(NamedTuple):
    """How many passages share a term with the question, and the best of them, best first."""

    candidates: int
    best: Sequence[Ranked]


def rank(question: Sequence[str], files: Mapping[str, Index], most: int) -> Ranking:
    """Return the passages that share terms with the question, the best of them by name.

    How rare a term is counts over all of `files` together, as if they were one.

    Args:
        question: Its terms.
        files: What of each file's index the question needs.
        most: How many of the best are wanted.
    """
    count = sum(len(file.lengths) for file in files.values())
    if not count:
        return Ranking(0, ())
    usual = sum(sum(file.lengths) for file in files.values()) / count or 1.0
    asked = dict.fromkeys(question)
    worth = {term: _rarity(term, count, files) * (SATURATION + 1) for term in asked}
    ideal = sum(worth.values())
    found: dict[str, dict[int, float]] = {}
    for name, file in files.items():
        scores: defaultdict[int, float] = defaultdict(float)
        flat, slope = SATURATION * (1 - LENGTH_WEIGHT), SATURATION * LENGTH_WEIGHT / usual
        lengths = file.lengths
        for term in asked:
            held, full = file.postings.get(term, ()), worth[term]
            for number, times in zip(held[::2], held[1::2], strict=True):
                scores[number] += full * times / (times + flat + slope * lengths[number])
        found[name] = scores
    every = sorted(chain.from_iterable(scores.values() for scores in found.values()))
    if not every or most <= 0:
        return Ranking(len(every), ())
    least = every[-most] if most < len(every) else every[0]
    best = [
        Ranked(name, number, score / ideal)
        for name, scores in found.items()
        for number, score in scores.items()
        if score >= least
    ]
    best.sort(key=lambda one: (-one.score, one.file, one.number))
    return Ranking(len(every), best[:most])


def _rarity(term: str, count: int, files: Mapping[str, Index]) -> float:
    """Return how much it says that a passage has this term."""
    having = sum(len(file.postings.get(term, ())) // 2 for file in files.values())
    return math.log(1 + (count + BACKGROUND - having + 0.5) / (having + 0.5))


encode_postings: Final = msgspec.msgpack.Encoder().encode
decode_postings: Final = msgspec.msgpack.Decoder(list[int]).decode
