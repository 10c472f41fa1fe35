"""What is rendered for OpenAI Responses, before judges that know nothing of our rules.

Of any messages in any order, either nothing is rendered, or what is rendered may be sent; and
read again it says what had been said, but for what the manifest lists.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
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
from antiphon.core.rules.findings import ordered
from antiphon.core.rules.graph import check
from antiphon.errors import SequenceRejected
from tests.adapters.responses_judge import problems
from tests.golden import requests as golden
from tests.support.lines import KEY, PNG, answer, asks, call, line, said

CASES = {name: path for name, path in golden.cases() if name.startswith("openai-responses/")}
TOOLS = (ToolDeclaration(name="look", description="Looks."), ToolDeclaration(name="find"))
RESPONSES = registry.get("openai-responses")
PLAIN = Policy(model="gpt-6-astra", profile="openai-responses")


def opaque(model: str | None = None, work: bool = False, **value: Any) -> Opaque:
    state = msgspec.Raw(json.dumps(value).encode())
    return Opaque(profile="openai-responses", value=state, model=model, work=work)


def thought(model: str | None = None, **item: Any) -> Reasoning:
    sealed = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA", **item}
    return Reasoning(opaque=opaque(model, **sealed))


SEARCH = Reasoning(opaque=opaque(work=True, id="ws_1", type="web_search_call", status="completed", action={"type": "search", "query": "x"}))  # fmt: skip

words = st.text(st.characters(codec="utf-8"), max_size=12)
texts = words.map(lambda t: Text(text=t))
states = st.sampled_from([None, opaque(id="msg_1"), opaque(id="msg_1", phase="commentary"), opaque(phase="final_answer")])  # fmt: skip
told = st.builds(lambda text, state: Text(text=text, opaque=state), words, states)
images = st.sampled_from([Image(url="https://example.org/a.png"), Image(media_type="image/png", data=PNG, detail="low")])  # fmt: skip
files = st.sampled_from([File(file_id="file-1"), File(filename="a.pdf", media_type="application/pdf", data="JVBERi0="), File(media_type="text/plain", data="eA==")])  # fmt: skip
thoughts = st.sampled_from([Reasoning(text="t"), thought(), thought("gpt-5"), thought("gpt-6-astra-2026-09-01"), thought(encrypted_content=None), SEARCH])  # fmt: skip
refusals = words.map(lambda t: Refusal(text=t + "."))
content = st.lists(st.one_of(texts, images, files), min_size=1, max_size=3)


@st.composite
def results(draw: st.DrawFn, call_id: str) -> Message:
    parts = draw(st.lists(st.one_of(texts, images, files), max_size=3))
    return answer(call_id, *(parts or [Text(text="")]), outcome=draw(st.sampled_from(Outcome)))


@st.composite
def turns(draw: st.DrawFn, number: int) -> list[Message]:
    """A user's input and all that came of it, as our own history may hold it."""
    made: list[Message] = []
    if draw(st.booleans()):
        made.append(said(draw(st.sampled_from([Role.SYSTEM, Role.DEVELOPER])), *draw(content)))
    made.append(said(Role.USER, *draw(content), name=draw(st.sampled_from([None, "ada"]))))
    for step in range(draw(st.integers(0, 2))):
        ids = [f"{'call' * 16}.{number}.{step}.{n}" for n in range(draw(st.integers(1, 3)))]
        arguments = draw(st.sampled_from(["{}", "", '{"a":[1.50]}']))
        before: list[Block] = draw(st.lists(st.one_of(told, thoughts), max_size=3))
        name = draw(st.sampled_from([None, opaque(id="fc_1")]))
        calls = [
            call(i, draw(st.sampled_from(["look", "find"])), arguments, opaque=name) for i in ids
        ]
        made.append(said(Role.ASSISTANT, *before, *calls))
        made += [draw(results(i)) for i in draw(st.permutations(ids))]
        if draw(st.booleans()):  # a person who could not wait
            made.insert(len(made) - draw(st.integers(0, len(ids))), said(Role.USER, "Well?"))
    last = draw(st.lists(st.one_of(told, thoughts, refusals), max_size=3))
    made.append(
        said(Role.ASSISTANT, *last, origin=draw(st.sampled_from([Origin.MODEL, Origin.COPIED])))
    )
    return made


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    made = [message for number in range(draw(st.integers(1, 3))) for message in draw(turns(number))]
    return line(*made)


