"""Reading generateContent: recorded streams, whole answers, and every way to cut them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.adapters.gemini.read import FINISH, Reader
from antiphon.core.answers.answer import Answer
from antiphon.core.answers.deltas import Meaning, Usage
from antiphon.core.answers.schemas import compile_schema
from antiphon.core.blocks import Block, Reasoning, Text, ToolCall
from antiphon.core.wire.limits import Limits
from tests.support.chat_stream import cuts, split
from tests.support.gemini_stream import (
    COUNTS,
    MODEL,
    answer_of,
    call,
    chunk,
    deltas_of,
    end,
    event,
    text,
    value,
)

DATA = Path(__file__).parent.parent / "data"
STREAMS = sorted((DATA / "fixtures/streams/gemini").glob("*.sse"))
JSON = "application/json"
OWN_CODES = {
    "refused": "content_filter",
    "MALFORMED_FUNCTION_CALL": "malformed_function_call",
    "stream_ended_without_finish": "stream_incomplete",
}


def expected_of(stream: Path) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads(stream.with_suffix(".expect.json").read_text("utf-8"))
    return expected


def code_of(expected: dict[str, Any]) -> str | None:
    if expected["committable"]:
        return None
    told = expected["error"]
    word: str = expected["finish"]["turn"] if told is None else told["class"]
    return OWN_CODES.get(word, word)


def state_of(block: Block) -> dict[str, Any] | None:
    if not isinstance(block, Reasoning | ToolCall) or block.opaque is None:
        return None
    assert (block.opaque.profile, block.opaque.model) == ("gemini", MODEL)
    state: dict[str, Any] = json.loads(bytes(block.opaque.value))
    return state


def states(answer: Answer) -> list[tuple[str, dict[str, Any] | None]]:
    """The kinds of an answer's blocks, and the state that each keeps."""
    return [(type(block).__name__, state_of(block)) for block in answer.blocks]


# Recorded streams.


def test_there_are_recordings() -> None:
    assert len(STREAMS) == 11


@pytest.mark.req("M71", "M72", "M73", "M74")
@pytest.mark.parametrize("stream", STREAMS, ids=lambda path: path.stem)
def test_a_recorded_stream_comes_to_what_it_says_however_it_is_cut(stream: Path) -> None:
    expected = expected_of(stream)
    body = stream.read_bytes()
    for how, reads in [*cuts(body), *cuts(body.replace(b"\n", b"\r\n"))]:
        answer = answer_of(*reads)
        assert answer.text == expected["text"], how
        assert [(c.call_id, c.name, c.arguments) for c in answer.calls] == [
            (c["id"], c["name"], c["arguments"]) for c in expected["tool_calls"]
        ], how
        assert [c.call_id for c in answer.released] == expected["dispatchable"], how
        assert answer.finish == expected["finish"]["native"], how
        assert answer.committable is expected["committable"], how
        assert answer.reasoning == expected["reasoning"], how
        assert answer.handle == expected["handle"], how
        assert answer.usage == Usage(**(expected["usage"] or {})), how
        assert answer.error == code_of(expected), how


@pytest.mark.req("M73", "M82", "M84", "M89", "M98")
@pytest.mark.parametrize("stream", STREAMS, ids=lambda path: path.stem)
def test_no_beginning_of_a_recorded_stream_is_taken_for_the_whole(stream: Path) -> None:
    body, expected = stream.read_bytes(), expected_of(stream)
    failure = body.find(b'data: {"error"')
    for length in range(failure if failure >= 0 else len(body.rstrip())):
        answer = answer_of(body[:length])
        assert (answer.committable, answer.error, answer.calls) == (
            False,
            "stream_incomplete",
            (),
        ), length
        assert not answer.definite
        assert expected["text"].startswith(answer.text)


@given(st.lists(st.integers(0, 2000), max_size=6))
def test_where_the_network_cuts_makes_no_difference(marks: list[int]) -> None:
    body = text("Grüße, ", "🧭", " ok") + chunk(call("look", {"at": "Ø"}, "c2ln", id="1")) + end()
    assert deltas_of(split(body, marks)) == deltas_of([body])


# Signatures: each on the part that it came with.


@pytest.mark.req("M48")
def test_a_signature_stays_on_its_call_and_the_calls_beside_it_have_none() -> None:
    answer = answer_of(chunk(call("a", None, "c2ln", id="1"), call("b", id="2")), end())
    assert states(answer) == [("ToolCall", {"thoughtSignature": "c2ln"}), ("ToolCall", None)]


