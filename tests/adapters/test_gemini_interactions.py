"""The Interactions API: exact bytes out, recorded streams in, a client's request as our graph."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.adapters import registry
from antiphon.adapters.base import Parsed, Rendering, render
from antiphon.adapters.gemini_interactions import GeminiInteractions
from antiphon.adapters.gemini_interactions.read import STATUS, Reader
from antiphon.core.answers.answer import Answer
from antiphon.core.answers.assembler import Assembler
from antiphon.core.answers.deltas import Meaning, Usage
from antiphon.core.blocks import (
    Audio,
    Block,
    File,
    Image,
    Message,
    Opaque,
    Outcome,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
    encode_blocks,
)
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.recovery import Rung
from antiphon.core.rules.graph import check
from antiphon.errors import InvalidInput, SequenceRejected
from tests.golden import requests as golden
from tests.support.chat_stream import cuts
from tests.support.lines import KEY, PNG, answer, asks, call, line, model, said, system, user
from tests.support.published_types import problems

NAME = "gemini-interactions"
CASES = {name: path for name, path in golden.cases() if name.startswith(f"{NAME}/")}
DATA = Path(__file__).parent.parent / "data" / "fixtures"
STREAMS = sorted((DATA / "streams" / "gemini_interactions").glob("*.sse"))
ADAPTER = registry.get(NAME)
POLICY = Policy(model="gemini-3.8-flash")
TOOLS = (ToolDeclaration(name="look"), ToolDeclaration(name="find"))


def rendered(*messages: Message, policy: Policy = POLICY, **facts: Any) -> Rendering:
    return render(registry.get(NAME, facts), line(*messages), policy, TOOLS, key=KEY)


def thought(signature: str = "c2ln", text: str = "Hm.", maker: str | None = None) -> Reasoning:
    step: dict[str, Any] = {"type": "thought", "signature": signature}
    if text:
        step["summary"] = [{"type": "text", "text": text}]
    state = Opaque(profile=NAME, value=msgspec.Raw(msgspec.json.encode(step)), model=maker)
    return Reasoning(text=text, opaque=state)


# Out.


@pytest.mark.req("M2", "M15", "M20", "M42", "M51", "M87")
@pytest.mark.parametrize("name", CASES)
def test_a_golden_sequence_renders_to_its_recorded_bytes(name: str) -> None:
    case, recorded = golden.load(CASES[name])
    rendering = case.rendering()
    assert rendering.request.body == recorded
    assert tuple(m.rule for m in rendering.mappings) == case.mapped
    assert problems(NAME, recorded) == []


def test_the_adapter_of_version_1_is_the_one_that_the_golden_bytes_were_made_with() -> None:
    """Another digest is another adapter: raise its version, and keep the bytes of this one."""
    recorded = CASES[f"{NAME}/minimal"].parent / "adapter.digest"
    assert (ADAPTER.name, ADAPTER.version) == (NAME, 1)
    assert ADAPTER.digest == recorded.read_text().strip()


@pytest.mark.req("M65")
def test_an_interaction_that_is_not_stored_can_be_neither_asked_after_nor_repeated() -> None:
    assert ADAPTER.recovery == (Rung.CONNECTION, Rung.DEADLINE)


# An interaction that the provider keeps.

KEEPS = GeminiInteractions({"background": True})


@pytest.mark.req("M65", "M66")
def test_an_interaction_in_the_background_is_asked_after_and_closing_does_not_end_it() -> None:
    assert KEEPS.recovery == (Rung.HANDLE, Rung.DEADLINE)
    assert not KEEPS.closing_ends
    assert KEEPS.digest != ADAPTER.digest


def test_the_handle_names_the_requests_that_ask_after_it() -> None:
    policy = msgspec.structs.replace(POLICY, endpoint="http://h:1/v1beta/")
    told = [
        KEEPS.resume(policy, "v1_A", after="ev/4=&"),
        KEEPS.resume(policy, "v1_A", after=None),
        KEEPS.query(policy, "v1_A"),
        KEEPS.cancel(policy, "v1/A?x"),
    ]
    assert [(request.method, request.url, request.body) for request in told] == [
        ("GET", "http://h:1/v1beta/interactions/v1_A?stream=true&last_event_id=ev%2F4%3D%26", b""),
        ("GET", "http://h:1/v1beta/interactions/v1_A?stream=true", b""),
        ("GET", "http://h:1/v1beta/interactions/v1_A", b""),
        ("POST", "http://h:1/v1beta/interactions/v1%2FA%3Fx/cancel", b""),
    ]
    accepts = ["text/event-stream"] * 2 + ["application/json"] * 2
    assert [dict(request.headers) for request in told] == [
        {"accept": accept, "x-goog-api-key": ""} for accept in accepts
    ]


def test_what_comes_at_once_is_not_worked_on_in_the_background() -> None:
    policy = msgspec.structs.replace(POLICY, stream=False)
    body = json.loads(rendered(user("hi"), policy=policy, background=True).request.body)
    assert (body.get("background"), body["store"]) == (None, False)


def test_what_is_worked_on_in_the_background_cannot_be_forgotten() -> None:
    policy = msgspec.structs.replace(POLICY, extra={"store": raw("false")})
    with pytest.raises(InvalidInput) as caught:
        rendered(user("hi"), policy=policy, background=True)
    assert (caught.value.code, caught.value.at) == ("bad_option", "extra.store")


@pytest.mark.req("M2")
def test_the_common_graph_says_what_its_fixture_says() -> None:
    _, recorded = golden.load(CASES[f"{NAME}/travel_desk"])
    fixture = (DATA / "render" / "gemini_interactions.json").read_text()
    assert json.loads(recorded) == json.loads(fixture)


def test_requests_go_to_one_place_and_leave_room_for_the_key() -> None:
    for endpoint in ("http://h:1", "http://h:1/", "http://h:1/v1beta"):
        request = rendered(user(), policy=Policy(model="m", endpoint=endpoint)).request
        assert (request.method, request.url) == ("POST", "http://h:1/v1beta/interactions")
        assert dict(request.headers)["x-goog-api-key"] == ""
    kept = json.loads(rendered(user(), store=True).request.body)
    assert kept["store"] is True


TURNS: list[list[Message]] = [
    [system("Be brief."), user("What is it?")],
    [asks("a", "b", text="I look."), answer("b", "2"), user("Well?"), answer("a", "1")],
    [model(thought(), "It is that."), model("Yes."), user("And now?", name="ada")],
    [model("", "One."), user("More")],
]


@pytest.mark.req("M92")
def test_a_growing_history_keeps_every_byte_before_what_is_new() -> None:
    made, bodies = ADAPTER.line(POLICY, TOOLS, key=KEY), []
    messages = iter(line(*(m for turn in TURNS for m in turn)))
    for turn in TURNS:
        for _ in turn:
            made.feed(next(messages))
        bodies.append(made.finish().request.body)
    for before, after in pairwise(bodies):
        assert after.startswith(before.removesuffix(b"]}"))
    assert bodies[-1] == rendered(*(m for turn in TURNS for m in turn)).request.body


@pytest.mark.req("M48")
@pytest.mark.parametrize(
    ("maker", "goes"),
    [(None, True), ("gemini-3.8-flash-001", True), ("gemini-3.8-pro", False)],
)
def test_a_thought_goes_back_to_the_model_that_had_it(maker: str | None, goes: bool) -> None:
    made = rendered(user(), model(thought(maker=maker), "b"), user())
    assert (b'"signature":"c2ln"' in made.request.body) is goes
    assert [m.rule for m in made.mappings] == ([] if goes else ["reasoning_dropped"])


def refusal(*messages: Message) -> str:
    with pytest.raises(SequenceRejected) as caught:
        rendered(*messages)
    return caught.value.findings[0].code


@pytest.mark.req("M88")
def test_what_cannot_be_mapped_is_refused() -> None:
    assert refusal(user("a"), model("b")) == "must_end_with_user"
    assert refusal(user("", "")) == "empty_content"
    assert refusal(system()) == "empty_sequence"
    assert refusal(user(), asks(call("1", arguments="[1]")), answer("1")) == "malformed_item"
    assert refusal(user(), asks("1")) == "missing_tool_result"


def raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


@pytest.mark.parametrize(
    ("policy", "at", "code"),
    [
        (Policy(model="m", extra={"input": raw("[]")}), "extra.input", "bad_option"),
        (Policy(model="m", extra={"generation_config": raw('{"temperature":1}')}), "extra.generation_config.temperature", "bad_option"),
        (Policy(model="m", extra={"generation_config": raw("5")}), "extra.generation_config", "bad_option"),
        (Policy(model="m", tool_choice="none", extra={"generation_config": raw('{"tool_choice":"any"}')}), "extra.generation_config.tool_choice", "bad_option"),
        (Policy(model="m", tool_choice="perhaps"), "tool_choice", "bad_option"),
        (Policy(model="m", parallel_tool_calls=False), "parallel_tool_calls", "unsupported_parameter"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_said_are_refused_before(policy: Policy, at: str, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        ADAPTER.line(policy, TOOLS, key=KEY)
    assert (caught.value.code, caught.value.at) == (code, at)


# In: streams.


def answer_of(*reads: bytes, content_type: str = "text/event-stream", **options: Any) -> Answer:
    reader, assembler = Reader(content_type), Assembler(**options)
    for data in reads:
        for delta in reader.feed(data):
            assembler.feed(delta)
    for delta in reader.end():
        assembler.feed(delta)
    return assembler.end()


def expected_of(stream: Path) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads(stream.with_suffix(".expect.json").read_text("utf-8"))
    return expected


def code_of(expected: dict[str, Any]) -> str | None:
    if expected["committable"]:
        return None
    if expected["error"] is None:
        return "unclosed_arguments"
    word: str = expected["error"]["class"]
    return "stream_incomplete" if word.startswith("stream_ended") else word


def test_there_are_recordings() -> None:
    assert len(STREAMS) == 7


@pytest.mark.req("M71", "M72", "M73", "M74")
@pytest.mark.parametrize("stream", STREAMS, ids=lambda path: path.stem)
def test_a_recorded_stream_comes_to_what_it_says_however_it_is_cut(stream: Path) -> None:
    expected = expected_of(stream)
    for how, reads in cuts(stream.read_bytes()):
        answer = answer_of(*reads)
        assert answer.text == expected["text"], how
        assert [(c.call_id, c.name, json.loads(c.arguments)) for c in answer.calls] == [
            (c["id"], c["name"], c["parsed"]) for c in expected["tool_calls"]
        ], how
        assert [c.call_id for c in answer.released] == expected["dispatchable"], how
        assert [(c.call_id, c.arguments) for c in answer.partial_calls] == [
            (c["id"], c["arguments"]) for c in expected["partial_tool_calls"]
        ], how
        assert answer.finish == expected["finish"]["native"], how
        assert answer.committable is expected["committable"], how
        assert answer.reasoning == expected["reasoning"], how
        assert answer.handle == expected["handle"], how
        assert answer.usage == Usage(**(expected["usage"] or {})), how
        assert answer.error == code_of(expected), how


@pytest.mark.req("M48")
@pytest.mark.parametrize("stream", STREAMS, ids=lambda path: path.stem)
def test_a_thought_is_kept_as_the_step_that_goes_back(stream: Path) -> None:
    answer = answer_of(stream.read_bytes())
    for wanted in expected_of(stream)["opaque"]:
        block = answer.blocks[wanted["index"]]
        assert isinstance(block, Reasoning)
        assert block.opaque is not None
        assert (block.opaque.profile, block.opaque.model) == (NAME, "gemini-3.8-flash")
        assert json.loads(bytes(block.opaque.value)) == {
            "type": "thought",
            "signature": wanted["signature"],
            "summary": [{"type": "text", "text": block.text}],
        }


@pytest.mark.req("M73", "M82", "M84", "M89", "M98")
@pytest.mark.parametrize("stream", STREAMS, ids=lambda path: path.stem)
def test_no_beginning_of_a_recorded_stream_is_taken_for_the_whole(stream: Path) -> None:
    body, expected = stream.read_bytes(), expected_of(stream)
    ends = [body.find(b'data: {"event_type":"' + word) for word in (b"error", b"interaction.comp")]
    last = max(ends)
    for length in range(body.find(b"\n", last) if last >= 0 else len(body)):
        answer = answer_of(body[:length])
        assert (answer.committable, answer.error, answer.calls) == (
            False,
            "stream_incomplete",
            (),
        ), length
        assert not answer.definite
        assert expected["text"].startswith(answer.text)


def event(kind: str, **fields: Any) -> bytes:
    data = json.dumps({"event_type": kind, **fields}, ensure_ascii=False)
    return f"event: {kind}\ndata: {data}\n\n".encode()


def step(index: int, begun: dict[str, Any], *deltas: dict[str, Any], stop: bool = True) -> bytes:
    parts = [event("step.start", index=index, step=begun)]
    parts += (event("step.delta", index=index, delta=delta) for delta in deltas)
    return b"".join([*parts, *([event("step.stop", index=index)] * stop)])


def text(index: int, *pieces: str) -> bytes:
    return step(index, {"type": "model_output"}, *({"type": "text", "text": p} for p in pieces))


def end(status: str | None = "completed", **more: Any) -> bytes:
    return event("interaction.completed", interaction={"id": "i", "status": status, **more})


WORDS = {
    "completed": (Meaning.COMPLETE, None),
    "incomplete": (Meaning.TRUNCATED, None),
    "budget_exceeded": (Meaning.TRUNCATED, None),
    "requires_action": (Meaning.NEEDS_TOOL, "malformed_function_call"),
    "requires_continuation": (Meaning.ERROR, "requires_continuation"),
    "failed": (Meaning.ERROR, "failed"),
    "cancelled": (Meaning.ERROR, "cancelled"),
    "in_progress": (Meaning.UNKNOWN, "in_progress"),
    "a_new_one": (Meaning.UNKNOWN, "a_new_one"),
}


@pytest.mark.req("M73")
@pytest.mark.parametrize("word", WORDS)
def test_a_status_means_what_the_provider_says_of_it(word: str) -> None:
    meaning, error = WORDS[word]
    answer = answer_of(text(0, "Hello"), end(word))
    assert (answer.finish, answer.meaning, answer.error) == (word, meaning, error)
    assert answer.committable is (error is None)
    assert STATUS.get(word, Meaning.UNKNOWN) is meaning


@pytest.mark.req("M73")
def test_an_answer_that_would_go_on_for_a_token_is_refused_by_name_and_not_asked_for_again() -> (
    None
):
    answer = answer_of(text(0, "Hello"), end("requires_continuation", continuation_token="t"))
    assert (answer.committable, answer.error) == (False, "requires_continuation")
    assert (answer.retryable, answer.definite) == (False, True)
    assert "continuation_token" in (answer.error_message or "")


@pytest.mark.parametrize("word", ["queued", "in_progress", "idle"])
def test_an_interaction_that_is_still_running_has_not_ended(word: str) -> None:
    step = {"type": "model_output", "content": [{"type": "text", "text": "Hel"}]}
    body = json.dumps({"id": "i", "status": word, "steps": [step]}).encode()
    answer = answer_of(body, content_type="application/json")
    assert (answer.committable, answer.definite, answer.handle) == (False, False, "i")


def test_what_a_failed_interaction_says_of_itself_is_its_end_even_where_time_ran_out() -> None:
    fault = {"code": "deadline_exceeded", "message": "Too late."}
    body = {"id": "i", "status": "failed", "errors": [fault]}
    answer = answer_of(json.dumps(body).encode(), content_type="application/json")
    assert (answer.error, answer.definite, answer.retryable) == ("deadline_exceeded", True, True)


def test_an_event_of_another_interaction_is_not_taken() -> None:
    begun = event("interaction.created", interaction={"id": "other", "status": "in_progress"})
    answer = answer_of(begun, text(0, "Hello"), end())
    assert (answer.committable, answer.error) == (False, "malformed_event")


def test_an_end_without_a_status_is_none() -> None:
    for last in (end(None), b"data: [DONE]\n\n"):
        answer = answer_of(text(0, "Hello"), last)
        assert (answer.committable, answer.error) == (False, "missing_finish_reason")


@pytest.mark.req("M82", "M89")
def test_a_call_whose_step_never_stopped_is_not_released() -> None:
    begun = {"type": "function_call", "id": "1", "name": "look", "arguments": {}}
    half = step(0, begun, {"type": "arguments_delta", "arguments": "{}"}, stop=False)
    answer = answer_of(half, end("requires_action"))
    assert (answer.error, answer.calls) == ("unclosed_arguments", ())


def test_arguments_may_stand_in_the_start_and_keep_every_digit() -> None:
    begun = '{"type":"function_call","id":"1","name":"pay","arguments":{"n":12345678901234567890}}'
    opening = f'data: {{"event_type":"step.start","index":0,"step":{begun}}}\n\n'.encode()
    answer = answer_of(opening, event("step.stop", index=0), end("requires_action"))
    assert [c.arguments for c in answer.calls] == ['{"n":12345678901234567890}']


@pytest.mark.parametrize(("given", "status"), [({}, "requires_action"), (None, "completed")])
def test_a_call_without_arguments_has_an_empty_object(given: Any, status: str) -> None:
    begun = {"type": "function_call", "id": "1", "name": "look", "arguments": given}
    assert [c.arguments for c in answer_of(step(0, begun), end(status)).calls] == ["{}"]


def kept(block: Block) -> dict[str, Any]:
    assert isinstance(block, Reasoning)
    assert block.opaque is not None
    assert block.opaque.work
    made: dict[str, Any] = json.loads(bytes(block.opaque.value))
    return made


def test_what_the_provider_did_by_itself_is_kept_whole_and_never_run() -> None:
    search = {"type": "google_search_call", "id": "s"}
    filled = {"type": "google_search_call", "arguments": {"queries": ["x"]}, "signature": "c2ln"}
    picture = {"type": "image", "data": "AA==", "mime_type": "image/png"}
    words = ({"type": "text", "text": word} for word in ("a", "b"))
    drawn = step(1, {"type": "model_output"}, next(words), picture, next(words))
    answer = answer_of(step(0, search, filled), drawn, end())
    assert kept(answer.blocks[0]) == {**search, **filled}
    assert answer.blocks[1::2] == (Text(text="a"), Text(text="b"))
    assert kept(answer.blocks[2]) == {"type": "model_output", "content": [picture]}
    assert answer.calls == ()


def test_a_thought_without_its_signature_is_shown_and_noted() -> None:
    hm = {"type": "thought_summary", "content": {"type": "text", "text": "Hm."}}
    answer = answer_of(step(0, {"type": "thought"}, hm), text(1, "Hi"), end())
    assert (answer.reasoning, answer.diagnostics) == ("Hm.", ("missing_signature",))


@pytest.mark.parametrize(
    "broken",
    [
        b"data: {oops}\n\n",
        step(0, {"type": "model_output"}, stop=False) * 2,
        event("step.delta", index=4, delta={"type": "text", "text": "x"}),
        step(0, {"type": "function_call", "id": "1", "name": "f"}, {"type": "text", "text": "x"}),
        step(0, {"type": "thought"}, {"type": "arguments_delta", "arguments": "{"}),
        step(0, {"type": "x_call"}, *[{"type": "x_call", "arguments": "a"}] * 2),
        step(0, {"type": "thought"}, stop=False) + end(),
        event("step.start", index=0, step=5),
    ],
)
def test_what_cannot_be_understood_ends_the_reading(broken: bytes) -> None:
    answer = answer_of(broken, end())
    assert (answer.committable, answer.error, answer.blocks) == (False, "malformed_event", ())


@pytest.mark.req("M73")
def test_a_whole_answer_is_the_stream_of_its_steps() -> None:
    steps: list[dict[str, Any]] = [
        {"type": "thought", "signature": "c2ln", "summary": [{"type": "text", "text": "Hm."}]},
        {"type": "model_output", "content": [{"type": "text", "text": "I look."}]},
        {"type": "function_call", "id": "1", "name": "look", "arguments": {"at": 1}},
    ]
    usage = {"total_input_tokens": 1, "total_output_tokens": 2, "total_tokens": 3}
    whole = {"id": "i", "model": "m", "status": "requires_action", "steps": steps, "usage": usage}
    told = event("interaction.created", interaction={"id": "i", "model": "m"})
    streamed = answer_of(told, *(step(n, s) for n, s in enumerate(steps)), end("requires_action", usage=usage))  # fmt: skip
    body = json.dumps(whole, separators=(",", ":")).encode()
    answer = answer_of(body, content_type="application/json")
    assert msgspec.structs.replace(answer, blocks=(), calls=()) == msgspec.structs.replace(streamed, blocks=(), calls=())  # fmt: skip
    assert [json.loads(c.arguments) for c in (*answer.calls, *streamed.calls)] == [{"at": 1}] * 2
    for length in range(1, len(body)):
        assert answer_of(body[:length], content_type="application/json").error == "stream_incomplete"  # fmt: skip
    failed = b'{"error":{"code":"invalid_request","message":"No."}}'
    assert answer_of(failed, content_type="application/json").error == "invalid_request"


# In: requests.


def parsed(given: Any, **fields: Any) -> Parsed:
    return ADAPTER.parse({"input": given, **fields})


@pytest.mark.req("M2", "M20")
@pytest.mark.parametrize("name", CASES)
def test_a_request_of_ours_is_read_back_and_rendered_to_the_same_request(name: str) -> None:
    case, recorded = golden.load(CASES[name])
    made = ADAPTER.parse(json.loads(recorded))
    assert (made.findings, made.uncarried) == ((), ())
    assert made.located(check(made.messages, case.adapter.profile, mapped=False)) == ()
    again = render(case.adapter, made.messages, made.policy, made.tools, key=KEY)
    assert json.loads(again.request.body) == json.loads(recorded)


texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).map(lambda t: Text(text=t))
media: st.SearchStrategy[Image | File] = st.sampled_from([Image(media_type="image/png", data=PNG), Image(url="https://e.test/a"), File(media_type="application/pdf", data="JVBERi0=")])  # fmt: skip
sounds = st.just(Audio(data="UklGRg==", format="wav"))


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Histories of which nothing is left out."""
    made: list[Message] = []
    for number in range(draw(st.integers(1, 3))):
        made.append(user(*draw(st.lists(st.one_of(texts, media, sounds), min_size=1, max_size=3))))
        ids = [f"c{number}.{n}" for n in range(draw(st.integers(0, 3)))]
        words = draw(st.lists(texts, max_size=2))
        if ids:
            made.append(model(thought(), *words, *(call(i, "look", '{"a":[1]}') for i in ids)))
            for i in ids:
                outcome = draw(st.sampled_from([Outcome.SUCCESS, Outcome.ERROR]))
                made.append(answer(i, *draw(st.lists(st.one_of(texts, media), min_size=1, max_size=2)), outcome=outcome))  # fmt: skip
        made.append(model(thought(text=""), *words, "so"))
    made.append(user(draw(texts)))
    return line(*made)


