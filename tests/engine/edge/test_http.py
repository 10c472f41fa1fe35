"""The transport: what left, what did not, and that nothing is done twice."""

from __future__ import annotations

import asyncio
import gc
import gzip
import logging
import ssl
import traceback
import weakref
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.core.manifest import WireRequest
from antiphon.engine.edge.http import HttpTransport, OwnServer
from antiphon.engine.edge.leaving import LeavingRequest
from antiphon.engine.ports import Cut, NotSent, Reply
from tests.support.clock import settle
from tests.support.upstream import (
    CLOSE,
    HANGUP,
    READ,
    RESET,
    WAIT_S,
    Endless,
    RawUpstream,
    Step,
    refused_port,
)

KEY = "sk-never-printed"
SELF_SIGNED = Path(__file__).parents[2] / "support" / "self_signed.pem"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"


class Sent:
    """What `on_written` said, and when."""

    def __init__(self) -> None:
        self.times = 0
        self.event = asyncio.Event()

    def __call__(self) -> None:
        self.times += 1
        self.event.set()


@pytest.fixture
async def transport() -> AsyncIterator[HttpTransport]:
    transport = HttpTransport()
    yield transport
    await transport.close()


def request(url: str, body: bytes = b"{}", method: str = "POST", **headers: str) -> WireRequest:
    named = {
        "content-type": "application/json",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    chunks = (body,) if body else ()
    return WireRequest(method=method, url=url, headers=tuple(sorted(named.items())), chunks=chunks)


async def send(
    transport: HttpTransport,
    wire: WireRequest,
    written: Sent | None = None,
    *,
    key: str | None = KEY,
) -> Reply:
    async with asyncio.timeout(WAIT_S):
        return await transport.send(
            wire, api_key=key, connect_timeout_s=5, on_written=written or Sent()
        )


async def read(reply: Reply) -> bytes:
    async with asyncio.timeout(WAIT_S):
        return b"".join([chunk async for chunk in reply.chunks()])


# ------------------------------------------------------------------------------- no byte left


@pytest.mark.req("M57", "M60")
async def test_a_refused_port_is_not_sent(transport: HttpTransport) -> None:
    written = Sent()
    with pytest.raises(NotSent) as caught:
        await send(transport, request(f"http://127.0.0.1:{await refused_port()}/"), written)
    assert (caught.value.code, written.times) == ("connect", 0)


async def test_a_name_without_an_address_is_not_sent(transport: HttpTransport) -> None:
    written = Sent()
    with pytest.raises(NotSent) as caught:
        await send(transport, request("http://name.invalid/"), written)
    assert (caught.value.code, written.times) == ("dns", 0)


async def test_a_plain_answer_to_a_secure_greeting_is_not_sent(transport: HttpTransport) -> None:
    written = Sent()
    async with RawUpstream([b"SSH-2.0-Plain\r\n", HANGUP]) as upstream:
        with pytest.raises(NotSent) as caught:
            await send(transport, request(upstream.url.replace("http:", "https:")), written)
    assert (caught.value.code, written.times) == ("tls", 0)


async def test_a_connection_closed_in_the_secure_greeting_is_not_sent(
    transport: HttpTransport,
) -> None:
    written = Sent()
    async with RawUpstream([CLOSE]) as upstream:
        with pytest.raises(NotSent) as caught:
            await send(transport, request(upstream.url.replace("http:", "https:")), written)
    assert caught.value.code in ("connect", "tls")
    assert written.times == 0


async def test_a_certificate_that_nobody_vouches_for_is_not_sent(transport: HttpTransport) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(SELF_SIGNED)
    written = Sent()
    async with RawUpstream(tls=context) as upstream:
        with pytest.raises(NotSent) as caught:
            await send(transport, request(upstream.url), written)
    assert (caught.value.code, written.times, upstream.requests) == ("tls", 0, [])


async def test_a_greeting_that_is_never_answered_ends_at_the_connect_timeout(
    transport: HttpTransport,
) -> None:
    written = Sent()
    async with RawUpstream([HANGUP]) as upstream:
        wire = request(upstream.url.replace("http:", "https:"))
        with pytest.raises(NotSent) as caught:
            async with asyncio.timeout(WAIT_S):
                await transport.send(wire, api_key=KEY, connect_timeout_s=0.05, on_written=written)
    assert (caught.value.code, written.times) == ("connect_timeout", 0)


async def test_what_on_written_raises_stops_the_request_before_its_first_byte(
    transport: HttpTransport,
) -> None:
    class Lost(Exception):
        pass

    def refuse() -> None:
        raise Lost

    async with RawUpstream([READ]) as upstream:
        with pytest.raises(Lost):
            async with asyncio.timeout(WAIT_S):
                await transport.send(
                    request(upstream.url), api_key=KEY, connect_timeout_s=5, on_written=refuse
                )
        await upstream.client_left()
    assert upstream.requests == []


async def test_nothing_left_if_on_written_itself_failed(transport: HttpTransport) -> None:
    def fail() -> None:
        raise OSError("no space left")

    async with RawUpstream([READ]) as upstream:
        with pytest.raises(NotSent):
            async with asyncio.timeout(WAIT_S):
                await transport.send(
                    request(upstream.url), api_key=KEY, connect_timeout_s=5, on_written=fail
                )
        await upstream.client_left()
    assert upstream.requests == []


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/v1", "http:///v1", "v1", ""])
async def test_an_address_that_is_none_is_not_sent(transport: HttpTransport, url: str) -> None:
    written = Sent()
    with pytest.raises(NotSent) as caught:
        await send(transport, request(url), written)
    assert (caught.value.code, written.times) == ("connect", 0)


async def test_a_closed_transport_sends_nothing(transport: HttpTransport) -> None:
    await transport.close()
    with pytest.raises(NotSent):
        await send(transport, request("http://127.0.0.1:9/"))


# --------------------------------------------------------------------------- bytes may have left


@pytest.mark.req("M57")
async def test_on_written_is_called_once_and_before_the_upstream_sees_a_byte(
    transport: HttpTransport,
) -> None:
    order: list[str] = []
    async with RawUpstream([READ, OK]) as upstream:
        wire = request(upstream.url)

        def written() -> None:
            assert upstream.requests == []
            order.append("written")

        async with asyncio.timeout(WAIT_S):
            reply = await transport.send(wire, api_key=KEY, connect_timeout_s=5, on_written=written)
        assert await read(reply) == b"hi"
    assert order == ["written"]
    assert upstream.requests[0].body == b"{}"


@pytest.mark.parametrize(
    ("script", "code"),
    [
        pytest.param([READ, CLOSE], "disconnected", id="closed after the request"),
        pytest.param([READ, RESET], "reset", id="reset after the request"),
        pytest.param(
            [READ, b"HTTP/1.1 200 OK\r\nconte", CLOSE], "disconnected", id="closed inside the head"
        ),
        pytest.param([READ, b"SSH-2.0-nonsense\r\n\r\n", HANGUP], "malformed", id="not http"),
        pytest.param(
            [READ, b"HTTP/1.1 200 OK\r\nx: " + b"a" * 40_000, HANGUP], "malformed", id="long header"
        ),
        pytest.param(
            [READ, b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 5_000, HANGUP],
            "malformed",
            id="many headers",
        ),
    ],
)
@pytest.mark.req("M60")
async def test_a_failure_after_the_first_byte_is_a_cut(
    transport: HttpTransport, script: list[Step], code: str
) -> None:
    written = Sent()
    async with RawUpstream(script) as upstream:
        with pytest.raises(Cut) as caught:
            await send(transport, request(upstream.url), written)
    assert (caught.value.code, written.times) == (code, 1)


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
async def test_no_method_is_tried_again_on_a_connection_found_dead(
    transport: HttpTransport, method: str
) -> None:
    """HTTP clients repeat what they take to be idempotent; here one call is one request."""
    written = Sent()
    async with RawUpstream([READ, OK, READ, CLOSE]) as upstream:
        await read(await send(transport, request(upstream.url)))
        with pytest.raises(Cut) as caught:
            await send(transport, request(upstream.url, b"", method), written)
    assert (caught.value.code, written.times, upstream.connections) == ("disconnected", 1, 1)


async def test_a_connection_that_the_peer_closed_while_idle_is_not_used(
    transport: HttpTransport,
) -> None:
    closing = asyncio.Event()
    async with RawUpstream([READ, OK, closing, CLOSE], [READ, OK]) as upstream:
        await read(await send(transport, request(upstream.url)))
        closing.set()
        await settle()
        assert await read(await send(transport, request(upstream.url))) == b"hi"
    assert upstream.connections == 2


async def test_a_connection_is_used_again_for_the_next_step(transport: HttpTransport) -> None:
    async with RawUpstream([READ, OK, READ, OK]) as upstream:
        for _ in range(2):
            assert await read(await send(transport, request(upstream.url))) == b"hi"
    assert upstream.connections == 1


async def test_a_connection_in_use_keeps_nothing_of_earlier_answers(
    transport: HttpTransport,
) -> None:
    seen = asyncio.Event()
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"
    async with RawUpstream([READ, head, seen, b"hi", READ, OK]) as upstream:
        reply = await send(transport, request(upstream.url))
        seen.set()
        earlier = weakref.ref(reply.chunks())
        await read(reply)
        del reply
        await read(await send(transport, request(upstream.url)))
        gc.collect()
        assert earlier() is None
    assert upstream.connections == 1


async def test_canceling_a_call_hangs_up(transport: HttpTransport) -> None:
    async with RawUpstream([READ, HANGUP]) as upstream:
        calling = asyncio.create_task(send(transport, request(upstream.url)))
        await upstream.requested()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await upstream.client_left()


async def test_canceling_a_large_request_stops_what_was_not_handed_to_the_socket(
    transport: HttpTransport,
) -> None:
    """The upstream reads nothing, so of 32 MB only what the system buffers can ever leave."""
    stopped = asyncio.Event()
    body = bytes(32 * 1024 * 1024)
    written = Sent()
    async with RawUpstream([stopped, HANGUP]) as upstream:
        calling = asyncio.create_task(send(transport, request(upstream.url, body), written))
        await asyncio.wait_for(written.event.wait(), WAIT_S)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        stopped.set()
        await upstream.client_left()
    assert upstream.swallowed_bytes < len(body) // 2


# -------------------------------------------------------------------------------------- bodies


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        pytest.param(b"content-length: 9\r\n\r\nhi", "disconnected", id="shorter than its length"),
        pytest.param(
            b"transfer-encoding: chunked\r\n\r\n2\r\nhi\r\n",
            "disconnected",
            id="without its last chunk",
        ),
        pytest.param(
            b"transfer-encoding: chunked\r\n\r\n5\r\nhi", "disconnected", id="inside a chunk"
        ),
    ],
)
@pytest.mark.req("M73")
async def test_a_body_broken_in_the_middle_is_a_cut(
    transport: HttpTransport, answer: bytes, code: str
) -> None:
    async with RawUpstream([READ, b"HTTP/1.1 200 OK\r\n" + answer, CLOSE]) as upstream:
        reply = await send(transport, request(upstream.url))
        chunks = reply.chunks()
        assert await anext(chunks) == b"hi"
        with pytest.raises(Cut) as caught:
            await anext(chunks)
    assert caught.value.code == code


