"""A client's Messages request as our graph: every block with its place."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from antiphon.adapters import registry
from antiphon.adapters.base import Parsed, render
from antiphon.adapters.requests.conversion import convert
from antiphon.core.blocks import (
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
)
from antiphon.core.rules.findings import Finding
from antiphon.core.rules.graph import check
from antiphon.errors import InvalidInput
from tests.golden import requests as golden
from tests.support.lines import KEY

CLAUDE = registry.get("anthropic")
CASES = {name: path for name, path in golden.cases() if name.startswith("anthropic/")}
X = {"role": "user", "content": "x"}


def parsed(*messages: Any, **fields: Any) -> Parsed:
    return CLAUDE.parse({"messages": list(messages), **fields})


def blocks(*content: Any, role: str = "user") -> list[Block]:
    made = parsed({"role": role, "content": list(content)})
    assert made.findings == ()
    return [block for message in made.messages for block in message.blocks]


def state(block: Block) -> tuple[Any, bool]:
    assert isinstance(block, Reasoning)
    assert isinstance(block.opaque, Opaque)
    assert block.opaque.profile == "anthropic"
    return json.loads(bytes(block.opaque.value)), block.opaque.work


@pytest.mark.req("M2", "M20")
@pytest.mark.parametrize("name", [n for n in CASES if "/at_a_gateway" not in n])
def test_a_request_of_ours_is_read_back_and_rendered_to_the_same_bytes(name: str) -> None:
    _, recorded = golden.load(CASES[name])
    made = CLAUDE.parse(json.loads(recorded))
    assert (made.findings, made.uncarried) == ((), ())
    again = render(CLAUDE, made.messages, made.policy, made.tools, key=KEY)
    assert json.loads(again.request.body) == json.loads(recorded)


def test_a_message_with_results_is_a_message_of_results_and_one_of_the_rest() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": "1"}
    made = parsed(X, {"role": "user", "content": [result, result, {"type": "text", "text": "so"}]})
    assert [m.role for m in made.messages] == [Role.USER, Role.TOOL, Role.USER]
    assert [len(m.blocks) for m in made.messages] == [1, 2, 1]
    assert [m.trust for m in made.messages] == [Trust.USER, Trust.TOOL, Trust.USER]
    assert [m.parent for m in made.messages[1:]] == [m.id for m in made.messages[:2]]
    assert len({m.id for m in made.messages}) == 3
    places = [made.places[f"{m.id}.{n}"] for m in made.messages for n, _ in enumerate(m.blocks)]
    assert places == ["messages[0]", *(f"messages[1].content[{n}]" for n in range(3))]


def test_a_finding_has_the_place_of_its_block() -> None:
    orphan = {"type": "tool_result", "tool_use_id": "t", "content": "1"}
    made = parsed({"role": "user", "content": [{"type": "text", "text": "so"}, orphan]})
    found = made.located(check(made.messages, CLAUDE.profile, mapped=False))
    assert [(f.code, f.at) for f in found] == [("orphan_tool_result", "messages[0].content[1]")]
    blank = parsed({"role": "user", "content": [orphan, {"type": "text", "text": " "}]})
    at = [f.at for f in blank.located(check(blank.messages, CLAUDE.profile, mapped=False))]
    assert at == ["messages[0].content[0]", "messages[0].content[1]"]
    unknown = parsed(X, {"role": "user", "content": [orphan, {"type": "odd"}]})
    found = unknown.located(check(unknown.messages, CLAUDE.profile, mapped=False))
    assert ("unknown_block_kind", "messages[1].content[1]") in {(f.code, f.at) for f in found}


def test_every_kind_of_block_is_read() -> None:
    text = base64.b64encode(b"hello").decode()
    assert blocks(
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
        {"type": "image", "source": {"type": "url", "url": "https://e.test/a"}},
        {"type": "document", "title": "t", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hello"}},
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "odd", "more": 1},
    )[:6] == [
        Text(text="a"),
        Image(media_type="image/png", data="AA=="),
        Image(url="https://e.test/a"),
        File(media_type="application/pdf", data="AA==", filename="t"),
        File(media_type="text/plain", data=text),
        File(file_id="file_1"),
    ]  # fmt: skip
    assert isinstance(blocks({"type": "odd"})[0], Unknown)
    call, thought, hidden, _, search = blocks(
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": [1, None]}},
        {"type": "thinking", "thinking": "hm", "signature": "Eq=="},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        role="assistant",
    )
    assert call == ToolCall(call_id="t", name="f", arguments='{"a":[1,null]}')  # type: ignore[arg-type]  # an id is a string
    assert state(thought) == ({"type": "thinking", "signature": "Eq=="}, False)
    assert state(hidden) == ({"type": "redacted_thinking", "data": "x"}, False)
    assert state(search)[1] is True


@pytest.mark.parametrize(
    ("fields", "texts", "outcome"),
    [
        ({}, [], Outcome.SUCCESS),
        ({"content": ""}, [], Outcome.SUCCESS),
        ({"content": "1"}, ["1"], Outcome.SUCCESS),
        ({"content": [{"type": "text", "text": "1"}], "is_error": False}, ["1"], Outcome.SUCCESS),
        ({"content": "no", "is_error": True}, ["no"], Outcome.ERROR),
    ],
)
def test_a_result_is_read_with_its_outcome(
    fields: dict[str, Any], texts: list[str], outcome: Outcome
) -> None:
    (result,) = blocks({"type": "tool_result", "tool_use_id": "t", **fields})
    assert isinstance(result, ToolResult)
    assert [p.text for p in result.content if isinstance(p, Text)] == texts
    assert result.outcome is outcome


@pytest.mark.parametrize(
    ("message", "at", "code"),
    [
        ("hi", "messages[0]", "malformed_item"),
        ({"role": "tool", "content": "x"}, "messages[0]", "role_unsupported"),
        ({"content": "x"}, "messages[0]", "role_unsupported"),
        ({"role": "user"}, "messages[0].content", "malformed_item"),
        ({"role": "user", "content": ["x"]}, "messages[0].content[0]", "malformed_item"),
        ({"role": "user", "content": [{}]}, "messages[0].content[0]", "malformed_item"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0]", "malformed_item"),
        ({"role": "user", "content": [{"type": "thinking"}]}, "messages[0].content[0]", "malformed_item"),
        ({"role": "user", "content": [{"type": "tool_result"}]}, "messages[0].content[0]", "malformed_item"),
        ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": 5}]}, "messages[0].content[0].content", "malformed_item"),
        ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}]}, "messages[0].content[0].content[0]", "malformed_item"),
        ({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": "{}"}]}, "messages[0].content[0].input", "malformed_item"),
        ({"role": "system", "content": "x"}, "messages[0]", "role_unsupported"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_message_is_a_finding_at_its_place(
    message: Any, at: str, code: str
) -> None:
    assert [(f.code, f.at) for f in parsed(message).findings] == [(code, at)]


def test_system_text_at_the_top_is_a_message_and_each_of_its_blocks_has_a_place() -> None:
    one = parsed(X, system="Be brief.")
    assert [(m.role, m.text) for m in one.messages] == [
        (Role.SYSTEM, "Be brief."),
        (Role.USER, "x"),
    ]
    two = parsed(X, system=[{"type": "text", "text": "a"}, {"type": "text", "text": " "}])
    found = two.located(check(two.messages, CLAUDE.profile, mapped=False))
    assert [(f.code, f.at) for f in found] == [("empty_content", "system[1]")]
    assert parsed(X, system=[]).messages[0].role is Role.USER
    assert [f.at for f in parsed(X, system=[5]).findings] == ["system[0]"]


def test_options_become_the_policy_and_others_pass_as_they_are() -> None:
    policy = parsed(
        X,
        model="claude-opus-5",
        max_tokens=7,
        stream=True,
        temperature=0.5,
        stop_sequences=["END"],
        cache_control={"type": "ephemeral"},
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
    ).policy
    assert (policy.model, policy.max_output_tokens, policy.stream) == ("claude-opus-5", 7, True)
    assert (policy.tool_choice, policy.parallel_tool_calls) == ("required", False)
    assert (policy.temperature, policy.profile) == (0.5, "anthropic")
    assert {k: bytes(v) for k, v in policy.extra.items()} == {"stop_sequences": b'["END"]'}


@pytest.mark.parametrize(
    ("choice", "read"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "f"}, "tool:f"),
    ],
)
def test_a_tool_choice_is_read(choice: dict[str, Any], read: str) -> None:
    assert parsed(X, tool_choice=choice).policy.tool_choice == read


@pytest.mark.parametrize(
    ("fields", "at"),
    [
        ({"messages": None}, "messages"),
        ({"system": 5}, "system"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"name": "f"}]}, "tools[0]"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"stream": 1}, "stream"),
        ({"model": 5}, "model"),
    ],
)
def test_an_option_of_the_wrong_type_is_no_request(fields: dict[str, Any], at: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        CLAUDE.parse({"messages": [X], **fields})
    assert (caught.value.code, caught.value.at) == ("wrong_shape", at)


def test_what_is_legal_and_not_ours_to_send_is_named() -> None:
    made = parsed(
        {
            "role": "user",
            "content": [
                {"type": "search_result", "source": "s", "title": "t", "content": []},
                {"type": "image", "source": {"type": "file", "file_id": "f"}},
                {"type": "document", "source": {"type": "url", "url": "u"}},
                {"type": "document", "source": {"type": "file", "file_id": "f"}, "citations": {"enabled": True}},
            ],
        },
        tools=[{"type": "bash_20250124", "name": "bash"}, {"type": "mcp_toolset"}],
    )  # fmt: skip
    places = [f"messages[0].content[{n}]" for n in range(3)]
    assert made.uncarried == (*places, "messages[0].content[3].citations", "tools[0]", "tools[1]")
    assert check(made.messages, CLAUDE.profile, mapped=False, tools=made.tools) == ()
    assert [tool.name for tool in made.tools] == ["bash"]


CITED = {"type": "char_location", "cited_text": "It rains.", "document_index": 0}


def test_what_the_assistant_cited_goes_back_with_its_text() -> None:
    text = {"type": "text", "text": "Rain.", "citations": [CITED, CITED]}
    thought = {"type": "thinking", "thinking": "hm", "signature": "Eq=="}
    request: dict[str, Any] = {
        "model": "claude-opus-5",
        "max_tokens": 9,
        "stream": False,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "x"}]},
            {"role": "assistant", "content": [thought, text, {"type": "text", "text": "Yes."}]},
            {"role": "user", "content": [{"type": "text", "text": "y"}]},
        ],
    }
    made = CLAUDE.parse(request)
    assert made.uncarried == ()
    assert CLAUDE.compare(made, {"committed_blocks": [thought, text]}) == ()
    assert check(made.messages, CLAUDE.profile, mapped=False) == ()
    again = render(CLAUDE, made.messages, made.policy, key=KEY)
    assert (json.loads(again.request.body), again.mappings) == (request, ())
    chat = convert(made, registry.get("openai-chat"), source="anthropic")
    dropped = [(m.rule, m.block) for m in chat.mappings]
    assert ("reasoning_dropped", "messages[1].content[1].citations") in dropped
    ending = {**request, "messages": [*request["messages"][:1], {"role": "assistant", "content": [text]}]}  # fmt: skip
    assert [f.code for f in as_it_stands(CLAUDE.parse(ending))] == ["must_end_with_user"]


def as_it_stands(made: Parsed) -> tuple[Finding, ...]:
    return check(made.messages, registry.get("anthropic", made.facts).profile, mapped=False)


@pytest.mark.parametrize(
    ("part", "field"),
    [
        ({"type": "text", "text": "x", "citations": [CITED]}, "citations"),
        ({"type": "image", "source": {"type": "url", "url": "u"}, "transformations": {"a": 1}}, "transformations"),
        ({"type": "document", "source": {"type": "text", "data": "x"}, "context": "y"}, "context"),
        ({"type": "tool_result", "tool_use_id": "t", "toolset_name": "y"}, "toolset_name"),
        ({"type": "text", "text": "x", "new_field": 5}, "new_field"),
    ],
)  # fmt: skip
def test_a_field_that_means_something_and_cannot_be_carried_is_named(
    part: dict[str, Any], field: str
) -> None:
    made = parsed({"role": "user", "content": [part]})
    assert made.uncarried == (f"messages[0].content[0].{field}",)


def test_fields_that_mean_nothing_more_are_no_obstacle() -> None:
    hints = {"cache_control": {"type": "ephemeral"}, "citations": None}
    called = {"type": "tool_use", "id": "t", "name": "f", "input": {}, "caller": {"type": "direct"}}
    text = {"type": "text", "text": "x", **hints}
    made = parsed({"role": "user", "content": [text]}, {"role": "assistant", "content": [called]})
    assert made.uncarried == ()


def test_what_a_request_says_of_its_model_are_facts() -> None:
    enabled = {"type": "enabled", "budget_tokens": 1024}
    made = parsed(X, model="claude-opus-4-5", thinking=enabled)
    assert made.facts == {"prefill": "unsupported", "thinking": "required"}
    assert parsed(X, thinking={"type": "adaptive"}).facts == {}
