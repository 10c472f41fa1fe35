"""The exact bytes of OpenAI Responses requests, and what may never move them."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.adapters import registry
from antiphon.adapters.base import RenderedLine, Rendering, render
from antiphon.adapters.openai_responses import OpenAIResponses
from antiphon.adapters.openai_responses.profile import same_model
from antiphon.core.blocks import Message, Opaque, Reasoning, Role
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.recovery import Rung
from antiphon.errors import InvalidInput, SequenceRejected
from tests.golden import requests as golden
from tests.support.lines import KEY, answer, asks, line, model, said, system, user

CASES = {name: path for name, path in golden.cases() if name.startswith("openai-responses/")}
RESPONSES = registry.get("openai-responses")
PLAIN = Policy(model="gpt-6-astra", profile="openai-responses")
TOOLS = (ToolDeclaration(name="look"),)
FIXTURES = Path(__file__).parent.parent / "data" / "fixtures" / "render"


def rendered(*messages: Message, policy: Policy = PLAIN, **facts: Any) -> Rendering:
    return render(registry.get("openai-responses", facts), line(*messages), policy, TOOLS, key=KEY)


def thought(model_name: str | None = None, **item: Any) -> Reasoning:
    item = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA", **item}
    state = msgspec.Raw(json.dumps(item).encode())
    return Reasoning(opaque=Opaque(profile="openai-responses", value=state, model=model_name))


def raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


@pytest.mark.req("M2", "M15", "M20", "M42", "M51", "M87")
@pytest.mark.parametrize("name", CASES)
def test_a_golden_sequence_renders_to_its_recorded_bytes(name: str) -> None:
    case, recorded = golden.load(CASES[name])
    rendering = case.rendering()
    assert rendering.request.body == recorded
    assert tuple(m.rule for m in rendering.mappings) == case.mapped


def test_the_adapter_of_version_1_is_the_one_that_the_golden_bytes_were_made_with() -> None:
    """Another digest is another adapter: raise its version, and keep the bytes of this one."""
    recorded = CASES["openai-responses/minimal"].parent / "adapter.digest"
    assert (RESPONSES.name, RESPONSES.version) == ("openai-responses", 1)
    assert RESPONSES.digest == recorded.read_text().strip()


@pytest.mark.req("M65")
def test_a_response_in_the_foreground_can_be_neither_asked_after_nor_repeated() -> None:
    assert RESPONSES.recovery == (Rung.CONNECTION, Rung.DEADLINE)
    assert RESPONSES.closing_ends


@pytest.mark.req("M2")
def test_the_common_graph_says_what_its_fixture_says() -> None:
    _, recorded = golden.load(CASES["openai-responses/travel_desk"])
    assert json.loads(recorded) == json.loads((FIXTURES / "openai_responses.json").read_text())


# An answer that the provider keeps.

KEEPS = OpenAIResponses({"background": True})


@pytest.mark.req("M65", "M66")
def test_a_response_in_the_background_is_asked_after_and_closing_does_not_end_it() -> None:
    assert KEEPS.recovery == (Rung.HANDLE, Rung.DEADLINE)
    assert not KEEPS.closing_ends
    assert KEEPS.digest != RESPONSES.digest


def test_the_handle_names_the_requests_that_ask_after_it() -> None:
    policy = msgspec.structs.replace(PLAIN, endpoint="http://h:1/v1/")
    told = [
        KEEPS.resume(policy, "resp_1", after="4"),
        KEEPS.resume(policy, "resp_1", after="0"),
        KEEPS.resume(policy, "resp_1", after=None),
        KEEPS.query(policy, "resp_1"),
        KEEPS.cancel(policy, "resp/1?x"),
    ]
    assert [(request.method, request.url, request.body) for request in told] == [
        ("GET", "http://h:1/v1/responses/resp_1?stream=true&starting_after=4", b""),
        ("GET", "http://h:1/v1/responses/resp_1?stream=true&starting_after=0", b""),
        ("GET", "http://h:1/v1/responses/resp_1?stream=true", b""),
        ("GET", "http://h:1/v1/responses/resp_1", b""),
        ("POST", "http://h:1/v1/responses/resp%2F1%3Fx/cancel", b""),
    ]
    assert [dict(request.headers)["accept"] for request in told] == [
        *["text/event-stream"] * 3,
        *["application/json"] * 2,
    ]


def test_what_comes_at_once_is_not_worked_on_in_the_background() -> None:
    policy = msgspec.structs.replace(PLAIN, stream=False)
    body = json.loads(rendered(user(), policy=policy, background=True).request.body)
    assert (body.get("background"), body["store"]) == (None, False)


def test_what_is_worked_on_in_the_background_cannot_be_forgotten() -> None:
    policy = msgspec.structs.replace(PLAIN, extra={"store": raw("false")})
    with pytest.raises(InvalidInput) as caught:
        rendered(user(), policy=policy, background=True)
    assert (caught.value.code, caught.value.at) == ("bad_option", "extra.store")


# A line that grows.

TURNS: list[list[Message]] = [
    [system("Be brief."), user("What is it?")],
    [asks("a", "b", text="I look."), answer("b", "2"), answer("a", "1")],
    [model(thought(), "It is that.")],
    [user("And now?"), said(Role.DEVELOPER, "Be kind.")],
    [asks("x" * 70), user("Hurry!"), answer("x" * 70, "late")],
    [model("", "One.", "Two."), user("More")],
    [system("In French."), user("and more", name="ada")],
]


def grown(turns: list[list[Message]]) -> tuple[RenderedLine, list[Rendering]]:
    """A line fed turn by turn, and what it rendered to after each."""
    made = RESPONSES.line(PLAIN, TOOLS, key=KEY)
    messages = iter(line(*(m for turn in turns for m in turn)))
    renderings = []
    for turn in turns:
        for _ in turn:
            made.feed(next(messages))
        renderings.append(made.finish())
    return made, renderings


def test_a_line_that_grew_is_the_line_rendered_whole() -> None:
    _, renderings = grown(TURNS)
    for end, rendering in enumerate(renderings, start=1):
        whole = rendered(*(m for turn in TURNS[:end] for m in turn))
        assert rendering.request.body == whole.request.body
        assert rendering == dataclasses.replace(whole, request=rendering.request)


@pytest.mark.req("M92")
def test_a_growing_history_keeps_every_byte_before_its_new_items() -> None:
    _, renderings = grown(TURNS)
    for before, after in pairwise(renderings):
        kept = before.request.body.removesuffix(b"]}")
        assert after.request.body.startswith(kept)
        assert len(after.request.body) > len(kept) + 2


def test_a_copy_grows_apart_from_its_original() -> None:
    made, renderings = grown(TURNS[:4])
    other = made.copy()
    other.feed(line(*(m for turn in TURNS[:4] for m in turn), user("left"))[-1])
    other.finish()
    assert made.finish().request.body == renderings[-1].request.body
    assert made.finish().mappings == renderings[-1].mappings


def test_system_text_is_the_instructions_of_each_branch_that_goes_on_from_it() -> None:
    left = RESPONSES.line(PLAIN, TOOLS, key=KEY)
    left.feed(line(system("s"))[0])
    right = left.copy()
    alone = json.loads(left.finish().request.body)
    assert ("instructions" in alone, alone["input"][0]["role"]) == (False, "system")
    for made, word in ((left, "l"), (right, "r")):
        made.feed(line(system("s"), user(word))[1])
        body = json.loads(made.finish().request.body)
        assert (body["instructions"], body["input"][0]["content"][0]["text"]) == ("s", word)


@given(st.lists(st.sampled_from([0, 1, 2, 3]), max_size=6))
def test_asking_for_a_rendering_changes_nothing(asked: list[int]) -> None:
    made = RESPONSES.line(PLAIN, TOOLS, key=KEY)
    messages = line(system("s"), user("a"), model("b"), user("c"))
    for number, message in enumerate(messages):
        made.feed(message)
        for _ in range(asked.count(number)):
            made.finish()
    assert made.finish().request.body == rendered(*messages).request.body


# What goes to the provider beside the body.


def test_a_request_goes_to_the_path_of_responses_and_says_what_it_reads() -> None:
    request = rendered(user()).request
    assert (request.method, request.url) == ("POST", "https://api.openai.com/v1/responses")
    assert dict(request.headers) == {
        "accept": "text/event-stream",
        "content-type": "application/json",
    }
    policy = msgspec.structs.replace(PLAIN, stream=False, endpoint="http://h:1/v1/")
    at_once = rendered(user(), policy=policy).request
    assert at_once.url == "http://h:1/v1/responses"
    assert dict(at_once.headers)["accept"] == "application/json"


def test_facts_of_the_server_have_their_types() -> None:
    with pytest.raises(InvalidInput) as caught:
        registry.get("openai-responses", {"home": 5})
    assert caught.value.code == "bad_fact"


@pytest.mark.parametrize(
    ("extra", "at"),
    [
        ({"input": raw("[]")}, "extra.input"),
        ({"previous_response_id": raw('"resp_1"')}, "extra.previous_response_id"),
        ({"max_output_tokens": raw("5")}, "extra.max_output_tokens"),
        ({"include": raw('"everything"')}, "extra.include"),
    ],
)
def test_options_that_have_a_place_of_their_own_are_refused(
    extra: dict[str, msgspec.Raw], at: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        RESPONSES.line(msgspec.structs.replace(PLAIN, extra=extra), TOOLS, key=KEY)
    assert (caught.value.code, caught.value.at) == ("bad_option", at)


# How tools are declared.

CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}  # fmt: skip


def deep(levels: int) -> dict[str, Any]:
    """A closed schema of so many levels."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels - 1):
        schema = {**CLOSED, "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (CLOSED, True),
        ({**CLOSED, "properties": {"a": {"type": "array", "items": CLOSED}}}, True),
        ({**CLOSED, "properties": {"a": {"anyOf": [CLOSED, {"type": "null"}]}}}, True),
        ({**CLOSED, "additionalProperties": True}, False),
        ({**CLOSED, "required": []}, False),
        ({**CLOSED, "properties": {"a": {"type": "string", "minLength": 1}}}, False),
        ({**CLOSED, "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": CLOSED}}, False),
        ({**CLOSED, "properties": {"a": {"anyOf": [{"type": "object"}]}}}, False),
        (deep(5), True),
        (deep(6), False),
        ({"type": "object", "properties": {}}, False),
    ],
)
def test_a_tool_is_held_to_strictly_only_where_its_schema_surely_can_be(
    schema: dict[str, Any], strict: bool
) -> None:
    tool = ToolDeclaration(name="look", parameters=raw(json.dumps(schema)))
    body = json.loads(render(RESPONSES, line(user()), PLAIN, (tool,), key=KEY).request.body)
    assert body["tools"][0]["strict"] is strict


