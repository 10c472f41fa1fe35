"""What is rendered for Anthropic, before a judge that knows nothing of our rules.

Of any messages in any order, either nothing is rendered, or what is rendered may be sent.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
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
    Outcome,
    Reasoning,
    Refusal,
    Role,
    Status,
    Text,
    Trust,
    Unknown,
)
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.rules.graph import check
from antiphon.core.rules.profile import with_facts
from antiphon.errors import SequenceRejected
from tests.adapters.messages_judge import problems
from tests.golden import requests as golden
from tests.support.lines import KEY, PNG, answer, asks, call, line, said

CASES = {name: path for name, path in golden.cases() if name.startswith("anthropic/")}
TOOLS = (ToolDeclaration(name="look", description="Looks."), ToolDeclaration(name="find"))
CLAUDE = registry.get("anthropic")
# What the model takes beside the plain dialect: prefill, system text between messages.
MODELS = {
    "claude-opus-5": (False, True),
    "claude-opus-4-5": (True, False),
    "claude-sonnet-4-6": (False, False),
    "a-gateway-s-own": (True, False),
}


def signed(text: str = "hm", **fields: Any) -> Reasoning:
    state = msgspec.Raw(b'{"type":"thinking","signature":"Eq=="}')
    return Reasoning(text=text, opaque=Opaque(profile="anthropic", value=state, **fields))


texts = st.text(st.characters(codec="utf-8"), max_size=12).map(lambda t: Text(text=t))
spoken = texts.filter(lambda t: bool(t.text.strip()))
images = st.sampled_from([Image(url="https://example.org/a.png"), Image(media_type="image/png", data=PNG)])  # fmt: skip
files = st.sampled_from([File(file_id="file-1"), File(filename="a.pdf", media_type="application/pdf", data="JVBERi0=")])  # fmt: skip
thoughts = st.sampled_from([Reasoning(text="t"), signed(), signed(""), signed(model="claude-opus-4-1"), signed(model="claude-opus-5-20261001")])  # fmt: skip
refusals = texts.map(lambda t: Refusal(text=t.text + "."))


@st.composite
def results(draw: st.DrawFn, call_id: str) -> Message:
    content = draw(st.lists(st.one_of(texts, images, files), max_size=3))
    outcome = draw(st.sampled_from(Outcome))
    return answer(call_id, *(content or [Text(text="")]), outcome=outcome)


@st.composite
def turns(draw: st.DrawFn, number: int) -> list[Message]:
    """A user's input and all that came of it, as our own history may hold it."""
    made: list[Message] = []
    if draw(st.booleans()):
        role = draw(st.sampled_from([Role.SYSTEM, Role.DEVELOPER]))
        made.append(said(role, *draw(st.lists(spoken, min_size=1, max_size=2))))
    content = draw(st.lists(st.one_of(texts, images, files), max_size=3))
    made.append(said(Role.USER, draw(spoken), *content, name=draw(st.sampled_from([None, "ada"]))))
    for step in range(draw(st.integers(0, 2))):
        ids = [f"call.{number}.{step}.{n}" for n in range(draw(st.integers(1, 3)))]
        arguments = draw(st.sampled_from(["{}", "", '{"a":[1.50]}']))
        before: list[Block] = draw(st.lists(st.one_of(texts, thoughts), max_size=2))
        calls = [call(i, draw(st.sampled_from(["look", "find"])), arguments) for i in ids]
        made.append(said(Role.ASSISTANT, *before, *calls))
        made += [draw(results(i)) for i in draw(st.permutations(ids))]
        if draw(st.booleans()):  # a person who could not wait
            made.insert(len(made) - draw(st.integers(0, len(ids))), said(Role.USER, "Well?"))
    words = st.lists(st.one_of(texts, thoughts, refusals), max_size=3)
    made.append(said(Role.ASSISTANT, *draw(words)))
    return made


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    made = [message for number in range(draw(st.integers(1, 3))) for message in draw(turns(number))]
    while made[-1].role is Role.ASSISTANT:
        made.pop()
    return line(*made)


