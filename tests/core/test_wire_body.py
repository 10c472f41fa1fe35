"""Bodies: which framing an answer has, from its content type and its first byte."""

from __future__ import annotations

import pytest

from antiphon.core.wire.body import Body
from antiphon.core.wire.events import Broken, Event, Framed, Whole
from antiphon.core.wire.limits import Limits
from tests.support.chat_stream import cuts

EVENTS = b"data: a\n\ndata: b\n\n"
JSON = b'{"a": [1, 2]}'


def read(content_type: str, reads: list[bytes], limits: Limits | None = None) -> list[Framed]:
    body = Body(content_type, limits or Limits())
    framed = [item for data in reads for item in body.feed(data)]
    return [*framed, *body.end()]


@pytest.mark.parametrize(
    "content_type",
    ["text/event-stream", "text/event-stream; charset=utf-8", "", "TEXT/Event-Stream"],
)
def test_an_event_stream_is_read_as_events(content_type: str) -> None:
    for how, reads in cuts(EVENTS):
        assert read(content_type, reads) == [Event(b"a"), Event(b"b")], how


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "application/json; charset=utf-8", "application/problem+json"],
)
def test_json_is_handed_over_whole_at_its_end(content_type: str) -> None:
    for how, reads in cuts(JSON):
        assert read(content_type, reads) == [Whole(JSON)], how


def test_json_under_the_label_of_a_stream_is_json() -> None:
    for how, reads in cuts(b"\xef\xbb\xbf \r\n" + JSON):
        (whole,) = read("text/event-stream", reads)
        assert isinstance(whole, Whole), how
        assert whole.data.endswith(JSON), how


@pytest.mark.parametrize("first", [b"", b": comment\n\n", b"event: x\n", b"id: 1\n", b"retry: 1\n"])
def test_a_stream_under_the_label_of_json_is_a_stream(first: bytes) -> None:
    for how, reads in cuts(first + EVENTS):
        assert [e.data for e in read("application/json", reads) if isinstance(e, Event)] == [
            b"a",
            b"b",
        ], how


def test_blanks_before_a_stream_belong_to_it() -> None:
    for how, reads in cuts(b" data: x\n\ndata: a\n\n"):
        assert read("text/event-stream", reads) == [Event(b"a")], how


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/html", b"<html>oops</html>"),
        ("text/html", EVENTS),
        ("text/html", b""),
        ("image/png", b"\x89PNG"),
        ("text/event-stream", b"<!doctype html>"),
        ("application/json", b"\n\n <html>"),
    ],
)
def test_anything_else_is_refused_in_words_that_help(content_type: str, body: bytes) -> None:
    for how, reads in cuts(body):
        (broken,) = read(content_type, reads)
        assert isinstance(broken, Broken), how
        assert broken.code == "malformed_event"
        assert "base URL" in broken.message


def test_an_empty_body_of_the_right_type_is_nothing() -> None:
    assert read("text/event-stream", []) == []
    assert read("application/json", [b"\n", b" "]) == []


@pytest.mark.parametrize("body", [b'{"a":"' + b"x" * 100, b" " * 101])
def test_a_whole_body_larger_than_the_limit_is_refused(body: bytes) -> None:
    for how, reads in cuts(body):
        (broken,) = read("application/json", reads, Limits(max_answer_bytes=100))
        assert isinstance(broken, Broken), how
        assert broken.code == "answer_too_large", how


def test_nothing_follows_a_refusal() -> None:
    body = Body("text/html")
    assert len(body.feed(b"x")) == 1
    assert body.feed(b"x") == []
    assert body.end() == []
