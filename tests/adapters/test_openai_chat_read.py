"""Reading OpenAI Chat Completions: recorded streams, reported faults, and every way to cut them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.adapters.openai_chat.read import Reader
from antiphon.core.answers.answer import Answer
from antiphon.core.answers.deltas import (
    ArgumentsDelta,
    CallOpened,
    Channel,
    Ended,
    Failed,
    Finished,
    Meaning,
    Note,
    Opened,
    TextDelta,
    Usage,
)
from antiphon.core.answers.schemas import compile_schema
from antiphon.core.blocks import Refusal, Text
from antiphon.core.wire.limits import Limits
from tests.support.chat_stream import (
    DONE,
    answer_of,
    call,
    chunk,
    cuts,
    deltas_of,
    event,
    split,
    text,
    whole,
)

DATA = Path(__file__).parent.parent / "data"
DIALECTS = (
    "openai_chat",
    "azure",
    "deepseek",
    "groq",
    "llamacpp",
    "mistral",
    "ollama_openai",
    "openrouter",
    "qwen_vllm",
)
STREAMS = sorted(
    path for name in DIALECTS for path in (DATA / "fixtures/streams" / name).glob("*.sse")
)
CASES = [
    case
    for path in sorted((DATA / "cases").glob("B-*.json"))
    if (case := json.loads(path.read_text(encoding="utf-8")))["provider"] == "openai-chat"
]
JSON = "application/json"


def expected_of(stream: Path) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads(stream.with_suffix(".expect.json").read_text("utf-8"))
    return expected


def name_of(value: object) -> str:
    return f"{value.parent.name}/{value.stem}" if isinstance(value, Path) else str(value)


def calls_of(answer: Answer) -> list[tuple[str, str, str]]:
    return [(c.call_id, c.name, c.arguments) for c in answer.calls]


# Recorded streams.

OWN_CODES = {"truncated": "unclosed_arguments", "refused": "content_filter"}


@pytest.mark.req("M71", "M72", "M73", "M74")
@pytest.mark.parametrize("stream", STREAMS, ids=name_of)
def test_a_recorded_stream_comes_to_what_it_says_however_it_is_cut(stream: Path) -> None:
    expected = expected_of(stream)
    for how, reads in cuts(stream.read_bytes()):
        answer = answer_of(*reads)
        assert answer.text == expected["text"], how
        assert calls_of(answer) == [
            (c["id"], c["name"], c["arguments"]) for c in expected["tool_calls"]
        ], how
        assert [c.call_id for c in answer.released] == expected["dispatchable"], how
        assert [(c.call_id, c.name, c.arguments) for c in answer.partial_calls] == [
            (c["id"], c["name"], c["arguments"]) for c in expected["partial_tool_calls"]
        ], how
        assert answer.finish == expected["finish"]["native"], how
        assert answer.committable is expected["committable"], how
        assert answer.reasoning == expected["reasoning"], how
        assert answer.refusal == expected["refusal"], how
        assert answer.handle == expected["handle"], how
        assert answer.usage == Usage(**(expected["usage"] or {})), how
        assert answer.error == code_of(expected), how


def code_of(expected: dict[str, Any]) -> str | None:
    """The code that a recording asks for: the provider's own, or ours where it has none."""
    if expected["committable"]:
        return None
    if expected["error"] is None:
        return OWN_CODES[expected["finish"]["turn"]]
    word = expected["error"]["class"]
    return "stream_incomplete" if word == "stream_ended_without_finish" else str(word)


@pytest.mark.req("M73", "M82", "M84", "M89", "M98")
@pytest.mark.parametrize("stream", STREAMS, ids=name_of)
def test_no_beginning_of_a_recorded_stream_is_taken_for_the_whole(stream: Path) -> None:
    body = stream.read_bytes()
    expected = expected_of(stream)
    marker = body.find(b'"finish_reason":"')
    failure = body.find(b"error")
    ends = [place for place in (marker, failure, len(body)) if place >= 0]
    # Everything before the end of the chunk in which the marker stands is a cut.
    end = min(ends) if expected["finish"]["native"] is None else body.index(b"}]", marker)
    for length in range(end):
        answer = answer_of(body[:length])
        assert (answer.committable, answer.error, answer.calls) == (
            False,
            "stream_incomplete",
            (),
        ), length
        assert not answer.definite
        assert expected["text"].startswith(answer.text)


def test_there_are_recordings_of_every_dialect() -> None:
    assert {stream.parent.name for stream in STREAMS} == set(DIALECTS)
    assert len(STREAMS) == 77