async def test_a_body_without_length_ends_with_its_connection(transport: HttpTransport) -> None:
    async with RawUpstream([READ, b"HTTP/1.1 200 OK\r\n\r\nhi", CLOSE]) as upstream:
        assert await read(await send(transport, request(upstream.url))) == b"hi"


async def test_a_kept_connection_that_breaks_is_told_to_the_caller_and_to_nobody_else(
    transport: HttpTransport,
) -> None:
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: complaints.append(context["message"])
    )
    seen = asyncio.Event()
    async with RawUpstream([READ, OK[:-2], seen, b"hi", READ, RESET]) as upstream:
        reply = await send(transport, request(upstream.url))
        seen.set()
        assert await read(reply) == b"hi"
        with pytest.raises(Cut) as caught:
            await send(transport, request(upstream.url))
    assert caught.value.code == "reset"
    del caught, reply
    await settle()
    gc.collect()
    assert complaints == []


async def test_a_body_without_length_that_is_reset_is_a_cut(transport: HttpTransport) -> None:
    """The bytes alone look like the end; only the connection knows that it was none."""
    seen = asyncio.Event()
    async with RawUpstream([READ, b"HTTP/1.1 200 OK\r\n\r\nhi", seen, RESET]) as upstream:
        chunks = (await send(transport, request(upstream.url))).chunks()
        assert await anext(chunks) == b"hi"
        seen.set()
        with pytest.raises(Cut) as caught:
            await asyncio.wait_for(anext(chunks), WAIT_S)
    assert caught.value.code == "reset"


