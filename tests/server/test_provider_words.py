"""What a provider says in place of an answer: kept, shown, told, erased; and when to ask again."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from antiphon.core.answers.said import Said
from antiphon.core.commands import EraseConversation
from antiphon.core.ids import LOCAL_TENANT, RunId
from antiphon.engine.keeping.explain import explain
from antiphon.engine.settings import Settings, Stateless
from tests.server.sdk import WAIT_S, Door, door
from tests.support.provider import ScriptedProvider, Status, Step, says

HI: list[Any] = [{"role": "user", "content": "Hi"}]
WORDS = "You have asked too often; the limit of teapots is 3."


def no(status: int, message: str = WORDS, **headers: str) -> list[Step]:
    """Return a refusal with a sentence of the provider's own."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    body = {"error": {"message": message, "type": "some_error", "code": "some_code"}}
    return [Status(status, names), json.dumps(body).encode()]


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Door]:
    """A server that asks its provider once, and keeps what is said."""
    settings = Settings(retries=0, cancel_grace_s=0.0, port=0, stateless=Stateless.KEEP)
    async with door(tmp_path / "a.db", ScriptedProvider(), settings=settings) as opened:
        yield opened


@pytest.fixture
async def claude(at: Door) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(
        base_url=at.url, api_key="any", max_retries=0, timeout=WAIT_S
    ) as client:
        yield client


async def said(at: Door) -> Said | None:
    """Return what the provider said in the newest attempt there is."""
    (row,) = await at.engine.world.store.conversations(LOCAL_TENANT, limit=10)
    run = (await at.engine.world.store.runs(row.id))[-1]
    return (await explain(at.engine.world, run.id)).operations[-1].attempts[-1].said


@pytest.mark.req("M88", "M91")
async def test_a_provider_that_is_busy_is_busy_at_every_door_and_says_when_to_come_again(
    at: Door, claude: anthropic.AsyncAnthropic
) -> None:
    at.provider.scripts = [no(status, retry_after="7") for status in (429, 529) for _ in range(3)]
    for status, theirs, ours in ((429, 429, 429), (529, 503, 529)):
        with pytest.raises(openai.APIStatusError) as chat:
            await at.client.chat.completions.create(model="rehearsal", messages=HI)
        with pytest.raises(openai.APIStatusError) as response:
            await at.say("Hi")
        with pytest.raises(anthropic.APIStatusError) as message:
            await claude.messages.create(model="rehearsal", max_tokens=9, messages=HI)
        told: list[openai.APIStatusError | anthropic.APIStatusError]
        told = [chat.value, response.value, message.value]
        assert [one.status_code for one in told] == [theirs, theirs, ours], status
        for one in told:
            assert one.response.headers["retry-after"] == "7"
            assert one.response.headers["x-should-retry"] == "true"
            assert WORDS in str(one)
        body: Any = message.value.body
        kind = {429: "rate_limit_error", 529: "overloaded_error"}[status]
        assert body["error"]["type"] == kind
    assert not at.provider.scripts


@pytest.mark.req("M27")
async def test_what_was_certainly_not_done_begins_anew_when_an_sdk_asks_again(at: Door) -> None:
    """But not under a key of the client's own, and not where nobody knows."""
    ask, again = at.client.chat.completions.create, {"x-stainless-retry-count": "1"}
    for stored in (True, False):
        at.provider.scripts = [no(429), says("Now.")]
        with pytest.raises(openai.RateLimitError):
            await ask(model="rehearsal", messages=HI, store=stored)
        told = await ask(model="rehearsal", messages=HI, store=stored, extra_headers=again)
        assert told.choices[0].message.content == "Now."

    at.provider.scripts = [no(429), says("Never.")]
    for _ in range(2):
        with pytest.raises(openai.RateLimitError) as kept:
            await ask(model="rehearsal", messages=HI, extra_headers={"Idempotency-Key": "k"})
        assert kept.value.response.headers["x-should-retry"] == "false"
    assert len(at.provider.scripts) == 1

    at.provider.scripts = [no(400), says("Never.")]
    for more in ({}, again):
        with pytest.raises(openai.APIStatusError) as wrong:
            await ask(model="rehearsal", messages=[*HI, *HI], extra_headers=more)
        assert (wrong.value.status_code, wrong.value.code) == (502, "some_code")
        assert wrong.value.response.headers["x-should-retry"] == "false"
    assert len(at.provider.scripts) == 1


async def test_a_stream_that_was_refused_tells_the_providers_words(at: Door) -> None:
    at.provider.scripts = [no(400), no(400)]
    with pytest.raises(openai.APIError, match="limit of teapots"):
        async for _ in await at.client.chat.completions.create(
            model="rehearsal", messages=HI, stream=True
        ):
            pass
    *_, last = [event async for event in await at.stream("Hi")]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert WORDS in last.response.error.message


@pytest.mark.req("M102")
async def test_the_words_are_in_the_attempt_until_they_are_erased_and_in_no_line_of_the_log(
    at: Door, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    at.provider.scripts = [no(429, retry_after="7")]
    with pytest.raises(openai.RateLimitError):
        await at.client.chat.completions.create(model="rehearsal", messages=HI)
    kept = Said(message=WORDS, status=429, retryable=True, retry_after_ms=7000)
    assert await said(at) == kept
    assert WORDS not in caplog.text
    assert all("teapots" not in str(vars(record)) for record in caplog.records)
    store = at.engine.world.store
    (row,) = await store.conversations(LOCAL_TENANT, limit=10)
    await store.do(EraseConversation(conversation=row.id, now_ms=at.engine.world.clock.now_ms()))
    run = (await store.runs(row.id))[-1]
    attempt = (await explain(at.engine.world, RunId(run.id))).operations[-1].attempts[-1]
    assert attempt.said == Said(message="", status=429, retryable=True, retry_after_ms=7000)


async def test_what_is_said_of_our_account_is_kept_and_not_told_to_clients(at: Door) -> None:
    at.provider.scripts = [no(401, "Your key is not known to the teapots.")]
    with pytest.raises(openai.APIStatusError) as caught:
        await at.client.chat.completions.create(model="rehearsal", messages=HI)
    assert (caught.value.status_code, caught.value.code) == (502, "some_code")
    assert "teapots" not in caught.value.response.text
    kept = await said(at)
    assert kept is not None
    assert kept.message == "Your key is not known to the teapots."
