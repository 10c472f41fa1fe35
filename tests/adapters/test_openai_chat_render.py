"""The exact bytes of Chat Completions requests, and what may never move them."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.adapters import registry
from antiphon.adapters.base import GrowingBody, RenderedLine, Rendering, render, request_hasher
from antiphon.adapters.openai_chat import OpenAIChat
from antiphon.core.blocks import Image, Message, Role, Status, Trust, Unknown
from antiphon.core.ids import ConversationId
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.errors import InvalidInput, SequenceRejected
from tests.golden import requests as golden
from tests.support.lines import (
    HERE,
    KEY,
    PNG,
    answer,
    asks,
    call,
    line,
    model,
    said,
    system,
    user,
)

CASES = dict(golden.cases())
CHAT = registry.get("openai-chat")
POLICY = Policy(model="m-1", endpoint="http://127.0.0.1:8080/v1")
FIXTURES = Path(__file__).parent.parent / "data" / "fixtures" / "render"


def rendered(*messages: Message, policy: Policy = POLICY, **facts: Any) -> Rendering:
    return render(registry.get("openai-chat", facts), line(*messages), policy, key=KEY)


def sent(rendering: Rendering) -> Any:
    return json.loads(rendering.request.body)["messages"]


@pytest.mark.req("M2", "M15", "M20", "M42", "M51", "M87")
@pytest.mark.parametrize("name", CASES)
def test_a_golden_sequence_renders_to_its_recorded_bytes(name: str) -> None:
    case, recorded = golden.load(CASES[name])
    rendering = case.rendering()
    assert rendering.request.body == recorded, (
        "python -m tests.golden.requests shows the difference"
    )
    assert tuple(m.rule for m in rendering.mappings) == case.mapped


def test_the_adapter_of_version_1_is_the_one_that_the_golden_bytes_were_made_with() -> None:
    """Another digest is another adapter: raise its version, and keep the bytes of this one."""
    assert (CHAT.name, CHAT.version) == ("openai-chat", 1)
    assert (
        CHAT.digest == (CASES["openai-chat/minimal"].parent / "adapter.digest").read_text().strip()
    )


@pytest.mark.req("M2")
def test_the_common_graph_says_what_its_fixture_says() -> None:
    case, recorded = golden.load(CASES["openai-chat/travel_desk"])
    assert json.loads(recorded) == json.loads((FIXTURES / "openai_chat.json").read_text())
    graph = json.loads((FIXTURES / "graph.json").read_text())
    assert [m.id for m in case.messages] == graph["activePath"]


def test_two_processes_with_other_hash_seeds_render_the_same_bytes() -> None:
    program = "import json; from tests.golden.requests import fingerprints; print(json.dumps(fingerprints()))"
    made = []
    for seed in ("1", "4242"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=60,
        )
        made.append(json.loads(done.stdout))
    assert made[0] == made[1] == golden.fingerprints()
    assert len(made[0]) > 20


# A line that grows.

TURNS: list[list[Message]] = [
    [user("What is it?")],
    [asks("a", "b", text="I look."), answer("b", "2"), answer("a", Image(media_type="image/png", data=PNG))],
    [model("It is that.")],
    [user("And now?"), said(Role.DEVELOPER, "Be kind."), system("Be brief.")],
    [asks("x" * 50), user("Hurry!"), answer("x" * 50, "late")],
    [model("", "One.", "Two.")],
    [user("Thanks.", name="ada")],
]  # fmt: skip
FACTS: list[dict[str, Any]] = [
    {},
    {"roles": ["system", "user", "assistant", "tool"]},
    {"system_position": "first"},
    {"call_id_max": 9, "reasoning_echo": "always"},
]


def grown(
    facts: dict[str, Any], turns: list[list[Message]]
) -> tuple[RenderedLine, list[Rendering]]:
    """A line fed turn by turn, and what it rendered to after each."""
    made = registry.get("openai-chat", facts).line(POLICY, (), key=KEY)
    renderings = []
    messages = line(*(m for turn in turns for m in turn))
    done = 0
    for turn in turns:
        for message in messages[done : done + len(turn)]:
            made.feed(message)
        done += len(turn)
        renderings.append(made.finish())
    return made, renderings


@pytest.mark.parametrize("facts", FACTS, ids=["as it is", "no developer", "system first", "ids"])
def test_a_line_that_grew_is_the_line_rendered_whole(facts: dict[str, Any]) -> None:
    _, renderings = grown(facts, TURNS)
    for count, rendering in enumerate(renderings, start=1):
        whole = rendered(*(m for turn in TURNS[:count] for m in turn), **facts)
        assert rendering.request.body == whole.request.body
        assert rendering == dataclasses.replace(whole, request=rendering.request)


@pytest.mark.parametrize("facts", [FACTS[0], FACTS[1], FACTS[3]])
def test_a_new_turn_leaves_every_byte_before_it_as_it_was(facts: dict[str, Any]) -> None:
    _, renderings = grown(facts, TURNS)
    for before, after in pairwise(renderings):
        assert before.request.body.endswith(b"]}")
        assert after.request.body.startswith(before.request.body[:-2] + b",")


def test_where_turns_alternate_only_the_last_message_may_still_grow() -> None:
    facts = {"alternation": "strict"}
    turns = [[user("a")], [user("b")], [model("c")], [user("d")]]
    _, renderings = grown(facts, turns)
    bodies = [rendering.request.body for rendering in renderings]
    assert bodies[3].startswith(bodies[2][:-2])
    assert bodies[2].startswith(bodies[1][:-2])
    assert not bodies[1].startswith(bodies[0][:-2]), "the first two are one message now"


@given(
    st.lists(st.integers(0, len(TURNS) - 1), max_size=6),
    st.lists(st.integers(0, len(TURNS) - 1), max_size=4),
)
def test_a_copy_goes_its_own_way(shared: list[int], own: list[int]) -> None:
    """Call ids are made distinct first, since a turn may come twice."""

    def at(number: int, position: int) -> list[Message]:
        data = msgspec.json.encode(TURNS[number]).decode()
        for name in ("a", "b", "x" * 50):
            data = data.replace(f'"call_id":"{name}"', f'"call_id":"{name}{position}"')
        return msgspec.json.decode(data, type=list[Message])

    turns = [at(number, position) for position, number in enumerate([*shared, *own])]
    trunk, _ = grown({}, turns[: len(shared)] or [[user()]])
    before = trunk.finish()
    branch = trunk.copy()
    last = line(*(m for turn in turns[: len(shared)] or [[user()]] for m in turn))[-1]
    flat = [m for turn in turns[len(shared) :] for m in turn]
    for position, message in enumerate(flat):
        parent = last.id if position == 0 else f"n{position - 1}"
        branch.feed(msgspec.structs.replace(message, id=f"n{position}", parent=parent))
    branch.finish()
    assert trunk.finish() == before
    again = trunk.finish().request
    assert b"".join(again.chunks) == before.request.body


def test_a_copy_made_while_a_message_waits_for_results_keeps_its_own() -> None:
    messages = line(user(), asks("a", "b"), user("hurry"), answer("a"), answer("b"))
    trunk = CHAT.line(POLICY, (), key=KEY)
    for message in messages[:2]:
        trunk.feed(message)
    branch = trunk.copy()
    branch.feed(messages[2])
    for made in (trunk, branch):
        for message in messages[3:]:
            made.feed(msgspec.structs.replace(message, parent=None))
    assert [m["content"] for m in sent(trunk.finish())] == ["hello", None, "done", "done"]
    assert [m["content"] for m in sent(branch.finish())][-1] == "hurry"


def test_a_copy_names_calls_of_its_own() -> None:
    adapter = registry.get("openai-chat", {"call_id_pattern": "^[a-zA-Z0-9]{9}$"})
    messages = line(user(), asks("long id 1"), answer("long id 1"))
    trunk = adapter.line(POLICY, (), key=KEY)
    trunk.feed(messages[0])
    branch = trunk.copy()
    for message in messages[1:]:
        branch.feed(message)
    short = sent(branch.finish())[2]["tool_call_id"]
    trunk.feed(asks(short, id="m2", parent="m1"))
    trunk.feed(answer(short, id="m3", parent="m2"))
    assert sent(trunk.finish())[2]["tool_call_id"] == short


def test_what_followed_one_turns_results_does_not_follow_anothers() -> None:
    picture = Image(media_type="image/png", data=PNG)
    messages = sent(
        rendered(
            user("1"), asks("a"), user("hurry"), answer("a", picture),
            user("2"), asks("b"), user("again"), answer("b", picture), user("3"),
        )
    )  # fmt: skip
    roles = ["user", "assistant", "tool", "user", "user"]
    assert [m["role"] for m in messages] == [*roles, *roles, "user"]
    assert [m["content"] for m in messages if isinstance(m["content"], str) and m["role"] == "user"] == [
        "1", "hurry", "2", "again", "3",
    ]  # fmt: skip
    assert [len(m["content"]) for m in messages if isinstance(m["content"], list)] == [2, 2]


def test_options_go_out_in_one_order_however_they_were_given() -> None:
    a, b = msgspec.Raw(b"1"), msgspec.Raw(b"2")
    one = rendered(user(), policy=msgspec.structs.replace(POLICY, extra={"seed": a, "n": b}))
    other = rendered(user(), policy=msgspec.structs.replace(POLICY, extra={"n": b, "seed": a}))
    assert one.request.body == other.request.body


def test_a_long_body_is_few_pieces_that_are_never_joined_again() -> None:
    made = CHAT.line(POLICY, (), key=KEY)
    messages = line(*(user("x" * 1000) if n % 2 else model("y" * 1000) for n in range(2000)))
    for message in messages:
        made.feed(message)
    first = made.finish().request
    made.feed(user("more", id="last", parent=messages[-1].id))
    second = made.finish().request
    assert len(json.loads(first.body)["messages"]) == 2000
    assert len(first.chunks) < 50
    assert all(a is b for a, b in zip(first.chunks[:-1], second.chunks, strict=False))


@given(st.lists(st.binary(max_size=9), max_size=40), st.binary(max_size=5))
def test_a_body_is_its_pieces_whatever_their_borders(parts: list[bytes], ending: bytes) -> None:
    body = GrowingBody(request_hasher(KEY, "POST", "https://x.test/", ()), b"")
    at_once = GrowingBody(request_hasher(KEY, "POST", "https://x.test/", ()), b"")
    for part in parts:
        body.append(part)
    at_once.append(b"".join(parts))
    assert b"".join(body.finish(ending).chunks) == b"".join(parts) + ending
    assert body.finish(ending).digest == at_once.finish(ending).digest


# Digests.


@pytest.mark.req("M9", "M50", "M51", "M54")
def test_the_request_digest_covers_method_place_headers_and_body_but_no_key_of_the_provider() -> (
    None
):
    base = rendered(user("hi"))
    digests = {
        base.request_digest,
        rendered(user("ho")).request_digest,
        rendered(user("hi"), policy=msgspec.structs.replace(POLICY, model="m-2")).request_digest,
        rendered(user("hi"), policy=msgspec.structs.replace(POLICY, stream=False)).request_digest,
        rendered(
            user("hi"), policy=msgspec.structs.replace(POLICY, endpoint="http://127.0.0.1:8081/v1")
        ).request_digest,
        rendered(
            user("hi"), policy=msgspec.structs.replace(POLICY, endpoint="http://127.0.0.1:8080/v2")
        ).request_digest,
        render(CHAT, line(user("hi")), POLICY, key=b"another tenant").request_digest,
    }
    assert len(digests) == 7
    assert base.request.method == "POST"
    assert base.request.url == "http://127.0.0.1:8080/v1/chat/completions"
    assert base.request.headers == (
        ("accept", "text/event-stream"),
        ("content-type", "application/json"),
    )


@pytest.mark.req("M28")
def test_digests_are_keyed_by_the_tenant_so_that_content_cannot_be_guessed_from_them() -> None:
    ours, theirs = (render(CHAT, line(user("yes")), POLICY, key=key) for key in (b"a", b"b"))
    assert ours.sequence_digest != theirs.sequence_digest
    assert ours.request.body == theirs.request.body


@pytest.mark.req("M9", "M87")
def test_the_adapter_digest_covers_every_fact() -> None:
    facts: list[dict[str, object]] = [
        {},
        {"roles": ["user", "assistant"]},
        {"call_id_max": 41},
        {"call_id_pattern": "[a-z]+"},
        {"output_limit": "max_tokens"},
        {"store": True},
        {"stream_usage": False},
    ]
    assert len({registry.get("openai-chat", f).digest for f in facts}) == len(facts)
    assert registry.get("llamacpp").digest != CHAT.digest
    assert registry.get("openai-chat", {}).digest == OpenAIChat().digest


@pytest.mark.req("M87")
def test_an_upgrade_that_changes_the_order_of_roles_does_not_hash_to_the_old_request() -> None:
    messages = line(user("a"), system("b"), user("c"))
    old = render(CHAT, messages, POLICY, key=KEY)
    upgraded = registry.get("openai-chat", {"system_position": "first"})
    new = render(upgraded, messages, POLICY, key=KEY)
    assert [m["role"] for m in sent(new)] != [m["role"] for m in sent(old)]
    assert new.request_digest != old.request_digest
    assert new.sequence_digest == old.sequence_digest
    assert upgraded.digest != CHAT.digest


# What goes out, and what never does.


@pytest.mark.req("M14", "M15", "M16")
def test_nothing_of_a_message_goes_out_but_what_is_named() -> None:
    secret = "never-in-a-request"
    marked = msgspec.structs.replace(
        user("hi"),
        metadata={"note": secret, secret: "x"},
        error_code=secret,
        created_ms=987654321,
    )
    body = rendered(marked).request.body
    assert secret.encode() not in body
    assert b"987654321" not in body
    assert json.loads(body)["messages"] == [{"role": "user", "content": "hi"}]
    assert b"m1" not in body
    assert HERE.encode() not in body


@pytest.mark.req("M31")
def test_a_name_goes_out_where_the_wire_has_a_place_for_it_and_never_on_a_result() -> None:
    messages = (
        user(name="ada"),
        asks("a", name="bot"),
        said(Role.TOOL, *answer("a").blocks, name="no"),
    )
    assert [m.get("name") for m in sent(rendered(*messages))] == ["ada", "bot", None]


@pytest.mark.req("M6", "M45")
@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=2, max_size=4))
def test_texts_arrive_as_they_were_each_in_a_part_of_its_own(texts: list[str]) -> None:
    (message,) = sent(rendered(user(*texts)))
    assert [part["text"] for part in message["content"]] == texts
    assert message["role"] == "user"


@pytest.mark.req("M6", "M45")
@given(st.text(st.characters(codec="utf-8")))
def test_no_text_can_become_a_message_a_role_or_a_call(text: str) -> None:
    messages = sent(
        rendered(system(text), user(text), asks("a", text=text), answer("a", text), user(text))
    )
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "tool", "user"]
    assert [m["content"] for m in messages] == [text, text, text or None, text, text]
    assert [len(m.get("tool_calls", ())) for m in messages] == [0, 0, 1, 0, 0]


@pytest.mark.req("M24")
def test_a_result_stays_a_tool_message_under_its_call_id() -> None:
    messages = sent(rendered(user(), asks("a"), answer("a", "4 degrees"), user()))
    assert messages[2] == {"role": "tool", "tool_call_id": "a", "content": "4 degrees"}


@pytest.mark.req("M88")
@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ((), "empty_sequence"),
        ((user(), answer("a")), "orphan_tool_result"),
        ((user(), asks("a")), "missing_tool_result"),
        ((user(Unknown(name="odd")),), "unknown_block_kind"),
        ((user(), model(status=Status.ERROR), user()), "uncommitted_block"),
        ((system(trust=Trust.TOOL), user()), "trust_violation"),
    ],
)
def test_an_illegal_line_is_never_rendered(messages: tuple[Message, ...], code: str) -> None:
    with pytest.raises(SequenceRejected) as caught:
        rendered(*messages)
    assert caught.value.code == code


def test_a_line_that_waits_for_results_renders_once_they_are_there() -> None:
    made = CHAT.line(POLICY, (), key=KEY)
    messages = line(user(), asks("a"), answer("a"))
    for message in messages[:2]:
        made.feed(message)
    assert made.open_calls == ("a",)
    with pytest.raises(SequenceRejected):
        made.finish()
    made.feed(messages[2])
    assert len(sent(made.finish())) == 3


def test_half_a_character_is_refused_by_name_and_leaves_the_line_as_it_was() -> None:
    made = CHAT.line(POLICY, (), key=KEY)
    made.feed(line(user("hi"))[0])
    before = made.finish()
    with pytest.raises(InvalidInput) as caught:
        made.feed(model("\ud83d", id="m2", parent="m1"))
    assert (caught.value.code, caught.value.at) == ("invalid_unicode", "m2")
    assert made.finish() == before


def test_a_message_of_another_conversation_is_refused() -> None:
    made = CHAT.line(POLICY, (), key=KEY, conversation=ConversationId("conv_other"))
    made.feed(line(user())[0])
    with pytest.raises(SequenceRejected) as caught:
        made.finish()
    assert caught.value.code == "foreign_branch"


def test_an_option_that_has_a_setting_of_its_own_cannot_be_slipped_in() -> None:
    for field in ("model", "messages", "stream", "tools", "max_tokens"):
        extra = {field: msgspec.Raw(b'"x"')}
        with pytest.raises(InvalidInput) as caught:
            rendered(user(), policy=msgspec.structs.replace(POLICY, extra=extra))
        assert (caught.value.code, caught.value.at) == ("bad_option", f"extra.{field}")


def test_without_tools_nothing_is_said_about_their_use() -> None:
    policy = msgspec.structs.replace(POLICY, tool_choice="auto", parallel_tool_calls=False)
    fields = json.loads(rendered(user(), policy=policy).request.body)
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & fields.keys()
    made = render(CHAT, line(user()), policy, (ToolDeclaration(name="look"),), key=KEY)
    fields = json.loads(made.request.body)
    assert (fields["tool_choice"], fields["parallel_tool_calls"]) == ("auto", False)


# Call ids.


@pytest.mark.req("M26")
def test_two_calls_never_become_one_even_when_their_short_forms_collide() -> None:
    pattern: Any = {"call_id_pattern": "[ab]{1,2}|x"}
    ids = ["first-long-id", "second-long-id"]
    with pytest.raises(InvalidInput) as caught:
        rendered(user(), asks(*ids), *map(answer, ids), **pattern)
    assert caught.value.code == "bad_call_id"


@given(st.lists(st.text("abc_-.", min_size=1, max_size=60), min_size=1, max_size=12, unique=True))
def test_ids_are_respelled_reversibly_and_the_same_in_every_request(ids: list[str]) -> None:
    facts: Any = {"call_id_pattern": "^[a-zA-Z0-9]{9}$"}
    rendering = rendered(user(), asks(*ids), *map(answer, reversed(ids)), **facts)
    messages = sent(rendering)
    spelled = [c["id"] for c in messages[1]["tool_calls"]]
    assert len(set(spelled)) == len(ids)
    assert all(len(s) == 9 and s.isalnum() for s in spelled)
    assert [m["tool_call_id"] for m in messages[2:]] == spelled[::-1]
    told = dict(m.detail.split(" as ") for m in rendering.mappings)
    back = {theirs: ours for ours, theirs in told.items()}
    assert [back.get(s, s) for s in spelled] == ids
    later = rendered(user("other"), model(), user(), asks(ids[-1]), answer(ids[-1]), **facts)
    assert sent(later)[3]["tool_calls"][0]["id"] == spelled[-1]


@pytest.mark.req("M26")
def test_ids_stay_apart_where_there_are_few_to_choose_from() -> None:
    ids = [f"a long call id {n}" for n in range(30)]
    facts: Any = {"call_id_max": 1}
    messages = sent(rendered(user(), asks(*ids), *map(answer, ids), **facts))
    spelled = [c["id"] for c in messages[1]["tool_calls"]]
    assert len(set(spelled)) == 30
    assert {len(s) for s in spelled} == {1}
    assert [m["tool_call_id"] for m in messages[2:]] == spelled


def test_an_id_that_looks_like_a_respelled_one_is_respelled_itself() -> None:
    facts: Any = {"call_id_pattern": "^[a-zA-Z0-9]{9}$"}
    short = sent(rendered(user(), asks("long id 1"), answer("long id 1"), **facts))[1][
        "tool_calls"
    ][0]["id"]
    ids = ["long id 1", short]
    messages = sent(rendered(user(), asks(*ids), *map(answer, ids), **facts))
    spelled = [c["id"] for c in messages[1]["tool_calls"]]
    assert spelled[0] == short
    assert spelled[1] != short


def test_a_call_keeps_its_arguments_to_the_byte() -> None:
    arguments = '{ "b" : 1.50, "a": "\\u00e9" }'
    messages = sent(rendered(user(), asks(call("a", arguments=arguments)), answer("a")))
    assert messages[1]["tool_calls"][0]["function"]["arguments"] == arguments


@pytest.mark.req("M2", "M51")
def test_a_name_goes_out_as_openai_takes_it_and_elsewhere_as_it_is() -> None:
    """`Invalid 'messages[0].name': string does not match pattern`, as people report it."""
    jane = msgspec.structs.replace(user("hi"), name="Jane <Doe>")
    rendering = rendered(jane)
    assert sent(rendering)[0]["name"] == "Jane_Doe_"
    assert [(m.rule, m.detail) for m in rendering.mappings] == [
        ("name_respelled", "Jane <Doe> as Jane_Doe_")
    ]
    elsewhere = render(registry.get("llamacpp"), line(jane), POLICY, key=KEY)
    assert sent(elsewhere)[0]["name"] == "Jane <Doe>"
    assert elsewhere.mappings == ()
