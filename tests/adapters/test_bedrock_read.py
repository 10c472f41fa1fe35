"""Reading ConverseStream and Converse: recorded streams, faults, and every way to cut them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from botocore.eventstream import ChecksumMismatch, EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.answers.answer import Answer
from antiphon.core.answers.deltas import Meaning, Usage
from antiphon.core.blocks import Reasoning, Text, ToolCall
from antiphon.core.wire.limits import Limits
from tests.support.chat_stream import cuts, split
from tests.support.converse import (
    answer_of,
    call,
    delta,
    deltas_of,
    end,
    event,
    exception,
    frame,
    metadata,
    opened,
    reasoning,
    start,
    stop,
    text,
    whole,
)

DATA = Path(__file__).parent.parent / "data"
STREAMS = sorted((DATA / "fixtures/streams/bedrock_converse").glob("*.bin"))
JSON = "application/json"
OWN_CODES = {"truncated": "unclosed_arguments", "refused": "content_filter"}
OF_TRANSPORT = {
    "stream_ended_without_finish": "stream_incomplete",
    "framing_checksum": "malformed_event",
}


def expected_of(stream: Path) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads(stream.with_suffix(".expect.json").read_text("utf-8"))
    return expected


def code_of(expected: dict[str, Any]) -> str | None:
    if expected["committable"]:
        return None
    if expected["error"] is None:
        return OWN_CODES[expected["finish"]["turn"]]
    word = expected["error"]["class"]
    return OF_TRANSPORT.get(word, str(word))


def state_of(answer: Answer) -> list[tuple[bool, Any]]:
    """What of the answer goes back as it came, and whether it was the provider's own work."""
    kept = (b.opaque for b in answer.blocks if isinstance(b, Reasoning))
    return [(o.work, json.loads(bytes(o.value))) for o in kept if o is not None]


def finished_at(body: bytes) -> int:
    """Where the frame ends that botocore reads as the end of the message."""
    buffer, at = EventStreamBuffer(), 0
    buffer.add_data(body)
    try:
        for item in buffer:
            at += int(item.prelude.total_length)
            if item.headers.get(":event-type") == "messageStop":
                return at
            if item.headers.get(":message-type") == "exception":
                return at
    except ChecksumMismatch:
        pass
    return len(body)


def test_there_are_recordings() -> None:
    assert len(STREAMS) == 10


def counted(usage: dict[str, int] | None) -> Usage:
    """Return counts as this provider gives them: what a cache gave is beside the input."""
    return Usage(**usage, cache_apart=True) if usage else Usage()


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
        assert [(c.call_id, c.name, c.arguments) for c in answer.partial_calls] == [
            (c["id"], c["name"], c["arguments"]) for c in expected["partial_tool_calls"]
        ], how
        assert answer.finish == expected["finish"]["native"], how
        assert answer.committable is expected["committable"], how
        assert answer.reasoning == expected["reasoning"], how
        assert answer.handle == expected["handle"], how
        assert answer.usage == counted(expected["usage"]), how
        assert answer.error == code_of(expected), how


@pytest.mark.parametrize("stream", STREAMS, ids=lambda path: path.stem)
def test_a_signature_is_kept_in_its_place(stream: Path) -> None:
    answer = answer_of(stream.read_bytes())
    wanted = expected_of(stream)["opaque"]
    assert state_of(answer) == [(False, {o["kind"]: {"signature": o["signature"]}}) for o in wanted]
    assert all(isinstance(answer.blocks[o["index"]], Reasoning) for o in wanted)


@pytest.mark.req("M73", "M82", "M84", "M89", "M98")
@pytest.mark.parametrize("stream", STREAMS, ids=lambda path: path.stem)
def test_no_beginning_of_a_recorded_stream_is_taken_for_the_whole(stream: Path) -> None:
    body, expected = stream.read_bytes(), expected_of(stream)
    for length in range(finished_at(body)):
        answer = answer_of(body[:length])
        assert (answer.committable, answer.error) == (False, "stream_incomplete"), length
        assert (answer.definite, answer.released) == (False, ())
        assert expected["text"].startswith(answer.text)
    if expected["committable"]:
        for length in range(finished_at(body), len(body)):  # only the usage is lost
            answer = answer_of(body[:length])
            assert answer.committable, length
            assert [c.call_id for c in answer.released] == expected["dispatchable"]