# Reported faults.


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_reported_fault_is_read_right_however_it_is_cut(case: dict[str, Any]) -> None:
    given, expected = case["given"], case["expect"]
    chunks = given.get("chunks_base64")
    body = b"".join(
        map(base64.b64decode, chunks) if chunks else (part.encode() for part in given["chunks"])
    )
    tools = {
        tool["function"]["name"]: compile_schema(tool["function"]["parameters"])
        for tool in given.get("tools", ())
    }
    for how, reads in cuts(body):
        answer = answer_of(*reads, tools=tools or None)
        assert answer.text == expected["text"], how
        assert [
            {"id": c.call_id, "name": c.name, "arguments": json.loads(c.arguments)}
            for c in answer.released
        ] == expected["tool_calls"], how
        assert answer.finish == expected["finish"], how
        assert answer.committable is expected["committable"], how
        assert answer.error == expected["error"], how
        assert answer.reasoning == expected.get("reasoning"), how
        if "diagnostics" in expected:
            assert list(answer.diagnostics) == expected["diagnostics"], how
        if "usage" in expected:
            assert {
                "input_tokens": answer.usage.input,
                "output_tokens": answer.usage.output,
            } == expected["usage"], how


# Streams put together at random.

PART = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=5).map(lambda value: chunk({"content": value})),
    st.text(st.characters(codec="utf-8"), max_size=3).map(
        lambda value: chunk({"reasoning": value})
    ),
    st.sampled_from(
        [
            b": ping\n\n",
            b"\n",
            b"event: x\r\n: c\r\ndata: {}\r\n\r\n",
            chunk({}),
            chunk({"content": None}, usage=None),
            event({"id": "chatcmpl-1", "choices": []}),
            event({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}),
            call(0, "c1", "weather", '{"city":', '"潮"}'),
            call(1, "c2", "time", "{"),
            chunk(finish="stop"),
            chunk(finish="tool_calls"),
            chunk(finish="length"),
            event({"error": {"message": "m", "type": "server_error"}}),
            b"data: nonsense\n\n",
            b"data: \xff\n\n",
            DONE,
        ]
    ),
)


