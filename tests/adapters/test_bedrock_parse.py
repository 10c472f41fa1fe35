"""A client's Converse request as our graph: every block with its place."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from antiphon.adapters import registry
from antiphon.adapters.base import Parsed, render
from antiphon.core.blocks import (
    Audio,
    Block,
    File,
    Image,
    Opaque,
    Outcome,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Trust,
    Unknown,
    encode_blocks,
)
from antiphon.core.rules.graph import check
from antiphon.errors import InvalidInput
from tests.golden import requests as golden
from tests.support.lines import KEY, PNG

BEDROCK = registry.get("bedrock")
CASES = {name: path for name, path in golden.cases() if name.startswith("bedrock/")}
X: dict[str, Any] = {"role": "user", "content": [{"text": "x"}]}


def parsed(*messages: Any, **fields: Any) -> Parsed:
    return BEDROCK.parse({"messages": list(messages), **fields})


def blocks(*content: Any, role: str = "user") -> list[Block]:
    made = parsed({"role": role, "content": list(content)})
    assert made.findings == ()
    return [block for message in made.messages for block in message.blocks]


@pytest.mark.req("M2", "M20")
@pytest.mark.parametrize("name", CASES)
def test_a_request_of_ours_is_read_back_and_rendered_to_the_same_bytes(name: str) -> None:
    case, recorded = golden.load(CASES[name])
    made = BEDROCK.parse({"modelId": case.policy.model, **json.loads(recorded)})
    assert (made.findings, made.uncarried) == ((), ())
    again = render(BEDROCK, made.messages, made.policy, made.tools, key=KEY)
    assert json.loads(again.request.body) == json.loads(recorded)


def test_a_message_with_results_is_a_message_of_results_and_one_of_the_rest() -> None:
    result = {"toolResult": {"toolUseId": "t", "content": [{"text": "1"}]}}
    made = parsed(X, {"role": "user", "content": [result, result, {"text": "so"}]})
    assert [m.role for m in made.messages] == [Role.USER, Role.TOOL, Role.USER]
    assert [len(m.blocks) for m in made.messages] == [1, 2, 1]
    assert [m.trust for m in made.messages] == [Trust.USER, Trust.TOOL, Trust.USER]
    places = [made.places[f"{m.id}.{n}"] for m in made.messages for n, _ in enumerate(m.blocks)]
    assert places == ["messages[0].content[0]", *(f"messages[1].content[{n}]" for n in range(3))]


def test_a_finding_has_the_place_of_its_block() -> None:
    orphan = {"toolResult": {"toolUseId": "t", "content": [{"text": "1"}]}}
    made = parsed({"role": "user", "content": [{"text": "so"}, orphan]})
    found = made.located(check(made.messages, BEDROCK.profile, mapped=False))
    assert [(f.code, f.at) for f in found] == [("orphan_tool_result", "messages[0].content[1]")]


@pytest.mark.parametrize(
    ("block", "role", "expected"),
    [
        ({"text": "a"}, "user", Text(text="a")),
        ({"image": {"format": "webp", "source": {"bytes": PNG}}}, "user", Image(media_type="image/webp", data=PNG)),
        ({"document": {"format": "md", "name": "a b", "source": {"bytes": "YQ=="}}}, "user", File(media_type="text/markdown", filename="a b", data="YQ==")),
        ({"document": {"name": "a", "source": {"text": "hello"}}}, "user", File(media_type="text/plain", filename="a", data="aGVsbG8=")),
        ({"toolUse": {"toolUseId": "t", "name": "f", "input": {"n": 12345678901234567890}}}, "assistant", ToolCall(call_id="t", name="f", arguments='{"n":12345678901234567890}')),  # type: ignore[arg-type]  # ids are strings
        ({"toolResult": {"toolUseId": "t", "content": [{"json": {"a": [1]}}, {"text": "x"}], "status": "error"}}, "user", ToolResult(call_id="t", content=(Text(text='{"a":[1]}'), Text(text="x")), outcome=Outcome.ERROR)),  # type: ignore[arg-type]  # ids are strings
        ({"reasoningContent": {"reasoningText": {"text": "t"}}}, "assistant", Reasoning(text="t")),
        ({"hologram": {"a": 1}}, "user", Unknown(name="hologram", value=msgspec.Raw(b'{"a":1}'))),
    ],
)  # fmt: skip
def test_a_block_is_read_as_what_it_is(block: Any, role: str, expected: Block) -> None:
    assert encode_blocks(tuple(blocks(block, role=role))) == encode_blocks((expected,))


def test_state_is_kept_as_it_came() -> None:
    signed = {"reasoningContent": {"reasoningText": {"text": "t", "signature": "E"}}}
    hidden = {"reasoningContent": {"redactedContent": "eA=="}}
    work = {"toolUse": {"toolUseId": "s", "name": "w", "input": {}, "type": "server_tool_use"}}
    found = {"toolResult": {"toolUseId": "s", "content": [], "type": "server_tool_use"}}
    kept = [
        (b.text, json.loads(bytes(b.opaque.value)), b.opaque.work)
        for b in blocks(signed, hidden, work, found, role="assistant")
        if isinstance(b, Reasoning) and isinstance(b.opaque, Opaque)
    ]
    assert kept == [
        ("t", {"reasoningText": {"signature": "E"}}, False),
        ("", {"redactedContent": "eA=="}, False),
        ("", work, True),
        ("", found, True),
    ]


def test_recorded_sound_is_read_as_it_is() -> None:
    block = {"audio": {"format": "mp3", "source": {"bytes": "SUQz"}}}
    assert blocks({"text": "a"}, block) == [Text(text="a"), Audio(format="mp3", data="SUQz")]


def test_a_mark_for_the_cache_says_nothing() -> None:
    mark = {"cachePoint": {"type": "default"}}
    assert blocks({"text": "a"}, mark) == [Text(text="a")]
    made = parsed(X, system=[{"text": "s"}, mark])
    assert [m.text for m in made.messages] == ["s", "x"]


@pytest.mark.parametrize(
    "block",
    [
        {"video": {"format": "mp4", "source": {}}},
        {"audio": {"format": "mp3", "source": {}}},
        {"guardContent": {"text": {"text": "x"}}},
        {"searchResult": {"source": "s", "title": "t", "content": []}},
        {"image": {"format": "png", "source": {"s3Location": {"uri": "s3://b/k"}}}},
        {"document": {"format": "pdf", "name": "a", "source": {"s3Location": {"uri": "s3://b/k"}}}},
    ],
)
def test_what_is_legal_there_and_not_ours_to_send_is_said_and_not_refused(
    block: dict[str, Any],
) -> None:
    made = parsed({"role": "user", "content": [{"text": "so"}, block]})
    assert made.uncarried == ("messages[0].content[1]",)
    assert made.findings == ()
    assert check(made.messages, BEDROCK.profile, mapped=False) == ()


@pytest.mark.parametrize(
    ("message", "at"),
    [
        (5, "messages[0]"),
        ({"role": "user", "content": "x"}, "messages[0].content"),
        ({"role": "user", "content": ["x"]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{}]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"text": 5}]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"image": {"format": "png"}}]}, "messages[0].content[0]"),
        ({"role": "assistant", "content": [{"toolUse": {"toolUseId": "t", "name": "f"}}]}, "messages[0].content[0]"),
        ({"role": "assistant", "content": [{"toolUse": {"toolUseId": "t", "name": "f", "input": "{}"}}]}, "messages[0].content[0].toolUse.input"),
        ({"role": "user", "content": [{"toolResult": {"toolUseId": "", "content": []}}]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"toolResult": {"toolUseId": "t", "content": ["x"]}}]}, "messages[0].content[0].toolResult.content[0]"),
        ({"role": "user", "content": [{"toolResult": {"toolUseId": "t", "content": [{"toolUse": {"toolUseId": "t", "name": "f", "input": {}}}]}}]}, "messages[0].content[0].toolResult.content[0]"),
    ],
)  # fmt: skip
def test_what_is_no_message_is_one_finding_at_its_place(message: Any, at: str) -> None:
    made = parsed(message, X)
    assert [(f.code, f.at) for f in made.findings] == [("malformed_item", at)]
    assert len(made.messages) == 1  # and the next one is read all the same


@pytest.mark.parametrize(
    ("fields", "at"),
    [
        ({"messages": {}}, "messages"),
        ({"system": "be brief"}, "system"),
        ({"toolConfig": []}, "toolConfig"),
        ({"toolConfig": {"tools": []}}, "toolConfig.tools"),
        ({"toolConfig": {"tools": [{"name": "f"}]}}, "toolConfig.tools[0]"),
        ({"toolConfig": {"toolChoice": {"none": {}}}}, "toolConfig.toolChoice"),
        ({"inferenceConfig": {"maxTokens": "9"}}, "inferenceConfig.maxTokens"),
        ({"inferenceConfig": {"maxTokens": True}}, "inferenceConfig.maxTokens"),
        ({"inferenceConfig": {"temperature": "warm"}}, "inferenceConfig.temperature"),
        ({"modelId": 5}, "modelId"),
    ],
)
def test_a_request_of_another_shape_is_refused_as_a_whole(fields: dict[str, Any], at: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        BEDROCK.parse({"messages": [X], **fields})
    assert (caught.value.code, caught.value.at) == ("wrong_shape", at)


def test_options_have_settings_of_ours_or_are_passed_on() -> None:
    spec = {"name": "f", "description": "d", "inputSchema": {"json": {"type": "object"}}}
    made = parsed(
        X,
        modelId="m",
        inferenceConfig={"maxTokens": 9, "temperature": 1, "topP": 0.5},
        toolConfig={"tools": [{"toolSpec": spec}, {"cachePoint": {"type": "default"}}], "toolChoice": {"any": {}}},
        guardrailConfig={"guardrailIdentifier": "g"},
    )  # fmt: skip
    policy = made.policy
    assert (policy.model, policy.max_output_tokens, policy.temperature) == ("m", 9, 1)
    assert policy.tool_choice == "required"
    assert {n: json.loads(bytes(v)) for n, v in policy.extra.items()} == {
        "guardrailConfig": {"guardrailIdentifier": "g"},
        "inferenceConfig": {"topP": 0.5},
    }
    assert [(t.name, t.description) for t in made.tools] == [("f", "d")]


def test_thinking_on_a_budget_is_a_fact_of_the_request() -> None:
    fields = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    made = parsed(X, additionalModelRequestFields=fields)
    assert made.facts == {"prefill": "unsupported", "thinking": "required"}
    assert parsed(X, additionalModelRequestFields={"top_k": 5}).facts == {}


# What was kept of earlier answers.

THOUGHT = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "Eq=="}}}
HIDDEN = {"reasoningContent": {"redactedContent": "eA=="}}
CALL = {"toolUse": {"toolUseId": "t1", "name": "f", "input": {}}}
RESULT = {
    "role": "user",
    "content": [{"toolResult": {"toolUseId": "t1", "content": [{"text": "1"}]}}],
}
KEPT = [THOUGHT, HIDDEN, CALL]


@pytest.mark.parametrize(
    "stored",
    [
        {"committed_blocks": KEPT},
        {"committed_blocks": {"messages[1]": KEPT}},
        {"committed_blocks": [{"role": "assistant", "content": KEPT}]},
        {"stored_provider_state": {"messages[1].content[0]": {"signature": "Eq=="}}},
    ],
)
def test_reasoning_goes_back_whole_and_as_it_came(stored: dict[str, Any]) -> None:
    def codes(*content: Any) -> list[tuple[str, str]]:
        made = parsed(X, {"role": "assistant", "content": list(content)}, RESULT)
        return [(f.code, f.at) for f in BEDROCK.compare(made, stored)]

    forged = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "other"}}}
    assert codes(THOUGHT, HIDDEN, CALL) == []
    assert codes(forged, HIDDEN, CALL) == [("thinking_modified", "messages[1].content[0]")]
    if "committed_blocks" in stored:
        assert codes(CALL) == [("thinking_missing", "messages[1]")]
        assert codes(THOUGHT, CALL) == [("thinking_missing", "messages[1]")]