# Refusals.


def refusal(*messages: Message, tools: Any = TOOLS) -> str:
    with pytest.raises(SequenceRejected) as caught:
        render(RESPONSES, line(*messages), PLAIN, tools, key=KEY)
    return caught.value.findings[0].code


@pytest.mark.req("M88")
def test_what_cannot_be_mapped_is_refused() -> None:
    assert refusal(user("a"), asks("1")) == "missing_tool_result"
    assert refusal(user("a"), answer("1")) == "orphan_tool_result"
    assert refusal(said(Role.USER)) == "empty_content"
    assert refusal(model("")) == "empty_sequence"
    strict = (ToolDeclaration(name="look", strict=True),)
    assert refusal(user("a"), tools=strict) == "schema_unsupported"
    broken = (ToolDeclaration(name="look", parameters=raw("{")),)
    assert refusal(user("a"), tools=broken) == "schema_unsupported"


def test_half_a_character_is_refused_by_name() -> None:
    made = RESPONSES.line(PLAIN, (), key=KEY)
    with pytest.raises(InvalidInput) as caught:
        made.feed(line(user("\ud83e"))[0])
    assert caught.value.code == "invalid_unicode"


# Whose reasoning it is.


@pytest.mark.parametrize(
    ("maker", "reader", "same"),
    [
        ("gpt-6-astra-2026-09-01", "gpt-6-astra", True),
        ("gpt-6-astra", "gpt-6-astra-latest", True),
        ("gpt-6-astra", "gpt-6-astra-mini", False),
        ("o4-mini", "gpt-6-astra", False),
        (None, "gpt-6-astra", True),
        ("gpt-6-astra", "fast", True),
        ("Qwen3-4B.gguf", "fast", True),
    ],
)
def test_reasoning_is_for_the_model_that_made_it(
    maker: str | None, reader: str, same: bool
) -> None:
    assert same_model(maker, reader) is same