@given(parts=st.lists(PART, max_size=12), marks=st.lists(st.integers(0, 10_000), max_size=8))
def test_no_cut_changes_what_any_stream_comes_to(parts: list[bytes], marks: list[int]) -> None:
    body = b"".join(parts)
    expected = deltas_of([body])
    assert deltas_of(split(body, marks)) == expected
    assert deltas_of([body[i : i + 1] for i in range(len(body))]) == expected
    assert deltas_of([body.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")]) == expected


@given(parts=st.lists(PART, max_size=10), share=st.floats(0, 1))
@pytest.mark.req("M73", "M89", "M98")
def test_no_stream_releases_a_call_without_a_whole_finish(parts: list[bytes], share: float) -> None:
    body = b"".join(parts)
    body = body[: int(share * len(body))]
    answer = answer_of(body)
    finished = any(
        word in body for word in (b'"finish_reason": "stop"', b'"finish_reason": "tool_calls"')
    )
    if not finished:
        assert answer.released == ()
    for released in answer.released:
        json.loads(released.arguments)


NAMES = st.sampled_from(
    [
        "id", "object", "choices", "usage", "x_groq", "error", "index", "delta", "message", "finish_reason", "content",
        "refusal", "reasoning", "tool_calls", "function_call", "function", "name", "arguments", "type", "code", "text",
        "thinking", "prompt_tokens", "prompt_tokens_details",
    ]
)  # fmt: skip
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 2)
    | st.sampled_from(["", "null", "stop", "error", "a", "{}", "\ud83d"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(values=st.lists(st.dictionaries(NAMES, VALUES, max_size=4), max_size=4), named=st.booleans())
def test_no_json_whatever_it_says_is_a_fault_of_ours(
    values: list[dict[str, Any]], named: bool
) -> None:
    name = b"event: error\n" if named else b""
    body = b"".join(name + b"data: " + json.dumps(value).encode() + b"\n\n" for value in values)
    answer_of(body, chunk(finish="stop"))
    answer_of(json.dumps(values[0] if values else {}).encode(), content_type=JSON)


@given(
    body=st.binary(max_size=60),
    content_type=st.sampled_from(["text/event-stream", JSON, "", "text/html"]),
)
def test_no_bytes_whatever_they_are_are_a_fault_of_ours(body: bytes, content_type: str) -> None:
    assert not answer_of(body, content_type=content_type).committable
    assert not answer_of(b"data: " + body + b"\n\n", content_type=content_type).committable


# What the deltas are.


def test_a_stream_is_told_as_deltas_of_numbered_blocks() -> None:
    body = (
        chunk({"role": "assistant", "content": ""})
        + chunk({"reasoning_content": "Hm."})
        + text("The ", "bridge.")
        + call(0, "c1", "weather", "{", "}")
        + chunk(finish="tool_calls")
        + event(
            {
                "choices": [],
                "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
            }
        )
        + DONE
    )
    assert deltas_of([body]) == [
        Opened("chatcmpl-1"),
        TextDelta(0, Channel.REASONING, "Hm."),
        TextDelta(1, Channel.TEXT, "The "),
        TextDelta(1, Channel.TEXT, "bridge."),
        CallOpened(3, "c1", "weather"),
        ArgumentsDelta(3, "{"),
        ArgumentsDelta(3, "}"),
        Finished("tool_calls", Meaning.NEEDS_TOOL),
        Usage(input=5, output=2, total=7),
        Ended(),
    ]


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("stop", Meaning.COMPLETE),
        ("tool_calls", Meaning.NEEDS_TOOL),
        ("function_call", Meaning.NEEDS_TOOL),
        ("length", Meaning.TRUNCATED),
        ("model_length", Meaning.TRUNCATED),
        ("content_filter", Meaning.FILTERED),
        ("refusal", Meaning.FILTERED),
        ("error", Meaning.ERROR),
        ("insufficient_system_resource", Meaning.ERROR),
        ("end_turn", Meaning.COMPLETE),
        ("end", Meaning.COMPLETE),
        ("tool_use", Meaning.NEEDS_TOOL),
        ("max_tokens", Meaning.TRUNCATED),
        ("sensitive", Meaning.FILTERED),
        ("abort", Meaning.UNKNOWN),
        ("STOP", Meaning.UNKNOWN),
    ],
)
def test_a_finish_word_means_what_the_dialect_says_and_no_word_is_guessed_at(
    word: str, meaning: Meaning
) -> None:
    assert Finished(word, meaning) in deltas_of([chunk(finish=word)])


@pytest.mark.parametrize("word", [None, "", "null"])
def test_an_empty_finish_is_none(word: str | None) -> None:
    assert answer_of(chunk({"content": "x"}, word)).error == "stream_incomplete"


def test_only_choice_0_is_read() -> None:
    other = {"index": 1, "delta": {"content": "other"}, "finish_reason": "stop"}
    answer = answer_of(text("mine"), event({"choices": [other]}), chunk(finish="stop"))
    assert answer.text == "mine"
    assert answer.diagnostics == ("further_choice",)
    assert answer_of(text("mine"), event({"choices": [other]})).error == "stream_incomplete"


@pytest.mark.parametrize(
    ("more", "usage"),
    [
        ({"usage": {"prompt_tokens": 1}}, Usage(input=1)),
        ({"usage": {"prompt_tokens": 1.0, "completion_tokens": "2"}}, Usage(input=1, output=2)),
        ({"usage": {"prompt_tokens": 9, "prompt_cache_hit_tokens": 4}}, Usage(input=9, cached=4)),
        (
            {"usage": {"prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 3}}},
            Usage(cached=2, cache_write=3),
        ),
        ({"usage": {"prompt_tokens_details": None, "completion_tokens_details": None}}, Usage()),
        ({"x_groq": {"id": "r", "usage": {"prompt_tokens": 6}}}, Usage(input=6)),
        ({"usage": {"prompt_tokens": 1}, "x_groq": {"id": "r"}}, Usage(input=1)),
    ],
)
def test_usage_is_read_wherever_it_stands(more: dict[str, Any], usage: Usage) -> None:
    assert answer_of(text("x"), chunk(finish="stop", **more)).usage == usage


def test_usage_that_cannot_be_read_costs_no_answer() -> None:
    answer = answer_of(text("x"), chunk(finish="stop", usage={"prompt_tokens": "many"}))
    assert answer.committable
    assert answer.diagnostics == ("unreadable_usage",)


def test_the_last_usage_counts() -> None:
    counts = [{"prompt_tokens": 1, "completion_tokens": n} for n in (1, 2)]
    answer = answer_of(*(chunk({"content": "x"}, usage=c) for c in counts), chunk(finish="stop"))
    assert answer.usage == Usage(input=1, output=2)


# Calls as servers send them.


def fragments(*parts: dict[str, Any], finish: str = "tool_calls", **options: Any) -> Answer:
    """What calls come to when each fragment comes in a chunk of its own."""
    body = b"".join(chunk({"tool_calls": [part]}) for part in parts)
    return answer_of(body, chunk(finish=finish), DONE, **options)


def part(
    index: int | None = None,
    call_id: str | None = None,
    name: str | None = None,
    arguments: Any = None,
) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    whole = {
        "index": index,
        "id": call_id,
        "function": {k: v for k, v in function.items() if v is not None},
    }
    return {k: v for k, v in whole.items() if v is not None}


@pytest.mark.parametrize(
    ("parts", "calls", "diagnostics"),
    [
        pytest.param(
            [part(0, "a", "f", "{}"), part(0, "b", "g", "{}")],
            [("a", "f", "{}"), ("b", "g", "{}")],
            ("index_reused",),
            id="every call at index 0, told apart by id",
        ),
        pytest.param(
            [part(0, None, "f", "{}"), part(0, None, "g", "{}")],
            [(None, "f", "{}"), (None, "g", "{}")],
            ("index_reused", "missing_call_id"),
            id="every call at index 0 and without an id",
        ),
        pytest.param(
            [part(0, "a", "f", "{"), part(0, "x1", None, '"n":'), part(0, "x2", None, "1}")],
            [("a", "f", '{"n":1}')],
            ("changed_call_id",),
            id="another id with every fragment",
        ),
        pytest.param(
            [part(0, "a", "f", "{"), part(0, "a", "f", '"n":1'), part(0, "a", "f", "}")],
            [("a", "f", '{"n":1}')],
            (),
            id="id and name with every fragment",
        ),
        pytest.param(
            [
                part(None, "a", "f", "{"),
                part(None, "b", "g", "{"),
                part(None, "a", None, "}"),
                part(None, "b", None, "}"),
            ],
            [("a", "f", "{}"), ("b", "g", "{}")],
            ("missing_index",),
            id="interleaved by id, without an index",
        ),
        pytest.param(
            [part(None, None, "f", "{"), part(None, None, None, "}"), part(None, None, "g", "{}")],
            [(None, "f", "{}"), (None, "g", "{}")],
            ("missing_index", "missing_call_id"),
            id="neither index nor id",
        ),
        pytest.param(
            [part(0, "null", "f", "{}")],
            [(None, "f", "{}")],
            ("missing_call_id",),
            id="the id null",
        ),
        pytest.param(
            [part(0, "", "f", "{}")], [(None, "f", "{}")], ("missing_call_id",), id="an empty id"
        ),
        pytest.param(
            [part(0, None, "f"), part(0, "a"), part(0, None, None, "{}")],
            [("a", "f", "{}")],
            (),
            id="the id after the name",
        ),
        pytest.param(
            [part(0, "a", "get_"), part(0, None, "weather"), part(0, None, None, "{}")],
            [("a", "get_weather", "{}")],
            ("split_name",),
            id="the name in pieces",
        ),
        pytest.param(
            [part(3, "a", "f", "{}"), part(7, "b", "g", "{}")],
            [("a", "f", "{}"), ("b", "g", "{}")],
            (),
            id="indexes that do not begin at 0",
        ),
        pytest.param(
            [part(0, "a", "f", {"n": [1, 2.5], "s": "é"})],
            [("a", "f", '{"n":[1,2.5],"s":"é"}')],
            ("arguments_object",),
            id="arguments as an object",
        ),
        pytest.param([part(0, "a", "f")], [("a", "f", "{}")], (), id="no arguments at all"),
        pytest.param(
            [
                {"index": "0", "id": 0, "function": {"name": "f"}},
                {"index": "0", "function": {"arguments": "{}"}},
            ],
            [("0", "f", "{}")],
            (),
            id="numbers as strings and strings as numbers",
        ),
        pytest.param(
            [
                part(1, "b", "g", "{"),
                part(0, "a", "f", "{"),
                part(1, None, None, "}"),
                part(0, None, None, "}"),
            ],
            [("b", "g", "{}"), ("a", "f", "{}")],
            (),
            marks=pytest.mark.req("M81"),
            id="parallel calls out of order",
        ),
        pytest.param(
            [{"index": 0, "id": "a", "type": "function"}, part(0, None, "f", "{}")],
            [("a", "f", "{}")],
            (),
            id="an opening without a function",
        ),
    ],
)
def test_calls_are_understood_as_servers_send_them(
    parts: list[dict[str, Any]],
    calls: list[tuple[str | None, str, str]],
    diagnostics: tuple[str, ...],
) -> None:
    answer = fragments(*parts)
    assert answer.committable, answer.error_message
    found = calls_of(answer)
    assert [(c[1], c[2]) for c in found] == [(c[1], c[2]) for c in calls]
    for (call_id, _, _), (wanted, _, _) in zip(found, calls, strict=True):
        assert call_id == wanted or (wanted is None and call_id.startswith("call_"))
    assert answer.diagnostics == diagnostics


def test_whole_parallel_calls_may_come_in_one_chunk() -> None:
    parts = [part(0, "a", "f", "{}"), part(1, "b", "g", '{"n":1}')]
    answer = answer_of(chunk({"content": "", "tool_calls": parts}, "tool_calls"), DONE)
    assert calls_of(answer) == [("a", "f", "{}"), ("b", "g", '{"n":1}')]


def test_the_legacy_function_call_is_a_call_without_an_id() -> None:
    answer = answer_of(
        chunk({"function_call": {"name": "f", "arguments": '{"n"'}}),
        chunk({"function_call": {"arguments": ":1}"}}),
        chunk(finish="function_call"),
    )
    assert [(c.name, c.arguments) for c in answer.calls] == [("f", '{"n":1}')]
    assert answer.diagnostics == ("legacy_function_call", "missing_call_id")


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ([part(0, None, None, '{"n":1}')], "orphan_argument_delta"),
        ([part(0, "a", "f", "{}"), part(1, None, None, "{}")], "orphan_argument_delta"),
        ([part(None, None, None, "{}")], "orphan_argument_delta"),
        ([part(0, "a", "f", "{}"), part(1, "a", "g", "{}")], "duplicate_call_id"),
        ([part(0, "a", "f", "{"), part(0, "a", "g", "}")], "malformed_function_call"),
        ([part(0, "a", None, "{}")], "malformed_function_call"),
        ([part(0, "a", "f", "{}{}")], "unclosed_arguments"),
    ],
)
def test_calls_that_cannot_be_understood_release_nothing(
    parts: list[dict[str, Any]], code: str
) -> None:
    answer = fragments(*parts)
    assert (answer.committable, answer.error, answer.calls) == (False, code, ())


def test_an_empty_fragment_of_nothing_is_nothing() -> None:
    assert fragments(part(4), part(0, "a", "f", "{}")).committable


# Content as servers send it.


def test_content_may_come_as_typed_parts() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]},
        {"type": "thinking", "thinking": "!"},
        {"type": "text", "text": "Four "},
        {"type": "text", "text": "metres."},
        {"type": "reference", "reference_ids": [1]},
    ]
    answer = answer_of(chunk({"content": parts}), chunk(finish="stop"))
    assert (answer.text, answer.reasoning) == ("Four metres.", "Hm!")
    assert answer.diagnostics == ("skipped_part",)