@pytest.mark.req("M2", "M42", "M88")
@given(histories(), st.sampled_from(sorted(MODELS)))
def test_every_legal_history_is_rendered_to_what_may_be_sent(
    history: list[Message], model: str
) -> None:
    assert check(history) == ()
    prefill, between = MODELS[model]
    body = render(CLAUDE, history, Policy(model=model), TOOLS, key=KEY).request.body
    assert problems(body, prefill=prefill, between=between) == []
    # Every word of the talk arrives, once for each time that it was said.
    sent = json.dumps(json.loads(body), ensure_ascii=False)
    for message in history:
        for block in message.blocks:
            if isinstance(block, Text) and len(block.text.strip()) > 3:
                assert json.dumps(block.text, ensure_ascii=False)[1:-1] in sent


SOUP = st.sampled_from(
    [
        said(Role.SYSTEM, "s"),
        said(Role.DEVELOPER, "d"),
        said(Role.SYSTEM, " "),
        said(Role.SYSTEM, "s", trust=Trust.RETRIEVED),
        said(Role.USER, "u"),
        said(Role.USER, " "),
        said(Role.USER),
        said(Role.USER, Unknown(name="odd")),
        said(Role.USER, Audio(data="UklGRg==", format="wav")),
        said(Role.USER, Image(media_type="image/tiff", data="AA==")),
        said(Role.USER, File(media_type="text/html", data="AA==")),
        said(Role.ASSISTANT, "a"),
        said(Role.ASSISTANT, "a "),
        said(Role.ASSISTANT, ""),
        said(Role.ASSISTANT, signed(), "a"),
        said(Role.ASSISTANT, "a", status=Status.CANCELED),
        said(Role.ASSISTANT, Image(url="https://example.org/a.png")),
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
        answer("9"),
        said(Role.TOOL),
        said(Role.TOOL, "not a result"),
        said(Role.SYSTEM, Image(url="https://example.org/a.png")),
    ]
)


@pytest.mark.req("M34", "M37", "M39", "M40", "M47", "M79", "M80", "M81", "M88")
@given(st.lists(SOUP, max_size=8), st.sampled_from(sorted(MODELS)), st.sampled_from([(), TOOLS]))
def test_of_any_messages_in_any_order_nothing_illegal_is_rendered(
    messages: list[Message], model: str, tools: tuple[ToolDeclaration, ...]
) -> None:
    try:
        rendering = render(CLAUDE, line(*messages), Policy(model=model), tools, key=KEY)
    except SequenceRejected:
        return
    prefill, between = MODELS[model]
    assert problems(rendering.request.body, prefill=prefill, between=between) == []


@pytest.mark.parametrize("name", CASES)
def test_every_golden_body_may_be_sent(name: str) -> None:
    _, recorded = golden.load(CASES[name])
    assert problems(recorded, between=True) == []


# The judge itself, and ours, on the published examples.

X = {"role": "user", "content": "x"}
T1: dict[str, Any] = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
T2 = {**T1, "id": "t2"}
R1: dict[str, Any] = {"type": "tool_result", "tool_use_id": "t1", "content": "1"}
R2 = {**R1, "tool_use_id": "t2"}
TEXT = {"type": "text", "text": "so"}


