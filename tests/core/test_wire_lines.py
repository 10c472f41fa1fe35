"""Newline-delimited JSON, line by line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.wire.events import Broken, Event
from antiphon.core.wire.lines import LineStream
from tests.support.chat_stream import split

BODY = b'\xef\xbb\xbf{"a":1}\r\n\n{"b":"\xc3\xa9 \xf0\x9f\xa7\xad"}\n \t\n{"c":3}'


def lines(*reads: bytes, limit: int = 4096) -> list[Event | Broken]:
    stream = LineStream(limit)
    return [*(item for data in reads for item in stream.feed(data)), *stream.end()]


def test_lines_end_in_either_way_and_blank_ones_say_nothing() -> None:
    assert lines(BODY) == [
        Event(b'{"a":1}'),
        Event('{"b":"é 🧭"}'.encode()),
        Event(b'{"c":3}', unterminated=True),
    ]
    assert lines(BODY + b"\n")[-1] == Event(b'{"c":3}')
    assert lines() == lines(b"\n\r\n") == []


@pytest.mark.req("M82")
@given(st.lists(st.integers(0, len(BODY)), max_size=10), st.integers(1, 40))
def test_where_the_reads_end_makes_no_difference(marks: list[int], limit: int) -> None:
    assert lines(*split(BODY, marks), limit=limit) == lines(BODY, limit=limit)


@pytest.mark.req("M82")
@given(st.integers(1, 40))
def test_bytes_that_come_one_by_one_make_no_difference(limit: int) -> None:
    singly = [BODY[n : n + 1] for n in range(len(BODY))]
    assert lines(*singly, limit=limit) == lines(BODY, limit=limit)


def codes(*reads: bytes, limit: int) -> list[str]:
    return [item.code for item in lines(*reads, limit=limit) if isinstance(item, Broken)]


def test_a_line_that_is_too_large_ends_the_reading_whether_it_ends_or_not() -> None:
    assert codes(b'{"a":1}\n', limit=7) == []
    assert codes(b'{"a":1}\n', limit=6) == ["event_too_large"]
    stream = LineStream(16)
    assert [getattr(item, "code", "") for item in stream.feed(b"x" * 100)] == ["event_too_large"]
    assert stream.feed(b"\n{}\n") == stream.end() == []


def test_a_line_that_is_no_text_ends_the_reading_unless_it_was_only_cut() -> None:
    assert codes(b"\xff\n{}\n", limit=99) == ["malformed_event"]
    assert lines(b'{"a":"\xc3') == []
