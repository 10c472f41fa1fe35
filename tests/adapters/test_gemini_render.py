"""The exact bytes of generateContent requests, and what may never move them."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.adapters import registry
from antiphon.adapters.base import RenderedLine, Rendering, render
from antiphon.adapters.gemini.profile import facts_of, same_model
from antiphon.core.blocks import Message, Opaque, Reasoning, Role
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.recovery import Rung
from antiphon.errors import InvalidInput, SequenceRejected
from tests.golden import requests as golden
from tests.support.lines import KEY, answer, asks, call, line, model, said, system, user

CASES = {name: path for name, path in golden.cases() if name.startswith("gemini/")}
GEMINI = registry.get("gemini")
NEWER, OLDER = Policy(model="gemini-3.8-flash"), Policy(model="gemini-2.5-pro")
TOOLS = (ToolDeclaration(name="look"),)
FIXTURES = Path(__file__).parent.parent / "data" / "fixtures" / "render"


def rendered(*messages: Message, policy: Policy = NEWER, **facts: Any) -> Rendering:
    return render(registry.get("gemini", facts), line(*messages), policy, TOOLS, key=KEY)


def body(*messages: Message, policy: Policy = NEWER, **facts: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(rendered(*messages, policy=policy, **facts).request.body)
    return made


def signed(signature: str = "c2ln", model_name: str | None = None, **fields: Any) -> Opaque:
    value = msgspec.json.encode({"thoughtSignature": signature, **fields})
    return Opaque(profile="gemini", value=msgspec.Raw(value), model=model_name)


@pytest.mark.req("M2", "M15", "M20", "M42", "M51", "M87")
@pytest.mark.parametrize("name", CASES)
def test_a_golden_sequence_renders_to_its_recorded_bytes(name: str) -> None:
    case, recorded = golden.load(CASES[name])
    rendering = case.rendering()
    assert rendering.request.body == recorded
    assert tuple(m.rule for m in rendering.mappings) == case.mapped


def test_the_adapter_of_version_1_is_the_one_that_the_golden_bytes_were_made_with() -> None:
    """Another digest is another adapter: raise its version, and keep the bytes of this one."""
    recorded = CASES["gemini/minimal"].parent / "adapter.digest"
    assert (GEMINI.name, GEMINI.version) == ("gemini", 1)
    assert GEMINI.digest == recorded.read_text().strip()


@pytest.mark.req("M65")
def test_an_answer_can_be_neither_asked_after_nor_repeated() -> None:
    assert GEMINI.recovery == (Rung.CONNECTION, Rung.DEADLINE)
    assert GEMINI.closing_ends


@pytest.mark.req("M2")
def test_the_common_graph_says_what_its_fixture_says() -> None:
    _, recorded = golden.load(CASES["gemini/travel_desk"])
    assert json.loads(recorded) == json.loads((FIXTURES / "gemini.json").read_text())


# A line that grows.

TURNS: list[list[Message]] = [
    [system("Be brief."), user("What is it?")],
    [asks(call("a", opaque=signed()), "b", text="I look."), answer("b", "2"), answer("a", "1")],
    [model("It is that.", Reasoning(opaque=signed())), model("Yes.")],
    [user("And now?"), said(Role.DEVELOPER, "Be kind.")],
    [asks("x.1"), user("Hurry!"), answer("x.1", "late")],
    [model("", "One.", "Two."), user("More")],
    [user("and more", name="ada")],
]


def grown(policy: Policy, turns: list[list[Message]]) -> tuple[RenderedLine, list[Rendering]]:
    """A line fed turn by turn, and what it rendered to where it may be sent."""
    made = GEMINI.line(policy, TOOLS, key=KEY)
    renderings = []
    messages = iter(line(*(m for turn in turns for m in turn)))
    for turn in turns:
        for _ in turn:
            made.feed(next(messages))
        if turn[-1].role is not Role.ASSISTANT:
            renderings.append(made.finish())
    return made, renderings


@pytest.mark.parametrize("policy", [NEWER, OLDER], ids=["newer", "older"])
def test_a_line_that_grew_is_the_line_rendered_whole(policy: Policy) -> None:
    _, renderings = grown(policy, TURNS)
    ends = [n for n, turn in enumerate(TURNS, start=1) if turn[-1].role is not Role.ASSISTANT]
    for end, rendering in zip(ends, renderings, strict=True):
        whole = rendered(*(m for turn in TURNS[:end] for m in turn), policy=policy)
        assert rendering.request.body == whole.request.body
        assert rendering == dataclasses.replace(whole, request=rendering.request)


@pytest.mark.req("M92")
@pytest.mark.parametrize("policy", [NEWER, OLDER], ids=["newer", "older"])
def test_a_growing_history_keeps_every_byte_before_what_is_new(policy: Policy) -> None:
    turns = [t for t in TURNS if not any(m.role is Role.DEVELOPER for m in t)]
    _, renderings = grown(policy, turns)
    for before, after in pairwise(renderings):
        assert after.request.body.startswith(before.request.body.removesuffix(b"]}"))


def test_a_copy_grows_apart_from_its_original() -> None:
    for count in (3, 4):
        made, renderings = grown(OLDER, TURNS[:count])
        other = made.copy()
        messages = line(*(m for turn in TURNS[:count] for m in turn), user("left"))
        other.feed(messages[-1])
        other.feed(msgspec.structs.replace(system("late"), id="s", parent=messages[-1].id))
        other.finish()
        again = made.finish()
        assert again.request.body.startswith(renderings[-1].request.body.removesuffix(b"]}"))
        assert b"left" not in again.request.body
        assert b"late" not in again.request.body


def test_two_branches_put_their_own_system_text_to_the_top() -> None:
    shared = line(system("s"), user("a"), model("b"))
    left = GEMINI.line(OLDER, TOOLS, key=KEY)
    for message in shared:
        left.feed(message)
    right = left.copy()
    whole = []
    for made, word in ((left, "l"), (right, "r")):
        branch = line(*shared, user(f"{word}1"), model(f"{word}2"), system(word), user(f"{word}3"))
        for message in branch[len(shared) :]:
            made.feed(message)
        whole.append(rendered(*branch, policy=OLDER).request.body)
    assert [left.finish().request.body, right.finish().request.body] == whole


# Where it goes.


@pytest.mark.parametrize(
    ("endpoint", "model_name", "url"),
    [
        ("", "gemini-3-pro", "https://generativelanguage.googleapis.com/v1beta/models/gemini-3-pro"),
        ("http://h:1", "m", "http://h:1/v1beta/models/m"),
        ("http://h:1/gemini/", "models/m", "http://h:1/gemini/v1beta/models/m"),
        ("http://h:1/v1alpha", "tunedModels/m", "http://h:1/v1alpha/tunedModels/m"),
        ("http://h/v1/projects/p/locations/l/publishers/google", "m", "http://h/v1/projects/p/locations/l/publishers/google/models/m"),
        ("http://h/v1beta", "a/b?c#d e", "http://h/v1beta/models/a%2Fb%3Fc%23d%20e"),
        ("http://h/v1beta", "models/../x", "http://h/v1beta/models/models%2F..%2Fx"),
    ],
)  # fmt: skip
def test_the_path_names_the_model(endpoint: str, model_name: str, url: str) -> None:
    policy = Policy(model=model_name, endpoint=endpoint)
    assert rendered(user(), policy=policy).request.url == f"{url}:streamGenerateContent?alt=sse"
    once = msgspec.structs.replace(policy, stream=False)
    assert rendered(user(), policy=once).request.url == f"{url}:generateContent"


def test_the_head_says_what_is_wanted_and_leaves_room_for_the_key() -> None:
    streamed = rendered(user()).request
    assert (streamed.method, dict(streamed.headers)) == (
        "POST",
        {"accept": "text/event-stream", "content-type": "application/json", "x-goog-api-key": ""},
    )
    at_vertex = rendered(user(), key_header="authorization").request
    assert dict(at_vertex.headers)["authorization"] == ""
    assert dict(rendered(user(), policy=Policy(model="m", stream=False)).request.headers)["accept"] == "application/json"  # fmt: skip


# Signatures.


@pytest.mark.req("M48")
@pytest.mark.parametrize(
    ("maker", "reader", "same"),
    [
        ("gemini-3.8-flash", "gemini-3.8-flash", True),
        ("gemini-3.8-flash-001", "gemini-3.8-flash", True),
        ("gemini-3-pro-preview", "models/gemini-3-pro", True),
        ("gemini-2.5-flash-preview-09-2025", "gemini-2.5-flash", True),
        ("gemini-3.8-flash", "gemini-3.8-flash-lite", False),
        ("gemini-3.8-flash", "gemini-3.8-pro", False),
        ("gemini-3-pro", "gemini-3.5-pro", False),
        (None, "gemini-3.8-flash", True),
        ("gemini-3.8-flash", "gemini-flash-latest", True),
        ("gemini-3.8-flash", "fast", True),
    ],
)
def test_a_signature_is_for_the_model_that_made_it(
    maker: str | None, reader: str, same: bool
) -> None:
    assert same_model(maker, reader) is same
    asked = asks(call("1", opaque=signed(model_name=maker)))
    made = body(user(), asked, answer("1"), policy=Policy(model=reader), thought_signatures="none")
    assert ("thoughtSignature" in made["contents"][1]["parts"][0]) is same


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("gemini-3.8-flash", ("unsupported", "first_call_of_each_step")),
        ("models/gemini-4-pro-preview", ("unsupported", "first_call_of_each_step")),
        ("gemini-2.5-pro", ("supported", "optional")),
    ],
)
def test_a_model_s_name_tells_what_it_enforces(name: str, facts: tuple[str, str]) -> None:
    told = facts_of(name)
    assert (told["prefill"], told["thought_signatures"]) == facts


def test_another_name_tells_nothing_and_what_is_stated_goes_before_a_name() -> None:
    assert facts_of("fast") == facts_of("gemini-flash-latest") == {}
    turn = (user(), asks("1"), answer("1"))
    assert "thoughtSignature" not in body(*turn, policy=OLDER)["contents"][1]["parts"][0]
    assert "thoughtSignature" in body(*turn)["contents"][1]["parts"][0]
    loose = body(*turn, thought_signatures="none")
    assert "thoughtSignature" not in loose["contents"][1]["parts"][0]


def test_state_that_has_lost_what_it_stood_on_is_a_part_of_its_own() -> None:
    made = body(user(), model(Reasoning(opaque=signed()), "a"), user())
    assert made["contents"][1]["parts"] == [{"text": "", "thoughtSignature": "c2ln"}, {"text": "a"}]


# Refusals.


def refusal(*messages: Message, policy: Policy = NEWER, tools: Any = TOOLS, **facts: Any) -> str:
    with pytest.raises(SequenceRejected) as caught:
        render(registry.get("gemini", facts), line(*messages), policy, tools, key=KEY)
    return caught.value.findings[0].code


@pytest.mark.req("M88")
def test_what_cannot_be_mapped_is_refused() -> None:
    assert refusal(user("a"), model("b")) == "must_end_with_user"
    assert refusal(model("b"), user("a")) == "must_start_with_user"
    assert refusal(user("", "")) == "empty_content"
    assert refusal(system()) == "empty_sequence"
    assert refusal(user(), asks(call("1", arguments="[1]")), answer("1")) == "malformed_item"


@pytest.mark.parametrize(
    "schema",
    [
        '{"type":"object","allOf":[{}]}',
        '{"type":"object","properties":{"a":{"items":{"patternProperties":{}}}}}',
        '{"definitions":{"a":{}}}',
        "5",
        "{",
    ],
)
def test_a_schema_that_would_mean_something_else_is_refused(schema: str) -> None:
    tools = (ToolDeclaration(name="look", parameters=msgspec.Raw(schema.encode())),)
    assert refusal(user("a"), tools=tools) == "schema_unsupported"


def test_what_a_parameter_is_called_is_no_keyword() -> None:
    schema = (
        b'{"type":"object","properties":{"allOf":{"type":"string"},"pattern":{"enum":["allOf"]}}}'
    )
    made = render(GEMINI, line(user()), NEWER, (ToolDeclaration(name="look", parameters=msgspec.Raw(schema)),), key=KEY)  # fmt: skip
    assert made.mappings == ()
    assert schema in made.request.body


def raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


@pytest.mark.parametrize(
    ("policy", "at", "code"),
    [
        (Policy(model="m", extra={"contents": raw("[]")}), "extra.contents", "bad_option"),
        (Policy(model="m", extra={"generationConfig": raw('{"temperature":1}')}), "extra.generationConfig.temperature", "bad_option"),
        (Policy(model="m", extra={"generationConfig": raw("5")}), "extra.generationConfig", "bad_option"),
        (Policy(model="m", tool_choice="auto", extra={"toolConfig": raw("{}")}), "extra.toolConfig", "bad_option"),
        (Policy(model="m", tool_choice="perhaps"), "tool_choice", "bad_option"),
        (Policy(model="m", parallel_tool_calls=False), "parallel_tool_calls", "unsupported_parameter"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_said_are_refused_before(policy: Policy, at: str, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        GEMINI.line(policy, TOOLS, key=KEY)
    assert (caught.value.code, caught.value.at) == (code, at)


@pytest.mark.parametrize("facts", [{"call_ids": "no"}, {"key_header": 5}])
def test_facts_of_the_server_have_their_types(facts: dict[str, object]) -> None:
    with pytest.raises(InvalidInput) as caught:
        registry.get("gemini", facts)
    assert caught.value.code == "bad_fact"


def test_half_a_character_is_refused_by_name() -> None:
    made = GEMINI.line(NEWER, (), key=KEY)
    with pytest.raises(InvalidInput) as caught:
        made.feed(line(user("\ud83e"))[0])
    assert caught.value.code == "invalid_unicode"
