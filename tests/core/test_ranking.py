"""Ranking: the order of the passages, what their score means, and recall on the bilingual set."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon.core.ranking import index, rank
from antiphon.core.words import terms

SETS = Path(__file__).parent.parent / "data" / "retrieval"
LANGUAGES = ("en", "zh", "ja")


def found(question: str, *texts: str) -> list[int]:
    return [one.number for one in rank(terms(question), {"f": index(texts)})]


def test_the_passage_that_shares_more_and_rarer_words_comes_first() -> None:
    texts = ("The ferry leaves at noon.", "A ferry costs two crowns.", "Crowns are coins.")
    assert found("What does the ferry cost?", *texts) == [1, 0]
    assert found("Nothing of it", *texts) == []
    assert found("费用", *texts) == []


def test_an_index_of_nothing_finds_nothing() -> None:
    assert rank(terms("anything"), {"f": index([])}) == []
    assert rank([], {"f": index(["text"])}) == []
    assert rank(terms("anything"), {}) == []


def test_several_files_rank_as_one_would() -> None:
    texts = ["The ferry leaves at noon.", "A ferry costs two crowns.", "The pilot is ashore."]
    whole = [(r.number, r.score) for r in rank(terms("ferry crowns"), {"f": index(texts)})]
    apart = rank(
        terms("ferry crowns"),
        {name: index([text]) for name, text in zip("abc", texts, strict=True)},
    )
    assert [(ord(r.file) - ord("a"), r.score) for r in apart] == whole


def test_a_score_says_the_same_in_a_small_file_and_in_a_large_one() -> None:
    text, other = "A berth costs nine crowns a night.", "The lamp burned paraffin until 1931."
    few, many = (
        rank(terms("How many crowns for a berth?"), {"f": index([text, *[other] * n])})[0].score
        for n in (1, 60)
    )
    assert 0 < few < 1
    assert math.isclose(few, many, rel_tol=0.25)


def read(language: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((SETS / f"{language}.json").read_text("utf-8"))
    return told


def plain_bm25(texts: list[str], question: str, tokens: Callable[[str], list[str]]) -> list[int]:
    """The baseline: BM25 as the books have it, over one document a passage."""
    counts = [Counter(tokens(text)) for text in texts]
    lengths = [sum(count.values()) for count in counts]
    having = Counter(term for count in counts for term in count)
    scored = []
    for number, count in enumerate(counts):
        norm = 1.2 * (0.25 + 0.75 * lengths[number] / (sum(lengths) / len(lengths)))
        score = sum(
            math.log(1 + (len(texts) - having[term] + 0.5) / (having[term] + 0.5))
            * count[term] * 2.2 / (count[term] + norm)
            for term in set(tokens(question)) & count.keys()
        )  # fmt: skip
        scored.append((-score, number))
    return [number for score, number in sorted(scored) if score < 0]


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def characters(text: str) -> list[str]:
    return [char for char in text if char.isalnum()]


BASELINES = {"en": words, "zh": characters, "ja": characters}


@pytest.mark.parametrize("language", LANGUAGES)
def test_recall_at_five_is_no_lower_than_that_of_plain_bm25(language: str) -> None:
    """All three languages stand in one file, as they do where people work in several."""
    texts = [text for name in LANGUAGES for text in read(name)["passages"]]
    first = texts.index(read(language)["passages"][0])
    ours = theirs = 0
    for question, right in read(language)["questions"]:
        ours += first + right in found(question, *texts)[:5]
        theirs += first + right in plain_bm25(texts, question, BASELINES[language])[:5]
    assert ours >= theirs
    assert ours / len(read(language)["questions"]) >= 0.95
