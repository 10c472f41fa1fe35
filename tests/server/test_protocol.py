"""One connection: what it writes is what h11 would have written, with less to do for each piece."""

from __future__ import annotations

import h11
import pytest

from antiphon.server.http.protocol import _Framing

GET = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"
REQUESTS = {
    "of 1.1": GET,
    "of 1.0, which knows no chunks": GET.replace(b"1.1", b"1.0"),
    "for the head alone": GET.replace(b"GET", b"HEAD"),
    "of a client that will close": GET[:-2] + b"connection: close\r\n\r\n",
}
LENGTHS: dict[str, list[tuple[bytes, bytes]]] = {
    "without a length": [(b"content-type", b"text/event-stream")],
    "of a known length": [(b"content-length", b"11")],
    "that speaks of chunks": [(b"x-say", b"Transfer-Encoding: chunked")],
}
PIECES = (b"data: ", b"", b"\r\n0\r", b"\n")
"""Eleven bytes, an empty piece among them, and some that look like the end of a body."""


def written(conn: h11.Connection, request: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return what `conn` writes in answer to a request, and for a second one behind it."""
    told = b""
    for _ in range(2):
        conn.receive_data(request)
        while conn.next_event() is not h11.NEED_DATA and conn.their_state is h11.SEND_BODY:
            pass
        told += conn.send(h11.Response(status_code=200, headers=headers))
        pieces = () if request.startswith(b"HEAD") else PIECES
        for piece in pieces:
            told += conn.send(h11.Data(data=piece))
        told += conn.send(h11.EndOfMessage())
        if conn.our_state is not h11.DONE:
            assert conn.our_state is h11.MUST_CLOSE
            break
        conn.start_next_cycle()
    return told


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("length", LENGTHS)
def test_an_answer_is_framed_to_the_byte_as_h11_frames_it(request_: str, length: str) -> None:
    asked, headers = REQUESTS[request_], LENGTHS[length]
    expected = written(h11.Connection(h11.SERVER), asked, headers)
    assert written(_Framing(h11.SERVER), asked, headers) == expected
    chunked = b"6\r\ndata: \r\n" in expected
    assert chunked == (
        length != "of a known length" and "1.0" not in request_ and "head" not in request_
    )


@pytest.mark.parametrize(
    ("length", "together"), [("of a known length", True), ("without a length", False)]
)
def test_the_head_of_an_answer_leaves_with_its_body_where_that_is_there(
    length: str, together: bool
) -> None:
    conn = _Framing(h11.SERVER)
    conn.receive_data(GET)
    conn.next_event()
    head = conn.send(h11.Response(status_code=200, headers=LENGTHS[length]))
    assert (head == b"") == together  # a stream's first word may be a while in coming
    body = conn.send(h11.Data(data=b"data: \r\n0\r\n"))
    assert body is not None
    assert body.startswith(b"HTTP/1.1 200") == together


def test_a_piece_of_no_answer_is_refused() -> None:
    conn = _Framing(h11.SERVER)
    conn.receive_data(GET)
    conn.next_event()
    with pytest.raises(h11.LocalProtocolError):
        conn.send(h11.Data(data=b"before its head"))


def test_a_piece_behind_the_end_of_an_answer_is_refused() -> None:
    conn = _Framing(h11.SERVER)
    conn.receive_data(GET)
    conn.next_event()
    conn.send(h11.Response(status_code=200, headers=[]))
    conn.send(h11.EndOfMessage())
    with pytest.raises(h11.LocalProtocolError):
        conn.send(h11.Data(data=b"x"))