def test_reasoning_under_both_its_names_is_taken_once() -> None:
    answer = answer_of(
        chunk({"reasoning": "Hm", "reasoning_content": "Hm"}), text("x"), chunk(finish="stop")
    )
    assert answer.reasoning == "Hm"


def test_a_refusal_has_a_channel_of_its_own() -> None:
    answer = answer_of(chunk({"refusal": "No"}), chunk({"refusal": "."}), chunk(finish="stop"))
    assert answer.blocks == (Refusal(text="No."),)


def test_a_stream_whose_one_chunk_holds_the_whole_message_is_read() -> None:
    answer = answer_of(b"data: " + whole({"content": "Aye."}) + b"\n\n" + DONE)
    assert answer.blocks == (Text(text="Aye."),)


def test_a_whole_message_at_the_end_repeats_what_was_said() -> None:
    answer = answer_of(text("Aye."), b"data: " + whole({"content": "Aye."}) + b"\n\n", DONE)
    assert answer.text == "Aye."
    assert answer.diagnostics == ("repeated_message",)


def test_half_a_character_escaped_in_each_of_two_events_is_one_character() -> None:
    halves = (
        b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"\\uDE00"}}]}\n\n',
    )
    answer = answer_of(*halves, chunk(finish="stop"))
    assert answer.text == "😀"
    assert answer.committable


