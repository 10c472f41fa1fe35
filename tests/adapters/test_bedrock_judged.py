"""What is rendered for Bedrock, before judges that know nothing of our rules.

Of any messages in any order, either nothing is rendered, or what is rendered may be sent.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.adapters import registry
from antiphon.adapters.base import render
from antiphon.core.blocks import (
    Audio,
    Block,
    File,
    Image,
    Message,
    Opaque,
    Origin,
    Outcome,
    Reasoning,
    Refusal,
    Role,
    Status,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.rules.graph import check
from antiphon.core.rules.profile import with_facts
from antiphon.errors import SequenceRejected
from tests.adapters.converse_judge import problems
from tests.golden import requests as golden
from tests.support.lines import KEY, PNG, answer, asks, call, line, said

CASES = {name: path for name, path in golden.cases() if name.startswith("bedrock/")}
TOOLS = (ToolDeclaration(name="look", description="Looks."), ToolDeclaration(name="find"))
BEDROCK = registry.get("bedrock")
MODELS = [
    "anthropic.claude-sonnet-4-5-20250929-v1:0",
    "us.anthropic.claude-opus-5-v1:0",
    "amazon.nova-pro-v1:0",
    "meta.llama4-scout-17b-instruct-v1:0",
    "writer.palmyra-x5-v1:0",
]


def between(model: str) -> bool:
    """Whether the model takes system messages."""
    return "opus-5" in model


def signed(text: str = "hm", **fields: Any) -> Reasoning:
    state = msgspec.Raw(b'{"reasoningText":{"signature":"Eq=="}}')
    return Reasoning(text=text, opaque=Opaque(profile="bedrock", value=state, **fields))


texts = st.text(st.characters(codec="utf-8"), max_size=12).map(lambda t: Text(text=t))
spoken = texts.filter(lambda t: bool(t.text.strip()))
objects = st.sampled_from(['{"a":1}', '{"n":12345678901234567890}', '{"a": 1}', '{"a":1,"a":2}', "[1]", "{", '{"é":[{}]}', '{"x":1e999}', '{"n":NaN}']).map(lambda t: Text(text=t))  # fmt: skip
images = st.sampled_from([Image(data=PNG), Image(media_type="image/webp", data=PNG)])
files = st.sampled_from([File(filename="a.pdf", media_type="application/pdf", data="JVBERi0="), File(filename="../é__b  c.v2.csv", media_type="text/csv", data="YQ=="), File(data="JVBERi0="), File(filename="x" * 300, data="JVBERi0=")])  # fmt: skip
thoughts = st.sampled_from([Reasoning(text="t"), signed(), signed(""), signed(model="amazon.nova-pro-v1:0")])  # fmt: skip
refusals = texts.map(lambda t: Refusal(text=t.text + "."))


@st.composite
def results(draw: st.DrawFn, call_id: str) -> Message:
    content = draw(st.lists(st.one_of(texts, objects, images, files), max_size=3))
    outcome = draw(st.sampled_from(Outcome))
    return answer(call_id, *(content or [Text(text="")]), outcome=outcome)


@st.composite
def turns(draw: st.DrawFn, number: int) -> list[Message]:
    """A user's input and all that came of it, as our own history may hold it."""
    made: list[Message] = []
    sign = draw(st.sampled_from("/.:"))  # the wire takes all but the first
    if draw(st.booleans()):
        role = draw(st.sampled_from([Role.SYSTEM, Role.DEVELOPER]))
        made.append(said(role, *draw(st.lists(spoken, min_size=1, max_size=2))))
    content = draw(st.lists(st.one_of(texts, images, files), max_size=3))
    made.append(said(Role.USER, draw(spoken), *content, name=draw(st.sampled_from([None, "ada"]))))
    for step in range(draw(st.integers(0, 2))):
        ids = [f"call{sign}{number}.{step}.{n}" for n in range(draw(st.integers(1, 3)))]
        arguments = draw(st.sampled_from(["{}", "", '{"a":[1.50]}']))
        before: list[Block] = draw(st.lists(st.one_of(texts, thoughts), max_size=2))
        calls = [call(i, draw(st.sampled_from(["look", "find"])), arguments) for i in ids]
        made.append(said(Role.ASSISTANT, *before, *calls))
        made += [draw(results(i)) for i in draw(st.permutations(ids))]
        if draw(st.booleans()):  # a person who could not wait
            late = draw(st.lists(st.one_of(images, files), max_size=1))
            made.insert(len(made) - draw(st.integers(0, len(ids))), said(Role.USER, "Well?", *late))
    words = st.lists(st.one_of(texts, thoughts, refusals), max_size=3)
    made.append(said(Role.ASSISTANT, *draw(words)))
    return made


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    made = [message for number in range(draw(st.integers(1, 3))) for message in draw(turns(number))]
    while made[-1].role is Role.ASSISTANT:
        made.pop()
    return line(*made)


