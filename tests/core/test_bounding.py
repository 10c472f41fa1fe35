"""How much of a result the model is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.blocks import Image, ResultPart, Text
from antiphon.core.records import CallState
from antiphon.core.tools.bounding import bounded
from antiphon.core.tools.ledger import result_of
from tests.support.calls import ledger_call


def texts(parts: tuple[ResultPart, ...]) -> list[str]:
    return [part.text for part in parts if isinstance(part, Text)]


@pytest.mark.req("M145")
def test_a_result_within_its_limit_is_shown_as_it_is() -> None:
    parts = (Text(text="abc"), Text(text="de"))
    assert bounded(parts, 5) == parts
    assert bounded(parts, 0) == parts


@pytest.mark.req("M145")
def test_a_longer_one_is_cut_and_says_what_is_missing_and_how_to_get_it() -> None:
    kept, notice = texts(bounded((Text(text="x" * 1000),), 100))
    assert kept == "x" * 100
    assert "first 100 of 1000" in notice
    assert "900 are omitted" in notice
    assert "shown" in notice
    assert "smaller part" in notice


def test_the_cut_goes_to_the_end_of_a_line_or_a_word_that_is_near() -> None:
    line = "a" * 95 + "\n" + "b" * 50
    assert texts(bounded((Text(text=line),), 100))[0] == "a" * 95 + "\n"
    word = "a" * 95 + " " + "b" * 50
    assert texts(bounded((Text(text=word),), 100))[0] == "a" * 95 + " "
    far = "a" * 20 + "\n" + "b" * 500
    assert len(texts(bounded((Text(text=far),), 100))[0]) == 100


def test_images_stay_and_later_texts_go() -> None:
    image = Image(media_type="image/png", data="aGk=")
    parts = (Text(text="x" * 10), image, Text(text="y" * 10), Text(text="z" * 10))
    shown = bounded(parts, 15)
    assert shown[1] is image
    assert texts(shown)[:2] == ["x" * 10, "y" * 5]
    assert "15 of 30" in texts(shown)[-1]


@given(st.lists(st.text(max_size=80), max_size=5), st.integers(1, 200))
def test_what_is_shown_is_the_beginning_and_never_more_than_the_limit(
    pieces: list[str], limit: int
) -> None:
    whole = "".join(pieces)
    shown = texts(bounded([Text(text=piece) for piece in pieces], limit))
    kept = "".join(shown) if len(whole) <= limit else "".join(shown[:-1])
    assert whole.startswith(kept)
    assert len(kept) <= limit
    if len(whole) > limit:
        assert len(kept) >= int(limit * 0.9)


@pytest.mark.req("M145")
def test_the_block_for_the_model_is_cut_and_the_ledger_row_is_not() -> None:
    call = ledger_call(state=CallState.SUCCESS, text="x" * 500, max_result_chars=100)
    assert sum(len(part.text) for part in result_of(call).content if isinstance(part, Text)) < 300
    assert call.content == (Text(text="x" * 500),)