# What the end means.


@pytest.mark.req("M73")
@pytest.mark.parametrize(
    ("word", "meaning", "error"),
    [
        ("end_turn", Meaning.COMPLETE, None),
        ("stop_sequence", Meaning.COMPLETE, None),
        ("max_tokens", Meaning.TRUNCATED, None),
        ("model_context_window_exceeded", Meaning.TRUNCATED, None),
        ("guardrail_intervened", Meaning.FILTERED, "content_filter"),
        ("content_filtered", Meaning.FILTERED, "content_filter"),
        ("tool_use", Meaning.NEEDS_TOOL, "malformed_function_call"),
        ("malformed_tool_use", Meaning.ERROR, "malformed_tool_use"),
        ("malformed_model_output", Meaning.ERROR, "malformed_model_output"),
        ("what_is_this", Meaning.UNKNOWN, "what_is_this"),
    ],
)
def test_a_stop_reason_means_what_the_provider_says_of_it(
    word: str, meaning: Meaning, error: str | None
) -> None:
    answer = answer_of(start(), text(0, "Hello"), end(word), metadata())
    assert (answer.finish, answer.meaning, answer.error) == (word, meaning, error)
    assert answer.committable is (error is None)


def test_every_stop_reason_of_the_service_model_is_understood() -> None:
    from botocore.session import Session

    model = Session().get_service_model("bedrock-runtime")
    for word in model.shape_for("StopReason").enum:
        answer = answer_of(start(), text(0, "Hello"), end(word), metadata())
        assert answer.meaning is not Meaning.UNKNOWN, word


def test_an_end_without_a_stop_reason_is_none() -> None:
    answer = answer_of(start(), text(0, "Hello"), event("messageStop"), metadata())
    assert (answer.committable, answer.error) == (False, "missing_finish_reason")


def test_the_usage_replaces_nothing_and_its_loss_costs_nothing() -> None:
    body = start() + text(0, "Hello") + end("end_turn")
    counted = answer_of(body, metadata(cacheReadInputTokens=3, cacheWriteInputTokens=2))
    assert counted.usage == Usage(
        input=7, output=9, total=16, cached=3, cache_write=2, cache_apart=True
    )
    for lost in (b"", metadata()[:40]):
        answer = answer_of(body, lost, cut="reset")
        assert (answer.committable, answer.usage) == (True, Usage())
        assert "cut_after_finish" in answer.diagnostics


def test_a_wrong_checksum_is_an_error_even_behind_the_end() -> None:
    damaged = metadata()[:-1] + b"\0"
    answer = answer_of(start(), text(0, "Hello"), end("end_turn"), damaged)
    assert (answer.committable, answer.error) == (False, "malformed_event")


@pytest.mark.req("M82", "M89")
def test_a_call_whose_block_was_never_closed_is_not_released() -> None:
    half = opened(0, toolUse={"toolUseId": "t", "name": "look"}) + delta(0, toolUse={"input": "{}"})
    answer = answer_of(start(), half, end("tool_use"), metadata())
    assert (answer.error, answer.calls) == ("unclosed_arguments", ())


# Failures.


@pytest.mark.parametrize(
    ("name", "retryable"),
    [
        ("throttlingException", True),
        ("modelStreamErrorException", True),
        ("internalServerException", True),
        ("serviceUnavailableException", True),
        ("validationException", False),
        ("modelTimeoutException", True),
        ("somethingNewException", False),
    ],
)
def test_an_exception_in_the_stream_ends_it_by_its_name(name: str, retryable: bool) -> None:
    answer = answer_of(start(), text(0, "So"), exception(name), end("end_turn"))
    assert (answer.committable, answer.error, answer.error_message) == (False, name, "No.")
    assert (answer.retryable, answer.definite, answer.text) == (retryable, True, "So")


def test_an_exception_behind_the_stop_reason_is_one_too() -> None:
    answer = answer_of(
        start(), text(0, "So"), end("end_turn"), exception("internalServerException")
    )
    assert (answer.committable, answer.error) == (False, "internalServerException")