async def test_chunk_framing_that_makes_no_sense_is_malformed(transport: HttpTransport) -> None:
    seen = asyncio.Event()
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n"
    async with RawUpstream([READ, head, seen, b"zz\r\n", HANGUP]) as upstream:
        chunks = (await send(transport, request(upstream.url))).chunks()
        assert await anext(chunks) == b"hi"
        seen.set()
        with pytest.raises(Cut) as caught:
            await asyncio.wait_for(anext(chunks), WAIT_S)
        await upstream.client_left()
    assert caught.value.code == "malformed"


async def test_pieces_come_as_they_arrive_and_not_when_all_is_there(
    transport: HttpTransport,
) -> None:
    seen = asyncio.Event()
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n"
    async with RawUpstream(
        [READ, head, seen, b"3\r\n you\r\n0\r\n\r\n".replace(b"3", b"4")]
    ) as upstream:
        chunks = (await send(transport, request(upstream.url))).chunks()
        assert await anext(chunks) == b"hi"
        seen.set()
        assert [chunk async for chunk in chunks] == [b" you"]


async def test_a_read_that_was_canceled_can_be_repeated(transport: HttpTransport) -> None:
    seen = asyncio.Event()
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"
    async with RawUpstream([READ, head, seen, b"hi"]) as upstream:
        reply = await send(transport, request(upstream.url))
        waiting = asyncio.ensure_future(anext(reply.chunks()))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        seen.set()
        assert await read(reply) == b"hi"