def user(*content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def model(*content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


OLDER = "claude-opus-4-5"
NEWER = "claude-opus-5"
SYSTEM = {"role": "system", "content": "be brief"}
ILLEGAL: list[tuple[str, str, list[dict[str, Any]], str]] = [
    ("no message", NEWER, [], "empty_sequence"),
    ("result missing in next message", NEWER, [X, model(T1), {**X, "content": "go on"}], "missing_tool_result"),
    ("results split over two turns", NEWER, [X, model(T1, T2), user(R1), {"role": "assistant", "content": "ok"}, user(R2)], "result_not_adjacent"),
    ("orphan result", NEWER, [user(R1)], "orphan_tool_result"),
    ("result answered twice", NEWER, [X, model(T1), user(R1, R1)], "duplicate_tool_result"),
    ("text before the result", NEWER, [X, model(T1), user(TEXT, R1)], "result_not_adjacent"),
    ("blank text block", NEWER, [user({"type": "text", "text": " "})], "empty_content"),
    ("blank content", NEWER, [{"role": "user", "content": ""}], "empty_content"),
    ("no content", NEWER, [user()], "empty_content"),
    ("an empty text in a result", NEWER, [X, model(T1), user({**R1, "content": [{"type": "text", "text": ""}]})], "empty_content"),
    ("an empty array in a result", NEWER, [X, model(T1), user({**R1, "content": []})], "empty_content"),
    ("an error that says nothing", NEWER, [X, model(T1), user({**R1, "content": "", "is_error": True})], "empty_content"),
    ("prefill on a model without", NEWER, [X, {"role": "assistant", "content": "The answer is"}], "must_end_with_user"),
    ("system message first", NEWER, [SYSTEM, X], "role_unsupported"),
    ("system message on an older model", OLDER, [X, SYSTEM], "role_unsupported"),
    ("system message after the assistant's", NEWER, [X, model(TEXT), SYSTEM, X], "role_order"),
    ("the assistant first", NEWER, [model(TEXT), X], "must_start_with_user"),
    ("an image of the assistant", NEWER, [X, model({"type": "image", "source": {"type": "url", "url": "u"}}), X], "block_not_allowed"),
    ("an image of another type", NEWER, [user({"type": "image", "source": {"type": "base64", "media_type": "image/tiff", "data": "AA=="}})], "block_not_allowed"),
    ("thinking without its signature", NEWER, [X, model({"type": "thinking", "thinking": "t", "signature": ""}, T1), user(R1)], "lost_signature"),
    ("an id of another form", NEWER, [X, model({**T1, "id": "t.1"}), user({**R1, "tool_use_id": "t.1"})], "bad_call_id"),
    ("an id twice", NEWER, [X, model(T1), user(R1), model(T1), user(R1)], "duplicate_call_id"),
    ("a name of another form", NEWER, [X, model({**T1, "name": "f.g"}), user(R1)], "bad_tool_name"),
]  # fmt: skip
LEGAL: list[tuple[str, str, list[dict[str, Any]]]] = [
    ("the least", NEWER, [X]),
    ("two of one role", NEWER, [X, X, model(TEXT), model(TEXT), X]),
    ("results together, then text", NEWER, [X, model(TEXT, T1, T2), user(R2, R1, TEXT)]),
    ("results in two messages of the user", NEWER, [X, model(T1, T2), user(R1), user(R2)]),
    ("text behind the calls", NEWER, [X, model(T1), model(TEXT), user(R1)]),
    ("prefill on a model with it", OLDER, [X, {"role": "assistant", "content": "The answer is"}]),
    ("a system message behind the user's", NEWER, [X, model(TEXT), X, SYSTEM]),
    ("a result without content", NEWER, [X, model(T1), user({"type": "tool_result", "tool_use_id": "t1"})]),
    ("a result of an empty string", NEWER, [X, model(T1), user({**R1, "content": ""})]),
    ("an error that says so", NEWER, [X, model(T1), user({**R1, "is_error": True})]),
    ("thinking with its signature", NEWER, [X, model({"type": "thinking", "thinking": "", "signature": "E"}, T1), user(R1)]),
    ("paused", NEWER, [X, model(TEXT, {**T1, "type": "server_tool_use", "id": "srvtoolu_1"})]),
]  # fmt: skip


def ours(model_name: str, messages: list[dict[str, Any]]) -> tuple[list[str], bytes]:
    """Our codes for a request as it stands, and the request."""
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    request = {"model": model_name, "max_tokens": 9, "messages": messages, "tools": tools}
    parsed = CLAUDE.parse(request)
    profile = with_facts(CLAUDE.profile, parsed.facts)
    found = check(parsed.messages, profile, mapped=False, tools=parsed.tools)
    if parsed.findings and not parsed.messages:
        found = ()
    codes = sorted((*parsed.findings, *found), key=lambda f: f.position)
    return [f.code for f in codes], json.dumps(request).encode()


@pytest.mark.req("M39", "M40", "M42", "M47", "M79", "M80")
@pytest.mark.parametrize(
    ("model_name", "messages", "code"), [i[1:] for i in ILLEGAL], ids=[i[0] for i in ILLEGAL]
)
def test_illegal_examples_are_refused_by_us_and_by_the_judge(
    model_name: str, messages: list[dict[str, Any]], code: str
) -> None:
    codes, body = ours(model_name, messages)
    assert codes[:1] == [code]
    prefill, between = MODELS[model_name]
    assert problems(body, prefill=prefill, between=between)


@pytest.mark.parametrize(
    ("model_name", "messages"), [i[1:] for i in LEGAL], ids=[i[0] for i in LEGAL]
)
def test_legal_examples_are_accepted_by_us_and_by_the_judge(
    model_name: str, messages: list[dict[str, Any]]
) -> None:
    codes, body = ours(model_name, messages)
    prefill, between = MODELS[model_name]
    assert (codes, problems(body, prefill=prefill, between=between)) == ([], [])