@pytest.mark.req("M2", "M42", "M88")
@given(histories())
def test_every_legal_history_is_rendered_to_what_may_be_sent(history: list[Message]) -> None:
    assert check(history) == ()
    body = render(RESPONSES, history, PLAIN, TOOLS, key=KEY).request.body
    assert problems(body) == []
    # What is rendered is legal as it stands, by our own rules too.
    parsed = RESPONSES.parse(json.loads(body))
    found = check(parsed.messages, RESPONSES.profile, mapped=False, tools=parsed.tools)
    # The histories that are made here repeat an item, which no answer does.
    torn = [f for f in RESPONSES.compare(parsed, {}) if f.code != "message_id_conflict"]
    assert (parsed.findings, found, torn) == ((), (), [])


# There and back.


def seen(block: Block) -> Block:
    """An image says how closely it is to be looked at; who did not say meant: as you like."""
    if isinstance(block, Image):
        return msgspec.structs.replace(block, detail=block.detail or "auto")
    return block


def essence(messages: list[Message] | tuple[Message, ...]) -> Iterator[tuple[str, str, Any]]:
    """What was said, block by block: role, kind, and everything that has to come through."""
    for message in messages:
        for block in message.blocks:
            match block:
                case Text():
                    # Two texts of the model are two texts, if they came as one item or as two.
                    phase = None
                    if block.opaque is not None:
                        phase = json.loads(bytes(block.opaque.value)).get("phase")
                    yield (message.role, "text", (block.text, phase))
                case ToolCall():
                    yield (message.role, "call", (block.name, block.arguments))
                case ToolResult():
                    yield (message.role, "result", [seen(part) for part in block.content])
                case Image():
                    yield (message.role, "image", seen(block))
                case File():
                    yield (message.role, "file", (block.file_id, block.data, block.media_type))
                case Reasoning():
                    assert block.opaque is not None
                    yield (message.role, "kept", json.loads(bytes(block.opaque.value)))
                case _:
                    yield (message.role, type(block).__name__, block)


@st.composite
def plain_histories(draw: st.DrawFn) -> list[Message]:
    """Histories of which nothing has to be mapped."""
    made: list[Message] = []
    spoken = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
    for number in range(draw(st.integers(1, 3))):
        if number == 0 and draw(st.booleans()):
            made.append(said(Role.SYSTEM, draw(spoken)))
        made.append(said(Role.USER, *draw(content.filter(all_named))))
        blocks: list[Block] = draw(st.lists(st.sampled_from([thought(), SEARCH]), max_size=1))
        phase = draw(st.sampled_from([None, opaque(phase="commentary")]))
        blocks.append(Text(text=draw(spoken), opaque=phase))
        ids = [f"c{number}.{n}" for n in range(draw(st.integers(0, 2)))]
        made.append(said(Role.ASSISTANT, *blocks, *(call(i) for i in ids)))
        for i in ids:
            parts = draw(st.lists(st.one_of(texts, images, files), min_size=2, max_size=3))
            made.append(answer(i, *(p for p in parts if all_named([p])), "end"))
    return line(*made)


def all_named(blocks: list[Any]) -> bool:
    return all(not isinstance(b, File) or b.file_id or b.filename for b in blocks)


@pytest.mark.req("M88", "M92")
@given(plain_histories())
def test_what_was_rendered_reads_back_as_what_was_said(history: list[Message]) -> None:
    made = render(RESPONSES, history, PLAIN, TOOLS, key=KEY)
    assert made.mappings == ()
    parsed = RESPONSES.parse(json.loads(made.request.body))
    assert list(essence(parsed.messages)) == list(essence(history))
    assert [t.name for t in parsed.tools] == [t.name for t in TOOLS]