@pytest.mark.req("M48")
def test_a_signed_text_is_never_joined_to_its_neighbours() -> None:
    signed = chunk({"text": "two", "thoughtSignature": "c2ln"})
    answer = answer_of(text("one, ", "and "), signed, text(", three"), end())
    assert answer.text == "one, and two, three"
    assert [b.text for b in answer.blocks if isinstance(b, Text)] == ["one, and ", "two", ", three"]
    assert states(answer)[2] == ("Reasoning", {"thoughtSignature": "c2ln"})


def test_a_signature_on_an_empty_text_is_a_part_of_its_own() -> None:
    answer = answer_of(text("Oslo."), chunk({"text": "", "thoughtSignature": "c2ln"}), end())
    assert states(answer) == [
        ("Text", None),
        ("Reasoning", {"thoughtSignature": "c2ln", "text": ""}),
    ]
    bare = answer_of(text("Oslo."), chunk({"thoughtSignature": "c2ln"}), end())
    assert states(bare) == states(answer)


def test_a_signed_summary_of_thinking_keeps_what_it_is() -> None:
    thought = {"text": "Hm.", "thought": True, "thoughtSignature": "c2ln"}
    answer = answer_of(chunk(thought), chunk({"text": " More.", "thought": True}), text("Oslo."), end())  # fmt: skip
    assert (answer.reasoning, answer.text) == ("Hm. More.", "Oslo.")
    assert states(answer)[:2] == [
        ("Reasoning", {"thoughtSignature": "c2ln", "thought": True}),
        ("Reasoning", None),
    ]


@pytest.mark.parametrize(
    "part",
    [
        {"executableCode": {"language": "PYTHON", "code": "1+1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}, "thoughtSignature": "x"},
        {"inlineData": {"mimeType": "image/png", "data": "AA=="}},
        {"newThing": {"n": 1}},
    ],
)
def test_what_the_provider_did_by_itself_is_kept_byte_for_byte_and_never_run(
    part: dict[str, Any],
) -> None:
    answer = answer_of(text("a"), chunk(part), text("b"), end())
    assert states(answer) == [("Text", None), ("Reasoning", part), ("Text", None)]
    kept = answer.blocks[1]
    assert isinstance(kept, Reasoning)
    assert kept.opaque is not None
    assert kept.opaque.work
    assert answer.calls == ()


# Calls.


def test_a_number_in_arguments_comes_through_digit_for_digit() -> None:
    raw = chunk(call("pay", {"n": "N"}, id="1")).replace(b'"N"', b"12345678901234567890.50")
    assert [c.arguments for c in answer_of(raw, end()).calls] == ['{"n": 12345678901234567890.50}']


@pytest.mark.parametrize("args", ['"args": {}', '"args":null', '"other": 1'])
def test_a_call_without_arguments_has_an_empty_object(args: str) -> None:
    raw = chunk(call("look", id="1")).replace(b'"args": {}', args.encode())
    assert [c.arguments for c in answer_of(raw, end()).calls] == ["{}"]


def test_calls_without_ids_are_given_the_same_ones_however_often_they_are_read() -> None:
    body = chunk(call("look"), call("look")) + end()
    first, second = answer_of(body), answer_of(body)
    ids = [c.call_id for c in first.calls]
    assert len(set(ids)) == 2
    assert [c.call_id for c in second.calls] == ids
    known = answer_of(body, known_call_ids=set(ids))
    assert not {c.call_id for c in known.calls} & set(ids)


@pytest.mark.req("M72", "M144")
def test_arguments_are_held_against_the_schema_of_the_tool() -> None:
    tools = {"look": compile_schema(b'{"type":"object","required":["at"]}')}
    answer = answer_of(chunk(call("look", {"at": 1}, id="a"), call("look", id="b"), call("fly", id="c")), end(), tools=tools)  # fmt: skip
    assert [c.call_id for c in answer.released] == ["a"]
    assert set(answer.problems) == {"b", "c"}


@pytest.mark.req("M82", "M89")
@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"willContinue": True}, "unclosed_arguments"),
        ({"partialArgs": [{"jsonPath": "$.a"}]}, "malformed_function_call"),
        ({"partialArgs": 5}, "malformed_event"),
    ],
)
def test_half_a_call_is_never_a_call(more: dict[str, Any], error: str) -> None:
    answer = answer_of(chunk(call("look", id="1", **more)), end())
    assert (answer.error, answer.calls) == (error, ())


