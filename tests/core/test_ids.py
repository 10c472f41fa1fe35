"""Identifiers: they sort by time, and a client's own are checked by one rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.ids import SUFFIX_LENGTH, message_id, sortable
from antiphon.errors import InvalidInput

times = st.integers(0, 2**48 - 1)
bits = st.integers(0, 2**80 - 1)


@given(first=st.tuples(times, bits), second=st.tuples(times, bits))
def test_ids_sort_as_their_times_do_and_then_as_what_was_drawn(
    first: tuple[int, int], second: tuple[int, int]
) -> None:
    one, other = sortable("msg_", *first), sortable("msg_", *second)
    assert (one < other) is (first < second)
    assert (one == other) is (first == second)


@given(now_ms=times, randomness=bits)
def test_an_id_is_its_prefix_and_26_characters_that_a_client_could_bring_too(
    now_ms: int, randomness: int
) -> None:
    made = sortable("run_", now_ms, randomness)
    assert made.startswith("run_")
    assert len(made) == len("run_") + SUFFIX_LENGTH == 30
    assert message_id(made) == made
    assert not set(made.removeprefix("run_")) & set("ilou"), "letters that are taken for others"


def test_more_randomness_than_fits_does_not_reach_the_time() -> None:
    assert sortable("op_", 4, 2**80 + 7) == sortable("op_", 4, 7)


def test_the_spelling_of_an_id_never_changes() -> None:
    # Stored data is sorted by it: another alphabet would mix old ids with new ones.
    assert (
        sortable("msg_", 1_700_000_000_000, 0x0123456789ABCDEF0123)
        == "msg_01hf7yat0004hmasw9nf6yy093"
    )
    assert sortable("op_", 0, 0) == "op_" + "0" * 26
    assert sortable("op_", 0, 33) == "op_" + "0" * 24 + "11"


@pytest.mark.parametrize("good", ["a", "A-z_09", "x" * 64, "-", "_"])
def test_a_client_may_bring_an_id_of_its_own(good: str) -> None:
    assert message_id(good) == good


@pytest.mark.parametrize(
    "bad", ["", "x" * 65, "a b", "a.b", "é", "a\n", "\n", "msg/1", "a\u200b", "\uff11"]
)
def test_any_other_id_is_refused_with_a_code_and_what_it_was(bad: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        message_id(bad)
    assert raised.value.code == "bad_message_id"
    assert raised.value.at == bad


def test_an_endless_id_is_not_repeated_in_full() -> None:
    with pytest.raises(InvalidInput) as raised:
        message_id("x" * 100_000)
    assert len(str(raised.value)) < 300