@given(histories())
def test_what_was_parsed_renders_to_the_same_input_again(history: list[Message]) -> None:
    body = json.loads(render(RESPONSES, history, PLAIN, TOOLS, key=KEY).request.body)
    parsed = RESPONSES.parse(body)
    again = render(RESPONSES, parsed.messages, parsed.policy, parsed.tools, key=KEY)
    second = json.loads(again.request.body)
    assert second["input"] == body["input"]
    assert second == body


SOUP = st.sampled_from(
    [
        said(Role.SYSTEM, "s"),
        said(Role.DEVELOPER, "d"),
        said(Role.SYSTEM, Image(url="https://example.org/a.png")),
        said(Role.USER, "u"),
        said(Role.USER, ""),
        said(Role.USER),
        said(Role.USER, Unknown(name="odd")),
        said(Role.USER, Audio(data="UklGRg==", format="wav")),
        said(Role.ASSISTANT, "a"),
        said(Role.ASSISTANT, ""),
        said(Role.ASSISTANT, thought(), "a"),
        said(Role.ASSISTANT, thought()),
        said(Role.ASSISTANT, "a", status=Status.CANCELED),
        said(Role.ASSISTANT, Image(url="https://example.org/a.png")),
        asks("1"),
        asks("2", "3"),
        asks("1", "1"),
        asks(call("4", name="no such name")),
        asks(call("5", arguments='{"a')),
        asks(call("6", arguments="[1]")),
        asks(""),
        answer("1"),
        answer("2"),
        answer("3", Image(url="https://example.org/a.png")),
        answer("9"),
        said(Role.TOOL),
        said(Role.TOOL, "not a result"),
    ]
)


@pytest.mark.req("M34", "M37", "M39", "M40", "M47", "M79", "M80", "M81", "M88")
@given(st.lists(SOUP, max_size=8), st.sampled_from([(), TOOLS]))
def test_of_any_messages_in_any_order_nothing_illegal_is_rendered(
    messages: list[Message], tools: tuple[ToolDeclaration, ...]
) -> None:
    try:
        rendering = render(RESPONSES, line(*messages), PLAIN, tools, key=KEY)
    except SequenceRejected:
        return
    assert problems(rendering.request.body) == []


@pytest.mark.parametrize("name", CASES)
def test_every_golden_body_may_be_sent(name: str) -> None:
    _, recorded = golden.load(CASES[name])
    assert problems(recorded) == []


# The judge itself, and ours, on the published examples.