def test_a_number_is_a_handle_too() -> None:
    answer = answer_of(
        event({"id": 7, "choices": []}),
        event({"id": 7}),
        event({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]}),
    )
    assert (answer.handle, answer.diagnostics) == ("7", ())


def test_a_handle_that_changes_is_noted_and_the_first_one_kept() -> None:
    answer = answer_of(text("a"), event({"id": "other", "choices": []}), chunk(finish="stop"))
    assert (answer.handle, answer.diagnostics) == ("chatcmpl-1", ("handle_changed",))


SAYINGS: tuple[dict[str, Any], ...] = (
    {"content": "Other."},
    {"content": [{"type": "text", "text": "Other."}]},
    {"refusal": "No."},
    {"reasoning_content": "Hm."},
    {"reasoning": "Hm."},
    {"reasoning_details": [{"type": "reasoning.text", "text": "Hm."}]},
    {"tool_calls": [{"index": 0, "id": "call_9", "function": {"name": "other"}}]},
    {"function_call": {"name": "other", "arguments": "{}"}},
)


@pytest.mark.req("M70", "M86")
@pytest.mark.parametrize("said", SAYINGS, ids=repr)
def test_what_another_answer_says_in_the_same_stream_ends_the_reading(said: dict[str, Any]) -> None:
    ours, foreign = text("Low ", "tide"), chunk(said, id="chatcmpl-2")
    deltas = deltas_of([ours, foreign, text(" at six."), chunk(finish="stop")])
    assert deltas[-1] == Failed(
        "malformed_event", "The stream changed to another answer.", retryable=True, definite=False
    )
    answer = answer_of(ours, foreign, text(" at six."), chunk(finish="stop"), DONE)
    assert (answer.committable, answer.error) == (False, "malformed_event")
    assert (answer.text, answer.calls) == ("Low tide", ())


