"""Data in base64: whatever can be decoded is let through, and nothing else."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.blocks import Audio, File, Image
from antiphon.core.rules.media import unreadable


def image(data: str | None) -> Image:
    return Image(media_type="image/png", data=data)


@given(content=st.binary(min_size=1, max_size=200), width=st.integers(4, 80))
def test_every_spelling_of_bytes_is_readable(content: bytes, width: int) -> None:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        whole = encode(content).decode()
        lines = "\r\n".join(whole[at : at + width] for at in range(0, len(whole), width))
        for spelled in (whole, whole.rstrip("="), lines):
            assert not unreadable(image(spelled))


@pytest.mark.parametrize(
    "data",
    ["", "not base64!", "A", "AAAAA", "=AAA", "\u00e4\u00e4\u00e4\u00e4", "AA=A"],
)
def test_what_is_none_is_told(data: str) -> None:
    assert unreadable(image(data))
    assert unreadable(Audio(data=data, format="wav"))
    assert unreadable(File(data=data))


def test_what_lies_elsewhere_holds_no_data() -> None:
    assert not unreadable(Image(url="https://example.org/a.png"))
    assert not unreadable(File(file_id="file_1"))
