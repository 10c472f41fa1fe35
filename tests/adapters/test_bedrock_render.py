"""The exact bytes of Converse requests, and what may never move them."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from botocore.awsrequest import prepare_request_dict
from botocore.serialize import create_serializer
from botocore.session import Session
from hypothesis import given
from hypothesis import strategies as st

from antiphon.adapters import registry
from antiphon.adapters.base import RenderedLine, Rendering, render
from antiphon.adapters.bedrock.profile import facts_of, same_model
from antiphon.core.blocks import Audio, File, Image, Message, Opaque, Reasoning, Role, Text
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.recovery import Rung
from antiphon.errors import InvalidInput, SequenceRejected
from tests.golden import requests as golden
from tests.support.lines import KEY, PNG, answer, asks, call, line, model, said, system, user

CASES = {name: path for name, path in golden.cases() if name.startswith("bedrock/")}
BEDROCK = registry.get("bedrock")
CLAUDE = Policy(model="anthropic.claude-sonnet-4-5-20250929-v1:0")
NEWER = Policy(model="us.anthropic.claude-opus-5-v1:0")
LLAMA = Policy(model="meta.llama4-scout-17b-instruct-v1:0")
TOOLS = (ToolDeclaration(name="look"),)
FIXTURES = Path(__file__).parent.parent / "data" / "fixtures" / "render"


def rendered(
    *messages: Message, policy: Policy = CLAUDE, tools: Any = TOOLS, **facts: Any
) -> Rendering:
    return render(registry.get("bedrock", facts), line(*messages), policy, tools, key=KEY)


@pytest.mark.req("M2", "M15", "M20", "M42", "M51", "M87")
@pytest.mark.parametrize("name", CASES)
def test_a_golden_sequence_renders_to_its_recorded_bytes(name: str) -> None:
    case, recorded = golden.load(CASES[name])
    rendering = case.rendering()
    assert rendering.request.body == recorded
    assert tuple(m.rule for m in rendering.mappings) == case.mapped


@pytest.mark.req("M9", "M102")
@pytest.mark.parametrize("version", [1, 2])
def test_each_version_is_the_one_that_the_golden_bytes_were_made_with(version: int) -> None:
    """Another digest is another adapter: raise its version, and keep the bytes of this one."""
    name = "adapter.digest" if version == 1 else f"adapter.{version}.digest"
    recorded = CASES["bedrock/minimal"].parent / name
    adapter = registry.get("bedrock", version=version)
    assert (adapter.name, adapter.version) == ("bedrock", version)
    assert adapter.digest == recorded.read_text().strip()
    assert registry.versions("bedrock") == (1, 2)


@pytest.mark.req("M87", "M102")
@pytest.mark.parametrize("name", CASES)
def test_every_version_that_is_carried_renders_the_recorded_bytes(name: str) -> None:
    case, recorded = golden.load(CASES[name])
    made = {version: case.of_version(version).request.body for version in case.versions}
    assert made == dict.fromkeys([1, 2][case.since - 1 :], recorded)


@pytest.mark.req("M103")
def test_the_first_version_refuses_sound_at_its_place_and_the_second_what_is_no_sound_there() -> (
    None
):
    case, _ = golden.load(CASES["bedrock/sound"])
    with pytest.raises(SequenceRejected) as refused:
        case.of_version(1)
    (first, *_) = refused.value.findings
    assert (first.code, first.at) == ("block_not_allowed", f"{case.messages[0].id}.1")
    assert "audio" not in (registry.kinds_of("bedrock", 1) or "audio")
    with pytest.raises(SequenceRejected) as refused:
        rendered(user("Hear.", Audio(data="AA==", format="midi")))
    (found,) = refused.value.findings
    assert (found.code, found.at[-2:]) == ("block_not_allowed", ".1")


@pytest.mark.req("M65")
def test_a_call_can_be_neither_asked_after_nor_repeated() -> None:
    assert BEDROCK.recovery == (Rung.CONNECTION, Rung.DEADLINE)
    assert BEDROCK.closing_ends


@pytest.mark.req("M2")
def test_the_common_graph_says_what_its_fixture_says() -> None:
    _, recorded = golden.load(CASES["bedrock/travel_desk"])
    assert json.loads(recorded) == json.loads((FIXTURES / "bedrock_converse.json").read_text())


# Where it goes.


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        "amazon.nova-pro-v1:0",
        "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-opus-5-v1:0",
        "arn:aws:bedrock:us-east-1:123456789012:provisioned-model/abc/../é%2F",
    ],
)
def test_the_model_stands_in_the_path_as_the_aws_library_puts_it_there(
    name: str, stream: bool
) -> None:
    service = Session().get_service_model("bedrock-runtime")
    operation = service.operation_model("ConverseStream" if stream else "Converse")
    serializer = create_serializer("rest-json", include_validation=False)
    expected = serializer.serialize_to_request({"modelId": name}, operation)
    home = "https://bedrock-runtime.us-east-1.amazonaws.com"
    prepare_request_dict(expected, endpoint_url=home)
    policy = Policy(model=name, endpoint=f"{home}/", stream=stream)
    request = rendered(user(), policy=policy).request
    assert (request.method, request.url) == ("POST", expected["url"])


def test_the_key_has_its_header_and_the_answer_its_framing() -> None:
    assert rendered(user()).request.headers == (
        ("accept", "application/vnd.amazon.eventstream"),
        ("authorization", ""),
        ("content-type", "application/json"),
    )
    whole = rendered(user(), policy=msgspec.structs.replace(CLAUDE, stream=False)).request
    assert dict(whole.headers)["accept"] == "application/json"
    assert whole.url.startswith("https://unnamed.invalid/model/")


# A line that grows.

TURNS: list[list[Message]] = [
    [system("Be brief."), user("What is it?")],
    [asks("a", "b", text="I look."), answer("b", "2"), answer("a", '{"n":1}')],
    [model("It is that.")],
    [user("And now?", File(filename="a.pdf", data="AA=="))],
    [asks("x/1"), user("Hurry!"), answer("x/1", Image(data=PNG), "late")],
    [model("", "One.", "Two."), user("More", File(filename="a.pdf", data="AA=="))],
    [user("and more", name="ada")],
]


def grown(
    policy: Policy, tools: tuple[ToolDeclaration, ...]
) -> tuple[RenderedLine, list[Rendering]]:
    """A line fed turn by turn, and what it rendered to where it may be sent."""
    made = BEDROCK.line(policy, tools, key=KEY)
    renderings = []
    messages = iter(line(*(m for turn in TURNS for m in turn)))
    for turn in TURNS:
        for _ in turn:
            made.feed(next(messages))
        if turn[-1].role is not Role.ASSISTANT:
            renderings.append(made.finish())
    return made, renderings


@pytest.mark.parametrize("tools", [TOOLS, ()], ids=["declared", "derived"])
@pytest.mark.parametrize("policy", [CLAUDE, NEWER, LLAMA], ids=["older", "newer", "llama"])
def test_a_line_that_grew_is_the_line_rendered_whole(
    policy: Policy, tools: tuple[ToolDeclaration, ...]
) -> None:
    _, renderings = grown(policy, tools)
    ends = [n for n, turn in enumerate(TURNS, start=1) if turn[-1].role is not Role.ASSISTANT]
    for end, rendering in zip(ends, renderings, strict=True):
        messages = [m for turn in TURNS[:end] for m in turn]
        whole = rendered(*messages, policy=policy, tools=tools)
        assert rendering.request.body == whole.request.body
        assert rendering == dataclasses.replace(whole, request=rendering.request)


@pytest.mark.req("M92")
@pytest.mark.parametrize("tools", [TOOLS, ()], ids=["declared", "derived"])
@pytest.mark.parametrize("policy", [CLAUDE, LLAMA], ids=["claude", "llama"])
def test_a_growing_history_keeps_every_byte_before_its_last_message(
    policy: Policy, tools: tuple[ToolDeclaration, ...]
) -> None:
    _, renderings = grown(policy, tools)
    for before, after in pairwise(renderings):
        first, second = before.request.body, after.request.body
        kept = first.split(b'],"toolConfig":{"tools":[{"toolSpec":{"name":"look","inputSchema"')[0]
        assert second.startswith(kept.removesuffix(b"}").removesuffix(b"]").removesuffix(b"]}"))


def test_a_copy_grows_apart_from_its_original() -> None:
    made, renderings = grown(CLAUDE, ())
    other = made.copy()
    messages = line(*(m for turn in TURNS for m in turn), asks(call("n", "new")), answer("n"))
    for message in messages[-2:]:
        other.feed(message)
    other.feed(line(*messages, user(File(filename="a.pdf", data="AA=="), "x"))[-1])
    assert b'"name":"new"' in other.finish().request.body
    assert made.finish().request.body == renderings[-1].request.body


def test_two_branches_name_their_files_alike() -> None:
    left = BEDROCK.line(CLAUDE, (), key=KEY)
    shared = line(user("a", File(filename="a.pdf", data="AA==")), model("b"))
    for message in shared:
        left.feed(message)
    right = left.copy()
    branch = line(*shared, user("c", File(filename="a.pdf", data="AA==")))
    right.feed(branch[-1])
    assert b'"name":"a (2)"' in right.finish().request.body
    left.feed(branch[-1])
    assert left.finish().request.body == right.finish().request.body


@given(st.lists(st.sampled_from([0, 1, 2, 3]), max_size=6))
def test_asking_for_a_rendering_changes_nothing(asked: list[int]) -> None:
    made = BEDROCK.line(NEWER, TOOLS, key=KEY)
    messages = line(user("a"), system("s"), model("b"), user("c"))
    for number, message in enumerate(messages):
        made.feed(message)
        for _ in range(asked.count(number)):
            try:
                made.finish()
            except SequenceRejected:
                assert message.role is Role.ASSISTANT
    assert made.finish().request.body == rendered(*messages, policy=NEWER).request.body


# Refusals.


def raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


@pytest.mark.parametrize(
    ("changes", "code", "at"),
    [
        ({"extra": {"system": raw("[]")}}, "bad_option", "extra.system"),
        ({"extra": {"inferenceConfig": raw("5")}}, "bad_option", "extra.inferenceConfig"),
        (
            {"extra": {"inferenceConfig": raw('{"maxTokens":5}')}},
            "bad_option",
            "extra.inferenceConfig.maxTokens",
        ),
        ({"extra": {"top_k": raw("5")}}, "unsupported_parameter", "extra.top_k"),
        ({"parallel_tool_calls": False}, "unsupported_parameter", "parallel_tool_calls"),
    ],
)
def test_options_that_the_wire_lacks_are_refused(
    changes: dict[str, Any], code: str, at: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        BEDROCK.line(msgspec.structs.replace(CLAUDE, **changes), TOOLS, key=KEY)
    assert (caught.value.code, caught.value.at) == (code, at)


def refusal(*messages: Message, policy: Policy = CLAUDE, tools: Any = TOOLS, **facts: Any) -> str:
    with pytest.raises(SequenceRejected) as caught:
        rendered(*messages, policy=policy, tools=tools, **facts)
    return caught.value.findings[0].code


@pytest.mark.req("M88")
def test_what_cannot_be_mapped_is_refused() -> None:
    assert refusal(user("a"), model("b"), policy=NEWER) == "must_end_with_user"
    assert refusal(model("b"), user("a")) == "must_start_with_user"
    assert refusal(user(" ", "\n")) == "empty_content"
    assert refusal(user(File(data="AA=="))) == "empty_content"
    assert refusal(user("a", File(file_id="f"))) == "block_not_allowed"
    assert refusal(user("a", Image(url="https://example.org/a.png"))) == "block_not_allowed"
    assert refusal(user("a", *[Image(data=PNG)] * 21)) == "too_many_blocks"
    assert refusal(system()) == "empty_sequence"
    listed = asks(call("1", arguments="[1]"))
    assert refusal(user("a"), listed, answer("1")) == "malformed_item"
    loose = (ToolDeclaration(name="look", parameters=raw("{}")),)
    assert refusal(user("a"), tools=loose) == "schema_unsupported"
    enabled = msgspec.structs.replace(CLAUDE, extra={"additionalModelRequestFields": raw('{"thinking":{"type":"enabled","budget_tokens":1024}}')})  # fmt: skip
    assert refusal(user("a"), asks("1"), answer("1"), policy=enabled) == "thinking_missing"


def test_half_a_character_is_refused_by_name() -> None:
    made = BEDROCK.line(CLAUDE, (), key=KEY)
    with pytest.raises(InvalidInput) as caught:
        made.feed(line(user("\ud83e"))[0])
    assert caught.value.code == "invalid_unicode"


@pytest.mark.parametrize("facts", [{"results_apart": "yes"}, {"call_id_max": 0}])
def test_facts_have_their_types(facts: dict[str, object]) -> None:
    with pytest.raises(InvalidInput) as caught:
        registry.get("bedrock", facts)
    assert caught.value.code == "bad_fact"


# Facts that stand in a model's id, and those that are stated.


def test_a_model_s_id_tells_what_it_takes_and_what_is_stated_goes_before() -> None:
    assert facts_of("anthropic.claude-3-haiku-20240307-v1:0") == {"prefill": "supported"}
    assert facts_of("mistral.mistral-large-2407-v1:0")["results_apart"] is True
    assert facts_of("writer.palmyra-x4-v1:0")["result_status"] is False
    assert facts_of("") == {}
    line_ = (user("a"), model("b"))
    rendered(*line_, policy=CLAUDE)
    assert refusal(*line_, policy=CLAUDE, prefill="unsupported") == "must_end_with_user"
    rendered(*line_, policy=NEWER, prefill="supported")
    loop = (user("a"), asks("1", text="so"), answer("1"))
    assert len(json.loads(rendered(*loop, policy=LLAMA).request.body)["messages"]) == 5
    made = rendered(*loop, policy=LLAMA, results_apart=False)
    assert len(json.loads(made.request.body)["messages"]) == 3


@pytest.mark.parametrize(("word", "strict"), [("strict", True), ("free", False)])
def test_whether_neighbours_are_joined_by_the_service_may_be_stated(
    word: str, strict: bool
) -> None:
    assert registry.get("bedrock", {"alternation": word}).profile.one_message_a_turn is strict


@pytest.mark.parametrize(
    ("maker", "reader", "same"),
    [
        ("us.anthropic.claude-opus-5-v1:0", "eu.anthropic.claude-opus-5-v1:0", True),
        ("anthropic.claude-opus-5-v1:0", "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-opus-5-v1:0", True),
        ("anthropic.claude-opus-5-v1:0", "anthropic.claude-sonnet-5-v1:0", False),
        ("amazon.nova-pro-v1:0", "anthropic.claude-opus-5-v1:0", False),
        ("amazon.nova-pro-v1:0", "amazon.nova-pro-v1:0", True),
        (None, "amazon.nova-pro-v1:0", True),
    ],
)  # fmt: skip
def test_a_signature_is_for_the_model_that_made_it(
    maker: str | None, reader: str, same: bool
) -> None:
    assert same_model(maker, reader) is same


def test_reasoning_of_another_model_stays_behind() -> None:
    state = Opaque(
        profile="bedrock", value=raw('{"reasoningText":{"signature":"E"}}'), model="amazon.nova-pro-v1:0"
    )  # fmt: skip
    made = rendered(user("a"), model(Reasoning(text="hm", opaque=state), "b"), user("c"))
    assert b"reasoningContent" not in made.request.body
    assert [m.rule for m in made.mappings] == ["reasoning_dropped"]


def test_a_developer_s_word_is_system_text() -> None:
    made = rendered(said(Role.DEVELOPER, "Be kind."), user("a"))
    assert json.loads(made.request.body)["system"] == [{"text": "Be kind."}]


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


@pytest.mark.req("M2")
def test_no_two_documents_bear_one_name_even_if_a_third_is_called_as_the_second_would_be() -> None:
    """`Messages can't contain duplicate document names` (maximhq/bifrost#7003)."""
    files = (File(data="AA==", filename=name) for name in ("a.pdf", "a.pdf", "a (2).pdf", "a.pdf"))
    rendering = rendered(said(Role.USER, Text(text="x"), *files))
    parts = json.loads(rendering.request.body)["messages"][0]["content"]
    names = [part["document"]["name"] for part in parts[1:]]
    assert names == ["a", "a (2)", "a (2) (2)", "a (3)"]
