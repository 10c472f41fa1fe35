"""Event streams: whatever the network does to the bytes, the same events come out."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.wire.events import Broken, Event, Framed
from antiphon.core.wire.sse import EventStream
from tests.support.chat_stream import cuts, split

LIMIT = 64


def read(reads: Iterable[bytes], limit: int = 10_000) -> list[Framed]:
    stream = EventStream(limit)
    framed = [item for data in reads for item in stream.feed(data)]
    return [*framed, *stream.end()]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", []),
        (b"data: a\n\n", [Event(b"a")]),
        (b"data: a\n\ndata: b\n\n", [Event(b"a"), Event(b"b")]),
        (b"data:a\n\n", [Event(b"a")]),
        (b"data:  a\n\n", [Event(b" a")]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [Event(b"a"), Event(b"b")]),
        (b"data: a\r\rdata: b\r\r", [Event(b"a"), Event(b"b")]),
        (b"data: a\r\n\ndata: b\n\r\n", [Event(b"a"), Event(b"b")]),
        (b"\xef\xbb\xbfdata: a\n\n", [Event(b"a")]),
        (b"\xef\xbb\xbf\r\n\r\ndata: a\r\n\r\n", [Event(b"a")]),
        (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [Event(b"a")]),
        (b"data:  one \ndata:\ttwo\n\n", [Event(b" one \n\ttwo")]),
        (b"data: one\ndata: two\n\n", [Event(b"one\ntwo")]),
        (b"data: one\ndata\ndata:\ndata: two\n\n", [Event(b"one\n\n\ntwo")]),
        (b"data\n\n", [Event(b"")]),
        (b"event: ping\ndata: {}\n\n", [Event(b"{}", "ping")]),
        (b"data: {}\nevent: late\n\n", [Event(b"{}", "late")]),
        (b"event: alone\n\ndata: a\n\n", [Event(b"a")]),
        (b": hello\n\n:\n\ndata: a\n\n", [Event(b"a")]),
        (b": hello\n:\ndata: a\n: inside\n\n", [Event(b"a")]),
        (b"id: 7\nretry: 10\ndata: a\n\n", [Event(b"a")]),
        (b"\n\n\n\ndata: a\n\n\n\n\ndata: b\n\n", [Event(b"a"), Event(b"b")]),
        (b"unknown: x\ndataset: y\n\ndata: a\n\n", [Event(b"a")]),
        (b"DATA: x\n\n", []),
        ("data: 潮位\n\n".encode(), [Event("潮位".encode())]),
        (b'error: {"code":500}\n\n', [Event(b'{"code":500}', "error")]),
        (b"error: x\ndata: a\n\n", [Event(b"a")]),
        (b"data: a\n\ndata: b", [Event(b"a"), Event(b"b", unterminated=True)]),
        (b"data: a\n\ndata: b\n", [Event(b"a"), Event(b"b", unterminated=True)]),
        (b"data: a\n\ndata: b\r", [Event(b"a"), Event(b"b", unterminated=True)]),
        (b"\xef\xbb\xbfdata: b", [Event(b"b", unterminated=True)]),
        (b"data: a\n\n: bye", [Event(b"a")]),
        (b"data: a\n\ndata: \xe6\xbd", [Event(b"a")]),
    ],
)
def test_a_body_gives_the_same_events_however_it_is_cut(
    body: bytes, expected: list[Framed]
) -> None:
    for how, reads in cuts(body):
        assert read(reads) == expected, how


LINES = st.sampled_from(
    [b"data: a", b"data:", b"data: \xc3\xa9", b"event: e", b": c", b"", b"", b"x", b"error: y"]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(
    lines=st.lists(st.tuples(LINES, ENDS), max_size=20),
    marks=st.lists(st.integers(0, 400), max_size=12),
    limit=st.integers(4, 40),
)
def test_no_cut_changes_what_any_body_gives(
    lines: list[tuple[bytes, bytes]], marks: list[int], limit: int
) -> None:
    body = b"".join(line + end for line, end in lines)
    expected = read([body], limit)
    assert read(split(body, marks), limit) == expected
    assert read([body[i : i + 1] for i in range(len(body))], limit) == expected


@given(
    pieces=st.lists(st.binary(max_size=12), max_size=12),
    marks=st.lists(st.integers(0, 200), max_size=8),
)
def test_no_cut_changes_what_arbitrary_bytes_give(pieces: list[bytes], marks: list[int]) -> None:
    body = b"\n".join(b"data: " + piece if i % 2 else piece for i, piece in enumerate(pieces))
    assert read(split(body, marks), LIMIT) == read([body], LIMIT)


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_a_line_end_may_be_cut_in_two_anywhere(end: bytes) -> None:
    body = end.join([b": c", b"", b"data: a", b"data: b", b"", b"data: c", b"", b""])
    for mark in range(len(body) + 1):
        assert read(split(body, [mark])) == [Event(b"a\nb"), Event(b"c")], mark


# Damage and limits.


def test_bytes_that_are_no_utf8_end_the_reading_after_what_was_whole() -> None:
    body = b"data: a\n\ndata: \xff\n\ndata: c\n\n"
    for how, reads in cuts(body):
        first, broken = read(reads)
        assert first == Event(b"a"), how
        assert isinstance(broken, Broken), how
        assert broken.code == "malformed_event", how


def test_an_event_of_exactly_the_limit_passes_and_one_byte_more_does_not() -> None:
    fits = b"data: " + b"x" * (LIMIT - 6)
    for how, reads in cuts(fits + b"\n\n"):
        assert read(reads, LIMIT) == [Event(fits[6:])], how
    for how, reads in cuts(b"data: a\n\n" + fits + b"y\n\ndata: b\n\n"):
        first, broken = read(reads, LIMIT)
        assert first == Event(b"a"), how
        assert isinstance(broken, Broken), how
        assert broken.code == "event_too_large", how


def test_an_endless_line_is_refused_in_bounded_memory() -> None:
    stream = EventStream(LIMIT)
    framed = [item for _ in range(1000) for item in stream.feed(b"x" * 10)]
    assert [item.code for item in framed if isinstance(item, Broken)] == ["event_too_large"]
    assert len(framed) == 1
    assert not stream._held
    assert stream.end() == []


def test_endless_comments_between_blank_lines_are_no_event_and_no_danger() -> None:
    stream = EventStream(LIMIT)
    assert [item for _ in range(1000) for item in stream.feed(b": ping\n\n")] == []
    assert stream.feed(b"data: a\n\n") == [Event(b"a")]


def test_nothing_follows_the_end_and_nothing_follows_a_break() -> None:
    stream = EventStream(LIMIT)
    stream.end()
    assert stream.feed(b"data: a\n\n") == []
    assert stream.end() == []


def test_an_empty_read_changes_nothing() -> None:
    assert read([b"data: a\r", b"", b"\n\r", b"", b"\n"]) == [Event(b"a")]


class Counted(bytearray):
    """A buffer that counts the bytes put into it."""

    taken = 0

    def __iadd__(self, more: object) -> Counted:
        assert isinstance(more, bytes)
        Counted.taken += len(more)
        self.extend(more)
        return self

    def __bytes__(self) -> bytes:
        Counted.taken += len(self)
        return bytes(memoryview(self))


def copied(size: int, piece: int) -> int:
    """How many bytes an event of `size` costs in copies when it comes in pieces."""
    stream = EventStream(10 * size)
    stream._held = Counted()
    Counted.taken = 0
    body = b"data: " + b"x" * size + b"\n\n"
    events = [e for i in range(0, len(body), piece) for e in stream.feed(body[i : i + piece])]
    assert len(events) == 1
    return Counted.taken


def test_the_bytes_copied_grow_with_the_event_and_not_with_its_square() -> None:
    small, large = copied(5_000, 7), copied(20_000, 7)
    assert large <= 4 * small * 1.01
    assert large <= 3 * 20_000