def flat(messages: Iterable[Message]) -> list[tuple[str, bytes]]:
    """Who said what, block by block: where one message ends is not what was said."""
    return [
        (m.role.value, encode_blocks((msgspec.structs.replace(b, name=None) if isinstance(b, ToolResult) else b,)))
        for m in messages
        for b in m.blocks
    ]  # fmt: skip


@pytest.mark.req("M2", "M20")
@settings(max_examples=50)
@given(histories())
def test_what_was_rendered_reads_back_as_what_it_was_made_from(history: list[Message]) -> None:
    body = render(ADAPTER, history, POLICY, TOOLS, key=KEY).request.body
    assert problems(NAME, body) == []
    read = ADAPTER.parse(json.loads(body))
    assert (read.findings, read.uncarried) == ((), ())
    assert flat(read.messages) == flat(history)


def test_input_may_be_text_or_contents_alone() -> None:
    assert [(m.role, m.text) for m in parsed("hi").messages] == [(Role.USER, "hi")]
    piece = {"type": "text", "text": "hi"}
    assert parsed(piece).messages[0].blocks == parsed([piece]).messages[0].blocks
    assert parsed([piece, {"type": "image"}]).findings[0].at == "input[1]"


def test_steps_of_the_model_and_results_are_one_message_each_with_places() -> None:
    made = parsed(
        [
            {"type": "user_input", "content": [{"type": "text", "text": "a"}]},
            {"type": "thought", "signature": "c2ln"},
            {"type": "model_output", "content": [{"type": "text", "text": "b"}]},
            *({"type": "function_call", "id": i, "name": "f", "arguments": {}} for i in "12"),
            *({"type": "function_result", "call_id": i, "result": {"v": 1}} for i in "12"),
            *({"type": "user_input", "content": [{"type": "text", "text": t}]} for t in "cd"),
            {"type": "google_search_result", "call_id": "s", "result": []},
        ]
    )
    assert [(m.role.value, len(m.blocks)) for m in made.messages] == [
        ("user", 1),
        ("assistant", 4),
        ("tool", 2),
        ("user", 1),
        ("user", 1),
        ("assistant", 1),
    ]
    second = [made.places[f"{made.messages[1].id}.{n}"] for n in range(4)]
    assert second == ["input[1]", "input[2].content[0]", "input[3]", "input[4]"]
    calls = [b for b in made.messages[1].blocks if isinstance(b, ToolCall)]
    assert [c.call_id for c in calls] == ["1", "2"]
    assert [p.text for r in made.messages[2].results for p in r.content if isinstance(p, Text)] == ['{"v":1}'] * 2  # fmt: skip


