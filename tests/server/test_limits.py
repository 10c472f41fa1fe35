"""What a request may be: from where, of which kind, how large, how deep, how slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from antiphon.engine.settings import Settings
from antiphon.server.http.serving import listen, serve
from tests.server.stage import ROOT, Served, served
from tests.support.asgi import WAIT_S

SOON_S = 0.2
"""A limit that is reached; a request in good order needs a hundredth of it."""


def small(**more: object) -> Settings:
    return Settings(port=0, retry_base_s=0.0, cancel_grace_s=0.0, drain_s=0.0, **more)  # type: ignore[arg-type]


@asynccontextmanager
async def listening(
    server: Served,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Serve on a real socket and give a connection to it."""
    listener = listen(server.engine.world.settings)
    stop, started = asyncio.Event(), asyncio.Event()
    port = listener.getsockname()[1]
    work = asyncio.create_task(serve(server.app, listener, stop=stop, started=started.set))
    await asyncio.wait_for(started.wait(), WAIT_S)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        stop.set()
        await asyncio.wait_for(work, WAIT_S)


async def test_a_page_of_somebody_else_cannot_talk_to_a_server_without_a_key(
    tmp_path: Path,
) -> None:
    async with served(tmp_path / "a.db") as server:
        path = f"{ROOT}/conversations"
        for host in ("localhost:8000", "127.0.0.1", "[::1]:8000"):
            assert (await server.client.get(path, host=host)).status == 200
        for host in ("rebound.example", "127.0.0.1.rebound.example", ""):
            told = await server.client.get(path, host=host)
            assert (told.status, told.json["error"]["code"]) == (421, "host_not_allowed")
        for origin, status in (
            ("http://localhost:5173", 200),
            ("https://evil.example", 403),
            ("null", 403),
        ):
            assert (await server.client.get(path, origin=origin)).status == status


async def test_a_body_that_does_not_say_that_it_is_json_is_not_read(tmp_path: Path) -> None:
    async with served(tmp_path / "a.db") as server:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            told = await server.client.ask(
                "POST", f"{ROOT}/conversations", {}, headers={"content-type": kind}
            )
            assert (told.status, told.json["error"]["code"]) == (415, "not_json")
        assert (await server.client.get(f"{ROOT}/conversations")).json["data"] == []


async def test_a_body_is_refused_as_soon_as_it_is_too_large_said_or_not(tmp_path: Path) -> None:
    async with served(tmp_path / "a.db", settings=small(max_body_bytes=1_000)) as server:
        path = f"{ROOT}/conversations"
        large = b'{"title": "' + b"x" * 1_000 + b'"}'
        for headers in ({}, {"content-length": "0", "transfer-encoding": "chunked"}):
            told = await server.client.ask("POST", path, raw=large, headers=headers)
            assert (told.status, told.json["error"]["code"]) == (413, "body_too_large")
        fits = await server.client.ask("POST", path, raw=b'{"title": "' + b"x" * 400 + b'"}')
        assert fits.status == 201


async def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_fault_of_ours(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path / "a.db", settings=small()) as server:
        async with listening(server) as (_, writer):
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
                b'content-type: application/json\r\ncontent-length: 99\r\n\r\n{"messages": ['
            )
            await writer.drain()
        counted = (await server.client.get("/metrics")).body.decode()
    assert 'route="/v1/chat/completions",status="400"} 1' in counted
    assert not [line for line in caplog.records if line.message == "fault"]


async def test_a_body_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    settings = small(body_timeout_s=SOON_S)
    async with (
        served(tmp_path / "a.db", settings=settings) as server,
        listening(server) as (reader, writer),
    ):
        writer.write(
            b"POST /antiphon/v1/conversations HTTP/1.1\r\nhost: 127.0.0.1\r\n"
            b"content-type: application/json\r\ncontent-length: 100\r\n\r\n{"
        )
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)
        assert head.startswith(b"HTTP/1.1 408 ")
        rest = await asyncio.wait_for(reader.read(), WAIT_S)
        assert b'"code":"body_timeout"' in rest  # and the connection is closed


async def test_a_client_that_sends_a_byte_now_and_then_is_hung_up_on(tmp_path: Path) -> None:
    settings = small(body_timeout_s=SOON_S)
    async with (
        served(tmp_path / "a.db", settings=settings) as server,
        listening(server) as (reader, writer),
    ):

        async def drip() -> None:
            for byte in b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n":
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(SOON_S / 8)

        dripping = asyncio.create_task(drip())
        try:
            assert await asyncio.wait_for(_end(reader), WAIT_S) == b""
        finally:
            dripping.cancel()
            await asyncio.gather(dripping, return_exceptions=True)


async def test_a_connection_may_rest_between_two_requests_for_longer_than_a_head_may_take(
    tmp_path: Path,
) -> None:
    settings = small(body_timeout_s=SOON_S)
    async with (
        served(tmp_path / "a.db", settings=settings) as server,
        listening(server) as (reader, writer),
    ):
        for _ in range(2):
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)
            assert head.startswith(b"HTTP/1.1 200 ")
            await asyncio.wait_for(reader.readexactly(len(b'{"status":"ok"}')), WAIT_S)
            await asyncio.sleep(SOON_S * 2)


async def _end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
