"""Terms: what two texts that mean the same share, in every script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.knowledge.words import LONGEST_TERM, terms


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("?! — …", []),
        ("the and of", []),
        ("Berths, berthed", ["berths", "bert*", "berthed", "bert*"]),
        ("SSO 2FA", ["sso", "2fa"]),
        ("max_output_tokens", ["max", "output", "outp*", "tokens", "toke*"]),
        ("退款须知", ["退款", "款须", "须知", "退", "款", "须", "知"]),
        ("猫", ["猫"]),
        ("ＰＤＦ導出", ["pdf", "導出", "導", "出"]),
        ("ｶﾅ", ["カナ", "カ", "ナ"]),
        ("Лодки лодка", ["лодки", "лодк*", "лодка", "лодк*"]),
        ("ท่าเรือ"[:2], ["ท่", "ท", "่"]),
    ],
)
def test_text_is_cut_where_its_script_allows(text: str, found: list[str]) -> None:
    assert terms(text) == found


@given(st.text(st.characters(codec="utf-8")))
def test_terms_are_bounded_folded_and_of_letters(text: str) -> None:
    for term in terms(text):
        assert 0 < len(term) <= LONGEST_TERM
        assert term == term.casefold()
        assert not any(char.isspace() or char == "\0" for char in term)
