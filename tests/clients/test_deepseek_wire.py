"""What DeepSeek Harness sends, by the wire forms that it speaks.

Nothing here runs the program: these are requests in the form of DeepSeek's Chat Completions, which
its adapter `llm-deepseek` names as the form it writes, and of Anthropic's Messages, as the program
was seen to send them.
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
from antiphon.engine.models import Model, Models
from antiphon.engine.ports import Cut
from antiphon.engine.settings import Settings
from tests.server.stage import Served, served
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


@pytest.mark.parametrize("door", [DOOR, "/v1/messages"])
async def test_the_session_log_beside_the_messages_is_taken_and_goes_no_further(
    tmp_path: Path, door: str
) -> None:
    async with gateway(tmp_path, says("A lamp.")) as (stage, provider):
        body = request(*STEP) if door == DOOR else MESSAGE
        answered = await stage.client.post(door, {**body, **LOG})
        assert answered.status == 200, answered.body
        assert b"lamp" in answered.body
        for word in (b"dsh_", b"turn/start", b"plugin-timer", b"/home/ann"):
            assert word not in provider.bodies[0]


LOG = {
    "dsh_session_log": {
        "version": 1,
        "session": {"version": 4, "id": "s-1", "cwd": "/home/ann/work"},
        "afterSeq": -1,
        "throughSeq": 0,
        "events": [{"seq": 0, "time": 1, "type": "turn/start", "data": {"turn": 1}}],
    },
    "dsh_plugin_packages": {"version": 1, "packages": [{"name": "plugin-timer", "version": "1"}]},
}
MESSAGE: dict[str, Any] = {
    "model": "deepseek-v4",
    "stream": True,
    "max_tokens": 256_000,
    "system": "You are a coding agent.",
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is in a.txt?"},
                {"type": "text", "text": "Current runtime context."},
            ],
        }
    ],
    "tools": [{"name": "read_file", "description": "Reads.", "input_schema": {"type": "object"}}],
}
"""What the program itself (0.2.1-rc.2) sends first, without its words and its options of thinking."""