def test_what_the_provider_did_is_left_out_with_the_reasoning_that_led_to_it() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    work = Opaque(profile="openai-responses", value=raw(json.dumps(search)), work=True)
    compacted = Opaque(profile="openai-responses", value=raw('{"type":"compaction"}'), work=True)

    def kinds(*thoughts: Reasoning) -> tuple[list[str], list[str]]:
        blocks = (Reasoning(opaque=compacted), *thoughts, Reasoning(opaque=work))
        made = rendered(user("a"), model(*blocks, "b"), user("c"))
        items = json.loads(made.request.body)["input"]
        return [item["type"] for item in items[1:-1]], [m.rule for m in made.mappings]

    assert kinds() == (["compaction", "web_search_call", "message"], [])
    assert kinds(thought()) == (["compaction", "reasoning", "web_search_call", "message"], [])
    assert kinds(thought("gpt-5")) == (["compaction", "message"], ["reasoning_dropped"] * 2)


@pytest.mark.req("M103")
def test_reasoning_falls_with_what_stood_before_it() -> None:
    asked = line(user("a"), model("b"), user("c"))
    before = render(RESPONSES, asked, PLAIN, TOOLS, key=KEY).sequence_digest
    sealed = thought()
    assert sealed.opaque is not None
    bound = Reasoning(opaque=msgspec.structs.replace(sealed.opaque, prefix=before))

    def rules(*first: Message) -> list[str]:
        return [m.rule for m in rendered(*first, user("c"), model(bound, "d"), user("e")).mappings]

    assert rules(user("a"), model("b")) == []
    assert rules() == ["reasoning_dropped"]
    assert rules(user("a"), model("B")) == ["reasoning_dropped"]


def test_plain_thoughts_of_a_server_that_seals_none_go_back_too() -> None:
    told = thought(encrypted_content="", content=[{"type": "reasoning_text", "text": "hm"}])
    body = json.loads(rendered(user("a"), model(told, "b"), user("c")).request.body)
    assert body["input"][1]["content"] == [{"type": "reasoning_text", "text": "hm"}]


@pytest.mark.req("M2", "M51")
@pytest.mark.parametrize("long", ["x" * 400, "rs_fc_" + "x" * 400, "item_1"])
def test_an_item_goes_out_without_an_id_that_no_item_may_have(long: str) -> None:
    """GitHub Copilot gives ids of hundreds of characters, and refuses them (openclaw#84774)."""
    state = raw(json.dumps({"id": long}))
    call = msgspec.structs.replace(
        asks("c1").blocks[0], opaque=Opaque(profile="openai-responses", value=state)
    )
    rendering = rendered(user("hi"), model(thought(id=long), call), answer("c1"))
    items = json.loads(rendering.request.body)["input"]
    assert items[1] == {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}
    assert "id" not in items[2]
    assert items[2]["call_id"] == "c1"
    assert [m.rule for m in rendering.mappings] == ["item_id_dropped"] * 2
