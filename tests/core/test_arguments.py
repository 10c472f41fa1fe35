"""Argument texts: whole, cut, or nothing that can be kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.answers.arguments import Worth, worth
from antiphon.core.digests import MAX_JSON_DEPTH, canonical_json, parse_exact


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", Worth.WHOLE),
        (' {"a": [1, {"b": null}]}\n', Worth.WHOLE),
        ('{"a":1e400,"b":123456789012345678901234567890.10}', Worth.WHOLE),
        ('{"a":"\\ud83d\\ude00"}', Worth.WHOLE),
        ('{"a":"\\\\ud83d"}', Worth.WHOLE),
        (nested(MAX_JSON_DEPTH), Worth.WHOLE),
        (nested(MAX_JSON_DEPTH + 1), Worth.UNFIT),
        ("[" * 5000 + "]" * 5000, Worth.UNFIT),
        ('{"a":1,"a":2}', Worth.UNFIT),
        ('{"a":"\\ud83d"}', Worth.UNFIT),
        ('{"a":NaN}', Worth.UNFIT),
        ("[1]", Worth.UNFIT),
        ('"{}"', Worth.UNFIT),
        ("null", Worth.UNFIT),
        ("0", Worth.UNFIT),
        ("", Worth.OPEN),
        ("{", Worth.OPEN),
        ('{"a":', Worth.OPEN),
        ('{"a":1', Worth.OPEN),
        ('{"a":1}}', Worth.OPEN),
        ("{}{}", Worth.OPEN),
        ("{'a':1}", Worth.OPEN),
        ("<tool>", Worth.OPEN),
    ],
)
def test_an_argument_text_is_worth_what_it_is(text: str, expected: Worth) -> None:
    assert worth(text) is expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.req("M82")
@given(
    value=st.dictionaries(st.text(), JSON, min_size=1, max_size=3),
    share=st.floats(0, 1, exclude_max=True),
)
def test_no_beginning_of_an_object_is_whole(value: dict[str, object], share: float) -> None:
    text = canonical_json(value)
    assert worth(text) is Worth.WHOLE
    assert worth(text[: int(share * len(text))]) is Worth.OPEN


@given(value=st.dictionaries(st.text(), JSON, max_size=3))
def test_what_is_whole_the_ledger_can_write(value: dict[str, object]) -> None:
    text = canonical_json(value)
    assert worth(text) is Worth.WHOLE
    assert canonical_json(parse_exact(text)).encode() == text.encode()