def test_an_error_of_the_framing_layer_is_read_from_its_headers() -> None:
    error = frame(b"", message_type="error", error_code="InternalError", error_message="Gone.")
    answer = answer_of(start(), error)
    assert (answer.error, answer.error_message, answer.definite) == ("InternalError", "Gone.", True)


def test_a_gateway_that_does_not_know_is_believed() -> None:
    assert not answer_of(start(), exception("outcome_unknown")).definite


@pytest.mark.parametrize(
    "broken",
    [
        frame(b"{}"),
        frame(b"{oops", event_type="contentBlockDelta", message_type="event"),
        delta(1, hologram={}),
        opened(1, image={"format": "png"}),
        opened(1, toolUse={"toolUseId": "t", "name": "look"}) * 2,
        event("contentBlockDelta", contentBlockIndex="a", delta={"text": "x"}),
        delta(1, reasoningContent={"text": "hm"}),
        opened(1, toolUse={"toolUseId": "s", "name": "w", "type": "server_tool_use"}) + delta(1, toolUse={"input": '{"q'}) + stop(1),
    ],
)  # fmt: skip
def test_what_cannot_be_understood_ends_the_reading(broken: bytes) -> None:
    answer = answer_of(start(), text(0, "x"), broken, end("end_turn"), metadata())
    assert (answer.committable, answer.error, answer.blocks) == (False, "malformed_event", ())


def test_arguments_for_a_call_that_was_never_opened_are_an_error() -> None:
    orphan = delta(3, toolUse={"input": "{}"})
    assert answer_of(start(), orphan, end("tool_use")).error == "orphan_argument_delta"


def test_a_frame_that_is_too_large_ends_the_reading() -> None:
    made = deltas_of([text(0, "x" * 100)], limits=Limits(max_event_bytes=100))
    assert getattr(made[-1], "code", None) == "event_too_large"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"<html>", "text/html"),
        (b"data: {}\n\n", "text/event-stream"),
        (b'{"message":"no"}', JSON),
        (b"[]", JSON),
    ],
)
def test_a_body_of_another_kind_is_refused(body: bytes, content_type: str) -> None:
    answer = answer_of(body, content_type=content_type)
    assert (answer.committable, answer.error) == (False, "malformed_event")


# What is tolerated.


def test_events_of_a_later_release_are_noted() -> None:
    body = event("messageMood", mood="sunny") + delta(0, citation={"title": "t"})
    answer = answer_of(start(), body, text(0, "Hello"), end("end_turn"), metadata())
    assert answer.committable
    assert set(answer.diagnostics) == {"unknown_event", "skipped_delta"}


def test_usage_that_cannot_be_read_is_noted() -> None:
    odd = event("metadata", usage={"inputTokens": "many"})
    answer = answer_of(start(), text(0, "Hello"), end("end_turn"), odd)
    assert (answer.committable, answer.diagnostics) == (True, ("unreadable_usage",))


# Blocks.


@pytest.mark.req("M72")
def test_numbers_in_arguments_come_through_digit_for_digit() -> None:
    pieces = ('{"n":1234567890', '1234567890,"x": 1.10}')
    streamed = answer_of(start(), call(0, "t", "look", *pieces), end("tool_use"), metadata())
    assert [c.arguments for c in streamed.calls] == ["".join(pieces)]
    body = whole({"toolUse": {"toolUseId": "t", "name": "look", "input": "HERE"}}, reason="tool_use")  # fmt: skip
    at_once = answer_of(body.replace(b'"HERE"', "".join(pieces).encode()), content_type=JSON)
    assert [c.arguments for c in at_once.calls] == ["".join(pieces)]


def test_reasoning_without_a_signature_is_reasoning() -> None:
    answer = answer_of(
        start(), reasoning(0, "hm ", "so", signature=""), text(1, "Yes."), end("end_turn"), metadata()
    )  # fmt: skip
    assert (answer.reasoning, answer.text, state_of(answer)) == ("hm so", "Yes.", [])


def test_redacted_reasoning_in_pieces_is_joined_as_bytes() -> None:
    pieces = [delta(0, reasoningContent={"redactedContent": part}) for part in ("YQ==", "YmM=")]
    answer = answer_of(start(), *pieces, stop(0), text(1, "Yes."), end("end_turn"), metadata())
    assert state_of(answer) == [(False, {"redactedContent": "YWJj"})]