@pytest.mark.req("M86")
@pytest.mark.parametrize("ids", ["ABB", "ABA", "ABCB", "ABCA"])
def test_two_answers_that_take_turns_are_no_answer(ids: str) -> None:
    body = [chunk({"content": "x"}, id=one) for one in ids]
    answer = answer_of(*body, chunk(finish="stop", id=ids[-1]))
    assert (answer.committable, answer.error) == (False, "malformed_event")
    assert answer.text == "x" * (len(ids) - 1)


def test_a_server_that_makes_a_new_id_for_every_chunk_is_understood() -> None:
    body = [chunk({"content": piece}, id=f"chat.id.{n}") for n, piece in enumerate("tide")]
    for last in ("chat.id.3", "chat.id.4"):
        answer = answer_of(*body, chunk(finish="stop", id=last), DONE)
        assert (answer.committable, answer.text, answer.handle) == (True, "tide", "chat.id.0")
        assert answer.diagnostics == ("handle_changed",)


@pytest.mark.parametrize("missing", ["", None])
def test_ids_that_are_left_out_say_nothing_of_who_speaks(missing: str | None) -> None:
    answer = answer_of(
        chunk({"role": "assistant", "content": ""}, id="keepalive"),
        chunk({"content": "Low "}, id=missing),
        text("tide", " at"),
        chunk({"content": " six."}, id=missing),
        event({"id": "usage", "choices": [], "usage": {"prompt_tokens": 1}}),
        chunk(finish="stop", id="end"),
    )
    assert (answer.committable, answer.text) == (True, "Low tide at six.")


def test_unknown_fields_and_unknown_events_are_read_past() -> None:
    body = (
        event({"type": "ping"})
        + event({"choices": [], "prompt_filter_results": [{"prompt_index": 0}]})
        + event({"id": "", "choices": None, "obfuscation": "x", "timings": {"n": 1}})
        + b"data:\n\n: c\n\n"
        + text("x")
        + event({"choices": [{"index": 0, "delta": None}]})
        + event({"choices": [{"index": None, "delta": []}]})
        + chunk({"audio": {"id": "a"}, "role": "assistant"}, "stop", service_tier="auto")
    )
    answer = answer_of(body)
    assert (answer.committable, answer.text, answer.diagnostics) == (True, "x", ())


# Errors and damage.


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        ({"error": {"message": "m", "type": "server_error", "code": None}}, "server_error", True),
        (
            {"error": {"message": "m", "type": "T", "code": "tool_use_failed"}},
            "tool_use_failed",
            True,
        ),
        ({"error": {"message": "m", "code": "429"}}, "429", True),
        ({"error": {"message": "m", "code": 400}}, "400", False),
        ({"error": {"message": "m", "code": 502}}, "502", True),
        ({"error": {"message": "m", "type": "server_error", "code": 500}}, "server_error", True),
        ({"error": {"code": "context_length_exceeded"}}, "context_length_exceeded", False),
        ({"error": {"type": "invalid_request_error"}}, "invalid_request_error", False),
        ({"error": "it broke"}, "provider_error", True),
        ({"error": {"unheard": "of"}}, "provider_error", True),
        ({"object": "error", "message": "m", "type": "BadRequest", "code": 40}, "BadRequest", True),
        ({"choices": [], "x_groq": {"id": "r", "error": "over capacity"}}, "provider_error", True),
    ],
)
@pytest.mark.parametrize("shape", ["stream", "stream without a blank line", "whole"])
def test_an_error_inside_a_200_is_a_definite_no_with_the_providers_code(
    error: dict[str, Any], code: str, retryable: bool, shape: str
) -> None:
    body = event(error)
    match shape:
        case "stream":
            answer = answer_of(text("The"), body, text("never read"), DONE)
        case "stream without a blank line":
            answer = answer_of(text("The"), body.rstrip())
        case _:
            answer = answer_of(json.dumps(error).encode(), content_type=JSON)
    assert (answer.committable, answer.error, answer.retryable) == (False, code, retryable)
    assert answer.definite
    assert answer.text == ("" if shape == "whole" else "The")
    assert answer.error_message


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'event: error\ndata: {"error":{"type":"overloaded"}}\n\n', "overloaded"),
        (b'event: error\ndata: {"type":"overloaded"}\n\n', "overloaded"),
        (b"event: error\ndata: it broke\n\n", "provider_error"),
        (b'error: {"code":500,"type":"server_error","message":"m"}\n\n', "server_error"),
        (b'error: {"code":500,"type":"server_error","message":"m"}', "server_error"),
    ],
)
def test_an_error_under_its_own_event_name_is_an_error(body: bytes, code: str) -> None:
    for how, reads in cuts(text("The") + body):
        answer = answer_of(*reads)
        assert (answer.error, answer.text, answer.definite) == (code, "The", True), how


