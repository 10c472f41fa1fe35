"""How much two bodies begin with alike, whatever pieces they are in."""

from __future__ import annotations

from itertools import pairwise, takewhile

from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.planning.prefix import common_prefix


def in_pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(min(c, len(data)) for c in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(places)]


@given(st.binary(max_size=40), st.binary(max_size=20), st.binary(max_size=20), st.lists(st.integers(0, 60), max_size=4), st.lists(st.integers(0, 60), max_size=4))  # fmt: skip
def test_it_is_the_number_of_bytes_until_they_differ(
    shared: bytes, one: bytes, other: bytes, cuts: list[int], others: list[int]
) -> None:
    left, right = shared + one, shared + other
    expected = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False))))
    assert common_prefix(in_pieces(left, cuts), in_pieces(right, others)) == expected


def test_pieces_that_are_the_same_objects_are_not_compared() -> None:
    class Untouchable(bytes):
        def __getitem__(self, _: object) -> bytes:  # type: ignore[override]
            raise AssertionError("compared")

    piece = Untouchable(b"x" * 1000)
    assert common_prefix([piece, b"ab"], [piece, b"ac"]) == 1001
