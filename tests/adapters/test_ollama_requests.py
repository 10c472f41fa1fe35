"""Requests to Ollama's chat API: their exact bytes, what may never move them, and reading them back."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.adapters import registry
from antiphon.adapters.base import Parsed, RenderedLine, Rendering, render
from antiphon.core.blocks import (
    Audio,
    Block,
    File,
    Image,
    Message,
    Opaque,
    Outcome,
    Reasoning,
    Refusal,
    Role,
    Text,
)
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.recovery import Rung
from antiphon.core.rules.graph import check
from antiphon.errors import InvalidInput, SequenceRejected
from tests.golden import requests as golden
from tests.support.lines import KEY, PNG, answer, asks, call, line, model, said, system, user

CASES = {name: path for name, path in golden.cases() if name.startswith("ollama/")}
OLLAMA = registry.get("ollama")
QWEN = Policy(model="qwen3:8b")
TOOLS = (ToolDeclaration(name="look"), ToolDeclaration(name="find"))
FIXTURES = Path(__file__).parent.parent / "data" / "fixtures" / "render"


def rendered(
    *messages: Message, policy: Policy = QWEN, tools: Any = TOOLS, **facts: Any
) -> Rendering:
    return render(registry.get("ollama", facts), line(*messages), policy, tools, key=KEY)


def thought(text: str = "hm", maker: str | None = "qwen3:8b", profile: str = "ollama") -> Reasoning:
    state = Opaque(profile=profile, value=msgspec.Raw(b"{}"), model=maker)
    return Reasoning(text=text, opaque=state)


@pytest.mark.req("M2", "M15", "M20", "M42", "M51", "M87")
@pytest.mark.parametrize("name", CASES)
def test_a_golden_sequence_renders_to_its_recorded_bytes(name: str) -> None:
    case, recorded = golden.load(CASES[name])
    rendering = case.rendering()
    assert rendering.request.body == recorded
    assert tuple(m.rule for m in rendering.mappings) == case.mapped


def test_the_adapter_of_version_1_is_the_one_that_the_golden_bytes_were_made_with() -> None:
    """Another digest is another adapter: raise its version, and keep the bytes of this one."""
    recorded = CASES["ollama/minimal"].parent / "adapter.digest"
    assert (OLLAMA.name, OLLAMA.version) == ("ollama", 1)
    assert OLLAMA.digest == recorded.read_text().strip()


@pytest.mark.req("M65")
def test_a_call_can_be_neither_asked_after_nor_repeated() -> None:
    assert OLLAMA.recovery == (Rung.CONNECTION, Rung.DEADLINE)
    assert OLLAMA.closing_ends


@pytest.mark.req("M2")
def test_the_common_graph_says_what_its_fixture_says() -> None:
    _, recorded = golden.load(CASES["ollama/travel_desk"])
    assert json.loads(recorded) == json.loads((FIXTURES / "ollama_native.json").read_text())


@pytest.mark.req("M2", "M20")
@pytest.mark.parametrize("name", CASES)
def test_a_request_of_ours_is_read_back_and_rendered_to_the_same_bytes(name: str) -> None:
    _, recorded = golden.load(CASES[name])
    made = OLLAMA.parse(json.loads(recorded))
    assert (made.findings, made.uncarried) == ((), ())
    assert check(made.messages, OLLAMA.profile, mapped=False, tools=made.tools) == ()
    again = render(OLLAMA, made.messages, made.policy, made.tools, key=KEY)
    assert json.loads(again.request.body) == json.loads(recorded)


def test_it_goes_to_the_server_on_this_machine_and_needs_no_key() -> None:
    request = rendered(user()).request
    assert (request.method, request.url) == ("POST", "http://127.0.0.1:11434/api/chat")
    assert request.headers == (("accept", "application/x-ndjson"), ("content-type", "application/json"))  # fmt: skip
    whole = rendered(user(), policy=msgspec.structs.replace(QWEN, stream=False)).request
    assert dict(whole.headers)["accept"] == "application/json"


@pytest.mark.parametrize("address", ["http://h:1", "http://h:1/", "http://h:1/api", "http://h:1/api/"])  # fmt: skip
def test_an_address_may_name_the_path_of_the_api_or_not(address: str) -> None:
    policy = msgspec.structs.replace(QWEN, endpoint=address)
    assert rendered(user(), policy=policy).request.url == "http://h:1/api/chat"


# A line that grows.

TURNS: list[list[Message]] = [
    [system("Be brief."), user("What is it?")],
    [asks("a", "b", text="I look."), answer("b", "2"), answer("a", Image(data=PNG))],
    [model(thought(), "It is that.")],
    [user("And now?"), said(Role.DEVELOPER, "Be kind.")],
    [asks("x.1"), user("Hurry!"), answer("x.1", "late")],
    [model("", "One.", "Two."), user("More")],
    [user("and more", name="ada")],
]


def grown() -> tuple[RenderedLine, list[Rendering]]:
    """A line fed turn by turn, and what it rendered to after each."""
    made = OLLAMA.line(QWEN, TOOLS, key=KEY)
    renderings = []
    messages = iter(line(*(m for turn in TURNS for m in turn)))
    for turn in TURNS:
        for _ in turn:
            made.feed(next(messages))
        renderings.append(made.finish())
    return made, renderings


def test_a_line_that_grew_is_the_line_rendered_whole() -> None:
    for end, rendering in enumerate(grown()[1], start=1):
        whole = rendered(*(m for turn in TURNS[:end] for m in turn))
        assert rendering.request.body == whole.request.body
        assert rendering == dataclasses.replace(whole, request=rendering.request)


@pytest.mark.req("M92")
def test_a_growing_history_keeps_every_byte_before_its_end() -> None:
    for before, after in pairwise(grown()[1]):
        assert after.request.body.startswith(before.request.body.removesuffix(b"]}"))


def test_a_copy_grows_apart_from_its_original() -> None:
    made, renderings = grown()
    messages = line(*(m for turn in TURNS for m in turn), asks("n"), answer("n"))
    made.feed(messages[-2])
    other = made.copy()
    other.feed(messages[-1])
    assert b'"tool_call_id":"n"' in other.finish().request.body
    with pytest.raises(SequenceRejected):
        made.finish()
    made.feed(messages[-1])
    assert made.finish() == dataclasses.replace(other.finish(), request=made.finish().request)
    assert renderings[-1].request.body != made.finish().request.body


# What is refused.


def raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


@pytest.mark.parametrize(
    ("changes", "code", "at"),
    [
        ({"extra": {"tools": raw("[]")}}, "bad_option", "extra.tools"),
        ({"extra": {"options": raw("5")}}, "bad_option", "extra.options"),
        ({"extra": {"options": raw('{"num_predict":5}')}}, "bad_option", "extra.options.num_predict"),
        ({"extra": {"top_k": raw("5")}}, "unsupported_parameter", "extra.top_k"),
        ({"tool_choice": "required"}, "unsupported_parameter", "tool_choice"),
        ({"tool_choice": "tool:look"}, "unsupported_parameter", "tool_choice"),
        ({"parallel_tool_calls": False}, "unsupported_parameter", "parallel_tool_calls"),
    ],
)  # fmt: skip
def test_options_that_the_server_would_ignore_in_silence_are_refused(
    changes: dict[str, Any], code: str, at: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        OLLAMA.line(msgspec.structs.replace(QWEN, **changes), TOOLS, key=KEY)
    assert (caught.value.code, caught.value.at) == (code, at)


def refusal(*messages: Message) -> str:
    with pytest.raises(SequenceRejected) as caught:
        rendered(*messages)
    return caught.value.findings[0].code


@pytest.mark.req("M88")
def test_what_cannot_be_mapped_is_refused() -> None:
    assert refusal(user(Image(url="https://example.org/a.png"))) == "block_not_allowed"
    assert refusal(user(File(data="AA=="))) == "block_not_allowed"
    assert refusal(user(Audio(data="AA==", format="wav"))) == "block_not_allowed"
    assert refusal(user("a"), asks("1"), answer("1", File(data="AA=="))) == "block_not_allowed"
    listed = asks(call("1", arguments="[1]"))
    assert refusal(user("a"), listed, answer("1")) == "malformed_item"
    assert refusal(user("a"), asks("1")) == "missing_tool_result"


def test_half_a_character_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput) as caught:
        OLLAMA.line(QWEN, (), key=KEY).feed(line(user("\ud83e"))[0])
    assert caught.value.code == "invalid_unicode"


@pytest.mark.parametrize("facts", [{"num_ctx": "many"}, {"roles": 5}])
def test_facts_have_their_types(facts: dict[str, object]) -> None:
    with pytest.raises(InvalidInput) as caught:
        registry.get("ollama", facts)
    assert caught.value.code == "bad_fact"


@pytest.mark.parametrize(
    ("maker", "told"), [("qwen3:8b", True), (None, True), ("", True), ("llama3", False)]
)
def test_thinking_goes_back_to_its_model_only(maker: str | None, told: bool) -> None:
    body = rendered(user("a"), model(thought(maker=maker), "b"), user("c")).request.body
    assert (b'"thinking":"hm"' in body) is told


# Of any history.

texts = st.text(st.characters(codec="utf-8"), max_size=12).map(lambda t: Text(text=t))
spoken = texts.filter(lambda t: bool(t.text.strip()))
images = st.just(Image(data=PNG))
thoughts = st.sampled_from([thought(), thought("", None), thought(maker="llama3"), Reasoning(text="t")])  # fmt: skip
refusals = texts.map(lambda t: Refusal(text=t.text + "."))


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    made: list[Message] = []
    for number in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            made.append(said(draw(st.sampled_from([Role.SYSTEM, Role.DEVELOPER])), draw(spoken)))
        made.append(user(draw(spoken), *draw(st.lists(st.one_of(texts, images), max_size=2))))
        for step in range(draw(st.integers(0, 2))):
            ids = [f"call/{number}.{step}.{n}" for n in range(draw(st.integers(1, 3)))]
            before: list[Block] = draw(st.lists(st.one_of(texts, thoughts), max_size=2))
            arguments = draw(st.sampled_from(["{}", "", '{"a":[1.5]}']))
            calls = [call(i, draw(st.sampled_from(["look", "find"])), arguments) for i in ids]
            made.append(said(Role.ASSISTANT, *before, *calls))
            results = [
                answer(i, *(draw(st.lists(st.one_of(texts, images), max_size=2)) or [Text(text="")]), outcome=draw(st.sampled_from(Outcome)))
                for i in draw(st.permutations(ids))
            ]  # fmt: skip
            if draw(st.booleans()):
                results.insert(draw(st.integers(0, len(ids))), user("Well?"))
            made += results
        made.append(model(*draw(st.lists(st.one_of(texts, thoughts, refusals), max_size=3))))
    return line(*made)


def problems(body: bytes) -> list[str]:
    """Why a template would read another conversation than the one that is meant."""
    found = []
    due: list[tuple[str, str]] = []
    for turn in json.loads(body)["messages"]:
        if due and turn["role"] != "tool":
            found.append("something stands between a call and its result")
            due = []
        of = (turn.get("tool_call_id"), turn.get("tool_name"))
        if turn["role"] == "tool" and (not due or due.pop(0) != of):
            found.append("results in the order of their calls, by the name of the tool")
        due += [(c["id"], c["function"]["name"]) for c in turn.get("tool_calls", ())]
        fields = {"role", "content", "images", "thinking", "tool_calls", "tool_name", "tool_call_id"}  # fmt: skip
        if turn.keys() - fields or not isinstance(turn["content"], str):
            found.append("a field that nobody reads, or content that is no string")
        if not all(isinstance(c["function"]["arguments"], dict) for c in turn.get("tool_calls", ())):  # fmt: skip
            found.append("arguments are an object")
        if any(i.startswith(("http", "data:")) for i in turn.get("images", ())):
            found.append("an image is bare base64")
    return found + ["a call without its result"] * bool(due)


@pytest.mark.req("M2", "M20", "M42", "M88")
@settings(max_examples=40)
@given(histories())
def test_every_legal_history_is_rendered_and_read_back(history: list[Message]) -> None:
    assert check(history) == ()
    first = render(OLLAMA, history, QWEN, TOOLS, key=KEY)
    assert problems(first.request.body) == []
    parsed = OLLAMA.parse(json.loads(first.request.body))
    assert parsed.findings == ()
    assert check(parsed.messages, OLLAMA.profile, mapped=False, tools=parsed.tools) == ()
    again = render(OLLAMA, parsed.messages, parsed.policy, parsed.tools, key=KEY)
    assert json.loads(again.request.body) == json.loads(first.request.body)
    sent = json.dumps(json.loads(first.request.body), ensure_ascii=False)
    for message in history:
        for block in message.blocks:
            if isinstance(block, Text) and len(block.text) > 3:
                assert json.dumps(block.text, ensure_ascii=False)[1:-1] in sent


# What others wrote.

X: dict[str, Any] = {"role": "user", "content": "x"}


def asking(*names: str, **more: Any) -> dict[str, Any]:
    calls = [{"function": {"name": name, "arguments": {}}} for name in names]
    return {"role": "assistant", "content": "", "tool_calls": calls, **more}


def told(content: str = "1", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "content": content, **more}


def parsed(*messages: Any, **fields: Any) -> Parsed:
    return OLLAMA.parse({"messages": list(messages), **fields})


def codes(*messages: Any) -> list[tuple[str, str]]:
    made = parsed(*messages)
    found = check(made.messages, OLLAMA.profile, mapped=False, tools=made.tools)
    if made.findings and not made.messages:
        found = ()
    both = sorted((*made.findings, *made.located(found)), key=lambda f: f.position)
    return [(f.code, f.at) for f in both]


def test_results_without_ids_belong_to_the_first_open_call_of_their_tool() -> None:
    messages = (X, asking("look", "find", "look"), told("1", tool_name="look"), told("2", tool_name="find"), told("3"))  # fmt: skip
    made = parsed(*messages)
    calls = [c.call_id for m in made.messages for c in m.calls]
    assert [r.call_id for m in made.messages for r in m.results] == calls
    assert codes(*messages) == []


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        ([X, asking("look"), told(tool_name="find")], ("missing_tool_result", "messages[1].tool_calls[0]")),
        ([X, told(tool_name="look")], ("orphan_tool_result", "messages[1]")),
        ([X, asking("look"), X, told()], ("result_not_adjacent", "messages[3]")),
        ([X, asking("look", "find"), told(tool_name="find"), told(tool_name="look")], ("result_order", "messages[2]")),
        ([{**X, "content": [{"type": "text", "text": "x"}]}], ("malformed_item", "messages[0].content")),
        ([{**X, "images": ["https://example.org/a.png"]}], ("malformed_item", "messages[0].images[0]")),
        ([{**X, "images": "AA=="}], ("malformed_item", "messages[0].images")),
        ([{**X, "role": "developer"}], ("role_unsupported", "messages[0]")),
        ([X, asking(tool_calls=[{"name": "look"}])], ("malformed_item", "messages[1].tool_calls[0]")),
        ([X, asking(tool_calls=[{"function": {"name": "f", "arguments": "{}"}}])], ("malformed_item", "messages[1].tool_calls[0].function.arguments")),
        ([5], ("malformed_item", "messages[0]")),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found_at_its_place(messages: list[Any], found: tuple[str, str]) -> None:
    assert found in codes(*messages)


def test_what_is_legal_is_accepted() -> None:
    assert codes(X) == codes(X, {"role": "assistant", "content": ""}, X) == []
    assert codes(X, asking("look"), told(tool_name="look")) == []
    assert codes({"role": "system", "content": "s"}, X, {"role": "system", "content": "t"}) == []


def test_options_have_settings_of_ours_or_are_passed_on() -> None:
    policy = parsed(X, model="m", stream=False, think=True, options={"num_predict": 9, "temperature": 1, "seed": 7, "num_ctx": 8}).policy  # fmt: skip
    assert (policy.model, policy.max_output_tokens, policy.temperature) == ("m", 9, 1)
    assert policy.stream is False
    extra = {n: json.loads(bytes(v)) for n, v in policy.extra.items()}
    assert extra == {"think": True, "options": {"seed": 7, "num_ctx": 8}}
    assert parsed(X).policy.stream is True


@pytest.mark.parametrize(
    ("fields", "at"),
    [
        ({"messages": {}}, "messages"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"name": "f"}]}, "tools[0]"),
        ({"options": []}, "options"),
        ({"options": {"num_predict": "9"}}, "options.num_predict"),
        ({"stream": "yes"}, "stream"),
    ],
)
def test_a_request_of_another_shape_is_refused_as_a_whole(fields: dict[str, Any], at: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        OLLAMA.parse({"messages": [X], **fields})
    assert (caught.value.code, caught.value.at) == ("wrong_shape", at)


def test_the_server_s_errors_are_read_as_plain_text() -> None:
    verdict = OLLAMA.classify(404, {}, b'{"error":"model \'x\' not found"}', 0)
    assert (verdict.definite, verdict.retryable, verdict.message) == (True, False, "model 'x' not found")  # fmt: skip
    busy = OLLAMA.classify(503, {}, b'{"error":"server busy"}', 0)
    assert (busy.definite, busy.retryable) == (True, True)
    assert not OLLAMA.classify(500, {}, b'{"error":"out of memory"}', 0).definite
