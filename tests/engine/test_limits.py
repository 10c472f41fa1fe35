"""A provider that does not stop: one clear code, bounded memory, an untouched history."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from antiphon.core.blocks import Role, Status
from antiphon.engine.settings import Settings
from antiphon.errors import AntiphonError
from antiphon.library import open as open_app
from tests.support.chat_stream import DONE, chunk
from tests.support.upstream import READ, WAIT_S, Endless, RawUpstream

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
SMALL = {
    "max_event_bytes": 64 * 1024,
    "max_arguments_bytes": 64 * 1024,
    "max_answer_bytes": 128 * 1024,
}
CALL = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}


@pytest.mark.req("M73", "M138")
@pytest.mark.parametrize(
    ("opening", "endless", "code"),
    [
        pytest.param(b"data: ", b"a" * 8192, "event_too_large", id="one endless line"),
        pytest.param(
            b"", b"data: " + b"a" * 8192 + b"\n", "event_too_large", id="one endless event"
        ),
        pytest.param(b"", chunk({"content": "a" * 8192}), "answer_too_large", id="endless text"),
        pytest.param(
            chunk({"tool_calls": [CALL]}),
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": "1" * 8192}}]}),
            "answer_too_large",
            id="endless arguments",
        ),
    ],
)
async def test_what_never_ends_is_ended(
    tmp_path: Path, opening: bytes, endless: bytes, code: str
) -> None:
    flags = {
        "db": str(tmp_path / "antiphon.db"),
        "resend_after_unknown": "never",
        "retries": 0,
        **SMALL,
    }
    async with (
        asyncio.timeout(WAIT_S),
        RawUpstream([READ, HEAD + opening, Endless(endless)]) as upstream,
    ):
        env = {"OPENAI_BASE_URL": upstream.url.removesuffix("/chat/completions")}
        async with open_app(settings=Settings.load(flags, env=env)) as app:
            chat = await app.create()
            run = await chat.send("hello")
            with pytest.raises(AntiphonError):
                await run.result()
            (operation,) = (await run.explain()).operations
            assert [attempt.error_code for attempt in operation.attempts] == [code]
            (message,) = await chat.tree()
            assert (message.role, message.status) == (Role.USER, Status.ERROR)
        await upstream.client_left()
    assert len(upstream.requests) == 1
    assert upstream.written_bytes < 16 * 1024 * 1024


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ({}, None),
        ({"max_event_bytes": 99_999}, "event_too_large"),
        ({"max_answer_bytes": 99_999}, "answer_too_large"),
    ],
)
async def test_the_limits_are_those_of_the_settings(
    tmp_path: Path, limit: dict[str, int], code: str | None
) -> None:
    flags = {"db": str(tmp_path / "antiphon.db"), "resend_after_unknown": "never", "retries": 0}
    answer = HEAD + chunk({"content": "a" * 100_000}) + chunk(finish="stop") + DONE
    async with asyncio.timeout(WAIT_S), RawUpstream([READ, answer]) as upstream:
        env = {"OPENAI_BASE_URL": upstream.url.removesuffix("/chat/completions")}
        async with open_app(settings=Settings.load(flags | limit, env=env)) as app:
            run = await (await app.create()).send("hello")
            async for _ in run.events():
                pass
            (operation,) = (await run.explain()).operations
            assert [attempt.error_code for attempt in operation.attempts] == [code]