async def test_a_compressed_body_arrives_as_its_text(transport: HttpTransport) -> None:
    packed = gzip.compress(b'{"text": "hi"}')
    head = f"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {len(packed)}\r\n\r\n".encode()
    async with RawUpstream([READ, head + packed]) as upstream:
        assert await read(await send(transport, request(upstream.url))) == b'{"text": "hi"}'


async def test_a_body_that_does_not_decompress_is_malformed(transport: HttpTransport) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nhi"
    async with RawUpstream([READ, head, HANGUP]) as upstream:
        with pytest.raises(Cut) as caught:
            await read(await send(transport, request(upstream.url)))
    assert caught.value.code == "malformed"


async def test_an_endless_header_ends_in_a_clear_error_and_little_memory(
    transport: HttpTransport,
) -> None:
    async with RawUpstream([READ, b"HTTP/1.1 200 OK\r\nx: ", Endless(b"a" * 8192)]) as upstream:
        with pytest.raises(Cut) as caught:
            await send(transport, request(upstream.url))
        await upstream.client_left()
    assert caught.value.code == "malformed"
    assert upstream.written_bytes < 16 * 1024 * 1024


async def test_a_body_that_nobody_reads_stops_the_sender_and_not_our_memory(
    transport: HttpTransport,
) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: "
    async with RawUpstream([READ, head, Endless(b"a" * 65536)]) as upstream:
        reply = await send(transport, request(upstream.url))
        stuck = -1
        async with asyncio.timeout(WAIT_S):
            while stuck != upstream.written_bytes:
                stuck = upstream.written_bytes
                for _ in range(1000):
                    await asyncio.sleep(0)
        await reply.close()
        await upstream.client_left()
    assert upstream.written_bytes < 64 * 1024 * 1024


# ------------------------------------------------------------------------- nothing by itself


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_a_redirect_is_an_answer_and_is_not_followed(
    transport: HttpTransport, method: str
) -> None:
    async with RawUpstream(
        [READ, b"HTTP/1.1 307 Go\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n"]
    ) as upstream:
        reply = await send(
            transport, request(upstream.url, b"" if method == "GET" else b"{}", method)
        )
        assert (reply.status, reply.headers["location"], await read(reply)) == (
            307,
            "/elsewhere",
            b"",
        )
    assert len(upstream.requests) == 1


