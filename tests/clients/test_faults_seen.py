"""A provider that others wrote, at its worst: what the client of each door sees of each of its faults.

Nothing of a broken answer is stored, nothing is sent twice, and no client takes a part for a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from antiphon.core.blocks import Role, Status
from antiphon.core.ids import LOCAL_TENANT
from antiphon.engine.settings import Settings, Stateless
from antiphon.library import open as open_app
from antiphon.server.app import build
from tests.support.asgi import Client
from tests.support.upstream import WAIT_S

if TYPE_CHECKING:
    from llmock.pytest_plugin import LLMock

HI = [{"role": "user", "content": "hello"}]
MODEL = {"model": "gpt-4o-mini"}
DOORS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {**MODEL, "messages": HI}),
    "responses": ("/v1/responses", {**MODEL, "input": "hello"}),
    "messages": ("/v1/messages", {**MODEL, "messages": HI, "max_tokens": 200}),
}
WHOLE_ENDS = {
    "chat": b"data: [DONE]",
    "responses": b"event: response.completed",
    "messages": b"event: message_stop",
}
BROKEN = ("disconnected", "truncated", "not json", "stalled", "500")

# What a client that waits for the whole answer is told, by hand: status and code.
UNKNOWN = (424, "outcome_unknown")


def misbehave(llmock: LLMock, fault: str) -> None:
    match fault:
        case "disconnected":
            llmock.disconnect(after_chunks=3)
        case "truncated":
            llmock.truncate(after_chunks=3)
        case "not json":
            llmock.corrupt(after_chunks=3)
        case "stalled":
            llmock.stall(after_chunks=3, seconds=WAIT_S)
        case status:
            llmock.fail(int(status))


@asynccontextmanager
async def gateway(
    llmock: LLMock, folder: Path, **more: object
) -> AsyncIterator[tuple[Client, Any]]:
    """Serve with everything kept, so that a half answer would be found."""
    flags: dict[str, Any] = {
        "retry_base_s": 0.0,
        "cancel_grace_s": 0.0,
        "resend_after_unknown": "never",
    }
    flags |= {"stateless": Stateless.KEEP.value, "db": str(folder / "antiphon.db"), **more}
    settings = Settings.load(flags, env=llmock.env())
    async with asyncio.timeout(WAIT_S * 2), open_app(settings=settings) as app:
        yield Client(build(app.engine)), app.engine.world.store


async def answers_kept(store: Any) -> list[str]:
    rows = await store.conversations(LOCAL_TENANT)
    kept = [message for row in rows for message in await store.tree(row.id)]
    # Text that was shown and broke off stays for people, as a canceled message that no model sees.
    return [
        message.text
        for message in kept
        if message.role is Role.ASSISTANT and message.status is Status.SUCCESS
    ]


async def sent(llmock: LLMock, least: int) -> int:
    """Return how many requests the mock has seen: it notes one a moment after we gave up on it."""
    async with asyncio.timeout(WAIT_S):
        while (  # noqa: ASYNC110 - the mock sets no event
            seen := len(await asyncio.to_thread(lambda: llmock.requests))
        ) < least:
            await asyncio.sleep(0.01)
    return seen


@pytest.mark.req("M98", "M88")
@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.parametrize("door", DOORS)
async def test_what_broke_is_an_unknown_outcome_to_who_waits_and_an_error_in_a_stream(
    llmock: LLMock, tmp_path: Path, door: str, fault: str
) -> None:
    path, body = DOORS[door]
    patience = 0.5 if fault == "stalled" else WAIT_S
    async with gateway(llmock, tmp_path, idle_timeout_s=patience) as (client, store):
        misbehave(llmock, fault)
        whole = await client.post(path, body)
        assert (whole.status, whole.json["error"]["code"]) == UNKNOWN
        assert whole.headers["x-should-retry"] == "false"
        misbehave(llmock, fault)
        streamed = await client.post(path, {**body, "stream": True})
        assert streamed.status == 200
        assert WHOLE_ENDS[door] not in streamed.body, "it would be taken for the whole answer"
        assert b"error" in streamed.body
        assert await answers_kept(store) == []
    assert await sent(llmock, 2) == 2, "each was sent once"


@pytest.mark.parametrize("status", [429, 529])
@pytest.mark.parametrize("door", DOORS)
async def test_a_refusal_for_now_is_waited_out_and_the_client_sees_nothing_of_it(
    llmock: LLMock, tmp_path: Path, door: str, status: int
) -> None:
    path, body = DOORS[door]
    async with gateway(llmock, tmp_path) as (client, store):
        for stream in (False, True):
            llmock.fail(status, retry_after=0.0).reply("All of it.")
            told = await client.post(path, {**body, "stream": stream})
            assert told.status == 200
            assert b"All" in told.body
            assert (WHOLE_ENDS[door] in told.body) is stream
        assert await answers_kept(store) == ["All of it."] * 2
    assert await sent(llmock, 4) == 4


@pytest.mark.req("M88")
@pytest.mark.parametrize(("status", "elsewhere"), [(429, 429), (529, 503)])
@pytest.mark.parametrize("door", DOORS)
async def test_a_provider_that_stays_busy_is_busy_to_the_client_which_is_told_when_to_ask_again(
    llmock: LLMock, tmp_path: Path, door: str, status: int, elsewhere: int
) -> None:
    path, body = DOORS[door]
    async with gateway(llmock, tmp_path, retries=0) as (client, store):
        llmock.fail(status, times=None, retry_after=7.0)
        whole = await client.post(path, body)
        assert whole.status == (status if door == "messages" else elsewhere)
        assert (whole.headers["retry-after"], whole.headers["x-should-retry"]) == ("7", "true")
        assert "The provider said: " in whole.json["error"]["message"]
        streamed = await client.post(path, {**body, "stream": True})
        assert (streamed.status, WHOLE_ENDS[door] in streamed.body) == (200, False)
        assert b"The provider said: " in streamed.body
        assert await answers_kept(store) == []
    assert await sent(llmock, 2) == 2, "each was sent once"
