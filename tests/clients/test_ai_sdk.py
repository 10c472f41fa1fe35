"""The Vercel AI SDK, unchanged, at all three doors: what its application sees, what its provider is sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from antiphon.core.recovery import Resend
from antiphon.engine.ports import Cut
from antiphon.engine.settings import Settings
from tests.clients.ai_sdk import AISDK, DOORS, ai_sdk
from tests.server.sdk import Door, door
from tests.support.provider import Status, asks, chunk, says

pytestmark = [pytest.mark.needs("node"), pytest.mark.req("M98")]

CALL = ("c1", "weather", '{"city": "Oslo"}')
BROKEN = Cut("stream_cut", "It is gone.")
EVERY = pytest.mark.parametrize("how", DOORS)


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Door]:
    own = Settings(retry_base_s=0.0, cancel_grace_s=0.0, port=0, resend_after_unknown=Resend.NEVER)
    async with door(tmp_path / "a.db", settings=own) as opened:
        yield opened


@pytest.fixture
async def sdk() -> AsyncIterator[AISDK]:
    async with ai_sdk() as process:
        yield process


def failure(seen: dict[str, Any]) -> dict[str, Any]:
    """Return the error that the application was shown, thrown or told of."""
    errors = [*seen["failed"], seen.get("error")]
    first: dict[str, Any] = next(filter(None, errors))
    return first


@EVERY
async def test_a_turn_with_a_tool_is_answered_whole_and_streamed(
    at: Door, sdk: AISDK, how: str
) -> None:
    for stream in (False, True):
        at.provider.scripts = [asks(CALL), says("Rain ", "in Oslo.")]
        seen = await sdk.ask(at, how, stream=stream, tools=True)
        assert (seen["text"], seen["asked"]) == ("Rain in Oslo.", ["Oslo"]), seen
        assert (seen["steps"], seen["finishReason"]) == (["tool-calls", "stop"], "stop")
        assert "".join(seen["shown"]) == ("Rain in Oslo." if stream else "")
        assert seen["failed"] == []
        if how != "compatible" or not stream:  # which asks for no usage in its streams
            assert (seen["totalUsage"]["inputTokens"], seen["totalUsage"]["outputTokens"]) == (
                30,
                14,
            )
        told: list[Any] = [m for m in at.provider.messages() if m["role"] != "system"]
        assert [m["role"] for m in told] == ["user", "assistant", "tool"]
        (call,) = told[1]["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"city": "Oslo"}
        assert (told[2]["tool_call_id"], told[2]["content"]) == (call["id"], "rain in Oslo")


@EVERY
async def test_an_illegal_history_is_a_400_with_its_code_and_its_repair_and_is_not_tried_again(
    at: Door, sdk: AISDK, how: str
) -> None:
    result = {"type": "text", "value": "rain"}
    orphan = {"type": "tool-result", "toolCallId": "c9", "toolName": "weather", "output": result}
    history = [{"role": "user", "content": "Go"}, {"role": "tool", "content": [orphan]}]
    for stream in (False, True):
        error = failure(await sdk.ask(at, how, stream=stream, messages=history))
        assert (error["status"], error["retryable"], error["tries"]) == (400, False, 1)
        told = json.loads(error["body"])["error"]
        assert told["code"] == "orphan_tool_result"
        assert told["repairs"][0]["change"] == "result_removed"
        assert "Antiphon-Repair: on" in error["message"]
    assert at.provider.requests == []


@EVERY
@pytest.mark.parametrize(
    "script", [[Status(500), b"{}"], [*asks(CALL)[:6], BROKEN]], ids=["500", "cut"]
)
async def test_what_may_have_been_done_is_asked_once_and_its_tool_is_not_run(
    at: Door, sdk: AISDK, how: str, script: list[Any]
) -> None:
    for stream in (False, True):
        at.provider.requests.clear()
        at.provider.scripts = [script, says("Another"), says("Another")]
        seen = await sdk.ask(at, how, stream=stream, tools=True)
        error = failure(seen)
        assert "it was not asked again" in error["message"], error
        assert error["tries"] == 1
        assert len(at.provider.requests) == 1, "the SDK tries again by itself what it may"
        assert (seen["asked"], seen["shown"]) == ([], [])
        if not stream:
            assert (error["status"], error["retryable"]) == (424, False)


@EVERY
async def test_text_of_a_stream_that_breaks_is_an_error_and_not_a_short_answer(
    at: Door, sdk: AISDK, how: str
) -> None:
    at.provider.scripts = [[chunk({"content": "It is "}), BROKEN], says("Another")]
    seen = await sdk.ask(at, how, stream=True)
    assert seen["shown"] == ["It is "]
    assert len(seen["failed"]) == 1, seen
    assert seen.get("finishReason", "error") == "error"
    assert len(at.provider.requests) == 1
