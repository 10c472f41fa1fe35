"""Ranking: the order of the passages, what their score means, and recall on the bilingual set."""

from __future__ import annotations

import math

import pytest

from antiphon.core.knowledge.ranking import index, rank
from antiphon.core.knowledge.words import terms
from tests.support.plain_bm25 import BASELINES, LANGUAGES, PlainBm25, read_set


def found(question: str, *texts: str) -> list[int]:
    return [one.number for one in rank(terms(question), {"f": index(texts)}, 99).best]


def test_the_passage_that_shares_more_and_rarer_words_comes_first() -> None:
    texts = ("The ferry leaves at noon.", "A ferry costs two crowns.", "Crowns are coins.")
    assert found("What does the ferry cost?", *texts) == [1, 0]
    assert found("Nothing of it", *texts) == []
    assert found("费用", *texts) == []


def test_an_index_of_nothing_finds_nothing() -> None:
    assert rank(terms("anything"), {"f": index([])}, 9).best == ()
    assert rank([], {"f": index(["text"])}, 9).best == ()
    assert rank(terms("anything"), {}, 9).best == ()


def test_several_files_rank_as_one_would() -> None:
    texts = ["The ferry leaves at noon.", "A ferry costs two crowns.", "The pilot is ashore."]
    whole = [(r.number, r.score) for r in rank(terms("ferry crowns"), {"f": index(texts)}, 9).best]
    apart = rank(
        terms("ferry crowns"),
        {name: index([text]) for name, text in zip("abc", texts, strict=True)},
        9,
    ).best
    assert [(ord(r.file) - ord("a"), r.score) for r in apart] == whole


def test_the_best_of_many_are_those_that_come_first_of_all() -> None:
    """Equal ones in the order of their places, however few are wanted."""
    texts = [f"The ferry {'ferry ' * (n % 5)}leaves." for n in range(40)]
    every = found("ferry", *texts)
    assert len(every) == 40
    for most in (0, 1, 7, 8, 9, 39, 40, 41):
        candidates, best = rank(terms("ferry"), {"f": index(texts)}, most)
        assert candidates == 40
        assert [one.number for one in best] == every[:most]


def test_a_score_says_the_same_in_a_small_file_and_in_a_large_one() -> None:
    text, other = "A berth costs nine crowns a night.", "The lamp burned paraffin until 1931."
    few, many = (
        rank(terms("How many crowns for a berth?"), {"f": index([text, *[other] * n])}, 9)
        .best[0]
        .score
        for n in (1, 60)
    )
    assert 0 < few < 1
    assert math.isclose(few, many, rel_tol=0.25)


@pytest.mark.parametrize("language", LANGUAGES)
def test_recall_at_five_is_no_lower_than_that_of_plain_bm25(language: str) -> None:
    """All three languages stand in one file, as they do where people work in several."""
    texts = [text for name in LANGUAGES for text in read_set(name)["passages"]]
    first = texts.index(read_set(language)["passages"][0])
    plain, ours, theirs = PlainBm25(texts, BASELINES[language]), 0, 0
    for question, right in read_set(language)["questions"]:
        ours += first + right in found(question, *texts)[:5]
        theirs += first + right in plain.best(question)
    assert ours >= theirs
    assert ours / len(read_set(language)["questions"]) >= 0.95
