"""A client's generateContent request as our graph: every part with its place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.adapters import registry
from antiphon.adapters.base import Parsed, render
from antiphon.core.blocks import (
    Audio,
    Block,
    File,
    Image,
    Outcome,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Trust,
    Unknown,
)
from antiphon.core.rules.graph import check
from antiphon.errors import InvalidInput
from tests.golden import requests as golden
from tests.support.lines import KEY

GEMINI = registry.get("gemini")
CASES = {name: path for name, path in golden.cases() if name.startswith("gemini/")}
X: dict[str, Any] = {"role": "user", "parts": [{"text": "x"}]}


def parsed(*contents: Any, **fields: Any) -> Parsed:
    return GEMINI.parse({"contents": list(contents), **fields})


def blocks(*parts: Any, role: str = "user") -> list[Block]:
    made = parsed({"role": role, "parts": list(parts)})
    assert made.findings == ()
    return [block for message in made.messages for block in message.blocks]


def state(block: Block) -> dict[str, Any]:
    assert isinstance(block, Reasoning | ToolCall)
    assert block.opaque is not None
    assert block.opaque.profile == "gemini"
    made: dict[str, Any] = json.loads(bytes(block.opaque.value))
    return made


@pytest.mark.req("M2", "M20")
@pytest.mark.parametrize("name", CASES)
def test_a_request_of_ours_is_read_back_and_rendered_to_the_same_request(name: str) -> None:
    case, recorded = golden.load(CASES[name])
    made = GEMINI.parse(json.loads(recorded))
    assert (made.findings, made.uncarried) == ((), ())
    again = render(case.adapter, made.messages, made.policy, made.tools, key=KEY)
    assert json.loads(again.request.body) == json.loads(recorded)


def test_a_content_with_responses_is_a_message_of_results_and_one_of_the_rest() -> None:
    asked = {"role": "model", "parts": [{"functionCall": {"name": "f"}}] * 2}
    result = {"functionResponse": {"name": "f", "response": {"output": "1"}}}
    made = parsed(X, asked, {"role": "user", "parts": [{"text": "so"}, result, result]})
    assert [m.role for m in made.messages] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.USER]
    assert [m.trust for m in made.messages[2:]] == [Trust.TOOL, Trust.USER]
    places = [made.places[f"{m.id}.{n}"] for m in made.messages[2:] for n, _ in enumerate(m.blocks)]
    assert places == [f"contents[2].parts[{n}]" for n in (1, 2, 0)]
    assert check(made.messages, GEMINI.profile, mapped=False) == ()


def test_calls_without_ids_are_known_by_their_place_and_answered_by_name_in_order() -> None:
    asked = [{"functionCall": {"name": name}} for name in ("f", "g", "f")]
    said: list[dict[str, Any]] = [
        {"functionResponse": {"name": name, "response": {"output": value}}}
        for name, value in (("f", "1"), ("g", "2"), ("f", "3"))
    ]
    made = parsed(X, {"role": "model", "parts": asked}, {"parts": said})
    ids = [f"contents[1].parts[{n}]" for n in range(3)]
    assert [c.call_id for c in made.messages[1].calls] == ids
    assert [r.call_id for r in made.messages[2].results] == ids
    assert [[p.text for p in r.content if isinstance(p, Text)] for r in made.messages[2].results] == [["1"], ["2"], ["3"]]  # fmt: skip


def test_a_response_answers_by_its_id_before_its_name() -> None:
    asked = [{"functionCall": {"id": i, "name": "f"}} for i in ("1", "2")]
    said: list[dict[str, Any]] = [
        {"functionResponse": {"id": i, "name": "f", "response": {}}} for i in ("2", "1")
    ]
    made = parsed(X, {"role": "model", "parts": asked}, {"parts": said})
    assert [r.call_id for r in made.messages[2].results] == ["2", "1"]


def test_a_finding_has_the_place_of_its_part() -> None:
    orphan = {"functionResponse": {"name": "f", "response": {}}}
    made = parsed({"role": "user", "parts": [{"text": "so"}, orphan]})
    found = made.located(check(made.messages, GEMINI.profile, mapped=False))
    assert ("orphan_tool_result", "contents[0].parts[1]") in [(f.code, f.at) for f in found]
    blank = parsed(X, {"role": "user", "parts": [{"text": "a"}, {"text": ""}]})
    found = blank.located(check(blank.messages, GEMINI.profile, mapped=False))
    assert [(f.code, f.at) for f in found] == [("empty_content", "contents[1].parts[1]")]
    named = parsed(X, tools=[{"functionDeclarations": [{"name": "f"}, {"name": "no name"}]}])
    found = named.located(check(named.messages, GEMINI.profile, mapped=False, tools=named.tools))
    assert [(f.code, f.at) for f in found] == [("bad_tool_name", "tools[0].functionDeclarations[1]")]  # fmt: skip


def test_every_kind_of_part_is_read_in_either_spelling() -> None:
    assert blocks(
        {"text": "a"},
        {"inlineData": {"mimeType": "image/png", "data": "AA=="}},
        {"inline_data": {"mime_type": "audio/wav", "data": "AA=="}},
        {"inlineData": {"mimeType": "application/pdf", "data": "AA=="}},
        {"fileData": {"fileUri": "https://e.test/a", "mimeType": "image/png"}},
        {"file_data": {"file_uri": "https://e.test/b"}},
    ) == [
        Text(text="a"),
        Image(media_type="image/png", data="AA=="),
        Audio(format="wav", data="AA=="),
        File(media_type="application/pdf", data="AA=="),
        Image(url="https://e.test/a", media_type="image/png"),
        File(file_id="https://e.test/b"),
    ]
    assert isinstance(blocks({"odd": 1})[0], Unknown)


@pytest.mark.req("M48")
def test_a_signature_is_kept_with_what_it_stood_on() -> None:
    call, text, ridden, empty, thought, work = blocks(
        {"functionCall": {"id": "1", "name": "f", "args": {"a": [1, None]}}, "thoughtSignature": "YQ=="},
        {"text": "so", "thoughtSignature": "Yg=="},
        {"text": "", "thought_signature": "Yw=="},
        {"text": "hm", "thought": True, "thoughtSignature": "ZA=="},
        {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "ZQ=="},
        role="model",
    )  # fmt: skip
    assert isinstance(call, ToolCall)
    assert (call.arguments, state(call)) == ('{"a":[1,null]}', {"thoughtSignature": "YQ=="})
    assert (text, state(ridden)) == (Text(text="so"), {"thoughtSignature": "Yg=="})
    assert state(empty) == {"text": "", "thoughtSignature": "Yw=="}
    assert state(thought) == {"thought": True, "thoughtSignature": "ZA=="}
    assert "executableCode" in state(work)


@pytest.mark.parametrize(
    ("response", "texts", "outcome"),
    [
        ({}, ["{}"], Outcome.SUCCESS),
        ({"output": ""}, [], Outcome.SUCCESS),
        ({"output": "1"}, ["1"], Outcome.SUCCESS),
        ({"output": {"a": 1}}, ['{"a":1}'], Outcome.SUCCESS),
        ({"output": ["a", "b"]}, ["a", "b"], Outcome.SUCCESS),
        ({"output": ["a"]}, ['["a"]'], Outcome.SUCCESS),
        ({"v": 3}, ['{"v":3}'], Outcome.SUCCESS),
        ({"output": "1", "more": 2}, ['{"output":"1","more":2}'], Outcome.SUCCESS),
        ({"error": "no"}, ["no"], Outcome.ERROR),
    ],
)
def test_a_response_is_read_with_its_outcome(
    response: dict[str, Any], texts: list[str], outcome: Outcome
) -> None:
    (result,) = blocks({"functionResponse": {"id": "1", "name": "f", "response": response}})
    assert isinstance(result, ToolResult)
    assert [p.text for p in result.content if isinstance(p, Text)] == texts
    assert (result.outcome, result.name) == (outcome, "f")


@pytest.mark.parametrize(
    ("content", "at", "code"),
    [
        ("hi", "contents[0]", "malformed_item"),
        ({"role": "system", "parts": [{"text": "x"}]}, "contents[0]", "role_unsupported"),
        ({"role": 5, "parts": []}, "contents[0]", "role_unsupported"),
        ({"parts": "x"}, "contents[0].parts", "malformed_item"),
        ({"parts": ["x"]}, "contents[0].parts[0]", "malformed_item"),
        ({"parts": [{}]}, "contents[0].parts[0]", "malformed_item"),
        ({"parts": [{"text": 5}]}, "contents[0].parts[0]", "malformed_item"),
        ({"parts": [{"text": "a", "functionCall": {"name": "f"}}]}, "contents[0].parts[0]", "malformed_item"),
        ({"parts": [{"functionCall": {}}]}, "contents[0].parts[0]", "malformed_item"),
        ({"parts": [{"functionCall": {"name": "f", "args": "{}"}}]}, "contents[0].parts[0].functionCall.args", "malformed_item"),
        ({"parts": [{"functionResponse": {"response": {}}}]}, "contents[0].parts[0]", "malformed_item"),
        ({"parts": [{"functionResponse": {"name": "f", "response": "1"}}]}, "contents[0].parts[0].functionResponse.response", "malformed_item"),
        ({"parts": [{"functionResponse": {"name": "f", "response": {}, "parts": [{"text": "a"}]}}]}, "contents[0].parts[0].functionResponse.parts[0]", "malformed_item"),
        ({"parts": [{"inlineData": {"data": "AA=="}}]}, "contents[0].parts[0]", "malformed_item"),
        ({"parts": [{"fileData": {}}]}, "contents[0].parts[0]", "malformed_item"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_message_is_a_finding_at_its_place(
    content: Any, at: str, code: str
) -> None:
    assert [(f.code, f.at) for f in parsed(content).findings] == [(code, at)]


def test_the_instruction_is_a_message_of_the_system() -> None:
    made = parsed(X, system_instruction={"parts": [{"text": "Be brief."}]})
    assert [(m.role, m.text) for m in made.messages] == [(Role.SYSTEM, "Be brief."), (Role.USER, "x")]  # fmt: skip
    assert made.places[f"{made.messages[0].id}.0"] == "systemInstruction.parts[0]"
    assert [f.at for f in parsed(X, systemInstruction="no").findings] == ["systemInstruction"]


# Tools and options.


def test_a_schema_of_the_older_form_is_the_json_schema_that_it_stands_for() -> None:
    older = {
        "type": "OBJECT",
        "properties": {
            "at": {"type": "STRING", "nullable": True, "maxLength": "9", "example": "sea"},
            "where": {"type": "ARRAY", "items": {"ref": "#/defs/place"}, "minItems": "1"},
            "how": {"anyOf": [{"type": "INTEGER"}, {"type": "NUMBER"}]},
        },
        "propertyOrdering": ["at", "where"],
        "defs": {"place": {"type": "STRING"}},
    }
    made = parsed(X, tools=[{"function_declarations": [{"name": "f", "description": "d", "parameters": older}]}])  # fmt: skip
    assert made.findings == ()
    assert (made.tools[0].name, made.tools[0].description) == ("f", "d")
    assert json.loads(bytes(made.tools[0].parameters)) == {
        "type": "object",
        "properties": {
            "at": {"type": ["string", "null"], "maxLength": 9, "examples": ["sea"]},
            "where": {"type": "array", "items": {"$ref": "#/$defs/place"}, "minItems": 1},
            "how": {"anyOf": [{"type": "integer"}, {"type": "number"}]},
        },
        "$defs": {"place": {"type": "string"}},
    }


def test_a_word_that_the_older_form_does_not_have_is_named() -> None:
    schema = {"type": "object", "$schema": "s", "properties": {"a": {"const": 1}}}
    made = parsed(X, tools=[{"functionDeclarations": [{"name": "f", "parameters": schema}]}])
    assert [(f.code, f.at) for f in made.findings] == [
        ("schema_unsupported", "tools[0].functionDeclarations[0].parameters.$schema"),
        ("schema_unsupported", "tools[0].functionDeclarations[0].parameters.properties.a.const"),
    ]
    both = {"name": "f", "parameters": {"type": "OBJECT"}, "parametersJsonSchema": {}}
    made = parsed(X, tools=[{"functionDeclarations": [both]}])
    assert [f.code for f in made.findings] == ["schema_unsupported"]


def test_options_become_the_policy_and_others_pass_as_they_are() -> None:
    policy = parsed(
        X,
        model="models/gemini-3-pro",
        generation_config={"max_output_tokens": 7, "temperature": 0.5, "top_p": 0.5},
        safetySettings=[],
        toolConfig={"functionCallingConfig": {"mode": "ANY"}},
    ).policy
    assert (policy.model, policy.max_output_tokens, policy.stream) == ("models/gemini-3-pro", 7, False)  # fmt: skip
    assert (policy.tool_choice, policy.temperature, policy.profile) == ("required", 0.5, "gemini")
    assert {k: bytes(v) for k, v in policy.extra.items()} == {
        "generationConfig": b'{"topP":0.5}',
        "safetySettings": b"[]",
    }


@pytest.mark.parametrize(
    ("calling", "read"),
    [
        ({"mode": "AUTO"}, "auto"),
        ({"mode": "ANY"}, "required"),
        ({"mode": "NONE"}, "none"),
        ({"mode": "ANY", "allowed_function_names": ["f"]}, "tool:f"),
        ({"mode": "ANY", "allowedFunctionNames": ["f", "g"]}, None),
        ({"mode": "VALIDATED"}, None),
    ],
)
def test_a_tool_choice_is_read_or_passed_as_it_is(calling: dict[str, Any], read: Any) -> None:
    policy = parsed(X, toolConfig={"functionCallingConfig": calling}).policy
    assert policy.tool_choice == read
    assert ("toolConfig" in policy.extra) is (read is None)


@pytest.mark.parametrize(
    ("fields", "at"),
    [
        ({"contents": None}, "contents"),
        ({"contents": "hi"}, "contents"),
        ({"tools": {}}, "tools"),
        ({"tools": [5]}, "tools[0]"),
        ({"tools": [{"functionDeclarations": {}}]}, "tools[0].functionDeclarations"),
        ({"tools": [{"functionDeclarations": [{}]}]}, "tools[0].functionDeclarations[0]"),
        ({"generationConfig": 5}, "generationConfig"),
        ({"generationConfig": {"maxOutputTokens": "9"}}, "generationConfig.maxOutputTokens"),
        ({"generationConfig": {"temperature": True}}, "generationConfig.temperature"),
        ({"model": 5}, "model"),
    ],
)
def test_an_option_of_the_wrong_type_is_no_request(fields: dict[str, Any], at: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        GEMINI.parse({"contents": [X], **fields})
    assert (caught.value.code, caught.value.at) == ("wrong_shape", at)


def test_what_is_legal_and_not_ours_to_send_is_named() -> None:
    asked = {"role": "model", "parts": [{"functionCall": {"name": "f"}}]}
    later = {"functionResponse": {"name": "f", "response": {}, "willContinue": True}}
    made = parsed(X, asked, {"parts": [later]}, tools=[{"googleSearch": {}}])
    assert made.uncarried == ("tools[0]", "contents[2].parts[0]")


def test_what_a_request_says_of_its_model_are_facts() -> None:
    assert parsed(X, model="gemini-3-pro").facts["prefill"] == "unsupported"
    assert parsed(X).facts == {}