def test_a_whole_call_in_an_answer_that_was_cut_by_length_is_not_released() -> None:
    answer = answer_of(chunk(call("look", id="1")), end("MAX_TOKENS"))
    assert (answer.error, answer.calls) == ("truncated_by_length", ())


# What the end means.

WORDS: dict[str, tuple[Meaning, str | None]] = {
    "STOP": (Meaning.COMPLETE, None),
    "MAX_TOKENS": (Meaning.TRUNCATED, None),
    "TOO_MANY_TOOL_CALLS": (Meaning.TRUNCATED, None),
    "CONTINUATION": (Meaning.PAUSED, None),
    **dict.fromkeys(
        [
            "SAFETY",
            "RECITATION",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "MODEL_ARMOR",
            "IMAGE_SAFETY",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
        ],
        (Meaning.FILTERED, "content_filter"),
    ),
    **{
        word: (Meaning.ERROR, word)
        for word in [
            "UNEXPECTED_TOOL_CALL",
            "MISSING_THOUGHT_SIGNATURE",
            "MALFORMED_RESPONSE",
            "NO_IMAGE",
            "IMAGE_OTHER",
            "LANGUAGE",
            "OTHER",
            "ESCALATION",
            "PUP_LIMITED_DISABLED",
            "FINISH_REASON_UNSPECIFIED",
        ]
    },
    "MALFORMED_FUNCTION_CALL": (Meaning.ERROR, "malformed_function_call"),
    "A_NEW_ONE": (Meaning.UNKNOWN, "A_NEW_ONE"),
}


@pytest.mark.req("M73")
@pytest.mark.parametrize("word", WORDS)
def test_a_finish_reason_means_what_the_provider_says_of_it(word: str) -> None:
    meaning, error = WORDS[word]
    answer = answer_of(text("Hello"), end(word))
    assert (answer.finish, answer.meaning, answer.error) == (word, meaning, error)
    assert answer.committable is (error is None)
    assert answer.definite or answer.committable


def test_every_finish_reason_of_the_official_client_is_known() -> None:
    types = pytest.importorskip("google.genai.types")
    assert {reason.value for reason in types.FinishReason} <= FINISH.keys()


def test_stop_with_calls_asks_for_tools() -> None:
    answer = answer_of(chunk(call("look", id="1"), finish="STOP"))
    assert (answer.finish, answer.meaning) == ("STOP", Meaning.NEEDS_TOOL)


@pytest.mark.req("M73", "M84")
def test_the_end_of_the_body_is_no_end() -> None:
    for body in (text("Hello"), chunk(call("look", id="1")), b"", b": ping\n\n"):
        answer = answer_of(body)
        assert (answer.committable, answer.error, answer.definite) == (
            False,
            "stream_incomplete",
            False,
        )
    said_nothing = answer_of(text("Hello"), b"data: [DONE]\n\n")
    assert said_nothing.error == "missing_finish_reason"


def test_usage_behind_the_finish_is_read_and_a_cut_there_costs_nothing() -> None:
    answer = answer_of(text("Hello"), end(), event({"usageMetadata": {**COUNTS, "thoughtsTokenCount": 3, "cachedContentTokenCount": 2, "toolUsePromptTokenCount": 5}}), cut="reset")  # fmt: skip
    assert answer.committable
    assert answer.usage == Usage(input=12, output=12, total=16, cached=2, reasoning=3)


def test_a_reason_to_block_the_prompt_counts_where_nothing_was_answered() -> None:
    feedback = {"promptFeedback": {"blockReason": "SAFETY"}}
    blocked = answer_of(event(feedback))
    assert (blocked.finish, blocked.error, blocked.definite) == (
        "blockReason:SAFETY",
        "content_filter",
        True,
    )
    assert answer_of(text("Hello"), event(feedback), end()).committable


def test_other_candidates_are_not_joined_to_the_first() -> None:
    other = {"content": {"parts": [{"text": "B"}]}, "index": 1, "finishReason": "STOP"}
    both = value({"text": "A"}, finish="STOP")
    both["candidates"].append(other)
    answer = answer_of(event(both))
    assert (answer.text, answer.diagnostics) == ("A", ("other_candidate",))


# Failures.