def alone(body: bytes) -> bool:
    """Whether nothing stands beside results, and nothing beside calls."""
    for message in json.loads(body)["messages"]:
        kinds = {kind.startswith("tool") for block in message["content"] for kind in block}
        if len(kinds) > 1:
            return False
    return True


@pytest.mark.req("M2", "M42", "M88")
@settings(max_examples=40)
@given(histories(), st.sampled_from(MODELS), st.sampled_from([(), TOOLS]))
def test_every_legal_history_is_rendered_to_what_may_be_sent(
    history: list[Message], model: str, tools: tuple[ToolDeclaration, ...]
) -> None:
    assert check(history) == ()
    body = render(BEDROCK, history, Policy(model=model), tools, key=KEY).request.body
    assert problems(body, between=between(model)) == []
    assert "llama" not in model or alone(body)
    # Every word of the talk arrives.
    sent = json.dumps(json.loads(body), ensure_ascii=False)
    for message in history:
        for block in message.blocks:
            if isinstance(block, Text) and len(block.text.strip()) > 3:
                assert json.dumps(block.text, ensure_ascii=False)[1:-1] in sent


@pytest.mark.req("M2", "M20")
@settings(max_examples=40)
@given(histories(), st.sampled_from(MODELS[:3]))
def test_what_is_read_back_says_what_was_rendered(history: list[Message], model: str) -> None:
    """Up to the mappings: what was left out, joined or respelled is so in both."""
    first = render(BEDROCK, history, Policy(model=model), TOOLS, key=KEY)
    parsed = BEDROCK.parse({"modelId": model, **json.loads(first.request.body)})
    assert (parsed.findings, parsed.uncarried) == ((), ())
    profile = with_facts(BEDROCK.profile, {"roles": ["system", "user", "assistant"]} if between(model) else {})  # fmt: skip
    assert check(parsed.messages, profile, mapped=False, tools=parsed.tools) == ()
    again = render(BEDROCK, parsed.messages, parsed.policy, parsed.tools, key=KEY)
    assert json.loads(again.request.body) == json.loads(first.request.body)
    if not {"call_id_respelled", "empty_arguments"} & {m.rule for m in first.mappings}:
        assert shown(parsed.messages) == shown(history)
    # Whatever was mapped, calls and their results are those of the history, in their order.
    assert [(c.name, c.arguments or "{}") for m in parsed.messages for c in m.calls] == [
        (c.name, json.dumps(json.loads(c.arguments or "{}"), separators=(",", ":")))
        for m in history
        for c in m.calls
    ]


def shown(messages: Any) -> list[Any]:
    """What stands for itself in a history, whichever message it is in."""
    return [
        block.call_id
        for message in messages
        for block in message.blocks
        if isinstance(block, ToolCall | ToolResult)
    ]