async def test_an_interim_answer_is_not_the_answer(transport: HttpTransport) -> None:
    async with RawUpstream([READ, b"HTTP/1.1 100 Continue\r\n\r\n", OK]) as upstream:
        reply = await send(transport, request(upstream.url))
        assert (reply.status, await read(reply)) == (200, b"hi")


async def test_a_cookie_is_not_sent_back() -> None:
    answer = b"HTTP/1.1 200 OK\r\nset-cookie: a=b\r\ncontent-length: 2\r\n\r\nhi"
    async with RawUpstream([READ, answer, READ, answer]) as upstream:
        transport = HttpTransport(hosts={"cookies.example": Own(upstream.port)})
        for _ in range(2):
            await read(await send(transport, request("http://cookies.example/v1")))
        await transport.close()
    assert "cookie" not in upstream.requests[1].headers


async def test_proxies_of_the_environment_count_only_where_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with RawUpstream([READ, OK]) as proxy, RawUpstream([READ, OK]) as upstream:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        plain, trusting = HttpTransport(), HttpTransport(trust_env=True)
        await read(await send(plain, request(upstream.url)))
        await read(await send(trusting, request("http://far.example/v1")))
        await plain.close()
        await trusting.close()
    assert proxy.requests[0].head.startswith(b"POST http://far.example/v1 ")


# ------------------------------------------------------------------------------- what is sent


@pytest.mark.req("M51")
async def test_the_request_leaves_with_its_very_bytes(transport: HttpTransport) -> None:
    pieces = (b'{"a":', "é 你 🙂".encode(), b"x" * 200_000, b"}")
    async with RawUpstream([READ, OK]) as upstream:
        url = f"http://127.0.0.1:{upstream.port}/v1/a%2Fb/%7Ec?q=1%2B1&r"
        wire = WireRequest(method="POST", url=url, headers=(("x-trace", "a  b"),), chunks=pieces)
        await read(await send(transport, wire))
    (seen,) = upstream.requests
    assert seen.head.startswith(b"POST /v1/a%2Fb/%7Ec?q=1%2B1&r HTTP/1.1\r\n")
    assert seen.body == b"".join(pieces)
    assert seen.headers["content-length"] == str(len(seen.body))
    assert seen.headers["x-trace"] == "a  b"
    assert "content-type" not in seen.headers
    assert "transfer-encoding" not in seen.headers


@pytest.mark.parametrize(
    ("slot", "value"),
    [
        ("authorization", f"Bearer {KEY}"),
        ("x-api-key", KEY),
        ("x-goog-api-key", KEY),
        ("api-key", KEY),
    ],
)
async def test_the_key_goes_where_the_dialect_left_room_for_it(
    transport: HttpTransport, slot: str, value: str
) -> None:
    async with RawUpstream([READ, OK]) as upstream:
        wire = WireRequest(method="POST", url=upstream.url, headers=((slot, ""),), chunks=(b"{}",))
        await read(await send(transport, wire))
    keys = {name: text for name, text in upstream.requests[0].headers.items() if KEY in text}
    assert keys == {slot: value}


async def test_without_a_key_nothing_stands_in_its_place(transport: HttpTransport) -> None:
    async with RawUpstream([READ, OK]) as upstream:
        await read(await send(transport, request(upstream.url, x_api_key=""), key=None))
    assert not {"x-api-key", "authorization"} & upstream.requests[0].headers.keys()


