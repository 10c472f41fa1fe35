"""What is rendered, before a judge that knows nothing of our rules.

Of any messages in any order, either nothing is rendered, or what is rendered may be sent.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

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
from antiphon.errors import SequenceRejected
from tests.adapters.chat_judge import problems
from tests.golden import requests as golden
from tests.support.lines import KEY, PNG, answer, asks, call, line, said

CASES = dict(golden.cases())
POLICY = Policy(model="m-1", max_output_tokens=99, tool_choice="auto", parallel_tool_calls=True)
TOOLS = (ToolDeclaration(name="look", description="Looks."), ToolDeclaration(name="find"))
CHAT = registry.get("openai-chat")

texts = st.text(st.characters(codec="utf-8"), max_size=12).map(lambda t: Text(text=t))
images = st.sampled_from([Image(url="https://example.org/a.png", detail="low"), Image(media_type="image/png", data=PNG)])  # fmt: skip
files = st.sampled_from([File(file_id="file-1"), File(filename="a.pdf", media_type="application/pdf", data="JVBERi0=")])  # fmt: skip
sounds = st.just(Audio(data="UklGRg==", format="wav"))
thoughts = texts.map(lambda t: Reasoning(text=t.text))
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
        made.append(said(role, *draw(st.lists(texts, min_size=1, max_size=2))))
    content = draw(st.lists(st.one_of(texts, images, files, sounds), min_size=1, max_size=3))
    made.append(said(Role.USER, *content, name=draw(st.sampled_from([None, "ada"]))))
    for step in range(draw(st.integers(0, 2))):
        ids = [f"call.{number}.{step}.{'x' * draw(st.integers(0, 60))}{n}" for n in range(draw(st.integers(1, 3)))]  # fmt: skip
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
    return line(*made[: -draw(st.integers(0, 1)) or None])


@pytest.mark.req("M2", "M42", "M88")
@given(histories(), st.booleans())
def test_every_legal_history_is_rendered_to_what_may_be_sent(
    history: list[Message], openai: bool
) -> None:
    assert check(history) == ()
    policy = POLICY if openai else Policy(model="m", endpoint="http://127.0.0.1:1/v1")
    body = render(CHAT, history, policy, TOOLS, key=KEY).request.body
    assert problems(body) == []
    # Every word of the talk arrives, once for each time that it was said.
    sent = json.dumps(json.loads(body)["messages"], ensure_ascii=False)
    for message in history:
        for block in message.blocks:
            if isinstance(block, Text) and len(block.text) > 3:
                assert json.dumps(block.text, ensure_ascii=False)[1:-1] in sent


SOUP = st.sampled_from(
    [
        said(Role.SYSTEM, "s"),
        said(Role.SYSTEM, "s", trust=Trust.RETRIEVED),
        said(Role.USER, "u"),
        said(Role.USER),
        said(Role.USER, Unknown(name="odd")),
        said(Role.USER, Refusal(text="no")),
        said(Role.ASSISTANT, "a"),
        said(Role.ASSISTANT, "a", status=Status.CANCELED),
        said(Role.ASSISTANT, Image(url="https://example.org/a.png")),
        asks("1"),
        asks("2", "3"),
        asks("1", "1"),
        asks(call("4", name="no.such.name")),
        asks(call("5", arguments='{"a')),
        asks(""),
        answer("1"),
        answer("2"),
        answer("3", Image(url="https://example.org/a.png")),
        answer("9"),
        answer(""),
        said(Role.TOOL),
        said(Role.TOOL, "not a result"),
        said(Role.SYSTEM, Image(url="https://example.org/a.png")),
    ]
)


@pytest.mark.req("M34", "M37", "M39", "M40", "M47", "M79", "M80", "M81", "M88")
@given(st.lists(SOUP, max_size=8), st.sampled_from([{}, {"after_tool": "assistant"}]))
def test_of_any_messages_in_any_order_nothing_illegal_is_rendered(
    messages: list[Message], facts: dict[str, Any]
) -> None:
    try:
        rendering = render(registry.get("openai-chat", facts), line(*messages), POLICY, key=KEY)
    except SequenceRejected:
        return
    assert problems(rendering.request.body) == []


@pytest.mark.req("M42", "M88")
@settings(max_examples=40)
@given(histories(), st.sampled_from(["alternation", "system_position"]))
def test_a_template_that_insists_gets_turns_or_nothing(history: list[Message], fact: str) -> None:
    facts = {"alternation": "strict"} if fact == "alternation" else {"system_position": "first"}
    facts["roles"] = ["system", "user", "assistant", "tool"]  # type: ignore[assignment]
    try:
        body = render(registry.get("openai-chat", facts), history, POLICY, key=KEY).request.body
    except SequenceRejected:
        return
    assert problems(body) == []
    messages = json.loads(body)["messages"]
    roles = [m["role"] for m in messages]
    assert "system" not in roles[1:]
    if fact == "alternation":
        talk = [
            m["role"]
            for m in messages
            if m["role"] in ("user", "assistant") and "tool_calls" not in m
        ]
        assert all(a != b for a, b in pairwise(talk))
        assert talk[0] == "user"


@pytest.mark.parametrize(
    "name",
    [n for n in CASES if n.startswith("openai-chat/") and n != "openai-chat/reasoning_returned"],
)
def test_every_golden_body_may_be_sent(name: str) -> None:
    _, recorded = golden.load(CASES[name])
    if b'"stream":true' in recorded:
        assert problems(recorded) == []


# The judge itself, on the illegal examples that are published.

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
X = {"role": "user", "content": "x"}
ASKS: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [CALL]}
BOTH: dict[str, Any] = {**ASKS, "tool_calls": [CALL, {**CALL, "id": "c2"}]}
ONE = {"role": "tool", "tool_call_id": "c1", "content": "1"}
PICTURE = [{"type": "image_url", "image_url": {"url": "https://e.test/a.png"}}]
ILLEGAL: list[tuple[str, list[dict[str, Any]], str]] = [
    ("no message", [], "empty_sequence"),
    ("a tool message without a call", [X, ONE], "orphan_tool_result"),
    ("two calls, one result", [X, BOTH, ONE], "missing_tool_result"),
    ("a user message between", [X, ASKS, {**X, "content": "hurry"}, ONE], "result_not_adjacent"),
    ("answered twice", [X, ASKS, ONE, {**ONE, "content": "2"}], "duplicate_tool_result"),
    ("an image in a result", [X, ASKS, {**ONE, "content": PICTURE}], "image_in_tool_result"),
]


@pytest.mark.req("M39", "M40", "M42", "M47", "M79", "M80")
@pytest.mark.parametrize(
    ("messages", "code"), [i[1:] for i in ILLEGAL], ids=[i[0] for i in ILLEGAL]
)
def test_published_illegal_examples_are_refused_by_us_and_by_the_judge(
    messages: list[dict[str, Any]], code: str
) -> None:
    request = {"model": "m", "stream": True, "messages": messages}
    parsed = CHAT.parse(request)
    found = check(parsed.messages, CHAT.profile, mapped=False)
    assert [f.code for f in (*parsed.findings, *found)] == [code]
    assert problems(json.dumps(request).encode())


def test_the_published_minimal_example_is_accepted_by_us_and_by_the_judge() -> None:
    request = {
        "model": "gpt-6-astra",
        "stream": True,
        "messages": [{"role": "user", "content": "hi"}],
    }
    assert check(CHAT.parse(request).messages, CHAT.profile, mapped=False) == ()
    assert problems(json.dumps(request).encode()) == []