def test_a_gateway_that_does_not_know_is_believed_inside_a_stream_too() -> None:
    answer = answer_of(text("The"), event({"error": {"code": "outcome_unknown", "message": "m"}}))
    assert (answer.error, answer.definite) == ("outcome_unknown", False)


def test_half_an_error_event_is_a_cut() -> None:
    answer = answer_of(text("The"), b'event: error\ndata: {"error":{"ty')
    assert (answer.error, answer.definite) == ("stream_incomplete", False)


@pytest.mark.parametrize(
    "garbage",
    [
        b"data: nonsense\n\n",
        b'data: {"choices":\n\n',
        b"data: [1]\n\n",
        b'data: {"choices":{}}\n\n',
        b'data: {"choices":[{"delta":{"content":7}}]}\n\n',
        b'data: {"id":"\xff"}\n\n',
        b"data: " + b"[" * 100_000 + b"\n\n",
        b'data: {"x":' + b"[" * 100_000 + b"\n\n",
    ],
)
def test_an_event_that_cannot_be_read_ends_the_reading(garbage: bytes) -> None:
    for how, reads in list(cuts(text("The") + garbage))[::4]:
        answer = answer_of(*reads, text(" end"), chunk(finish="stop"), DONE)
        assert (answer.error, answer.text, answer.finish) == ("malformed_event", "The", None), how
        assert not answer.definite


def test_an_event_larger_than_the_limit_ends_the_reading() -> None:
    reader = Reader(limits=Limits(max_event_bytes=1000))
    assert reader.feed(text("The"))[-1] == TextDelta(1, Channel.TEXT, "The")
    (failed,) = reader.feed(text("x" * 1000))
    assert isinstance(failed, Failed)
    assert (failed.code, failed.definite, failed.retryable) == ("event_too_large", False, False)
    assert reader.feed(text("y")) == []
    assert reader.end() == []


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\r"])
def test_a_last_event_without_its_blank_line_is_taken_where_it_is_whole(end: bytes) -> None:
    finish = chunk(finish="stop").rstrip()
    answer = answer_of(text("Aye."), finish + end)
    assert answer.committable
    assert answer.diagnostics == ("unterminated_event",)
    for length in range(1, len(finish)):
        assert answer_of(text("Aye."), finish[:length] + end).error == "stream_incomplete", length


@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n"])
def test_the_end_marker_counts_with_and_without_its_blank_line(end: bytes) -> None:
    assert answer_of(text("Aye."), b"data: [DONE]" + end).error == "missing_finish_reason"
    assert answer_of(text("Aye."), chunk(finish="stop"), b"data: [DONE]" + end).committable


def test_nothing_after_the_end_marker_counts() -> None:
    answer = answer_of(text("Aye."), DONE, text("more"), chunk(finish="stop"))
    assert (answer.text, answer.error) == ("Aye.", "missing_finish_reason")


def test_html_is_no_answer() -> None:
    page = b"<html><body>502</body></html>"
    for content_type in ("text/html; charset=utf-8", "text/event-stream", JSON):
        answer = answer_of(page, content_type=content_type)
        assert (answer.error, answer.definite) == ("malformed_event", False)
        assert "base URL" in (answer.error_message or "")


def test_an_empty_body_is_a_cut() -> None:
    assert answer_of().error == "stream_incomplete"
    assert answer_of(b"", content_type=JSON).error == "stream_incomplete"


# Whole answers.

