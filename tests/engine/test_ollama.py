"""A talk over Ollama's own API as a user has it: the file, real HTTP, an upstream that says its lines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from antiphon.core.asking import Ask
from antiphon.engine.settings import Settings
from antiphon.engine.tools import Function
from antiphon.errors import OutcomeUnknown, ProviderFailed
from antiphon.library import Antiphon
from antiphon.library import open as open_app
from tests.adapters.test_ollama_read import called, done, line
from tests.support.upstream import CLOSE, READ, WAIT_S, RawUpstream, Step

NUMBER = "12345678901234567890"
ASKS = line(message={"thinking": "hm"}) + called("count", f'{{"n":{NUMBER}}}') + done()
SAYS = line("It is ") + line("that.") + done()


def reply(body: bytes, status: str = "200 OK") -> list[Step]:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/x-ndjson\r\ncontent-length: {len(body)}"
    return [READ, f"{head}\r\nconnection: close\r\n\r\n".encode() + body, CLOSE]


async def count(n: int) -> str:
    """Count."""
    return str(n)


COUNT = Function(name="count", run=count, parameters={"type": "object", "properties": {"n": {"type": "integer"}}})  # fmt: skip


@asynccontextmanager
async def talking(upstream: RawUpstream, folder: Path) -> AsyncIterator[Antiphon]:
    file = folder / "antiphon.toml"
    file.write_text(
        '[models.here]\nprofile = "ollama"\nmodel = "qwen3:8b"\ncontext_window = 8192\n'
        f'base_url = "http://127.0.0.1:{upstream.port}"\n'
    )
    flags = {"db": str(folder / "antiphon.db"), "retry_base_s": 0.0, "cancel_grace_s": 0.0}
    made = await asyncio.to_thread(Settings.load, flags, config=file, env={})
    async with asyncio.timeout(WAIT_S), open_app(settings=made, functions=[COUNT]) as app:
        yield app


@pytest.mark.req("M2", "M72")
async def test_a_turn_with_a_tool_goes_there_and_back_digit_for_digit(tmp_path: Path) -> None:
    async with (
        RawUpstream(reply(ASKS), reply(SAYS)) as upstream,
        talking(upstream, tmp_path) as app,
    ):
        chat = await app.create(ask=Ask(model="here"))
        run = await chat.send("How many?")
        assert (await run.result()).text == "It is that."
        first, second = upstream.requests
        assert second.body.startswith(first.body.removesuffix(b"]}"))
        for request in upstream.requests:
            assert request.head.startswith(b"POST /api/chat HTTP/1.1\r\n")
            assert "authorization" not in request.headers
            # The window that the file names, so that nothing is lost from the front in silence.
            assert json.loads(request.body)["options"] == {"num_ctx": 8192}
        sent = json.loads(second.body, parse_int=str)["messages"]
        assert sent[1] == {
            "role": "assistant",
            "content": "",
            "thinking": "hm",
            "tool_calls": [{"id": "c1", "function": {"index": "0", "name": "count", "arguments": {"n": NUMBER}}}],
        }  # fmt: skip
        assert sent[2] == {
            "role": "tool",
            "tool_name": "count",
            "tool_call_id": "c1",
            "content": NUMBER,
        }


async def test_an_error_in_the_stream_voids_what_was_shown_and_is_tried_again(
    tmp_path: Path,
) -> None:
    broken = reply(line("It") + b'{"error":"the model fell over"}\n')
    async with RawUpstream(broken, reply(SAYS)) as upstream, talking(upstream, tmp_path) as app:
        chat = await app.create(ask=Ask(model="here"))
        assert (await (await chat.send("Hi")).result()).text == "It is that."


@pytest.mark.parametrize(
    ("replies", "kind", "code"),
    [
        ([reply(b'{"error":"no such model"}', "404 Not Found")], ProviderFailed, "not_found"),
        ([reply(line("It"))] * 2, OutcomeUnknown, "outcome_unknown"),
    ],
    ids=["no model", "cut"],
)
async def test_what_went_wrong_is_said_as_what_it_was(
    replies: list[list[Step]], kind: type[Exception], code: str, tmp_path: Path
) -> None:
    async with RawUpstream(*replies) as upstream, talking(upstream, tmp_path) as app:
        chat = await app.create(ask=Ask(model="here"))
        with pytest.raises(kind) as caught:
            await (await chat.send("Hi")).result()
    assert getattr(caught.value, "code", None) == code