def test_the_provider_s_own_work_is_kept_and_never_run() -> None:
    use = {"toolUseId": "s1", "name": "web", "type": "server_tool_use"}
    body = call(0, "s1", "web", '{"q":', '"x"}', type="server_tool_use")
    found = opened(1, toolResult={"toolUseId": "s1"}) + delta(1, toolResult=[{"text": "x"}]) + stop(1)  # fmt: skip
    answer = answer_of(start(), body, found, text(2, "It is x."), end("end_turn"), metadata())
    assert state_of(answer) == [
        (True, {"toolUse": {**use, "input": {"q": "x"}}}),
        (True, {"toolResult": {"toolUseId": "s1", "content": [{"text": "x"}]}}),
    ]
    assert (answer.calls, answer.text) == ((), "It is x.")


# Whole answers.

SAID: list[tuple[dict[str, Any], bytes]] = [
    ({"text": "I look."}, text(0, "I look.")),
    ({"toolUse": {"toolUseId": "t", "name": "look", "input": {"at": [1, None]}}}, call(1, "t", "look", '{"at":[1,null]}')),
    ({"reasoningContent": {"reasoningText": {"text": "hm", "signature": "Eq=="}}}, reasoning(2, "hm")),
    ({"reasoningContent": {"redactedContent": "eA=="}}, delta(3, reasoningContent={"redactedContent": "eA=="}) + stop(3)),
]  # fmt: skip


@pytest.mark.req("M74")
def test_a_whole_answer_is_the_stream_that_it_could_have_been() -> None:
    streamed = answer_of(start(), *(part for _, part in SAID), end("tool_use"), metadata())
    at_once = answer_of(whole(*(part for part, _ in SAID), reason="tool_use"), content_type=JSON)
    for found in (streamed, at_once):
        assert [json.loads(c.arguments) for c in found.calls] == [{"at": [1, None]}]
        assert [type(b) for b in found.blocks] == [Text, ToolCall, Reasoning, Reasoning]
        assert (found.text, found.reasoning, found.finish) == ("I look.", "hm", "tool_use")
        assert found.usage == Usage(input=7, output=9, total=16, cache_apart=True)
    assert state_of(at_once) == state_of(streamed)


def test_a_cited_text_is_text() -> None:
    cited = {"citationsContent": {"content": [{"text": "It is x."}], "citations": []}}
    assert answer_of(whole(cited), content_type=JSON).text == "It is x."


@pytest.mark.req("M82", "M98")
def test_no_beginning_of_a_whole_answer_is_taken_for_it() -> None:
    body = whole(SAID[0][0], SAID[1][0], reason="tool_use")
    for length in range(len(body)):
        answer = answer_of(body[:length], content_type=JSON)
        assert (answer.committable, answer.error) == (False, "stream_incomplete"), length


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (whole({"text": "x"}, reason=None), "missing_finish_reason"),
        (whole(reason="tool_use"), "malformed_function_call"),
        (whole({"hologram": {}}), "malformed_event"),
        (b'{"output":{"message":{"content":7}}}', "malformed_event"),
    ],
)
def test_a_whole_body_that_is_no_answer_is_refused(body: bytes, error: str) -> None:
    answer = answer_of(body, content_type=JSON)
    assert (answer.committable, answer.error) == (False, error)


# Any cut.

RICH = b"".join(
    (start(), reasoning(0, "hm ✓"), text(1, "Sea, ", "🧭"), call(2, "t", "look", '{"at":', '"sea"}'), end("tool_use"), metadata())
)  # fmt: skip


@pytest.mark.req("M82")
@given(st.lists(st.integers(0, len(RICH)), max_size=12))
def test_where_the_reads_end_makes_no_difference(marks: list[int]) -> None:
    assert deltas_of(split(RICH, marks)) == deltas_of([RICH])


@given(st.binary(max_size=200), st.integers(0, len(RICH)))
def test_no_bytes_whatever_make_it_fall(noise: bytes, at: int) -> None:
    answer = answer_of(RICH[:at] + noise + RICH[at:])
    assert answer.committable or answer.error