SOUP = st.sampled_from(
    [
        said(Role.SYSTEM, "s"),
        said(Role.DEVELOPER, "d"),
        said(Role.SYSTEM, " "),
        said(Role.USER, "u"),
        said(Role.USER, " "),
        said(Role.USER),
        said(Role.USER, Unknown(name="odd")),
        said(Role.USER, Audio(data="UklGRg==", format="wav")),
        said(Role.USER, Image(media_type="image/tiff", data="AA==")),
        said(Role.USER, Image(url="https://example.org/a.png")),
        said(Role.USER, File(media_type="application/zip", data="AA==")),
        said(Role.USER, File(file_id="file-1"), "x"),
        said(Role.USER, File(media_type="text/html", data="AA==")),
        said(Role.USER, "x", *[Image(data=PNG)] * 21),
        said(Role.USER, "x", *[File(data="AA==")] * 6),
        said(Role.ASSISTANT, "a"),
        said(Role.ASSISTANT, ""),
        said(Role.ASSISTANT, signed(), "a"),
        said(Role.ASSISTANT, signed(), "a", origin=Origin.COPIED),
        said(Role.ASSISTANT, "a", status=Status.CANCELED),
        said(Role.ASSISTANT, Image(data=PNG)),
        asks("1"),
        asks("2", "3"),
        asks("1", "1"),
        asks(call("4", name="no.such.name")),
        asks(call("5", arguments='{"a')),
        asks(call("6", arguments="[1]")),
        asks(""),
        answer("1"),
        answer("2"),
        answer("3", Image(url="https://example.org/a.png")),
        answer("3", File(media_type="text/csv", data="YQ==")),
        answer("9"),
        said(Role.TOOL),
        said(Role.TOOL, "not a result"),
        said(Role.SYSTEM, Image(data=PNG)),
    ]
)


@pytest.mark.req("M34", "M37", "M39", "M40", "M47", "M79", "M80", "M81", "M88")
@given(st.lists(SOUP, max_size=8), st.sampled_from(MODELS), st.sampled_from([(), TOOLS]))
def test_of_any_messages_in_any_order_nothing_illegal_is_rendered(
    messages: list[Message], model: str, tools: tuple[ToolDeclaration, ...]
) -> None:
    try:
        rendering = render(BEDROCK, line(*messages), Policy(model=model), tools, key=KEY)
    except SequenceRejected:
        return
    prefill = "claude-sonnet-4-5" in model
    assert problems(rendering.request.body, prefill=prefill, between=between(model)) == []


@pytest.mark.parametrize("name", CASES)
def test_every_golden_body_may_be_sent(name: str) -> None:
    _, recorded = golden.load(CASES[name])
    assert problems(recorded, streamed="whole" not in name, between=True) == []


# The judge itself, and ours, on the published examples.