@pytest.mark.parametrize(
    ("item", "at"),
    [
        ("hi", "input[0]"),
        ({"content": "x"}, "input[0]"),
        ({"type": "user_input", "content": "x"}, "input[0].content"),
        ({"type": "user_input", "content": ["x"]}, "input[0].content[0]"),
        ({"type": "user_input", "content": [{"type": "text"}]}, "input[0].content[0]"),
        ({"type": "function_call", "id": "1", "name": "f", "arguments": "{}"}, "input[0]"),
        ({"type": "function_result", "result": "x"}, "input[0]"),
    ],
)
def test_what_cannot_be_a_step_is_a_finding_at_its_place(item: Any, at: str) -> None:
    assert [(f.code, f.at) for f in parsed([item]).findings] == [("malformed_item", at)]


def test_rules_speak_of_the_places_of_a_request() -> None:
    orphan = parsed([{"type": "function_result", "call_id": "9", "result": "x"}])
    found = orphan.located(check(orphan.messages, ADAPTER.profile, mapped=False))
    assert [(f.code, f.at) for f in found] == [("orphan_tool_result", "input[0]")]
    empty = parsed([{"type": "user_input"}])
    found = empty.located(check(empty.messages, ADAPTER.profile, mapped=False))
    assert [(f.code, f.at) for f in found] == [("empty_content", "input[0]")]
    odd = parsed([{"type": "hologram"}])
    assert isinstance(odd.messages[0].blocks[0], Unknown)


