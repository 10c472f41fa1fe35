"""A provider's own words: bounded, in one line, and without any part of our key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.answers.said import Said, in_its_words

KEY = "sk-proj-AbCdEfGhIjKlMnOp"


@pytest.mark.parametrize(
    "quoted", [KEY, f"'{KEY}'.", "sk-proj-****MnOp", "sk-pr...", "(...lMnOp)", f"Bearer\t{KEY}"]
)
def test_no_part_of_the_key_is_kept(quoted: str) -> None:
    kept = in_its_words(f"Incorrect API key provided: {quoted} Look it up.", KEY)
    assert "(key)" in kept
    for part in ("sk-p", "MnOp", "AbCd"):
        assert part not in kept
    assert kept.startswith("Incorrect API key provided:")


@given(text=st.text(max_size=3000))
def test_what_is_kept_is_one_line_of_bounded_length(text: str) -> None:
    kept = in_its_words(text, None)
    assert len(kept) <= 1001
    assert not any(c in kept for c in "\n\r\t\x1b\x00")


@pytest.mark.parametrize("status", [401, 402, 403, 407])
def test_what_is_about_our_account_is_for_no_client(status: int) -> None:
    assert Said(message="No.", status=status).for_clients == ""


@pytest.mark.parametrize("status", [None, 400, 404, 413, 422, 429, 500, 503, 529])
def test_what_is_about_the_request_is(status: int | None) -> None:
    assert Said(message="No.", status=status).for_clients == "No."
