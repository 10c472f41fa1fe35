"""Signed thinking at the Messages door: a client has it as it came, and its next request is taken."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import anthropic
import pytest

from antiphon.engine.catalogue.models import Model, Models
from antiphon.engine.settings import Settings
from tests.server.sdk import WAIT_S, Door, door
from tests.support import messages_stream as said
from tests.support.provider import ScriptedProvider

MODEL = "claude"
TOOL: Any = {"name": "weather", "input_schema": {"type": "object"}}
HI: Any = {"role": "user", "content": "What is the weather?"}
THOUGHT = {"type": "thinking", "thinking": "Look first.", "signature": "Eq=="}
SAID = {"type": "text", "text": "I look."}
ASKED = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}}
STEP = [
    said.start(),
    said.thinking(0, "Look ", "first."),
    said.text(1, "I ", "look."),
    said.call(2, "toolu_1", "weather", '{"city": "Rome"}'),
    said.end("tool_use"),
]
Ask: TypeAlias = "Callable[..., Any]"


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Door]:
    model = Model(name=MODEL, profile="anthropic", model="claude-x", base_url="http://up.invalid")
    settings = Settings(port=0, models=Models(named=MappingProxyType({MODEL: model})))
    async with door(tmp_path / "a.db", settings=settings) as opened:
        yield opened


@pytest.fixture
def provider(at: Door) -> ScriptedProvider:
    return at.provider


@pytest.fixture
async def client(at: Door) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(
        base_url=at.url, api_key="any", max_retries=0, timeout=WAIT_S
    ) as opened:
        yield opened


async def streamed(client: anthropic.AsyncAnthropic, *messages: Any, **more: Any) -> list[Any]:
    """Return the blocks of an answer as the official SDK puts them together."""
    async with client.messages.stream(**asked(*messages, **more)) as stream:
        answer = await stream.get_final_message()
    return [shape(block) for block in answer.content]


async def whole(client: anthropic.AsyncAnthropic, *messages: Any) -> list[Any]:
    answer = await client.messages.create(**asked(*messages))
    return [shape(block) for block in answer.content]


def asked(*messages: Any, **more: Any) -> Any:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    request = {"model": MODEL, "max_tokens": 4096, "tools": [TOOL], "thinking": thinking}
    return {**request, "messages": list(messages), **more}


def shape(block: Any) -> Any:
    kept = {"type", "text", "thinking", "signature", "data", "id", "name", "input"}
    fields = json.loads(block.to_json())
    return {name: value for name, value in fields.items() if name in kept and value is not None}


@pytest.mark.parametrize("ask", [streamed, whole])
async def test_a_step_comes_with_its_thinking_first_and_may_be_sent_back(
    client: anthropic.AsyncAnthropic, provider: ScriptedProvider, ask: Ask
) -> None:
    provider.scripts = [STEP, [said.start(), said.text(0, "Sun."), said.end("end_turn")]]
    content = await ask(client, HI)
    assert content == [THOUGHT, SAID, ASKED]
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sun"}
    answering = {"role": "user", "content": [result]}
    assert await ask(client, HI, {"role": "assistant", "content": content}, answering) == [
        {"type": "text", "text": "Sun."}
    ]
    assert provider.messages()[1]["content"] == [THOUGHT, SAID, ASKED]


async def test_thinking_that_leads_to_a_call_without_a_word_comes_before_it(
    client: anthropic.AsyncAnthropic, provider: ScriptedProvider
) -> None:
    step = [STEP[0], STEP[1], said.call(1, "toolu_1", "weather", '{"city": "Rome"}'), STEP[4]]
    provider.scripts = [step]
    assert await streamed(client, HI) == [THOUGHT, ASKED]


async def test_thoughts_between_words_keep_their_places_and_hidden_ones_their_bytes(
    client: anthropic.AsyncAnthropic, provider: ScriptedProvider
) -> None:
    hidden = {"type": "redacted_thinking", "data": "c2VjcmV0"}
    step = [
        said.start(),
        said.block(0, hidden),
        said.thinking(1, "One."),
        said.text(2, "First."),
        said.thinking(3, "Two."),
        said.thinking(4, "Three."),
        said.call(5, "toolu_1", "weather", '{"city": "Rome"}'),
        said.end("tool_use"),
    ]
    provider.scripts = [step]
    one, two, three = ({**THOUGHT, "thinking": word} for word in ("One.", "Two.", "Three."))
    expected = [hidden, one, {"type": "text", "text": "First."}, two, three, ASKED]
    assert await streamed(client, HI) == expected


async def test_a_repetition_is_told_the_same_blocks_in_the_same_order(
    client: anthropic.AsyncAnthropic, provider: ScriptedProvider
) -> None:
    provider.scripts = [STEP]
    key = {"idempotency-key": "k1"}
    first = await streamed(client, HI, extra_headers=key)
    assert await streamed(client, HI, extra_headers=key) == first == [THOUGHT, SAID, ASKED]
    assert len(provider.requests) == 1


async def test_thinking_without_a_signature_is_told_to_nobody(
    client: anthropic.AsyncAnthropic, provider: ScriptedProvider
) -> None:
    provider.scripts = [
        [
            said.start(),
            said.thinking(0, "Hm.", signature=""),
            said.text(1, "Yes."),
            said.end("end_turn"),
        ]
    ]
    assert await streamed(client, HI) == [{"type": "text", "text": "Yes."}]