def test_options_become_the_policy_and_what_is_stored_elsewhere_is_named() -> None:
    made = parsed(
        "hi",
        model="gemini-3-pro",
        stream=True,
        generation_config={"max_output_tokens": 7, "temperature": 1, "tool_choice": "any", "seed": 3},
        previous_interaction_id="i",
        tools=[{"type": "function", "name": "f", "parameters": {"type": "object"}}, {"type": "google_search"}],
    )  # fmt: skip
    policy = made.policy
    assert (policy.model, policy.stream, policy.max_output_tokens) == ("gemini-3-pro", True, 7)
    assert (policy.tool_choice, policy.temperature) == ("required", 1)
    assert {k: bytes(v) for k, v in policy.extra.items()} == {"generation_config": b'{"seed":3}'}
    assert made.uncarried == ("previous_interaction_id", "tools[1]")
    assert made.facts == {"prefill": "unsupported"}
    named = parsed("hi", generation_config={"tool_choice": {"allowed_tools": {"mode": "any", "tools": ["f"]}}})  # fmt: skip
    assert named.policy.tool_choice == "tool:f"


@pytest.mark.parametrize(
    ("fields", "at"),
    [
        ({"input": None}, "input"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"generation_config": {"max_output_tokens": "9"}}, "generation_config.max_output_tokens"),
        ({"stream": 1}, "stream"),
        ({"system_instruction": {}}, "system_instruction"),
    ],
)
def test_an_option_of_the_wrong_type_is_no_request(fields: dict[str, Any], at: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        ADAPTER.parse({"input": "hi", **fields})
    assert (caught.value.code, caught.value.at) == ("wrong_shape", at)


def test_a_message_of_a_tool_s_result_is_told_from_what_a_user_said() -> None:
    made = rendered(user(), asks("1"), answer("1"), said(Role.USER, "so"))
    kinds = [s["type"] for s in json.loads(made.request.body)["input"]]
    assert kinds == ["user_input", "function_call", "function_result", "user_input"]
