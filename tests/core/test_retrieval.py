"""What a search comes to, and what the model is told of each of the five ends."""

from __future__ import annotations

import pytest

from antiphon.core.inputs import Retrieved
from antiphon.core.knowledge.retrieval import (
    Beside,
    Found,
    Passage,
    RetrievalStatus,
    Search,
    beside,
    judged,
    read_beside,
    stored_beside,
)
from tests.support.lines import KEY


def passage(source: str, score: float, text: str = "Text.") -> Passage:
    return Passage(source=source, text=text, score=score)


def given(*searches: Search, most_chars: int = 1_000) -> Beside:
    return beside(searches, scope="conv_1", most_chars=most_chars)


def told(value: Beside) -> list[tuple[str, str | None]]:
    return [(block.source, block.notice) for block in value.inputs if isinstance(block, Retrieved)]


@pytest.mark.req("M115", "M120", "M123")
def test_a_hit_keeps_the_best_with_their_count_and_the_best_score() -> None:
    found = judged((passage(name, score) for name, score in [("b", 2), ("a", 3), ("c", 1)]), most=2)
    assert found.status is RetrievalStatus.HIT
    assert [p.source for p in found.passages] == ["a", "b"]
    assert (found.candidates, found.best_score, found.reason) == (3, 3, "")
    value = given(Search(source="notes", found=found))
    assert told(value) == [("a", None), ("b", None)]
    (trace,) = value.searched
    assert (trace.source, trace.status, trace.used) == ("notes", "hit", 2)
    assert (trace.candidates, trace.best_score) == (3, 3)


@pytest.mark.req("M115")
def test_the_order_of_equals_is_by_their_source_however_they_came() -> None:
    some = [passage("b", 1), passage("a", 1), passage("c", 1)]
    assert judged(some).passages == judged(reversed(some)).passages


@pytest.mark.req("M116", "M117", "M122")
@pytest.mark.parametrize(
    ("found", "status", "best"),
    [
        (judged([]), "empty", None),
        (judged([passage("a", 0.2)], least_score=0.5), "low_score", 0.2),
    ],
)
def test_where_nothing_is_found_or_nothing_good_the_model_is_told_that_there_is_no_match(
    found: Found, status: str, best: float | None
) -> None:
    whole = passage("prices.md", 0, "All of it.")
    value = given(Search(source="prices.md", found=found, files=(whole,)))
    assert told(value) == [("prices.md", "no_match")]
    assert "guess" in value.inputs[0].text
    assert "All of it." not in value.inputs[0].text
    (trace,) = value.searched
    assert (trace.status, trace.best_score, trace.used) == (status, best, 0)
    assert trace.reason


@pytest.mark.req("M118", "M119", "M121")
@pytest.mark.parametrize("status", [RetrievalStatus.TIMEOUT, RetrievalStatus.FAILED])
def test_a_broken_search_falls_back_to_the_files_in_full_and_says_so(
    status: RetrievalStatus,
) -> None:
    files = (passage("a.md", 0, "First."), passage("b.md", 0, "Second."))
    found = Found(status=status, reason="http_500")
    value = given(Search(source="files", found=found, files=files))
    assert told(value) == [("files", "retrieval_failed"), ("a.md", None), ("b.md", None)]
    assert "http_500" in value.inputs[0].text
    assert [block.text for block in value.inputs[1:]] == ["First.", "Second."]
    (trace,) = value.searched
    assert (trace.status, trace.reason, trace.used) == (status, "http_500", 2)


@pytest.mark.req("M121")
def test_files_in_full_are_cut_where_the_budget_ends_and_the_cut_is_seen() -> None:
    files = (passage("a.md", 0, "x" * 30), passage("b.md", 0, "Second."))
    found = Found(status=RetrievalStatus.FAILED, reason="http_500")
    value = given(Search(source="files", found=found, files=files), most_chars=10)
    assert told(value) == [("files", "retrieval_failed"), ("a.md", None)]
    assert value.inputs[1].text == "x" * 10 + "\n[cut: 20 more characters did not fit]"


@pytest.mark.req("M119", "M121")
def test_a_broken_search_of_what_is_no_file_says_that_nothing_is_known() -> None:
    found = Found(status=RetrievalStatus.FAILED, reason="http_500")
    value = given(Search(source="handbook", found=found))
    assert told(value) == [("handbook", "retrieval_failed")]
    assert value.searched[0].used == 0


@pytest.mark.req("M114")
def test_a_passage_that_does_not_fit_is_left_out_whole_and_a_smaller_one_is_taken() -> None:
    found = judged([passage("a", 3, "x" * 8), passage("b", 2, "y" * 5), passage("c", 1, "z")])
    value = given(Search(source="notes", found=found), most_chars=9)
    assert told(value) == [("a", None), ("c", None)]
    later = judged([passage("d", 1, "w" * 2)])
    both = given(
        Search(source="notes", found=found), Search(source="more", found=later), most_chars=9
    )
    assert told(both) == [("a", None), ("c", None)]
    assert [trace.used for trace in both.searched] == [2, 0]


def test_what_stands_beside_a_message_is_read_back_as_it_was_stored() -> None:
    value = given(
        Search(source="notes", found=judged([passage("a", 1)])),
        Search(source="files", found=Found(status=RetrievalStatus.TIMEOUT, reason="timeout_5s")),
    )
    digest, data = stored_beside(KEY, value)
    assert read_beside(data) == value
    assert stored_beside(b"another", value)[0] != digest
