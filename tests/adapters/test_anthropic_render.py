"""The exact bytes of Anthropic Messages requests, and what may never move them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.adapters import registry
from antiphon.adapters.anthropic.profile import facts_of, same_model
from antiphon.adapters.base import RenderedLine, Rendering, render
from antiphon.core.blocks import File, Message, Opaque, Origin, Reasoning, Role
from antiphon.core.ids import Digest
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.recovery import Rung
from antiphon.core.rules.sequence import sequence_digest
from antiphon.errors import InvalidInput, SequenceRejected
from tests.golden import requests as golden
from tests.support.lines import KEY, answer, asks, call, line, model, said, system, user

CASES = {name: path for name, path in golden.cases() if name.startswith("anthropic/")}
CLAUDE = registry.get("anthropic")
NEWER, OLDER = Policy(model="claude-opus-5"), Policy(model="claude-opus-4-5")
TOOLS = (ToolDeclaration(name="look"),)
FIXTURES = Path(__file__).parent.parent / "data" / "fixtures" / "render"


def rendered(*messages: Message, policy: Policy = NEWER, **facts: Any) -> Rendering:
    return render(registry.get("anthropic", facts), line(*messages), policy, TOOLS, key=KEY)


def signed(
    model_name: str | None = None, profile: str = "anthropic", prefix: Digest | None = None
) -> Reasoning:
    state = Opaque(
        profile=profile,
        value=msgspec.Raw(b'{"type":"thinking","signature":"Eq=="}'),
        model=model_name,
        prefix=prefix,
    )
    return Reasoning(text="hm", opaque=state)


@pytest.mark.req("M2", "M15", "M20", "M42", "M51", "M87")
@pytest.mark.parametrize("name", CASES)
def test_a_golden_sequence_renders_to_its_recorded_bytes(name: str) -> None:
    case, recorded = golden.load(CASES[name])
    rendering = case.rendering()
    assert rendering.request.body == recorded
    assert tuple(m.rule for m in rendering.mappings) == case.mapped


def test_the_adapter_of_version_1_is_the_one_that_the_golden_bytes_were_made_with() -> None:
    """Another digest is another adapter: raise its version, and keep the bytes of this one."""
    recorded = CASES["anthropic/minimal"].parent / "adapter.digest"
    assert (CLAUDE.name, CLAUDE.version) == ("anthropic", 1)
    assert CLAUDE.digest == recorded.read_text().strip()


@pytest.mark.req("M65")
def test_a_plain_message_can_be_neither_asked_after_nor_repeated() -> None:
    assert CLAUDE.recovery == (Rung.CONNECTION, Rung.DEADLINE)
    assert CLAUDE.closing_ends


@pytest.mark.req("M2")
def test_the_common_graph_says_what_its_fixture_says() -> None:
    _, recorded = golden.load(CASES["anthropic/travel_desk"])
    assert json.loads(recorded) == json.loads((FIXTURES / "anthropic.json").read_text())


# A line that grows.

TURNS: list[list[Message]] = [
    [system("Be brief."), user("What is it?")],
    [asks("a", "b", text="I look."), answer("b", "2"), answer("a", "1")],
    [model(signed(), "It is that.")],
    [user("And now?"), said(Role.DEVELOPER, "Be kind.")],
    [asks("x.1"), user("Hurry!"), answer("x.1", "late")],
    [model("", "One.", "Two."), user("More")],
    [user("and more", name="ada")],
]


def grown(policy: Policy, turns: list[list[Message]]) -> tuple[RenderedLine, list[Rendering]]:
    """A line fed turn by turn, and what it rendered to where it may be sent."""
    made = CLAUDE.line(policy, TOOLS, key=KEY)
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
def test_a_growing_history_keeps_every_byte_before_its_last_message() -> None:
    turns = [t for t in TURNS if not any(m.role is Role.DEVELOPER for m in t)]
    _, renderings = grown(OLDER, turns)
    for before, after in pairwise(renderings):
        first, second = before.request.body, after.request.body
        kept = first.removesuffix(b"]}]}")  # of the last message and of the array
        assert second.startswith(kept)


def test_a_copy_grows_apart_from_its_original() -> None:
    for policy in (NEWER, OLDER):
        made, renderings = grown(policy, TURNS[:4])
        other = made.copy()
        messages = line(*(m for turn in TURNS[:4] for m in turn), user("left"))
        other.feed(messages[-1])
        other.feed(msgspec.structs.replace(system("late"), id="s", parent=messages[-1].id))
        other.finish()
        assert made.finish().request.body == renderings[-1].request.body
        assert made.finish() == dataclasses.replace(renderings[-1], request=made.finish().request)


def test_two_branches_put_their_own_system_text_to_the_top() -> None:
    shared = line(system("s"), user("a"), model("b"))
    left = CLAUDE.line(OLDER, TOOLS, key=KEY)
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


@given(st.lists(st.sampled_from([0, 1, 2, 3]), max_size=6))
def test_asking_for_a_rendering_changes_nothing(asked: list[int]) -> None:
    made = CLAUDE.line(NEWER, TOOLS, key=KEY)
    messages = line(user("a"), said(Role.SYSTEM, "s"), model("b"), user("c"))
    for number, message in enumerate(messages):
        made.feed(message)
        for _ in range(asked.count(number)):
            try:
                made.finish()
            except SequenceRejected:
                assert message.role is Role.ASSISTANT
    assert made.finish().request.body == rendered(*messages).request.body


# What goes to the provider beside the body.


def test_the_key_has_its_header_and_the_version_is_pinned() -> None:
    request = rendered(user()).request
    assert (request.method, request.url) == ("POST", "https://api.anthropic.com/v1/messages")
    assert dict(request.headers) == {
        "accept": "text/event-stream",
        "anthropic-version": "2026-10-21",
        "content-type": "application/json",
        "x-api-key": "",
    }
    at_once = rendered(user(), policy=Policy(model="m", stream=False)).request
    assert dict(at_once.headers)["accept"] == "application/json"


@pytest.mark.parametrize(
    "address", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"]
)
def test_an_address_may_name_the_version_of_the_path_or_not(address: str) -> None:
    policy = Policy(model="m", endpoint=address)
    assert rendered(user(), policy=policy).request.url == "http://h:1/v1/messages"


def test_a_beta_and_a_version_are_facts_of_the_server() -> None:
    headers = dict(rendered(user(), beta="b-1", api_version="2023-06-01").request.headers)
    assert (headers["anthropic-beta"], headers["anthropic-version"]) == ("b-1", "2023-06-01")
    body = json.loads(rendered(user(), answer_tokens=55).request.body)
    assert body["max_tokens"] == 55


@pytest.mark.parametrize("facts", [{"answer_tokens": "many"}, {"api_version": 5}])
def test_facts_of_the_server_have_their_types(facts: dict[str, object]) -> None:
    with pytest.raises(InvalidInput) as caught:
        registry.get("anthropic", facts)
    assert caught.value.code == "bad_fact"


def raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


@pytest.mark.parametrize(
    ("policy", "at"),
    [
        (Policy(model="m", extra={"max_tokens": raw("5")}), "extra.max_tokens"),
        (Policy(model="m", extra={"system": raw('"x"')}), "extra.system"),
        (Policy(model="m", max_output_tokens=1024, extra={"thinking": raw('{"type":"enabled","budget_tokens":1024}')}), "extra.thinking"),
        (Policy(model="m", tool_choice="required", extra={"thinking": raw('{"type":"enabled","budget_tokens":1024}')}), "tool_choice"),
    ],
)  # fmt: skip
def test_options_that_the_provider_refuses_are_refused_before(policy: Policy, at: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        CLAUDE.line(policy, TOOLS, key=KEY)
    assert (caught.value.code, caught.value.at) == ("bad_option", at)


def test_thinking_that_adapts_may_be_forced_to_call() -> None:
    policy = Policy(
        model="m", tool_choice="required", extra={"thinking": raw('{"type":"adaptive"}')}
    )
    assert json.loads(rendered(user(), policy=policy).request.body)["tool_choice"] == {
        "type": "any"
    }


# Refusals.


def refusal(*messages: Message, policy: Policy = NEWER, tools: Any = TOOLS, **facts: Any) -> str:
    with pytest.raises(SequenceRejected) as caught:
        render(registry.get("anthropic", facts), line(*messages), policy, tools, key=KEY)
    return caught.value.findings[0].code


ENABLED = Policy(model="m", extra={"thinking": raw('{"type":"enabled","budget_tokens":1024}')})


@pytest.mark.req("M88")
def test_what_cannot_be_mapped_is_refused() -> None:
    assert refusal(user("a"), model("b")) == "must_end_with_user"
    assert refusal(user("a"), model("b"), system()) == "must_end_with_user"
    assert refusal(model("b"), user("a")) == "must_start_with_user"
    assert refusal(user(" ", "\n")) == "empty_content"
    assert refusal(system()) == "empty_sequence"
    assert refusal(user("a"), asks("1"), answer("1"), tools=()) == "tool_config_missing"
    listed = asks(call("1", arguments="[1]"))
    assert refusal(user("a"), listed, answer("1")) == "malformed_item"
    loose = (ToolDeclaration(name="look", parameters=raw("{}")),)
    assert refusal(user("a"), tools=loose) == "schema_unsupported"


def test_a_loop_that_thought_needs_its_thinking_while_thinking_is_enabled() -> None:
    loop = (asks("1"), answer("1"))
    assert refusal(user("a"), *loop, policy=ENABLED) == "thinking_missing"
    unsigned = model(Reasoning(text="hm"), *asks("1").blocks)
    assert refusal(user("a"), unsigned, answer("1"), policy=ENABLED) == "thinking_missing"
    rendered(user("a"), *loop, policy=NEWER)  # adapts, or does not think at all
    rendered(user("a"), *loop, user("b"), policy=ENABLED)  # an older turn
    led = model(signed(), *asks("1").blocks)
    again = (user("b"), asks("2"), answer("2"))
    assert refusal(user("a"), led, answer("1"), *again, policy=ENABLED) == "thinking_missing"
    rendered(user("a"), led, answer("1"), asks("2"), answer("2"), policy=ENABLED)


def test_half_a_character_is_refused_by_name() -> None:
    made = CLAUDE.line(NEWER, (), key=KEY)
    with pytest.raises(InvalidInput) as caught:
        made.feed(line(user("\ud83e"))[0])
    assert caught.value.code == "invalid_unicode"


def test_a_text_file_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput) as caught:
        rendered(user(File(media_type="text/plain", data="/w==")))
    assert caught.value.code == "bad_data"


# Facts that stand in a model's name.


@pytest.mark.parametrize(
    ("name", "prefill", "between"),
    [
        ("claude-opus-5", False, True),
        ("claude-opus-4-8", False, True),
        ("claude-opus-4-7", False, False),
        ("claude-sonnet-5", False, False),
        ("claude-haiku-4-5-20251001", True, False),
        ("claude-opus-4-20250514", True, False),
        ("claude-3-7-sonnet-20250219", True, False),
        ("anthropic/claude-opus-4-6", False, False),
    ],
)
def test_a_model_s_name_tells_what_it_takes(name: str, prefill: bool, between: bool) -> None:
    facts = facts_of(name)
    assert facts["prefill"] == ("supported" if prefill else "unsupported")
    assert ("roles" in facts) is between


def test_another_name_tells_nothing_and_what_is_stated_goes_before_a_name() -> None:
    assert facts_of("fast") == {}
    rendered(user("a"), model("b"), prefill="supported")
    assert refusal(user("a"), model("b "), prefill="supported") == "must_end_with_user"
    older = Policy(model="claude-opus-4-5")
    assert (
        refusal(user("a"), model("b"), policy=older, prefill="unsupported") == "must_end_with_user"
    )
    assert rendered(user("a"), model("b"), policy=older).mappings == ()


@pytest.mark.parametrize(
    ("maker", "reader", "same"),
    [
        ("claude-opus-5-20261001", "claude-opus-5", True),
        ("claude-opus-5", "claude-opus-5-latest", True),
        ("claude-opus-5-20261001", "claude-opus-5@20260901", True),
        ("claude-opus-5", "claude-sonnet-5", False),
        ("claude-opus-4-8", "claude-opus-4", False),
        (None, "claude-opus-5", True),
        ("claude-opus-5", "fast", True),
    ],
)
def test_a_signature_is_for_the_model_that_made_it(
    maker: str | None, reader: str, same: bool
) -> None:
    assert same_model(maker, reader) is same


def test_system_text_behind_the_last_answer_goes_to_the_top_where_no_user_follows() -> None:
    made = rendered(user("a"), model("b"), system("c"), prefill="supported", roles=["system", "user", "assistant"])  # fmt: skip
    body = json.loads(made.request.body)
    assert body["system"] == [{"type": "text", "text": "c"}]
    assert [m["role"] for m in body["messages"]] == ["user", "assistant"]
    assert [m.rule for m in made.mappings] == ["system_moved", "system_hoisted"]


def test_a_copied_search_goes_along_and_copied_thinking_does_not() -> None:
    work = Reasoning(opaque=Opaque(profile="anthropic", value=raw('{"type":"server_tool_use"}'), work=True))  # fmt: skip
    made = rendered(user("a"), model(signed(), work, "b", origin=Origin.COPIED), user("c"))
    kinds = [p["type"] for p in json.loads(made.request.body)["messages"][1]["content"]]
    assert kinds == ["server_tool_use", "text"]


@pytest.mark.parametrize("thinking", ["optional", "required"])
def test_thinking_is_void_behind_another_line_than_it_was_made_behind(thinking: str) -> None:
    """What came before it was edited, deleted or summed up: it is dropped, or the loop is refused."""
    first, second = line(user("a"), user("b"))
    bound = signed(prefix=sequence_digest(KEY, [first, second]))
    whole = line(first, second, model(bound, call("c1")), answer("c1"), model("c"), user("d"))
    kept = rendered_line(whole[:4], thinking=thinking)
    assert b'"signature":"Eq=="' in kept.request.body
    if thinking == "required":
        with pytest.raises(SequenceRejected) as rejected:
            rendered_line(whole[1:4], thinking=thinking)
        assert (rejected.value.code, rejected.value.at) == ("thinking_missing", "m3")
    made = rendered_line(whole[1:], thinking=thinking)
    assert b"signature" not in made.request.body  # a turn that is over needs none
    assert [(m.rule, m.block) for m in made.mappings] == [("reasoning_dropped", "m3.0")]


def rendered_line(messages: Sequence[Message], **facts: object) -> Rendering:
    tools = [ToolDeclaration(name="look")]
    policy = Policy(model="claude-opus-5")
    return render(registry.get("anthropic", facts), messages, policy, tools, key=KEY)


def test_system_texts_that_wait_for_the_same_place_are_one_message_there() -> None:
    made = rendered(user("a"), system("s"), system("t"), roles=["system", "user", "assistant"])
    sent = json.loads(made.request.body)["messages"]
    assert [m["role"] for m in sent] == ["user", "system"]
    assert [part["text"] for part in sent[1]["content"]] == ["s", "t"]
    assert [m.rule for m in made.mappings] == ["merged_same_role"]
    answered = rendered(
        user("a"), system("s"), system("t"), model("b"), user("c"), roles=["system", "user", "assistant"]
    )  # fmt: skip
    roles = [m["role"] for m in json.loads(answered.request.body)["messages"]]
    assert roles == ["user", "system", "assistant", "user"]