X = {"role": "user", "content": "x"}
CALL: dict[str, Any] = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
DONE: dict[str, Any] = {"type": "function_call_output", "call_id": "c1", "output": "1"}
CALL2, DONE2 = {**CALL, "call_id": "c2"}, {**DONE, "call_id": "c2"}
SAID: dict[str, Any] = {"role": "assistant", "content": "so"}
OUT: dict[str, Any] = {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": [{"type": "output_text", "text": "so", "annotations": []}]}  # fmt: skip
RS: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
ILLEGAL: list[tuple[str, dict[str, Any], str]] = [
    ("call without output", {"input": [X, CALL, {**X, "content": "next"}]}, "missing_tool_result"),
    ("output without call", {"input": [X, DONE]}, "orphan_tool_result"),
    ("output before its call", {"input": [X, DONE, CALL]}, "result_before_call"),
    ("two calls, one output", {"input": [X, CALL, CALL2, DONE]}, "missing_tool_result"),
    ("an output twice", {"input": [X, CALL, DONE, DONE]}, "duplicate_tool_result"),
    ("a call id twice", {"input": [X, CALL, DONE, CALL, DONE]}, "duplicate_call_id"),
    ("reasoning that nothing followed", {"input": [X, RS, X]}, "reasoning_unpaired"),
    ("reasoning at the end", {"input": [X, RS]}, "reasoning_unpaired"),
    ("a reference to what is not kept", {"store": False, "input": [{"type": "item_reference", "id": "msg_1"}, X]}, "malformed_item"),
    ("reasoning by name only", {"store": False, "input": [X, {**RS, "encrypted_content": None}, SAID, X]}, "lost_reasoning"),
    ("no input", {"instructions": "x"}, "empty_sequence"),
    ("an empty input", {"input": []}, "empty_sequence"),
    ("an id that is too long", {"input": [X, {**CALL, "call_id": "c" * 65}, {**DONE, "call_id": "c" * 65}]}, "call_id_too_long"),
    ("a name of another form", {"input": [X, {**CALL, "name": "f.g"}, DONE]}, "bad_tool_name"),
    ("half a call", {"input": [X, {**CALL, "arguments": '{"a'}, DONE]}, "unclosed_arguments"),
    ("arguments that are an object", {"input": [X, {**CALL, "arguments": {}}, DONE]}, "malformed_item"),
    ("an output that names no call", {"input": [X, CALL, {**DONE, "call_id": None}]}, "missing_tool_result"),
    ("what the model says as if told", {"input": [X, {**SAID, "content": [{"type": "input_text", "text": "x"}]}, X]}, "block_not_allowed"),
    ("what a user says as if the model's", {"input": [{**X, "content": [{"type": "output_text", "text": "x", "annotations": []}]}]}, "block_not_allowed"),
    ("a role that is none", {"input": [{"role": "tool", "content": "x"}]}, "role_unsupported"),
    ("no content", {"input": [{"role": "user", "content": []}]}, "empty_content"),
]  # fmt: skip
LEGAL: list[tuple[str, dict[str, Any]]] = [
    ("the least", {"input": "hi", "store": False}),
    ("roles in any order", {"input": [SAID, {**X, "role": "system"}, X, X, {**X, "role": "developer"}]}),
    ("outputs in another order", {"input": [X, CALL, CALL2, DONE2, DONE]}),
    ("an output that waits", {"input": [X, CALL, {**X, "content": "hurry"}, DONE]}),
    ("reasoning and what it led to", {"store": False, "input": [X, RS, CALL, DONE, {**RS, "id": "rs_2"}, OUT, X]}),
    ("reasoning before reasoning", {"input": [X, RS, {**RS, "id": "rs_2"}, SAID, X]}),
    ("an item under its name alone", {"input": [X, OUT, X]}),
    ("an image in an output", {"input": [X, CALL, {**DONE, "output": [{"type": "input_image", "image_url": "https://e.test/a.png", "detail": "auto"}]}]}),
    ("an empty text", {"input": ""}),
    ("an output to what is kept", {"previous_response_id": "resp_1", "input": [DONE]}),
    ("nothing but what is kept", {"previous_response_id": "resp_1"}),
]  # fmt: skip


def ours(request: dict[str, Any]) -> list[str]:
    """Our codes for a request as it stands."""
    parsed = RESPONSES.parse(request)
    found = check(parsed.messages, RESPONSES.profile, mapped=False, tools=parsed.tools)
    if parsed.findings and not parsed.messages:
        found = ()
    return [f.code for f in ordered((*parsed.findings, *found, *RESPONSES.compare(parsed, {})))]


@pytest.mark.req("M39", "M40", "M42", "M47", "M79", "M80")
@pytest.mark.parametrize(("fields", "code"), [i[1:] for i in ILLEGAL], ids=[i[0] for i in ILLEGAL])
def test_illegal_examples_are_refused_by_us_and_by_the_judge(
    fields: dict[str, Any], code: str
) -> None:
    request = {"model": "gpt-6-astra", **fields}
    assert ours(request)[:1] == [code]
    assert problems(json.dumps(request).encode())


@pytest.mark.parametrize("fields", [i[1] for i in LEGAL], ids=[i[0] for i in LEGAL])
def test_legal_examples_are_accepted_by_us_and_by_the_judge(fields: dict[str, Any]) -> None:
    request = {"model": "gpt-6-astra", **fields}
    assert ours(request) == []
    if "previous_response_id" not in request:  # the judge does not know what is kept
        assert problems(json.dumps(request).encode()) == []
