"""Amazon's event stream, frame by frame, held against botocore's own parser."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.wire.events import Broken
from antiphon.core.wire.frames import MAX_HEADER_BYTES, Frame, Framed, FrameStream
from tests.support.chat_stream import cuts, split
from tests.support.converse import frame, raw_frame

STREAMS = sorted(
    (Path(__file__).parents[1] / "data/fixtures/streams/bedrock_converse").glob("*.bin")
)
ONE = frame(b"{}", event_type="messageStart", message_type="event")
TWO = frame("é 🧭".encode(), event_type="contentBlockDelta", message_type="event")
BODY = ONE + TWO + frame(b"")


def framed(*reads: bytes, limit: int = 4096) -> list[Framed]:
    stream = FrameStream(limit)
    return [*(item for data in reads for item in stream.feed(data)), *stream.end()]


def judged(body: bytes) -> list[tuple[dict[str, str], bytes]]:
    """What botocore makes of the same bytes."""
    buffer = EventStreamBuffer()
    buffer.add_data(body)
    return [
        ({n: v for n, v in event.headers.items() if isinstance(v, str)}, event.payload)
        for event in buffer
    ]


@pytest.mark.parametrize("stream", [s for s in STREAMS if "bad_crc" not in s.stem], ids=str)
def test_a_recorded_stream_is_framed_as_botocore_frames_it_however_it_is_cut(stream: Path) -> None:
    body = stream.read_bytes()
    expected = judged(body)
    assert expected
    for how, reads in cuts(body):
        found = framed(*reads, limit=1 << 20)
        assert [(f.headers, f.payload) for f in found if isinstance(f, Frame)] == expected, how
        assert len(found) == len(expected), how


HEADER = st.tuples(
    st.text("abcdefgh:-", min_size=1, max_size=20),
    st.one_of(
        st.text(st.characters(codec="utf-8"), max_size=20),
        st.binary(max_size=20),
        st.sampled_from([0, 1]).map(lambda kind: (kind, b"")),
        st.binary(min_size=1, max_size=1).map(lambda value: (2, value)),
        st.binary(min_size=2, max_size=2).map(lambda value: (3, value)),
        st.binary(min_size=4, max_size=4).map(lambda value: (4, value)),
        st.binary(min_size=8, max_size=8).map(lambda value: (5, value)),
        st.binary(min_size=8, max_size=8).map(lambda value: (8, value)),
        st.binary(min_size=16, max_size=16).map(lambda value: (9, value)),
    ),
)


def encoded(name: str, value: object) -> bytes:
    begun = struct.pack(">B", len(name)) + name.encode()
    match value:
        case str():
            return begun + struct.pack(">BH", 7, len(value.encode())) + value.encode()
        case bytes():
            return begun + struct.pack(">BH", 6, len(value)) + value
        case (int(kind), bytes(fixed)):
            return begun + struct.pack(">B", kind) + fixed
        case _:
            raise AssertionError(value)


@given(st.lists(HEADER, unique_by=lambda h: h[0], max_size=5), st.binary(max_size=60))
def test_headers_of_every_type_are_read_as_botocore_reads_them(
    headers: list[tuple[str, object]], payload: bytes
) -> None:
    body = raw_frame(payload, b"".join(encoded(*header) for header in headers))
    assert [(f.headers, f.payload) for f in framed(body) if isinstance(f, Frame)] == judged(body)


@pytest.mark.req("M82")
@given(st.lists(st.integers(0, len(BODY)), max_size=8))
def test_where_the_reads_end_makes_no_difference(marks: list[int]) -> None:
    assert framed(*split(BODY, marks)) == framed(BODY)


@pytest.mark.parametrize("at", range(len(TWO)))
def test_no_byte_can_change_without_being_noticed(at: int) -> None:
    damaged = bytearray(TWO)
    damaged[at] ^= 0x20
    found = framed(ONE, bytes(damaged), ONE)
    assert isinstance(found[0], Frame)
    assert [type(item) for item in found[1:]] == [Broken]
    (broken,) = found[1:]
    assert isinstance(broken, Broken)
    assert broken.code == "malformed_event"
    assert "checksum" in broken.message


@pytest.mark.parametrize("length", range(1, len(TWO)))
def test_a_frame_that_is_cut_is_said_to_be(length: int) -> None:
    found = framed(ONE + TWO[:length])
    assert isinstance(found[0], Frame)
    assert [getattr(item, "code", None) for item in found[1:]] == ["stream_incomplete"]


def test_a_body_that_ends_with_a_frame_has_nothing_to_say_about_its_end() -> None:
    assert [type(item) for item in framed(BODY)] == [Frame, Frame, Frame]
    assert framed() == []


def codes(*reads: bytes, limit: int = 4096) -> list[str]:
    return [item.code for item in framed(*reads, limit=limit) if isinstance(item, Broken)]


def test_a_frame_that_is_too_large_is_refused_by_its_prelude_alone() -> None:
    large = raw_frame(b"x" * 100, b"")
    assert codes(large[:12], limit=100) == ["event_too_large"]
    assert codes(large, limit=116) == []
    headers = raw_frame(b"", b"x" * (MAX_HEADER_BYTES + 1))
    assert codes(headers[:12], limit=1 << 30) == ["event_too_large"]


def test_lengths_and_headers_that_cannot_be_are_refused() -> None:
    short = struct.pack(">II", 15, 0)
    assert codes(short + struct.pack(">I", zlib.crc32(short))) == ["malformed_event"]
    for headers in (b"\x05ab", b"\x02ab\x0a", b"\x02ab\x07\x00\x05x", b"\x01\xff\x00", b"\x02ab"):
        assert codes(raw_frame(b"", headers)) == ["malformed_event"], headers


def test_nothing_is_read_behind_a_broken_frame() -> None:
    stream = FrameStream(4096)
    assert [type(item) for item in stream.feed(b"\0" * 12)] == [Broken]
    assert stream.feed(ONE) == stream.end() == []