@pytest.mark.parametrize(
    ("status", "retryable", "definite"),
    [
        ("UNAVAILABLE", True, True),
        ("RESOURCE_EXHAUSTED", True, True),
        ("INTERNAL", True, True),
        ("INVALID_ARGUMENT", False, True),
        ("DEADLINE_EXCEEDED", True, False),
    ],
)
def test_an_error_in_the_stream_ends_it(status: str, retryable: bool, definite: bool) -> None:
    error = {"error": {"code": 1, "message": "No.", "status": status}}
    answer = answer_of(text("So"), event(error), end())
    assert (answer.committable, answer.error, answer.error_message) == (False, status, "No.")
    assert (answer.retryable, answer.definite, answer.text) == (retryable, definite, "So")


@pytest.mark.parametrize(
    "broken",
    [
        b"data: {oops}\n\n",
        b"data: 5\n\n",
        b'data: {"candidates":{}}\n\n',
        chunk({"text": 5}),
        chunk({"functionCall": "look"}),
        b'data: {"candidates":[{"content":{"parts":[{"text":"\\ud83e"}]}}]}\n\n',
    ],
)
def test_what_cannot_be_understood_ends_the_reading(broken: bytes) -> None:
    answer = answer_of(text("So"), broken, end())
    assert (answer.committable, answer.error, answer.blocks) == (False, "malformed_event", ())


@pytest.mark.parametrize("part", [{"functionCall": {"args": {}}}, call("look", [1])])
def test_a_call_that_could_not_be_sent_back_is_malformed(part: dict[str, Any]) -> None:
    assert answer_of(chunk(part), end()).error == "malformed_function_call"


def test_a_stream_of_another_dialect_is_no_answer() -> None:
    foreign = (
        b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )
    answer = answer_of(foreign)
    assert (answer.committable, answer.error, answer.text) == (False, "missing_finish_reason", "")


def test_an_event_that_is_too_large_ends_the_reading() -> None:
    reader = Reader(limits=Limits(max_event_bytes=50))
    failed = reader.feed(text("x" * 60))[-1]
    assert getattr(failed, "code", None) == "event_too_large"
    assert reader.feed(end()) == reader.end() == []


@pytest.mark.parametrize(
    ("body", "note"),
    [
        (event({"usageMetadata": {"promptTokenCount": "many"}}), "unreadable_usage"),
        (chunk({"text": ""}, responseId="r-2"), "handle_changed"),
    ],
)
def test_a_deviation_that_can_be_understood_is_noted(body: bytes, note: str) -> None:
    answer = answer_of(text("Hello"), body, end())
    assert answer.committable
    assert note in answer.diagnostics


def test_a_last_event_without_its_blank_line_counts_where_it_is_whole() -> None:
    answer = answer_of((text("Hello") + end()).rstrip())
    assert answer.committable
    assert "unterminated_event" in answer.diagnostics


# Whole answers.

PARTS: list[dict[str, Any]] = [
    {"text": "Hm.", "thought": True},
    {"text": "I look."},
    call("look", {"at": 1}, "c2ln", id="1"),
    call("look", {"at": 2}, id="2"),
]


@pytest.mark.req("M73")
def test_a_whole_answer_is_the_stream_of_its_parts() -> None:
    whole = json.dumps(value(*PARTS, finish="STOP", usageMetadata=COUNTS)).encode()
    streamed = answer_of(*(chunk(part) for part in PARTS), end())
    assert answer_of(whole, content_type=JSON) == streamed
    array = json.dumps([value(part) for part in PARTS])[:-1] + ", " + end()[6:].decode().strip() + "]"  # fmt: skip
    assert answer_of(array.encode(), content_type=JSON) == streamed


def test_a_whole_answer_that_is_cut_anywhere_is_none() -> None:
    for whole in (value(*PARTS, finish="STOP"), [value(*PARTS, finish="STOP")]):
        body = json.dumps(whole).encode()
        for length in range(1, len(body)):
            answer = answer_of(body[:length], content_type=JSON)
            assert (answer.error, answer.definite) == ("stream_incomplete", False), length


@pytest.mark.parametrize("body", ['{"error":{"status":"X"}}', '[{"error":{"status":"X"}}]'])
def test_a_whole_answer_may_be_an_error(body: str) -> None:
    assert answer_of(body.encode(), content_type=JSON).error == "X"


def test_a_whole_answer_that_does_not_say_how_it_ended_is_a_definite_no() -> None:
    bodies: list[object] = [value({"text": "Hello"}), [], {}]
    for body in bodies:
        answer = answer_of(json.dumps(body).encode(), content_type=JSON)
        assert (answer.error, answer.definite) == ("missing_finish_reason", True)
