"""Digests: borders, keys and domains count; JSON has one spelling, and numbers keep their value."""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.digests import (
    MAX_JSON_DEPTH,
    NO_KEY,
    canonical_json,
    digest,
    fold,
    hasher,
    parse_exact,
)
from antiphon.core.ids import Digest
from antiphon.errors import InvalidInput

KEY = b"k" * 32
pieces = st.lists(st.binary(max_size=5), max_size=4)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers() | st.decimals(allow_nan=False, allow_infinity=False, places=6)


def json_of(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | texts | leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
        max_leaves=12,
    )


json_values = json_of(numbers)
plain_values = json_of(st.integers())

# ---------------------------------------------------------------------------------------- digests


@given(one=pieces, other=pieces)
def test_two_digests_are_equal_only_where_every_part_is(
    one: list[bytes], other: list[bytes]
) -> None:
    assert (digest(KEY, "x", *one) == digest(KEY, "x", *other)) is (one == other)


@pytest.mark.req("M28")
def test_a_digest_is_keyed_and_knows_what_it_is_of() -> None:
    said = b"what somebody said"
    assert digest(KEY, "content", said) != digest(b"j" * 32, "content", said)
    assert digest(KEY, "content", said) != digest(NO_KEY, "content", said)
    assert digest(KEY, "content", said) != digest(KEY, "message", said)


def test_a_digest_is_blake2b_of_the_parts_each_behind_its_length() -> None:
    # Written out: stored digests must be found again by every later release.
    framed = (2).to_bytes(8, "big") + b"ab" + (0).to_bytes(8, "big")
    expected = hashlib.blake2b(framed, digest_size=32, key=KEY, person=b"path").hexdigest()
    assert digest(KEY, "path", b"ab", b"") == expected
    assert len(expected) == 64
    running = hasher(KEY, "path")
    running.update(framed)
    assert running.copy().hexdigest() == expected


@given(
    ids=st.lists(st.sampled_from("abc"), min_size=1, max_size=6),
    other=st.lists(st.sampled_from("abc"), max_size=6),
)
def test_a_folded_path_is_equal_only_to_the_same_path(ids: list[str], other: list[str]) -> None:
    def folded(path: list[str]) -> Digest | None:
        so_far = None
        for step in path:
            so_far = fold(KEY, so_far, Digest(step))
        return so_far

    assert (folded(ids) == folded(other)) is (ids == other)


# ----------------------------------------------------------------------------------- canonical JSON

SPELLINGS = [
    ("1.0", "1"),
    ("1.50", "1.5"),
    ("-0", "0"),
    ("-0.0", "0"),
    ("1E2", "100"),
    ("0.1", "0.1"),
    ("0.10000000000000000001", "0.10000000000000000001"),
    ("123456789012345678901", "123456789012345678901"),
    ("1e20", "100000000000000000000"),
    ("1e21", "1e+21"),
    ("12e20", "1.2e+21"),
    ("0.000001", "0.000001"),
    ("0.0000001", "1e-7"),
    ("1.5e-9", "1.5e-9"),
    ("-12.500", "-12.5"),
    ("1e400", "1e+400"),
    ("1e999999999", "1e+999999999"),
]


@pytest.mark.parametrize(("written", "canonical"), SPELLINGS)
def test_a_number_has_one_spelling_and_keeps_its_exact_value(written: str, canonical: str) -> None:
    assert canonical_json(parse_exact(written)) == canonical
    assert Decimal(canonical) == Decimal(written)


@given(value=json_values)
def test_the_canonical_text_means_the_same_and_is_its_own_canonical_text(value: Any) -> None:
    text = canonical_json(value)
    again = parse_exact(text)
    assert again == value
    assert canonical_json(again) == text
    assert not text.startswith(" ")


@given(value=plain_values)
def test_blanks_and_the_order_of_names_do_not_matter(value: Any) -> None:
    def turned(inner: Any) -> Any:
        if isinstance(inner, dict):
            return {name: turned(inner[name]) for name in reversed(inner)}
        return [turned(item) for item in inner] if isinstance(inner, list) else inner

    spaced = json.dumps(turned(value), indent=3)
    assert canonical_json(parse_exact(spaced)) == canonical_json(value)


@given(one=numbers, other=numbers)
def test_two_numbers_are_spelled_alike_only_where_they_are_equal(
    one: int | Decimal, other: int | Decimal
) -> None:
    assert (canonical_json(one) == canonical_json(other)) is (one == other)


def test_names_sort_by_utf_16_as_the_standard_says() -> None:
    # U+FB33 stands after an emoji there, though its code point is smaller.
    assert canonical_json({"\ufb33": 1, "\U0001f600": 2}) == '{"\U0001f600":2,"\ufb33":1}'
    assert canonical_json({"b": 1, "a": {"d": 1, "c": 2}}) == '{"a":{"c":2,"d":1},"b":1}'


def test_a_true_is_no_one_and_text_is_written_as_it_is() -> None:
    assert (
        canonical_json([True, False, None, 1, "1", 'é\n"\\\u0007'])
        == '[true,false,null,1,"1","é\\n\\"\\\\\\u0007"]'
    )


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), Decimal("-Infinity"), {1, 2}, b"x", {1: 2}, object()]
)
def test_what_is_no_json_value_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput) as raised:
        canonical_json(value)
    assert raised.value.code == "invalid_json"


def nested(depth: int) -> object:
    value: object = 0
    for _ in range(depth):
        value = [value]
    return value


def test_what_is_nested_too_deep_is_refused_and_not_a_crash() -> None:
    assert (
        canonical_json(nested(MAX_JSON_DEPTH)) == "[" * MAX_JSON_DEPTH + "0" + "]" * MAX_JSON_DEPTH
    )
    for depth in (MAX_JSON_DEPTH + 1, 2000):
        with pytest.raises(InvalidInput) as raised:
            canonical_json(nested(depth))
        assert raised.value.code == "too_deep"


# --------------------------------------------------------------------------------------- exact text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"a":1',
        '{"a":1}x',
        "nul",
        "NaN",
        "[Infinity]",
        "-Infinity",
        "'a'",
        '{"a":1,"a":1}',
        "1e9999999999999999999",
    ],
)
def test_a_text_that_is_no_json_or_means_two_things_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        parse_exact(text)
    assert raised.value.code == "invalid_json"


def test_a_text_nested_without_end_is_refused_and_not_a_crash() -> None:
    with pytest.raises(InvalidInput) as raised:
        parse_exact("[" * 200_000)
    assert raised.value.code in {"too_deep", "invalid_json"}


@pytest.mark.parametrize("digits", [639, 640, 641, 5000])
def test_a_whole_number_of_any_length_is_kept_to_its_last_digit(digits: int) -> None:
    text = "1" + "0" * (digits - 2) + "7"
    other = "1" + "0" * (digits - 2) + "8"
    assert parse_exact(text) == Decimal(text)
    assert canonical_json(parse_exact(text)) != canonical_json(parse_exact(other))
    assert Decimal(canonical_json(parse_exact(text))) == Decimal(text)


@given(st.none() | st.text("0123456789abcdef", min_size=64, max_size=64), st.text(max_size=70))
def test_a_step_of_a_path_is_the_digest_of_the_two_digests_with_their_borders(
    before: str | None, own: str
) -> None:
    parts = [(before or "").encode(), own.encode(errors="ignore")]
    framed = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    expected = hashlib.blake2b(framed, key=KEY, digest_size=32, person=b"path").hexdigest()
    so_far = None if before is None else Digest(before)
    assert fold(KEY, so_far, Digest(parts[1].decode())) == expected
