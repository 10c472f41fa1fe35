"""What DeepSeek Harness sends, by the wire forms that it speaks.

Nothing here runs the program, which `make e2e-harness` does: these are requests in the form of
DeepSeek's Chat Completions, which its adapter `llm-deepseek` names as the form it writes, and of
Anthropic's Messages, as that run recorded them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from antiphon.core.recovery import Resend
from antiphon.engine.catalogue.models import Model, Models
from antiphon.engine.ports import Cut
from antiphon.engine.settings import Settings
from tests.server.stage import Served, served
from tests.support import messages_stream as said
from tests.support.provider import ScriptedProvider, Step, asks, chunk, says

pytestmark = pytest.mark.req("M174")

DOOR = "/v1/chat/completions"
CALL = {
    "id": "call_00_a",
    "type": "function",
    "function": {"name": "read_file", "arguments": '{"path": "a.txt"}'},
}
STEP: list[dict[str, Any]] = [
    {"role": "system", "content": "You are a coding agent."},
    {"role": "user", "content": "What is in a.txt?"},
    {"role": "assistant", "content": "", "reasoning_content": "Look.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_00_a", "content": "a lamp"},
]
"""A step of an agent's loop: of its session's events, only these are messages."""


def request(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"path": {"type": "string"}}}
    function = {"name": "read_file", "description": "Reads.", "parameters": parameters}
    return {
        "model": "deepseek-v4",
        "messages": list(messages),
        "stream": True,
        "stream_options": {"include_usage": True},
        "thinking": {"type": "enabled"},
        "reasoning_effort": "high",
        "max_tokens": 256_000,
        "tools": [{"type": "function", "function": function}],
        **more,
    }


@asynccontextmanager
async def gateway(
    path: Path, *scripts: list[Step]
) -> AsyncIterator[tuple[Served, ScriptedProvider]]:
    model = Model(
        name="deepseek-v4", profile="deepseek", model="deepseek-v4", base_url="http://up.invalid"
    )
    provider = ScriptedProvider(*scripts)
    settings = Settings(
        models=Models(named=MappingProxyType({"deepseek-v4": model})),
        retry_base_s=0.0,
        cancel_grace_s=0.0,
        resend_after_unknown=Resend.NEVER,
    )
    async with served(path / "a.db", provider, settings=settings) as stage:
        yield stage, provider


def told(body: bytes) -> list[dict[str, Any]]:
    lines = [line.removeprefix(b"data: ") for line in body.split(b"\n\n") if line]
    return [json.loads(line) for line in lines if line.startswith(b"{")]


async def test_a_step_goes_out_with_its_pair_and_the_thinking_that_led_to_it(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path, says("A lamp.")) as (stage, provider):
        answered = await stage.client.post(DOOR, request(*STEP))
        assert answered.status == 200, answered.body
        sent = json.loads(provider.bodies[0])
        assert [m["role"] for m in sent["messages"]] == ["system", "user", "assistant", "tool"]
        calling, result = sent["messages"][2:]
        assert calling["reasoning_content"] == "Look."
        assert json.loads(calling["tool_calls"][0]["function"]["arguments"]) == {"path": "a.txt"}
        assert result["tool_call_id"] == calling["tool_calls"][0]["id"]
        assert (sent["thinking"], sent["reasoning_effort"]) == ({"type": "enabled"}, "high")
        text = [c["delta"].get("content") or "" for e in told(answered.body) for c in e["choices"]]
        assert "".join(text) == "A lamp."
        assert answered.body.endswith(b"data: [DONE]\n\n")


async def test_a_call_whose_result_was_not_written_yet_is_refused_before_it_is_sent(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path) as (stage, provider):
        crashed = [*STEP[:3], {"role": "user", "content": "Go on."}]
        answered = await stage.client.post(DOOR, request(*crashed))
        assert (answered.status, answered.json["error"]["code"]) == (400, "missing_tool_result")
        assert provider.requests == []


async def test_a_call_of_a_broken_stream_is_shown_to_nobody_and_asked_for_once(
    tmp_path: Path,
) -> None:
    cut = [*asks(("c1", "read_file", '{"path": "a.txt"}'))[:6], Cut("stream_cut", "gone")]
    async with gateway(tmp_path, [chunk({"reasoning_content": "Look."}), *cut]) as (
        stage,
        provider,
    ):
        answered = await stage.client.post(DOOR, request(*STEP[:2]))
        assert b"tool_calls" not in answered.body
        assert b"[DONE]" not in answered.body
        assert "error" in told(answered.body)[-1]
        assert len(provider.requests) == 1


async def test_the_session_log_beside_the_messages_is_taken_and_goes_no_further(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path, says("A lamp.")) as (stage, provider):
        log = {key: value for key, value in RECORDED[0].items() if key.startswith("dsh_")}
        assert log.keys() == {"dsh_session_log", "dsh_plugin_packages"}
        answered = await stage.client.post(DOOR, {**request(*STEP), **log})
        assert answered.status == 200, answered.body
        assert b"dsh_" not in provider.bodies[0]


# Messages, as the program writes it: what `make e2e-harness` recorded.

MESSAGES = "/v1/messages"
RECORDED: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "deepseek_harness.json").read_text("utf-8")
)


@asynccontextmanager
async def behind(
    path: Path, profile: str, *scripts: list[Step]
) -> AsyncIterator[tuple[Served, ScriptedProvider]]:
    name = RECORDED[0]["model"]
    model = Model(name=name, profile=profile, model=name, base_url="http://up.invalid")
    provider = ScriptedProvider(*scripts)
    settings = Settings(
        models=Models(named=MappingProxyType({name: model})), resend_after_unknown=Resend.NEVER
    )
    async with served(path / "a.db", provider, settings=settings) as stage:
        yield stage, provider


def lamp() -> list[Step]:
    return [said.start(), said.text(0, "A lamp."), said.end("end_turn")]


def without_false(value: Any) -> Any:
    """Return a history without `is_error: false`, which says nothing."""
    if isinstance(value, list):
        return [without_false(part) for part in value]
    if isinstance(value, dict):
        return {k: without_false(v) for k, v in value.items() if v is not False}
    return value


async def test_each_request_of_the_program_is_answered_and_leaves_without_its_log(
    tmp_path: Path,
) -> None:
    scripts = [lamp() for _ in RECORDED]
    async with behind(tmp_path, "anthropic", *scripts) as (stage, provider):
        for asked in RECORDED:
            answered = await stage.client.post(MESSAGES, asked)
            assert answered.status == 200, answered.body
            assert b'"text":"A lamp."' in answered.body
            sent = json.loads(provider.bodies[-1])
            assert sent["messages"] == without_false(asked["messages"])
            for option in ("thinking", "output_config", "max_tokens"):
                assert sent[option] == asked[option]
            assert [tool["name"] for tool in sent["tools"]] == ["read", "write"]
            assert not any(key.startswith("dsh_") for key in sent)


async def test_thinking_goes_out_again_with_its_call_and_the_result_under_the_calls_id() -> None:
    (said_to, called, result) = RECORDED[1]["messages"]
    thought, call = called["content"]
    assert (said_to["role"], called["role"], result["role"]) == ("user", "assistant", "user")
    assert (thought["type"], thought["thinking"], thought["signature"]) == (
        "thinking",
        "Look.",
        "Eq==",
    )
    assert result["content"][0]["tool_use_id"] == call["id"] == "toolu_1"


async def test_a_result_that_was_not_written_yet_is_refused_with_the_repair(tmp_path: Path) -> None:
    async with behind(tmp_path, "anthropic") as (stage, provider):
        crashed = [*RECORDED[1]["messages"][:2], {"role": "user", "content": "Go on."}]
        answered = await stage.client.post(MESSAGES, {**RECORDED[1], "messages": crashed})
        assert answered.status == 400
        assert b"missing_tool_result" in answered.body
        assert b"repair" in answered.body
        assert provider.requests == []


async def test_a_model_without_a_word_for_its_options_is_not_asked(tmp_path: Path) -> None:
    async with behind(tmp_path, "openai-chat") as (stage, provider):
        answered = await stage.client.post(MESSAGES, RECORDED[0])
        assert answered.status == 400
        assert b"output_config" in answered.body
        assert provider.requests == []


async def test_of_a_stream_that_breaks_inside_a_call_the_program_sees_an_error_and_no_call(
    tmp_path: Path,
) -> None:
    call = said.call(0, "toolu_2", "write", '{"file_path": "b.txt", "content": "ha')
    half = call[: call.index(b"event: content_block_stop")]
    broken: list[Step] = [said.start(), half, Cut("stream_cut", "gone")]
    async with behind(tmp_path, "anthropic", broken) as (stage, provider):
        answered = await stage.client.post(MESSAGES, RECORDED[2])
        assert b"tool_use" not in answered.body
        assert b"message_stop" not in answered.body
        assert b"event: error" in answered.body
        assert len(provider.requests) == 1
