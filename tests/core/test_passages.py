"""Passages: cut where the writer cut, bounded, and nothing of the text is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.knowledge.passages import MOST_CHARS, Piece, pieces
from antiphon.core.knowledge.words import terms


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        (" \n\n\t\n", []),
        ("One.", [("", "One.")]),
        ("One.\n\nTwo.", [("", "One.\n\nTwo.")]),
        ("# A\n\nOne.\n\n## B\n\nTwo.", [("A", "One."), ("B", "Two.")]),
        ("# A\nOne.\n# B ##\nTwo.", [("A", "One."), ("B", "Two.")]),
        ("Fees\n====\n\nNine.\n\nMore\n----\n\nTen.", [("Fees", "Nine."), ("More", "Ten.")]),
        (
            "第一章 总则\n\n本法。\n\n第二条\n\n适用。",
            [("第一章 总则", "本法。"), ("第二条", "适用。")],
        ),
        ("# Only a heading", [("", "Only a heading")]),
        ("# A\n\n## B\n\nOne.\n\n# C", [("A / B", "One."), ("", "C")]),
        ("# " + "x" * 300, [("", "# " + "x" * 300)]),
        ("A\r\n\r\nB\rC", [("", "A\n\nB\nC")]),
    ],
)
def test_headings_and_paragraphs_are_where_it_is_cut(
    text: str, found: list[tuple[str, str]]
) -> None:
    assert pieces(text) == [Piece(*one) for one in found]


def test_a_long_paragraph_is_cut_between_sentences_in_either_script() -> None:
    for sentence in ("This is a sentence of some length. ", "这是一个有一定长度的句子。"):
        found = pieces(sentence * 100)
        assert len(found) > 1
        assert all(piece.text.endswith(sentence.strip()[-1]) for piece in found)
        assert all(piece.text.startswith(sentence[:4]) for piece in found)


def test_what_has_no_sentences_is_cut_all_the_same() -> None:
    assert [len(piece.text) for piece in pieces("x" * 2_000)] == [800, 800, 400]


def test_short_paragraphs_stay_together_up_to_the_length_of_a_passage() -> None:
    found = pieces("\n\n".join(["y" * 300] * 5))
    assert [len(piece.text) for piece in found] == [602, 602, 300]


TEXTS = st.lists(
    st.sampled_from(["# Head\n", "\n\n", "\n", "word ", "句子。", "A sentence. ", "x" * 300, "==="])
).map("".join)


@given(TEXTS)
def test_no_passage_is_too_long_and_every_word_is_in_one(text: str) -> None:
    found = pieces(text)
    assert all(0 < len(piece.text) <= MOST_CHARS for piece in found)
    assert pieces(text) == found
    told = {term for piece in found for term in terms(f"{piece.heading}\n{piece.text}")}
    assert {term for term in terms(text) if not term.startswith("x")} <= told
