"""A client's Responses request as our graph, and what of its items belongs together."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from antiphon.adapters import registry
from antiphon.core.blocks import (
    File,
    Image,
    Opaque,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Trust,
)
from antiphon.core.ids import CallId
from antiphon.core.rules.graph import check
from antiphon.errors import InvalidInput

RESPONSES = registry.get("openai-responses")
X = {"role": "user", "content": "x"}
CALL: dict[str, Any] = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
DONE: dict[str, Any] = {"type": "function_call_output", "call_id": "c1", "output": "1"}
RS: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
SAID: dict[str, Any] = {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": [{"type": "output_text", "text": "so", "annotations": []}]}  # fmt: skip


def parsed(*items: dict[str, Any], **fields: Any) -> Any:
    return RESPONSES.parse({"model": "gpt-6-astra", "input": list(items), **fields})


def state(value: dict[str, Any], *, work: bool = False) -> Opaque:
    raw = msgspec.Raw(msgspec.json.encode(value))
    return Opaque(profile="openai-responses", value=raw, work=work)


# What is read.


def test_items_of_the_model_that_stand_together_are_one_message() -> None:
    made = parsed(X, RS, {**SAID, "phase": "commentary"}, {**CALL, "id": "fc_1"}, DONE, SAID, X)
    assert [(m.role, m.id, m.parent) for m in made.messages] == [
        (Role.USER, "input[0]", None),
        (Role.ASSISTANT, "input[1]", "input[0]"),
        (Role.TOOL, "input[4]", "input[1]"),
        (Role.ASSISTANT, "input[5]", "input[4]"),
        (Role.USER, "input[6]", "input[5]"),
    ]
    assert made.messages[1].blocks == (
        Reasoning(opaque=state(RS)),
        Text(text="so", opaque=state({"id": "msg_1", "phase": "commentary"})),
        ToolCall(call_id=CallId("c1"), name="f", arguments="{}", opaque=state({"id": "fc_1"})),
    )
    assert made.messages[2].blocks == (ToolResult(call_id=CallId("c1"), content=(Text(text="1"),)),)
    assert [m.trust for m in made.messages] == [Trust.USER, Trust.USER, Trust.TOOL, Trust.USER, Trust.USER]  # fmt: skip
    assert (made.findings, made.uncarried) == ((), ())


def test_text_alone_is_what_a_user_says_and_instructions_stand_before_it() -> None:
    made = RESPONSES.parse({"input": "hi", "instructions": "Be brief."})
    assert [(m.id, m.role, m.text) for m in made.messages] == [
        ("instructions", Role.SYSTEM, "Be brief."),
        ("input", Role.USER, "hi"),
    ]


def test_parts_of_every_kind_are_read() -> None:
    data = "data:application/pdf;base64,JVBERi0="
    parts = [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"},
        {"type": "input_image", "image_url": "https://e.test/a.png"},
        {"type": "input_file", "file_id": "file-1"},
        {"type": "input_file", "file_data": data, "filename": "a.pdf"},
    ]
    wanted = (
        Text(text="see"),
        Image(media_type="image/png", data="AA==", detail="low"),
        Image(url="https://e.test/a.png"),
        File(file_id="file-1"),
        File(media_type="application/pdf", data="JVBERi0=", filename="a.pdf"),
    )
    made = parsed({"role": "user", "content": parts}, CALL, {**DONE, "output": parts})
    assert made.messages[0].blocks == wanted
    assert made.messages[2].results[0].content == wanted
    refused = parsed(X, {**SAID, "content": [{"type": "refusal", "refusal": "no"}]})
    assert refused.messages[1].blocks == (Refusal(text="no"),)


def test_options_and_tools_are_read() -> None:
    tool = {"type": "function", "name": "f", "description": "F.", "parameters": {"type": "object"}, "strict": False}  # fmt: skip
    made = parsed(
        X,
        tools=[tool, {"type": "web_search"}],
        tool_choice={"type": "function", "name": "f"},
        parallel_tool_calls=False,
        max_output_tokens=9,
        temperature=1,
        stream=True,
        store=True,
        truncation="disabled",
        include=["reasoning.encrypted_content", "message.output_text.logprobs"],
        reasoning={"effort": "low"},
    )
    policy = made.policy
    assert (policy.model, policy.tool_choice, policy.parallel_tool_calls) == ("gpt-6-astra", "tool:f", False)  # fmt: skip
    assert (policy.max_output_tokens, policy.temperature, policy.stream) == (9, 1, True)
    assert {k: json.loads(bytes(v)) for k, v in policy.extra.items()} == {
        "include": ["message.output_text.logprobs"],
        "reasoning": {"effort": "low"},
        "store": True,
    }
    assert [(t.name, t.description, t.strict) for t in made.tools] == [("f", "F.", False)]
    assert made.uncarried == ("tools[1]",)


# What the provider keeps.


def test_what_is_only_named_is_legal_and_not_ours_to_carry() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"previous_response_id": "resp_1", "input": [DONE]}, "previous_response_id"),
        ({"conversation": "conv_1", "input": [DONE, X]}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"input": [{"id": "fc_1"}, DONE]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}, "input[0].content[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "u"}]}]}, "input[0].content[0]"),
        ({"input": [X, {"type": "custom_tool_call", "call_id": "c", "name": "n", "input": "i"}, {"type": "custom_tool_call_output", "call_id": "c", "output": "o"}]}, "input[1]"),
        ({"input": [X, {"type": "compaction_trigger"}]}, "input[1]"),
    ]  # fmt: skip
    for request, place in cases:
        made = RESPONSES.parse(request)
        found = check(made.messages, RESPONSES.profile, mapped=False, tools=made.tools)
        assert (made.findings, found) == ((), ()), request
        assert made.uncarried[:1] == (place,)


def test_an_output_is_an_orphan_only_where_its_call_could_be_nowhere_else() -> None:
    found = check(parsed(X, DONE).messages, RESPONSES.profile, mapped=False)
    assert [f.code for f in found] == ["orphan_tool_result"]


def test_both_handles_at_once_are_refused() -> None:
    made = RESPONSES.parse({"previous_response_id": "r", "conversation": "c", "input": "x"})
    assert [(f.code, f.at) for f in made.findings] == [("malformed_item", "previous_response_id")]


# What cannot be read.


@pytest.mark.parametrize(
    ("item", "code", "at"),
    [
        (7, "malformed_item", "input[1]"),
        ({}, "malformed_item", "input[1]"),
        ({"type": 7}, "malformed_item", "input[1]"),
        ({"role": "tool", "content": "x"}, "role_unsupported", "input[1]"),
        ({"role": "user"}, "malformed_item", "input[1].content"),
        ({"role": "user", "content": [7]}, "malformed_item", "input[1].content[0]"),
        ({"role": "user", "content": [{}]}, "malformed_item", "input[1].content[0]"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "malformed_item", "input[1].content[0]"),
        ({"role": "user", "content": [{"type": "output_text", "text": "x"}]}, "block_not_allowed", "input[1].content[0]"),
        ({"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}, "block_not_allowed", "input[1].content[0]"),
        ({**CALL, "arguments": {}}, "malformed_item", "input[1].arguments"),
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "malformed_item", "input[1]"),
        ({"type": "reasoning", "id": "rs_1"}, "malformed_item", "input[1]"),
        ({"type": "shell_call"}, "malformed_item", "input[1]"),
        ({"type": "additional_tools", "role": "user", "tools": []}, "role_unsupported", "input[1]"),
    ],
)  # fmt: skip
def test_what_is_no_item_is_told_at_its_place(item: Any, code: str, at: str) -> None:
    made = parsed(X, item, X)
    assert [(f.code, f.at) for f in made.findings] == [(code, at)]
    assert len(made.messages) >= 2  # the others are still judged


def test_a_trigger_that_something_follows_is_out_of_order() -> None:
    made = parsed(X, {"type": "compaction_trigger"}, X)
    assert [(f.code, f.at) for f in made.findings] == [("item_order", "input[1]")]


def test_an_output_that_cannot_be_read_is_wrong_and_not_missing() -> None:
    made = parsed(X, CALL, {**DONE, "output": 7})
    assert [(f.code, f.at) for f in made.findings] == [("malformed_item", "input[2].output")]
    assert check(made.messages, RESPONSES.profile, mapped=False) == ()


def test_an_item_of_a_kind_that_nobody_knows_is_said_to_be_one() -> None:
    found = check(parsed(X, {"type": "dream"}, X).messages, RESPONSES.profile, mapped=False)
    assert [f.code for f in found] == ["unknown_block_kind"]


@pytest.mark.parametrize(
    ("fields", "at"),
    [
        ({"input": 7}, "input"),
        ({"instructions": 7}, "instructions"),
        ({"stream": "yes"}, "stream"),
        ({"max_output_tokens": True}, "max_output_tokens"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools[0]"),
        ({"tools": [7]}, "tools[0]"),
    ],
)
def test_what_is_no_request_at_all_is_refused_as_such(fields: dict[str, Any], at: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        RESPONSES.parse({"input": "x", **fields})
    assert (caught.value.code, caught.value.at) == ("wrong_shape", at)


def test_an_open_call_is_pointed_at_where_it_stands() -> None:
    items = (X, SAID, CALL, {**CALL, "call_id": "c2"}, DONE)
    made = parsed(*items)
    found = made.located(check(made.messages, RESPONSES.profile, mapped=False))
    assert [(f.code, f.at, f.call_ids) for f in found] == [("missing_tool_result", "input[3]", ("c2",))]  # fmt: skip


# What belongs together.


def torn(*items: dict[str, Any], stored: Any = None, **fields: Any) -> list[tuple[str, str]]:
    made = parsed(*items, **fields)
    kept = {} if stored is None else {"stored_output_items": stored}
    return [(f.code, f.at) for f in RESPONSES.compare(made, kept)]


FC = {**CALL, "id": "fc_1"}


@pytest.mark.parametrize(
    "stored",
    [
        {"resp_1": ["rs_1", "msg_1"]},
        ["rs_1", "msg_1"],
        {"resp_1": [RS, SAID]},
        {"resp_1": {"id": "resp_1", "output": [RS, SAID]}},
    ],
)
def test_an_item_goes_under_its_name_only_with_the_reasoning_that_led_to_it(stored: Any) -> None:
    assert torn(X, SAID, X, stored=stored) == [("reasoning_unpaired", "input[1]")]
    assert torn(X, RS, SAID, X, stored=stored) == []
    nameless = {k: v for k, v in SAID.items() if k != "id"}
    assert torn(X, nameless, X, stored=stored) == []


def test_every_item_that_one_reasoning_led_to_needs_it() -> None:
    stored = {"resp_1": ["msg_0", "rs_1", "fc_1", "fc_2"]}
    second = {**CALL, "id": "fc_2", "call_id": "c2"}
    found = torn(X, {**SAID, "id": "msg_0"}, FC, second, stored=stored)
    assert found == [("reasoning_unpaired", "input[2]"), ("reasoning_unpaired", "input[3]")]


def test_reasoning_is_followed_by_what_it_led_to() -> None:
    assert torn(X, RS, X) == [("reasoning_unpaired", "input[1]")]
    assert torn(X, RS) == [("reasoning_unpaired", "input[1]")]
    assert torn(X, RS, CALL, DONE) == []


def test_a_call_that_is_stored_is_known_to_have_been_reasoned_about() -> None:
    assert torn(X, FC, DONE, store=True) == [("reasoning_unpaired", "input[1]")]
    assert torn(X, RS, FC, DONE, store=True) == []
    assert torn(X, CALL, DONE, store=True) == []
    assert torn(X, FC, DONE, store=True, stored={"resp_1": ["fc_1"]}) == []
    assert torn(X, FC, DONE) == []
    assert torn(X, FC, DONE, store=True, model="gpt-4.1") == []


def test_stored_items_keep_their_order_and_their_seals() -> None:
    stored = {"resp_1": [RS, SAID, FC]}
    assert torn(X, RS, FC, SAID, DONE, stored=stored) == [("item_order", "input[2]")]
    other = {**RS, "encrypted_content": "gBBB"}
    assert torn(X, other, SAID, stored=stored) == [("thinking_modified", "input[1]")]


def test_nothing_is_named_that_is_not_kept() -> None:
    empty = {**RS, "encrypted_content": None}
    plain = {**empty, "content": [{"type": "reasoning_text", "text": "hm"}]}
    assert torn(X, empty, SAID, store=False) == [("lost_reasoning", "input[1]")]
    assert torn(X, empty, SAID, store=True) == []
    assert torn(X, plain, SAID, store=False) == []
    named = {"type": "item_reference", "id": "msg_1"}
    assert torn(X, named, X, store=False) == [("malformed_item", "input[1]")]
    assert torn(X, named, X) == []


# Errors.


@pytest.mark.parametrize(
    ("status", "error", "definite", "retryable"),
    [
        (400, {"code": "conversation_locked", "message": "Retry."}, True, True),
        (400, {"code": "previous_response_not_found"}, True, False),
        (400, {"code": None, "type": "invalid_request_error"}, True, False),
        (429, {"code": "rate_limit_exceeded"}, True, True),
        (429, {"code": "insufficient_quota"}, True, False),
        (503, {"code": "server_error"}, True, True),
        (500, {"code": "server_error"}, False, True),
        (504, {}, False, True),
    ],
)
def test_a_status_says_whether_the_request_was_certainly_not_carried_out(
    status: int, error: dict[str, Any], definite: bool, retryable: bool
) -> None:
    body = json.dumps({"error": error}).encode()
    verdict = RESPONSES.classify(status, {}, body, now_ms=0)
    assert (verdict.definite, verdict.retryable) == (definite, retryable)
    word = error.get("code") or error.get("type")
    assert word is None or verdict.code == word
