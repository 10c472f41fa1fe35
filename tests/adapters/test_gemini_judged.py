"""What is rendered for Gemini, before a judge that knows nothing of our rules.

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
from antiphon.adapters.gemini.profile import facts_of
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
    ToolCall,
    ToolResult,
    Trust,
    Unknown,
    encode_blocks,
)
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.rules.graph import check
from antiphon.core.rules.profile import with_facts
from antiphon.errors import SequenceRejected
from tests.adapters.gemini_judge import problems
from tests.golden import requests as golden
from tests.support.lines import KEY, PNG, answer, asks, call, line, said

CASES = {name: path for name, path in golden.cases() if name.startswith("gemini/")}
TOOLS = (ToolDeclaration(name="look", description="Looks."), ToolDeclaration(name="find"))
GEMINI = registry.get("gemini")
NEWER, OLDER = "gemini-3.8-flash", "gemini-2.5-pro"
MODELS = [NEWER, OLDER, "a-gateway-s-own"]


def state(model: str = NEWER, profile: str = "gemini", **fields: Any) -> Opaque:
    value = msgspec.Raw(msgspec.json.encode({"thoughtSignature": "c2ln", **fields}))
    return Opaque(profile=profile, value=value, model=model)


texts = st.text(st.characters(codec="utf-8"), max_size=12).map(lambda t: Text(text=t))
spoken = texts.filter(lambda t: bool(t.text))
images = st.sampled_from([Image(url="https://example.org/a.png", media_type="image/png"), Image(media_type="image/png", data=PNG)])  # fmt: skip
sounds = st.just(Audio(data="UklGRg==", format="wav"))
files = st.sampled_from([File(file_id="https://example.org/f"), File(filename="a.pdf", media_type="application/pdf", data="JVBERi0=")])  # fmt: skip
thoughts = st.sampled_from(
    [
        Reasoning(text="t"),
        Reasoning(opaque=state()),
        Reasoning(opaque=state(text="")),
        Reasoning(text="hm", opaque=state(thought=True)),
        Reasoning(opaque=state("gemini-3.8-pro")),
        Reasoning(opaque=state(profile="anthropic")),
        Reasoning(opaque=Opaque(profile="gemini", value=msgspec.Raw(b'{"executableCode":{"language":"PYTHON","code":"1"}}'), work=True)),
    ]
)  # fmt: skip
refusals = texts.map(lambda t: Refusal(text=t.text + "."))
signatures = st.sampled_from([None, state(), state(OLDER), state(profile="other")])


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
    content = draw(st.lists(st.one_of(texts, images, files, sounds), max_size=3))
    made.append(said(Role.USER, draw(spoken), *content, name=draw(st.sampled_from([None, "ada"]))))
    for step in range(draw(st.integers(0, 2))):
        ids = [f"call.{number}.{step}.{n}" for n in range(draw(st.integers(1, 3)))]
        arguments = draw(st.sampled_from(["{}", "", '{"a":[1.50]}']))
        before: list[Block] = draw(st.lists(st.one_of(texts, thoughts), max_size=2))
        calls = [
            call(i, draw(st.sampled_from(["look", "find"])), arguments, opaque=draw(signatures))
            for i in ids
        ]
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
@settings(max_examples=50)
@given(histories(), st.sampled_from(MODELS))
def test_every_legal_history_is_rendered_to_what_may_be_sent(
    history: list[Message], model: str
) -> None:
    assert check(history) == ()
    body = render(GEMINI, history, Policy(model=model), TOOLS, key=KEY).request.body
    assert problems(body, newer=model is NEWER) == []
    # Every word of the talk arrives, once for each time that it was said.
    sent = json.dumps(json.loads(body), ensure_ascii=False)
    for message in history:
        for block in message.blocks:
            if isinstance(block, Text) and len(block.text.strip()) > 3:
                assert json.dumps(block.text, ensure_ascii=False)[1:-1] in sent


def plain(message: Message) -> tuple[Role, tuple[Block, ...]]:
    """What is left of a message on this wire, with all that is mapped mapped by hand."""
    made: list[Block] = []
    for block in message.blocks:
        match block:
            case Refusal(text=text):
                made.append(Text(text=text))
            case Text(text=""):
                pass
            case ToolCall():
                kept = block.opaque if block.opaque == state() else None
                made.append(msgspec.structs.replace(block, arguments=block.arguments or "{}", opaque=kept))  # fmt: skip
            case ToolResult():
                made.append(spoken_of(block))
            case File():
                made.append(msgspec.structs.replace(block, filename=None))
            case _:
                made.append(block)
    return message.role, tuple(made)


def spoken_of(result: ToolResult) -> ToolResult:
    said_texts = [p for p in result.content if isinstance(p, Text)]
    media = [msgspec.structs.replace(p, filename=None) if isinstance(p, File) else p for p in result.content if not isinstance(p, Text)]  # fmt: skip
    failed = result.outcome is not Outcome.SUCCESS
    if result.outcome is Outcome.CANCELED or (failed and not said_texts):
        said_texts.insert(0, Text(text=f"[{result.outcome}]"))
    if [t.text for t in said_texts] == [""]:
        said_texts = []
    return ToolResult(
        call_id=result.call_id,
        content=(*said_texts, *media),
        outcome=Outcome.ERROR if failed else Outcome.SUCCESS,
    )


def unnamed(block: Block) -> Block:
    """A block without what a request says beside the graph: models of states, names of results."""
    if isinstance(block, ToolCall | Reasoning) and block.opaque is not None:
        kept = msgspec.structs.replace(block.opaque, model=None)
        return msgspec.structs.replace(block, opaque=kept)
    return msgspec.structs.replace(block, name=None) if isinstance(block, ToolResult) else block


def flat(messages: list[tuple[Role, tuple[Block, ...]]]) -> list[tuple[str, bytes]]:
    """Who said what, block by block: where one message ends is not what was said."""
    return [
        (role.value, encode_blocks((unnamed(block),)))
        for role, blocks in messages
        for block in blocks
    ]


simple = st.lists(
    st.one_of(spoken, st.just(Reasoning(opaque=state(text=""))), refusals), min_size=1, max_size=3
)


@st.composite
def kept_histories(draw: st.DrawFn) -> list[Message]:
    """Histories of which nothing is left out by a rule about models or order."""
    made: list[Message] = []
    for number in range(draw(st.integers(1, 3))):
        content = draw(st.lists(st.one_of(spoken, images, files, sounds), max_size=2))
        made.append(said(Role.USER, draw(spoken), *content))
        ids = [f"c{number}.{n}" for n in range(draw(st.integers(0, 3)))]
        if ids:
            first = call(ids[0], "look", '{"a":[1,"x"]}', opaque=state())
            made.append(said(Role.ASSISTANT, *draw(simple), first, *(call(i, "find", "") for i in ids[1:])))  # fmt: skip
            made += [draw(results(i)) for i in ids]
        made.append(said(Role.ASSISTANT, *draw(simple)))
    made.append(said(Role.USER, draw(spoken)))
    return line(*made)


@pytest.mark.req("M2", "M20")
@settings(max_examples=50)
@given(kept_histories())
def test_what_was_rendered_reads_back_as_what_it_was_made_from(history: list[Message]) -> None:
    made = render(GEMINI, history, Policy(model=NEWER, max_output_tokens=5), TOOLS, key=KEY)
    read = GEMINI.parse(json.loads(made.request.body))
    assert (read.findings, read.uncarried) == ((), ())
    assert flat([(m.role, m.blocks) for m in read.messages]) == flat([plain(m) for m in history])
    assert [t.name for t in read.tools] == ["look", "find"]
    assert read.policy.max_output_tokens == 5


SOUP = st.sampled_from(
    [
        said(Role.SYSTEM, "s"),
        said(Role.DEVELOPER, "d"),
        said(Role.SYSTEM, ""),
        said(Role.SYSTEM, "s", trust=Trust.RETRIEVED),
        said(Role.USER, "u"),
        said(Role.USER, " "),
        said(Role.USER, ""),
        said(Role.USER),
        said(Role.USER, Unknown(name="odd")),
        said(Role.USER, Audio(data="UklGRg==", format="wav")),
        said(Role.ASSISTANT, "a"),
        said(Role.ASSISTANT, ""),
        said(Role.ASSISTANT, Reasoning(opaque=state()), "a"),
        said(Role.ASSISTANT, "a", status=Status.CANCELED),
        said(Role.ASSISTANT, Image(media_type="image/png", data=PNG)),
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
        said(Role.SYSTEM, Image(url="https://example.org/a.png")),
    ]
)


@pytest.mark.req("M34", "M37", "M39", "M40", "M47", "M79", "M80", "M81", "M88")
@given(st.lists(SOUP, max_size=8), st.sampled_from(MODELS), st.sampled_from([(), TOOLS]))
def test_of_any_messages_in_any_order_nothing_illegal_is_rendered(
    messages: list[Message], model: str, tools: tuple[ToolDeclaration, ...]
) -> None:
    try:
        rendering = render(GEMINI, line(*messages), Policy(model=model), tools, key=KEY)
    except SequenceRejected:
        return
    assert problems(rendering.request.body, newer=model is NEWER) == []


@pytest.mark.parametrize("name", CASES)
def test_every_golden_body_may_be_sent(name: str) -> None:
    case, recorded = golden.load(CASES[name])
    if case.policy.facts:  # a server that pairs by order alone
        recorded = recorded.replace(b'"functionCall":{', b'"functionCall":{"id":"i",')
        recorded = recorded.replace(b'"functionResponse":{', b'"functionResponse":{"id":"i",')
    assert problems(recorded) == []


# The judge itself, and ours, on the published examples.

X: dict[str, Any] = {"role": "user", "parts": [{"text": "x"}]}
F: dict[str, Any] = {"functionCall": {"id": "1", "name": "f", "args": {}}}
G: dict[str, Any] = {"functionCall": {"id": "2", "name": "g", "args": {}}}
RF: dict[str, Any] = {"functionResponse": {"id": "1", "name": "f", "response": {"output": 1}}}
RG: dict[str, Any] = {"functionResponse": {"id": "2", "name": "g", "response": {"output": 2}}}
SIGNED = {**F, "thoughtSignature": "c2ln"}
TEXT = {"text": "so"}


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def model(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


ILLEGAL: list[tuple[str, str, list[dict[str, Any]], str]] = [
    ("no content", OLDER, [], "empty_sequence"),
    ("starts with a call", OLDER, [model(F), user(RF)], "must_start_with_user"),
    ("starts with the model", OLDER, [model(TEXT), X], "must_start_with_user"),
    ("two calls, one response", OLDER, [X, model(F, G), user(RF)], "missing_tool_result"),
    ("text between call and response", OLDER, [X, model(F), X, user(RF)], "result_not_adjacent"),
    ("responses in two contents", OLDER, [X, model(F, G), user(RF), user(RG)], "response_count_mismatch"),
    ("responses in another order", OLDER, [X, model(F, G), user(RG, RF)], "result_order"),
    ("responses without ids in another order", OLDER, [X, model({"functionCall": {"name": "f"}}, {"functionCall": {"name": "g"}}), user({"functionResponse": {"name": "g", "response": {}}}, {"functionResponse": {"name": "f", "response": {}}})], "result_order"),
    ("a response without a call", OLDER, [X, user(RF)], "orphan_tool_result"),
    ("a response twice", OLDER, [X, model(F), user(RF, RF)], "duplicate_tool_result"),
    ("a call after the model's text", OLDER, [X, model(TEXT), model(F), user(RF)], "role_order"),
    ("unsigned call in the current turn", NEWER, [X, model(F), user(RF)], "lost_signature"),
    ("unsigned call in the second step", NEWER, [X, model(SIGNED), user(RF), model(G), user(RG)], "lost_signature"),
    ("ends with the model", NEWER, [X, model(TEXT)], "must_end_with_user"),
    ("no parts", OLDER, [X, model(), X], "empty_content"),
    ("an empty text", OLDER, [user({"text": ""})], "empty_content"),
    ("two data fields in one part", OLDER, [user({"text": "x", "inlineData": {"mimeType": "image/png", "data": "AA=="}})], "malformed_item"),
    ("a response of another function", OLDER, [X, model(F), user({"functionResponse": {**RF["functionResponse"], "name": "g"}})], "tool_mismatch"),
    ("a call of the user", OLDER, [user(F), user(RF)], "malformed_item"),
]  # fmt: skip
LEGAL: list[tuple[str, str, list[dict[str, Any]]]] = [
    ("the least", NEWER, [X]),
    ("no role is the user's", OLDER, [{"parts": [TEXT]}]),
    ("two of one role", NEWER, [X, X, model(TEXT), model(TEXT), X]),
    ("responses, then a content of text", NEWER, [X, model(TEXT, SIGNED, G), user(RF, RG), X]),
    ("an empty text that is signed", NEWER, [X, model(TEXT, {"text": "", "thoughtSignature": "c2ln"}), X]),
    ("calls without ids", OLDER, [X, model({"functionCall": {"name": "f"}}, {"functionCall": {"name": "f"}}), user(*[{"functionResponse": {"name": "f", "response": {}}}] * 2)]),
    ("an older model goes on with its own text", OLDER, [X, model(TEXT)]),
    ("an older model minds no signature", OLDER, [X, model(F), user(RF)]),
    ("a thought", NEWER, [X, model({"text": "hm", "thought": True}, TEXT), X]),
]  # fmt: skip


def ours(model_name: str, contents: list[dict[str, Any]]) -> tuple[list[str], bytes]:
    """Our codes for a request as it stands, and the request."""
    request = {"contents": contents}
    parsed = GEMINI.parse(request)
    profile = with_facts(GEMINI.profile, facts_of(model_name))
    found = check(parsed.messages, profile, mapped=False, tools=parsed.tools)
    if parsed.findings and not parsed.messages:
        found = ()
    codes = sorted((*parsed.findings, *found), key=lambda f: f.position)
    return [f.code for f in codes], json.dumps(request).encode()


@pytest.mark.req("M39", "M40", "M42", "M47", "M79", "M80")
@pytest.mark.parametrize(
    ("model_name", "contents", "code"), [i[1:] for i in ILLEGAL], ids=[i[0] for i in ILLEGAL]
)
def test_illegal_examples_are_refused_by_us_and_by_the_judge(
    model_name: str, contents: list[dict[str, Any]], code: str
) -> None:
    codes, body = ours(model_name, contents)
    assert codes[:1] == [code]
    assert problems(body, newer=model_name is NEWER)


@pytest.mark.parametrize(
    ("model_name", "contents"), [i[1:] for i in LEGAL], ids=[i[0] for i in LEGAL]
)
def test_legal_examples_are_accepted_by_us_and_by_the_judge(
    model_name: str, contents: list[dict[str, Any]]
) -> None:
    codes, _ = ours(model_name, contents)
    for content in contents:
        content.setdefault("role", "user")
    judged = json.dumps({"contents": contents}).encode()
    assert (codes, problems(judged, newer=model_name is NEWER)) == ([], [])


def test_a_signature_may_be_missing_in_an_older_turn() -> None:
    """The judge asks for one everywhere, since we send one everywhere; the provider does not."""
    codes, _ = ours(NEWER, [X, model(F), user(RF), model(TEXT), X])
    assert codes == []
