"""A client's Chat Completions request as our graph, with the place of everything in it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from antiphon.adapters import registry
from antiphon.adapters.base import Parsed, render
from antiphon.core.blocks import (
    Audio,
    File,
    Image,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Trust,
    Unknown,
)
from antiphon.core.manifest import Policy
from antiphon.core.rules.findings import Finding, ordered
from antiphon.core.rules.graph import check
from antiphon.core.rules.profile import with_facts
from antiphon.errors import InvalidInput
from tests.adapters.test_openai_chat_judged import histories
from tests.golden import requests as golden
from tests.support.lines import KEY, PNG

CASES = dict(golden.cases())
CHAT = registry.get("openai-chat")


def parsed(*messages: Any, **fields: Any) -> Parsed:
    return CHAT.parse({"model": "m", "messages": list(messages), **fields})


def judged(*messages: Any) -> list[tuple[str, str]]:
    """Codes and places, as somebody who wrote the request would be told them."""
    made = parsed(*messages)
    found: tuple[Finding, ...] = check(made.messages, CHAT.profile, mapped=False)
    return [(f.code, f.at) for f in (*made.findings, *made.located(found))]


ASKS = {
    "role": "assistant",
    "content": "Look:",
    "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"x" : 1}'}},
        {"id": "b", "type": "function", "function": {"name": "look", "arguments": "{}"}},
    ],
}


@pytest.mark.req("M13", "M30", "M31")
def test_every_field_that_the_wire_has_finds_its_block() -> None:
    made = parsed(
        {"role": "system", "content": "Be brief.", "name": "op"},
        {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "this"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
                {"type": "image_url", "image_url": {"url": "https://e.test/a", "detail": "high"}},
                {"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}},
                {
                    "type": "file",
                    "file": {"file_data": "data:text/csv;base64,YSxi", "filename": "a"},
                },
                {"type": "file", "file": {"file_id": "file-1"}},
            ],
        },
        {**ASKS, "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "2"}]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "assistant", "content": None, "refusal": "No."},
    )
    assert [m.role for m in made.messages] == [
        Role.SYSTEM,
        Role.DEVELOPER,
        Role.USER,
        Role.ASSISTANT,
        Role.TOOL,
        Role.TOOL,
        Role.ASSISTANT,
    ]
    assert made.messages[0].name == "op"
    assert made.messages[2].blocks == (
        Text(text="this"),
        Image(media_type="image/png", data=PNG),
        Image(url="https://e.test/a", detail="high"),
        Audio(data="UklG", format="wav"),
        File(filename="a", media_type="text/csv", data="YSxi"),
        File(file_id="file-1"),
    )
    reasoning, text, first, second = made.messages[3].blocks
    assert (reasoning, text) == (Reasoning(text="hm"), Text(text="Look:"))
    assert isinstance(first, ToolCall)
    assert (first.call_id, first.name, first.arguments) == ("a", "look", '{"x" : 1}')
    assert isinstance(second, ToolCall)
    assert made.messages[4].blocks == (
        ToolResult(call_id=second.call_id, content=(Text(text="2"),)),
    )
    assert made.messages[6].blocks == (Refusal(text="No."),)
    assert made.findings == ()
    assert made.uncarried == ()


@pytest.mark.req("M21", "M22")
def test_whoever_brings_an_assistant_message_vouches_for_it_not_the_model() -> None:
    made = parsed(
        {"role": "user", "content": "x"},
        ASKS,
        {"role": "tool", "tool_call_id": "a", "content": "1"},
    )
    assert [m.trust for m in made.messages] == [Trust.USER, Trust.USER, Trust.TOOL]


@pytest.mark.parametrize(
    ("message", "code", "at"),
    [
        ("hi", "malformed_item", "messages[1]"),
        ({"content": "x"}, "malformed_item", "messages[1]"),
        ({"role": "robot", "content": "x"}, "role_unsupported", "messages[1]"),
        ({"role": "user"}, "malformed_item", "messages[1]"),
        ({"role": "user", "content": None}, "malformed_item", "messages[1]"),
        ({"role": "user", "content": 5}, "malformed_item", "messages[1].content"),
        ({"role": "user", "content": []}, "empty_content", "messages[1]"),
        ({"role": "user", "content": ["x"]}, "malformed_item", "messages[1].content[0]"),
        ({"role": "user", "content": [{"text": "x"}]}, "malformed_item", "messages[1].content[0]"),
        (
            {"role": "user", "content": [{"type": "text"}]},
            "malformed_item",
            "messages[1].content[0]",
        ),
        (
            {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "hologram"}]},
            "unknown_block_kind",
            "messages[1].content[1]",
        ),
        (
            {"role": "user", "content": "x", "tool_calls": ASKS["tool_calls"]},
            "malformed_item",
            "messages[1].tool_calls",
        ),
        (
            {"role": "assistant", "content": None, "tool_calls": []},
            "malformed_item",
            "messages[1].tool_calls",
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f"}}]},
            "malformed_item",
            "messages[1].tool_calls[0]",
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {}}}]},
            "malformed_item",
            "messages[1].tool_calls[0].function.arguments",
        ),
        ({"role": "assistant", "content": None}, "empty_content", "messages[1]"),
        ({"role": "tool", "content": "x"}, "malformed_item", "messages[1]"),
        ({"role": "tool", "tool_call_id": "", "content": "x"}, "malformed_item", "messages[1]"),
        ({"role": "tool", "tool_call_id": "a"}, "malformed_item", "messages[1].content"),
        ({"role": "tool", "tool_call_id": "a", "content": "x"}, "orphan_tool_result", "messages[1]"),
        (
            {"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "u"}}]},
            "block_not_allowed",
            "messages[1].content[0]",
        ),
        ({"role": "user", "content": "x", "name": 5}, "malformed_item", "messages[1].name"),
    ],
)  # fmt: skip
@pytest.mark.req("M18", "M23", "M38", "M49")
def test_what_is_wrong_with_a_message_is_found_at_its_place(
    message: Any, code: str, at: str
) -> None:
    first = {"role": "user", "content": "hi"}
    assert judged(first, message) == [(code, at)]
    assert judged(first, message, first) == [(code, at)]


@pytest.mark.parametrize(
    ("content", "code", "at"),
    [
        ([], "empty_content", "messages[2].content"),
        (None, "malformed_item", "messages[2].content"),
        ([{"type": "video"}], "malformed_item", "messages[2].content[0]"),
    ],
)
def test_a_result_that_cannot_be_read_is_wrong_and_not_missing(
    content: Any, code: str, at: str
) -> None:
    result = {"role": "tool", "tool_call_id": "a", "content": content}
    other = {"role": "tool", "tool_call_id": "b", "content": "1"}
    assert judged({"role": "user", "content": "hi"}, ASKS, result, other) == [(code, at)]


def test_what_is_no_message_is_found_in_its_turn_among_the_others() -> None:
    orphan = {"role": "tool", "tool_call_id": "a", "content": "1"}
    two = {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "odd"}]}
    request = {"messages": [{"role": "user", "content": "x"}, two, 5, {**orphan}, "hi"]}
    made = CHAT.parse(request)
    found = ordered([*made.findings, *check(made.messages, CHAT.profile, mapped=False)])
    assert [made.places.get(f.at, f.at) for f in found] == [
        "messages[1].content[1]",
        "messages[2]",
        "messages[3]",
        "messages[4]",
    ]


def test_every_call_and_part_is_found_at_its_own_place() -> None:
    bad = {"id": "a", "type": "function", "function": {"name": "x.y", "arguments": '{"'}}
    found = judged({"role": "assistant", "content": "x", "tool_calls": [bad, bad]})
    assert sorted(found) == [
        ("bad_tool_name", "messages[0].tool_calls[0]"),
        ("bad_tool_name", "messages[0].tool_calls[1]"),
        ("duplicate_call_id", "messages[0].tool_calls[1]"),
        ("missing_tool_result", "messages[0].tool_calls[0]"),
        ("unclosed_arguments", "messages[0].tool_calls[0]"),
        ("unclosed_arguments", "messages[0].tool_calls[1]"),
    ]
    assert [at for _, at in found[-3:]] == ["messages[0].tool_calls[1]"] * 3


def test_what_the_wire_allows_and_our_graph_cannot_carry_is_named_and_not_refused() -> None:
    made = parsed(
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "audio": {"id": "audio_1"}},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "1"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "f", "input": "a b"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        tools=[{"type": "custom", "custom": {"name": "f"}}],
    )
    assert made.findings == ()
    assert check(made.messages, CHAT.profile, mapped=False) == ()
    assert set(made.uncarried) == {
        "messages[1].audio",
        "messages[2].function_call",
        "messages[3]",
        "messages[4].tool_calls[0]",
        "tools[0]",
    }


@pytest.mark.req("M12")
def test_options_become_the_policy_and_the_rest_is_passed_on() -> None:
    made = parsed(
        stream=True,
        max_tokens=7,
        temperature=0.25,
        tool_choice={"type": "function", "function": {"name": "look"}},
        parallel_tool_calls=False,
        top_p=0.5,
        user="ada",
        seed=None,
    )
    assert made.policy == Policy(
        model="m",
        max_output_tokens=7,
        temperature=0.25,
        tool_choice="tool:look",
        parallel_tool_calls=False,
        stream=True,
        extra=made.policy.extra,
    )
    assert {name: json.loads(bytes(raw)) for name, raw in made.policy.extra.items()} == {
        "top_p": 0.5,
        "user": "ada",
    }
    assert parsed(max_completion_tokens=9, max_tokens=7).policy.max_output_tokens == 9
    other = parsed(tool_choice={"type": "allowed_tools"})
    assert json.loads(bytes(other.policy.extra["tool_choice"])) == {"type": "allowed_tools"}


@pytest.mark.parametrize(
    ("request_", "at"),
    [
        ({}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": [], "model": 5}, "model"),
        ({"messages": [], "max_tokens": "5"}, "max_tokens"),
        ({"messages": [], "max_tokens": True}, "max_tokens"),
        ({"messages": [], "temperature": False}, "temperature"),
        ({"messages": [], "tools": {}}, "tools"),
        ({"messages": [], "tools": [{"type": "function"}]}, "tools[0]"),
        ({"messages": [], "stream": "yes"}, "stream"),
    ],
)
def test_what_is_no_chat_request_at_all_is_unreadable(request_: dict[str, Any], at: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        CHAT.parse(request_)
    assert (caught.value.code, caught.value.at) == ("wrong_shape", at)
    assert caught.value.exit_code == 2


@pytest.mark.req("M2")
@given(histories())
def test_what_was_rendered_is_read_back_to_the_same_bytes(history: Any) -> None:
    """Rendering maps; what it has mapped once it finds as it wants it."""
    policy = Policy(model="m", stream=False)
    body = render(CHAT, history, policy, key=KEY).request.body
    again = CHAT.parse(json.loads(body))
    assert again.findings == ()
    assert [f.code for f in check(again.messages, CHAT.profile, mapped=False)] == []
    assert render(CHAT, again.messages, policy, key=KEY).request.body == body


@pytest.mark.parametrize("name", CASES)
def test_every_golden_body_is_a_request_that_lint_accepts(name: str) -> None:
    case, recorded = golden.load(CASES[name])
    made = case.adapter.parse(json.loads(recorded))
    assert made.findings == ()
    if "reasoning_echo" not in case.policy.facts:
        found = check(
            made.messages,
            with_facts(case.adapter.profile, made.facts),
            mapped=False,
            tools=made.tools,
        )
        assert found == ()


def test_an_unknown_part_is_kept_as_it_was() -> None:
    (message,) = parsed({"role": "user", "content": [{"type": "hologram", "x": 1}]}).messages
    (block,) = message.blocks
    assert isinstance(block, Unknown)
    assert (block.name, json.loads(bytes(block.value))) == (
        "hologram",
        {"type": "hologram", "x": 1},
    )