@pytest.mark.req("M17")
async def test_a_failure_tells_nothing_of_the_key_and_chains_no_exception_that_holds_it(
    transport: HttpTransport, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    scripts: list[list[Step]] = [
        [READ, CLOSE],
        [READ, b"HTTP/1.1 nonsense\r\n\r\n", HANGUP],
        [READ, b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi", CLOSE],
    ]
    for script in scripts:
        async with RawUpstream(script) as upstream:
            with pytest.raises(Cut) as caught:
                await read(await send(transport, request(upstream.url)))
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
        assert KEY not in "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert KEY not in caplog.text
    assert KEY not in repr(transport)


# ------------------------------------------------------------------------------------ the reply


async def test_header_names_are_lower_case_and_the_last_of_a_name_wins(
    transport: HttpTransport,
) -> None:
    answer = b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nX-A: 1\r\nx-a: 2\r\ncontent-length: 0\r\n\r\n"
    async with RawUpstream([READ, answer]) as upstream:
        reply = await send(transport, request(upstream.url))
        assert reply.status == 503
        assert (reply.headers["retry-after"], reply.headers["x-a"]) == ("1", "2")
        assert await read(reply) == b""


async def test_closing_an_unfinished_reply_hangs_up_and_the_connection_is_not_kept(
    transport: HttpTransport,
) -> None:
    unfinished: list[Step] = [READ, b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi", HANGUP]
    async with RawUpstream(unfinished, [READ, OK]) as upstream:
        reply = await send(transport, request(upstream.url))
        assert await anext(reply.chunks()) == b"hi"
        await reply.close()
        await upstream.client_left()
        with pytest.raises(Cut) as caught:
            await anext(reply.chunks())
        assert caught.value.code == "closed"
        await read(await send(transport, request(upstream.url)))
    assert upstream.connections == 2


async def test_closing_a_finished_reply_leaves_its_connection_for_the_next(
    transport: HttpTransport,
) -> None:
    async with RawUpstream([READ, OK, READ, OK]) as upstream:
        for _ in range(2):
            reply = await send(transport, request(upstream.url))
            await read(reply)
            await reply.close()
    assert upstream.connections == 1


async def test_closing_the_transport_ends_an_answer_under_way(transport: HttpTransport) -> None:
    async with RawUpstream(
        [READ, b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi", HANGUP]
    ) as upstream:
        chunks = (await send(transport, request(upstream.url))).chunks()
        assert await anext(chunks) == b"hi"
        await transport.close()
        await upstream.client_left()
        with pytest.raises(Cut):
            await anext(chunks)
    gc.collect()  # an unclosed connection would be reported here, and warnings are errors


# -------------------------------------------------------------------------- servers of our own


class Own:
    def __init__(self, port: int, failure: OSError | None = None) -> None:
        self._port = port
        self._failure = failure
        self.started = 0
        self.closed = 0

    async def address(self) -> tuple[str, int]:
        self.started += 1
        if self._failure is not None:
            raise self._failure
        return "127.0.0.1", self._port

    async def close(self) -> None:
        self.closed += 1


async def test_a_name_of_ours_reaches_our_own_server_whatever_its_port() -> None:
    async with RawUpstream([READ, OK]) as upstream:
        own: OwnServer = Own(upstream.port)
        transport = HttpTransport(hosts={"rehearsal.invalid": own})
        reply = await send(transport, request("http://rehearsal.invalid/v1/chat/completions"))
        assert await read(reply) == b"hi"
        await transport.close()
    assert upstream.requests[0].headers["host"] == "rehearsal.invalid"
    assert isinstance(own, Own)
    assert own.started >= 1
    assert own.closed == 1


async def test_our_own_server_that_does_not_start_is_not_sent() -> None:
    transport = HttpTransport(
        hosts={"local.invalid": Own(0, OSError("The local model ended at once: no memory"))}
    )
    written = Sent()
    with pytest.raises(NotSent) as caught:
        await send(transport, request("http://local.invalid/v1"), written)
    await transport.close()
    assert (caught.value.code, written.times) == ("connect", 0)
    assert "no memory" in str(caught.value)


@pytest.mark.req("M60")
@pytest.mark.parametrize("step", [OK, CLOSE, RESET], ids=["answer", "close", "reset"])
async def test_a_client_that_writes_without_a_word_leaves_the_outcome_open(
    transport: HttpTransport, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(LeavingRequest, "send")  # as if a release of the client wrote otherwise
    written = Sent()
    async with RawUpstream([READ, step]) as upstream:
        with pytest.raises(Cut) as cut:
            await send(transport, request(upstream.url), written)
    assert (cut.value.code, written.times) == ("unseen", 1)