MESSAGES: list[tuple[dict[str, Any], str]] = [
    ({"content": "Aye."}, "stop"),
    ({"content": "潮位 😀", "reasoning_content": "Hm."}, "stop"),
    ({"content": None, "refusal": "No."}, "stop"),
    ({"content": "The capital of"}, "length"),
    ({"content": ""}, "stop"),
    ({"content": "x"}, "content_filter"),
    ({"content": "x"}, "abort"),
    (
        {
            "content": "I look.",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"n":1}'}},
                {"id": "b", "type": "function", "function": {"name": "g", "arguments": ""}},
            ],
        },
        "tool_calls",
    ),
    ({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": '{"n":'}}]}, "length"),
]


@pytest.mark.parametrize(("message", "finish"), MESSAGES)
def test_a_whole_answer_and_a_streamed_one_come_to_the_same(
    message: dict[str, Any], finish: str
) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    streamed = [chunk({"role": "assistant", "content": None})]
    for field, value in message.items():
        if field == "tool_calls":
            streamed += [chunk({field: [{"index": i, **c}]}) for i, c in enumerate(value)]
        elif value is not None:
            streamed += [chunk({field: letter}) for letter in value]
    streamed += [chunk(finish=finish), event({"choices": [], "usage": usage}), DONE]
    expected = answer_of(*streamed)
    for how, reads in cuts(whole(message, finish, usage=usage)):
        assert answer_of(*reads, content_type=JSON) == expected, how


def test_no_beginning_of_a_whole_answer_is_taken_for_it() -> None:
    body = whole(
        {"content": "Aye, 潮 😀.", "reasoning": "PAIR"},
        usage={"prompt_tokens": 1.5e3, "x": [-2, True]},
    )
    body = body.replace(b"PAIR", b"\\ud83d\\ude00")
    for length in range(len(body)):
        answer = answer_of(body[:length], content_type=JSON)
        assert (answer.committable, answer.error, answer.definite) == (
            False,
            "stream_incomplete",
            False,
        ), length
    assert answer_of(body, content_type=JSON).committable


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (whole({"content": "x"}, None), "missing_finish_reason"),
        (b'{"id":"x"}', "malformed_event"),
        (b'{"choices":[]}', "malformed_event"),
        (b'{"choices":7}', "malformed_event"),
        (b"[]", "malformed_event"),
        (b"{]", "malformed_event"),
        (whole({"content": "x"}) + b"}", "malformed_event"),
    ],
)
def test_a_whole_answer_that_is_none_is_refused(body: bytes, code: str) -> None:
    assert answer_of(body, content_type=JSON).error == code


def test_a_json_error_where_a_stream_was_asked_for_is_still_the_providers_error() -> None:
    body = b'{"error":{"message":"m","type":"server_error"}}'
    for how, reads in cuts(body):
        assert answer_of(*reads).error == "server_error", how


def test_a_larger_whole_answer_than_the_limit_is_refused() -> None:
    reader = Reader(JSON, Limits(max_answer_bytes=100))
    (failed,) = reader.feed(whole({"content": "x" * 100}))
    assert isinstance(failed, Failed)
    assert failed.code == "answer_too_large"


# Every byte of a call, every way to end.

ARGUMENTS = '{"city":"Os\\"lo 潮","n":[1,{"x":null}]}'
ENDS = {
    "clean end": (chunk(finish="tool_calls") + DONE, None),
    "end marker": (DONE, None),
    "length": (chunk(finish="length") + DONE, None),
    "cut": (b"", "connection_reset"),
    "end of body": (b"", None),
}


@pytest.mark.req("M72", "M73", "M82", "M89", "M98")
@pytest.mark.parametrize("way", ENDS)
def test_a_call_whose_arguments_were_cut_at_any_byte_releases_nothing(way: str) -> None:
    ending, cut = ENDS[way]
    for length in range(1, len(ARGUMENTS)):
        answer = answer_of(call(0, "c1", "weather", ARGUMENTS[:length]), ending, cut=cut)
        assert (answer.committable, answer.calls, answer.released) == (False, (), ()), length
        assert [c.arguments for c in answer.partial_calls] == [ARGUMENTS[:length]]


@pytest.mark.req("M72", "M73", "M82", "M89", "M98")
def test_a_stream_cut_at_any_byte_releases_nothing() -> None:
    body = (
        text("I look.") + call(0, "c1", "weather", '{"city":', '"潮"}') + chunk(finish="tool_calls")
    )
    whole_from = len(body.rstrip())
    for length in range(len(body) + 1):
        answer = answer_of(body[:length], cut=None if length % 2 else "connection_reset")
        assert bool(answer.released) is (length >= whole_from), length


def test_notes_are_bounded_by_their_words_and_not_by_the_stream() -> None:
    parts = [part(None, "a", "f", "")] + [part(None, "a", None, " ")] * 500
    answer = fragments(*parts)
    assert answer.diagnostics == ("missing_index",)
    assert Note("missing_index") in deltas_of([chunk({"tool_calls": parts[:2]})])