def user(*content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def model(*content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


TEXT = {"text": "so"}
X = user({"text": "x"})
T1: dict[str, Any] = {"toolUse": {"toolUseId": "t1", "name": "f", "input": {}}}
T2: dict[str, Any] = {"toolUse": {"toolUseId": "t2", "name": "f", "input": {}}}
R1: dict[str, Any] = {"toolResult": {"toolUseId": "t1", "content": [{"text": "1"}]}}
R2: dict[str, Any] = {"toolResult": {"toolUseId": "t2", "content": [{"text": "2"}]}}


def pdf(name: str) -> dict[str, Any]:
    return {"document": {"format": "pdf", "name": name, "source": {"bytes": "AA=="}}}


PDF = pdf("a")


def named(name: str) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": "t1", "name": name, "input": {}}}


def failed(*content: Any) -> dict[str, Any]:
    return {"toolResult": {"toolUseId": "t1", "status": "error", "content": list(content)}}


ILLEGAL: list[tuple[str, list[dict[str, Any]], str]] = [
    ("no message", [], "empty_sequence"),
    ("results in two messages of the user", [X, model(T1, T2), user(R1), user(R2)], "result_not_adjacent"),
    ("a result missing", [X, model(T1, T2), user(R1)], "missing_tool_result"),
    ("an error that says nothing", [X, model(T1), user(failed())], "empty_content"),
    ("an orphan", [X, model(TEXT), user(R1)], "orphan_tool_result"),
    ("answered twice", [X, model(T1), user(R1, R1)], "duplicate_tool_result"),
    ("two of one role", [X, X], "role_order"),
    ("two of the assistant", [X, model(TEXT), model(TEXT), X], "role_order"),
    ("the assistant first", [model(TEXT), X], "must_start_with_user"),
    ("the assistant last", [X, model(TEXT)], "must_end_with_user"),
    ("a blank text", [user({"text": " "})], "empty_content"),
    ("no content", [user()], "empty_content"),
    ("a document alone", [user(PDF)], "empty_content"),
    ("six documents", [user(TEXT, *[pdf(n) for n in "abcdef"])], "too_many_blocks"),
    ("two keys in one block", [user({"text": "x", "cachePoint": {"type": "default"}})], "malformed_item"),
    ("an image of the assistant", [X, model({"image": {"format": "png", "source": {"bytes": PNG}}}), X], "block_not_allowed"),
    ("an image of another type", [user({"image": {"format": "tiff", "source": {"bytes": PNG}}})], "block_not_allowed"),
    ("arguments as a string", [X, model({"toolUse": {"toolUseId": "t1", "name": "f", "input": "{}"}}), user(R1)], "malformed_item"),
    ("a name of another form", [X, model(named("f.g")), user(R1)], "bad_tool_name"),
    ("a name that is too long", [X, model(named("f" * 65)), user(R1)], "bad_tool_name"),
    ("a role of another API", [{"role": "tool", "content": [TEXT]}], "role_unsupported"),
    ("system text as a message", [X, {"role": "system", "content": [TEXT]}], "role_unsupported"),
]  # fmt: skip
LEGAL: list[tuple[str, list[dict[str, Any]]]] = [
    ("the least", [X]),
    ("results together, then text", [X, model(TEXT, T1, T2), user(R2, R1, TEXT)]),
    ("a result of nothing", [X, model(T1), user({"toolResult": {"toolUseId": "t1", "content": []}})]),
    ("an error that says so", [X, model(T1), user(failed({"json": {"a": 1}}))]),
    ("a document beside a text", [user(TEXT, PDF)]),
    ("a mark for the cache", [user(TEXT, {"cachePoint": {"type": "default"}})]),
    ("reasoning with its signature", [X, model({"reasoningContent": {"reasoningText": {"text": "t", "signature": "E"}}}, T1), user(R1)]),
]  # fmt: skip


def ours(messages: list[dict[str, Any]], **fields: Any) -> list[str]:
    """Our codes for a request as it stands."""
    spec = {"name": "f", "inputSchema": {"json": {"type": "object"}}}
    request = {"messages": messages, "toolConfig": {"tools": [{"toolSpec": spec}]}, **fields}
    parsed = BEDROCK.parse(request)
    found = check(parsed.messages, BEDROCK.profile, mapped=False, tools=parsed.tools)
    if parsed.findings and not parsed.messages:
        found = ()
    return [f.code for f in sorted((*parsed.findings, *found), key=lambda f: f.position)]


def body_of(messages: list[dict[str, Any]]) -> bytes:
    spec = {"name": "f", "inputSchema": {"json": {"type": "object"}}}
    return json.dumps(
        {"messages": messages, "toolConfig": {"tools": [{"toolSpec": spec}]}}
    ).encode()


@pytest.mark.req("M39", "M40", "M42", "M47", "M79", "M80")
@pytest.mark.parametrize(("messages", "code"), [i[1:] for i in ILLEGAL], ids=[i[0] for i in ILLEGAL])  # fmt: skip
def test_illegal_examples_are_refused_by_us(messages: list[dict[str, Any]], code: str) -> None:
    assert ours(messages)[:1] == [code]


REFUSED_BY_THE_JUDGE = [
    i for i in ILLEGAL if i[0] not in ("six documents", "two keys in one block", "system text as a message")
]  # fmt: skip


@pytest.mark.parametrize("messages", [i[1] for i in REFUSED_BY_THE_JUDGE], ids=[i[0] for i in REFUSED_BY_THE_JUDGE])  # fmt: skip
def test_illegal_examples_are_refused_by_the_judge(messages: list[dict[str, Any]]) -> None:
    assert problems(body_of(messages))


@pytest.mark.parametrize("messages", [i[1] for i in LEGAL], ids=[i[0] for i in LEGAL])
def test_legal_examples_are_accepted(messages: list[dict[str, Any]]) -> None:
    assert ours(messages) == []
    marked = [m for m in messages if not any("cachePoint" in b for b in m["content"])]
    assert not marked or problems(body_of(marked)) == []


def test_calls_without_a_tool_configuration_are_refused_as_they_stand() -> None:
    assert ours([X, model(T1), user(R1)], toolConfig=None)[:1] == ["tool_config_missing"]
