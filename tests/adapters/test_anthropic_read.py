"""Reading Anthropic Messages: recorded streams, reported faults, and every way to cut them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.adapters.anthropic.read import Reader
from antiphon.core.answers.answer import Answer
from antiphon.core.answers.deltas import Meaning, Usage
from antiphon.core.answers.schemas import compile_schema
from antiphon.core.blocks import Reasoning, Text, ToolCall
from antiphon.core.wire.limits import Limits
from tests.support.chat_stream import cuts, split
from tests.support.messages_stream import (
    STOP,
    answer_of,
    block,
    call,
    delta,
    deltas_of,
    end,
    event,
    start,
    text,
    thinking,
    whole,
)

DATA = Path(__file__).parent.parent / "data"
STREAMS = sorted((DATA / "fixtures/streams/anthropic").glob("*.sse"))
CASES = [
    case
    for path in sorted((DATA / "cases").glob("B-*.json"))
    if (case := json.loads(path.read_text(encoding="utf-8")))["provider"] == "anthropic"
]
JSON = "application/json"
MARKER = b'data: {"type":"message_stop"}\n'
OWN_CODES = {"truncated": "unclosed_arguments", "refused": "content_filter"}


def expected_of(stream: Path) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads(stream.with_suffix(".expect.json").read_text("utf-8"))
    return expected


def state_of(answer: Answer) -> list[tuple[bool, dict[str, Any]]]:
    """What of the answer goes back as it came, and whether it was the provider's own work."""
    kept = (b.opaque for b in answer.blocks if isinstance(b, Reasoning))
    return [(o.work, json.loads(bytes(o.value))) for o in kept if o is not None]


def code_of(expected: dict[str, Any]) -> str | None:
    if expected["committable"]:
        return None
    if expected["error"] is None:
        return OWN_CODES[expected["finish"]["turn"]]
    word = expected["error"]["class"]
    return "stream_incomplete" if word == "stream_ended_without_finish" else str(word)


# Recorded streams.


def test_there_are_recordings() -> None:
    assert len(STREAMS) == 11
    assert [case["id"] for case in CASES] == ["B-006", "B-007"]


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
        assert (answer.reasoning or "") == (expected["reasoning"] or ""), how
        assert answer.handle == expected["handle"], how
        assert answer.usage == counted(expected["usage"]), how
        assert answer.error == code_of(expected), how


@pytest.mark.parametrize("stream", STREAMS, ids=lambda path: path.stem)
def test_state_that_has_to_go_back_is_kept_in_its_place(stream: Path) -> None:
    expected = expected_of(stream)["opaque"]
    answer = answer_of(stream.read_bytes())
    for wanted in expected:
        kept = answer.blocks[wanted["index"]]
        assert isinstance(kept, Reasoning)
        assert kept.opaque is not None
        assert (kept.opaque.profile, kept.opaque.model) == ("anthropic", "claude-opus-5")
        state = json.loads(bytes(kept.opaque.value))
        assert state["type"] == wanted["kind"]
        for name in ("data", "signature", "id"):
            assert state.get(name) == wanted.get(name)
    assert len(state_of(answer)) == len(expected)


@pytest.mark.req("M73", "M82", "M84", "M89", "M98")
@pytest.mark.parametrize("stream", STREAMS, ids=lambda path: path.stem)
def test_no_beginning_of_a_recorded_stream_is_taken_for_the_whole(stream: Path) -> None:
    body, expected = stream.read_bytes(), expected_of(stream)
    failure = body.find(b"event: error")
    end_at = body.find(MARKER)
    end_at = end_at + len(MARKER) - 1 if end_at >= 0 else len(body)
    for length in range(failure if failure >= 0 else end_at):
        answer = answer_of(body[:length])
        assert (answer.committable, answer.error, answer.calls) == (
            False,
            "stream_incomplete",
            (),
        ), length
        assert not answer.definite
        assert answer.released == ()
        assert expected["text"].startswith(answer.text)


# Reported faults.


@pytest.mark.req("M73", "M82")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_reported_fault_is_read_right_however_it_is_cut(case: dict[str, Any]) -> None:
    expected = case["expect"]
    body = "".join(case["given"]["chunks"]).encode()
    for how, reads in cuts(body):
        answer = answer_of(*reads)
        assert (answer.text, answer.finish) == (expected["text"], expected["finish"]), how
        assert (answer.committable, answer.error) == (False, expected["error"]), how
        assert answer.calls == (), how


# What the end means.


@pytest.mark.req("M73")
@pytest.mark.parametrize(
    ("word", "meaning", "error"),
    [
        ("end_turn", Meaning.COMPLETE, None),
        ("stop_sequence", Meaning.COMPLETE, None),
        ("pause_turn", Meaning.PAUSED, None),
        ("max_tokens", Meaning.TRUNCATED, None),
        ("model_context_window_exceeded", Meaning.TRUNCATED, None),
        ("refusal", Meaning.FILTERED, "content_filter"),
        ("tool_use", Meaning.NEEDS_TOOL, "malformed_function_call"),
        ("compaction", Meaning.PAUSED, None),
        ("what_is_this", Meaning.UNKNOWN, "what_is_this"),
    ],
)
def test_a_stop_reason_means_what_the_provider_says_of_it(
    word: str, meaning: Meaning, error: str | None
) -> None:
    answer = answer_of(start(), text(0, "Hello"), end(word))
    assert (answer.finish, answer.meaning, answer.error) == (word, meaning, error)
    assert answer.committable is (error is None)
    assert answer.text == "Hello"


@pytest.mark.req("M73", "M84")
def test_a_stop_reason_alone_is_no_end() -> None:
    answer = answer_of(start(), text(0, "Hello"), delta("end_turn"))
    assert (answer.committable, answer.error, answer.definite) == (
        False,
        "stream_incomplete",
        False,
    )


def test_an_end_without_a_stop_reason_is_none() -> None:
    for last in (STOP, b"data: [DONE]\n\n", delta(None) + STOP):
        answer = answer_of(start(), text(0, "Hello"), last)
        assert (answer.committable, answer.error) == (False, "missing_finish_reason")


def test_what_follows_the_end_is_not_read() -> None:
    answer = answer_of(
        start(), text(0, "Hello"), end("end_turn"), b"data: [DONE]\n\n", text(1, "!")
    )
    assert (answer.committable, answer.text) == (True, "Hello")


def test_a_cut_after_the_end_costs_nothing() -> None:
    assert answer_of(start(), text(0, "Hello"), end("end_turn"), cut="reset").committable


@pytest.mark.req("M82", "M89")
def test_a_call_whose_block_was_never_closed_is_not_released() -> None:
    opening = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    half = block(0, opening, {"type": "input_json_delta", "partial_json": "{}"}, stop=False)
    answer = answer_of(start(), half, end("tool_use"))
    assert (answer.error, answer.calls) == ("unclosed_arguments", ())


# Failures.


@pytest.mark.parametrize("name", ["event: error\n", "", "event: ping\n"])
@pytest.mark.parametrize(
    ("code", "retryable"),
    [("overloaded_error", True), ("api_error", True), ("invalid_request_error", False)],
)
def test_an_error_is_read_from_its_data_with_or_without_an_event_line(
    name: str, code: str, retryable: bool
) -> None:
    error = {"type": "error", "error": {"type": code, "message": "No."}}
    answer = answer_of(start(), text(0, "So"), f"{name}data: {json.dumps(error)}\n\n".encode())
    assert (answer.committable, answer.error, answer.error_message) == (False, code, "No.")
    assert (answer.retryable, answer.definite, answer.text) == (retryable, True, "So")


def test_an_error_after_the_stop_reason_is_an_error() -> None:
    answer = answer_of(
        start(), text(0, "So"), delta("end_turn"), event("error", error={"type": "api_error"})
    )
    assert (answer.committable, answer.error) == (False, "api_error")


def test_a_gateway_that_does_not_know_is_believed() -> None:
    answer = answer_of(start(), event("error", error={"type": "outcome_unknown"}))
    assert (answer.error, answer.definite) == ("outcome_unknown", False)


def test_an_error_that_is_no_json_is_an_error_too() -> None:
    answer = answer_of(start(), b"event: error\ndata: upstream gone\n\n")
    assert (answer.error, answer.error_message) == ("provider_error", "upstream gone")


@pytest.mark.parametrize(
    "broken",
    [
        b"data: {oops}\n\n",
        b'data: {"type":"content_block_start","index":0,"content_block":[]}\n\n',
        event("content_block_start", index="a", content_block={"type": "text"}),
        start().replace(b"msg_1", b"msg_2"),
        text(0, "again")[: text(0, "again").index(b"event: content_block_delta")] * 2,
        block(1, {"type": "redacted_thinking", "data": "x"}, stop=False) + end("end_turn"),
        block(1, {"type": "new_thing"}, {"type": "new_delta", "more": 1}) + end("end_turn"),
        block(1, {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, {"type": "input_json_delta", "partial_json": '{"q'}) + end("end_turn"),
        block(1, {"type": "tool_use", "id": "t", "name": "look"}, {"type": "text_delta", "text": "?"}) + end("tool_use"),
    ],
)  # fmt: skip
def test_what_cannot_be_understood_ends_the_reading(broken: bytes) -> None:
    answer = answer_of(start(), broken, end("end_turn"))
    assert (answer.committable, answer.error, answer.blocks) == (False, "malformed_event", ())


def test_arguments_for_a_call_that_was_never_opened_are_an_error() -> None:
    piece = {"type": "input_json_delta", "partial_json": "{}"}
    orphan = event("content_block_delta", index=3, delta=piece)
    assert answer_of(start(), orphan, end("tool_use")).error == "orphan_argument_delta"


def test_an_event_that_is_too_large_ends_the_reading() -> None:
    reader = Reader(limits=Limits(max_event_bytes=50))
    failed = reader.feed(start())[-1]
    assert getattr(failed, "code", None) == "event_too_large"
    assert reader.feed(STOP) == reader.end() == []


CITED = {"type": "char_location", "cited_text": "It rains.", "document_index": 0}


def test_what_a_text_cites_is_kept_behind_it_and_moves_no_other_block() -> None:
    deltas = (
        {"type": "text_delta", "text": "Rain."},
        {"type": "citations_delta", "citation": CITED},
    )
    streamed = answer_of(
        start(),
        text(0, "They say: "),
        block(1, {"type": "text", "text": "", "citations": []}, *deltas),
        block(2, {"type": "text", "text": ""}, *deltas),
        call(3, "t1", "look"),
        end("tool_use"),
    )
    cited = {"type": "text", "text": "Rain.", "citations": [CITED]}
    asked = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
    at_once = answer_of(
        whole({"type": "text", "text": "They say: "}, cited, cited, asked, reason="tool_use"),
        content_type="application/json",
    )
    assert streamed.blocks == at_once.blocks
    kinds = [type(b).__name__ for b in streamed.blocks]
    assert kinds == ["Text", "Text", "Reasoning", "Text", "Reasoning", "ToolCall"]
    assert streamed.text == "They say: Rain.Rain."
    assert streamed.diagnostics == ()


# What is tolerated.


@pytest.mark.parametrize(
    ("body", "note"),
    [
        (event("new_event", detail=1), "unknown_event"),
        (event("content_block_delta", index=0, delta={"type": "text_delta", "text": ""}), "missing_block_start"),
        (event("content_block_stop", index=5), "missing_block_start"),
        (block(1, {"type": "text", "text": ""}, {"type": "citations_delta", "citation": {}}), "citations_dropped"),
        (block(1, {"type": "tool_use", "id": "t", "name": "f"}, {"type": "new_delta"}), "skipped_delta"),
        (thinking(1, "hm", signature=""), "missing_signature"),
        (event("message_delta", delta={}, usage={"output_tokens": "many"}), "unreadable_usage"),
    ],
)  # fmt: skip
def test_a_deviation_that_can_be_understood_is_noted(body: bytes, note: str) -> None:
    answer = answer_of(start(), body, text(2, "Hello"), end("end_turn"))
    assert answer.committable
    assert note in answer.diagnostics


@pytest.mark.req("M70", "M86")
@pytest.mark.parametrize("handle", ["msg_2", ""])
def test_another_message_in_the_same_stream_ends_the_reading(handle: str) -> None:
    cut = block(0, {"type": "text", "text": "Low "}, stop=False)
    again = start(handle) + text(0, "High tide.") + end("end_turn")
    for begun in (cut, text(0, "Low ")):
        answer = answer_of(start(), begun, again)
        assert (answer.committable, answer.error) == (False, "malformed_event")
        assert (answer.text, answer.handle) == ("Low ", "msg_1")


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_message_that_begins_twice_is_one(place: int) -> None:
    body = [text(0, "Low "), text(1, "tide.")]
    body.insert(place, start())
    answer = answer_of(start(), *body, end("end_turn"))
    assert (answer.committable, answer.text) == (True, "Low tide.")
    assert answer.diagnostics == ("repeated_message_start",)


@pytest.mark.req("M86")
def test_a_block_that_begins_anew_after_its_end_is_of_another_answer() -> None:
    answer = answer_of(start(), text(0, "Low "), text(0, "High"), end("end_turn"))
    assert (answer.error, answer.text) == ("malformed_event", "Low ")


def test_pings_and_comments_are_life_and_nothing_else() -> None:
    noisy = b": hi\n\n" + event("ping") + start() + event("ping") + text(0, "Hello")
    answer = answer_of(noisy, end("end_turn"))
    assert (answer.text, answer.diagnostics) == ("Hello", ())


def test_the_event_line_may_say_what_the_data_does_not() -> None:
    bare = b"event: message_stop\ndata: {}\n\n"
    assert answer_of(start(), text(0, "Hello"), delta("end_turn"), bare).committable


def test_a_last_event_without_its_blank_line_counts_where_it_is_whole() -> None:
    body = start() + text(0, "Hello") + end("end_turn")
    answer = answer_of(body.rstrip())
    assert answer.committable
    assert "unterminated_event" in answer.diagnostics


def test_half_characters_are_joined() -> None:
    opening = block(0, {"type": "text", "text": ""}, stop=False)
    whole_one = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "HALF"})
    halves = (whole_one.replace(b"HALF", half) for half in (rb"\ud83e", rb"\udded"))
    answer = answer_of(start(), opening, *halves, end("end_turn"))
    assert answer.text == "🧭"


# Blocks.


@pytest.mark.req("M72")
@pytest.mark.parametrize("begun", [{}, {"input": None}])
def test_a_call_without_arguments_has_an_empty_object(begun: dict[str, Any]) -> None:
    answer = answer_of(start(), call(0, "t", "look", **begun), end("tool_use"))
    assert [c.arguments for c in answer.calls] == ["{}"]


def test_arguments_may_come_whole_with_the_opening_as_relays_send_them() -> None:
    opening = '{"type":"tool_use","id":"t","name":"look","input":{"at": 1.50}}'
    raw = f'data: {{"type":"content_block_start","index":0,"content_block":{opening}}}\n\n'
    stop = event("content_block_stop", index=0)
    answer = answer_of(start(), raw.encode(), stop, end("tool_use"))
    assert [c.arguments for c in answer.calls] == ['{"at": 1.50}']


@pytest.mark.req("M72", "M144")
def test_arguments_are_held_against_the_schema_of_the_tool() -> None:
    schema = b'{"type":"object","properties":{"at":{"type":"string"}},"required":["at"]}'
    tools = {"look": compile_schema(schema)}
    good, bad = call(0, "a", "look", '{"at":', '"sea"}'), call(1, "b", "look", '{"at":1}')
    answer = answer_of(start(), good, bad, call(2, "c", "fly"), end("tool_use"), tools=tools)
    assert [c.call_id for c in answer.released] == ["a"]
    assert set(answer.problems) == {"b", "c"}


def test_the_provider_s_own_work_is_kept_byte_for_byte_and_never_run() -> None:
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}, "caller": {"type": "direct"}}  # fmt: skip
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "web_search_result", "encrypted_content": "Eo=="}]}  # fmt: skip
    pieces = (
        {"type": "input_json_delta", "partial_json": piece} for piece in ('{"query":', '"x"}')
    )
    body = start() + block(0, use, *pieces) + block(1, found) + text(2, "It is x.")
    answer = answer_of(body, end("end_turn"))
    assert state_of(answer) == [(True, {**use, "input": {"query": "x"}}), (True, found)]
    assert (answer.calls, answer.text) == ((), "It is x.")
    assert type(answer.blocks[2]) is Text


COMPACTED = {"type": "compaction", "content": "They met.", "encrypted_content": "Eo=="}


@pytest.mark.req("M73")
@pytest.mark.parametrize("reason", ["end_turn", "compaction"])
def test_a_compaction_is_kept_as_it_came_and_goes_before_what_is_said(reason: str) -> None:
    begun = {"type": "compaction", "content": None}
    body = start() + block(0, begun, {**COMPACTED, "type": "compaction_delta"})
    answer = answer_of(body, text(1, "Hello") if reason == "end_turn" else b"", end(reason))
    assert state_of(answer) == [(True, COMPACTED)]
    assert (answer.error, answer.paused) == (None, reason == "compaction")


@pytest.mark.req("M73")
def test_a_compaction_that_failed_or_is_signed_goes_back_as_it_is() -> None:
    failed = {"type": "compaction", "content": None}
    signed = {**COMPACTED, "signature": "Eq=="}
    whole = json.dumps({"type": "message", "id": "m", "content": [signed, {"type": "text", "text": "x"}], "stop_reason": "end_turn"})  # fmt: skip
    for body, kept in (
        (start() + block(0, failed) + text(1, "x") + end("end_turn"), failed),
        (start() + block(0, {"type": "compaction"}, {**COMPACTED, "type": "compaction_delta"}, {"type": "signature_delta", "signature": "Eq=="}) + text(1, "x") + end("end_turn"), signed),
        (whole.encode(), signed),
    ):  # fmt: skip
        assert state_of(answer_of(body)) == [(True, kept)]


@pytest.mark.req("M82", "M89")
def test_a_compaction_that_is_filled_twice_or_is_cut_is_no_answer() -> None:
    filled = {**COMPACTED, "type": "compaction_delta"}
    twice = start() + block(0, {"type": "compaction"}, filled, filled) + end("compaction")
    cut = start() + block(0, {"type": "compaction"}, filled, stop=False) + end("compaction")
    assert [answer_of(body).error for body in (twice, cut)] == ["malformed_event"] * 2


def test_thinking_is_told_apart_from_text_and_keeps_its_signature() -> None:
    answer = answer_of(start(), thinking(0, "It ", "floats."), text(1, "Yes."), end("end_turn"))
    assert (answer.reasoning, answer.text) == ("It floats.", "Yes.")
    assert state_of(answer) == [(False, {"type": "thinking", "signature": "Eq=="})]


def test_counts_replace_each_other() -> None:
    usage = {"cache_read_input_tokens": 3, "cache_creation_input_tokens": 2}
    body = start(**usage) + text(0, "Hello") + delta(None, output_tokens=4)
    answer = answer_of(body, end("end_turn", output_tokens=6, input_tokens=8))
    assert answer.usage == Usage(
        input=8, output=6, total=19, cached=3, cache_write=2, cache_apart=True
    )


# Whole answers.

SAID: list[tuple[dict[str, Any], bytes]] = [
    ({"type": "text", "text": "I look."}, text(0, "I look.")),
    ({"type": "tool_use", "id": "t", "name": "look", "input": {"at": [1, None]}}, call(1, "t", "look", '{"at":[1,null]}')),
    ({"type": "thinking", "thinking": "hm", "signature": "Eq=="}, thinking(2, "hm")),
    ({"type": "redacted_thinking", "data": "x"}, block(3, {"type": "redacted_thinking", "data": "x"})),
]  # fmt: skip


@pytest.mark.req("M74")
def test_a_whole_answer_is_the_stream_that_it_could_have_been() -> None:
    streamed = answer_of(start(), *(part for _, part in SAID), end("tool_use"))
    at_once = answer_of(whole(*(part for part, _ in SAID), reason="tool_use"), content_type=JSON)
    assert [json.loads(c.arguments) for c in at_once.calls] == [{"at": [1, None]}]
    calls = [json.loads(c.arguments) for c in streamed.calls]
    assert calls == [json.loads(c.arguments) for c in at_once.calls]
    assert (at_once.text, at_once.reasoning, at_once.usage, at_once.finish, at_once.handle) == (
        streamed.text,
        streamed.reasoning,
        streamed.usage,
        streamed.finish,
        streamed.handle,
    )
    assert state_of(at_once) == state_of(streamed)
    assert [type(b) for b in at_once.blocks] == [Text, ToolCall, Reasoning, Reasoning]


@pytest.mark.req("M82", "M98")
def test_no_beginning_of_a_whole_answer_is_taken_for_it() -> None:
    body = whole(SAID[0][0], SAID[1][0], reason="tool_use")
    for length in range(len(body)):
        answer = answer_of(body[:length], content_type=JSON)
        assert (answer.committable, answer.error) == (False, "stream_incomplete"), length


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"type":"error","error":{"type":"overloaded_error","message":"Busy."}}', "overloaded_error"),
        (b'{"type":"message"}', "malformed_event"),
        (b'{"content":7}', "malformed_event"),
        (whole({"type": "text", "text": "x"}, reason=None), "missing_finish_reason"),
        (whole(reason="tool_use"), "malformed_function_call"),
    ],
)  # fmt: skip
def test_a_whole_body_that_is_no_answer_is_refused(body: bytes, error: str) -> None:
    answer = answer_of(body, content_type=JSON)
    assert (answer.committable, answer.error) == (False, error)


def test_an_empty_answer_is_an_answer_of_nothing() -> None:
    answer = answer_of(start(), end("end_turn"))
    assert answer.blocks == (Text(text=""),)


# Any cut.

RICH = b"".join(
    (start(), thinking(0, "hm ✓"), text(1, "Sea, ", "🧭"), call(2, "t", "look", '{"at":', '"sea"}'), end("tool_use"))
)  # fmt: skip


@pytest.mark.req("M82")
@given(st.lists(st.integers(0, len(RICH)), max_size=12))
def test_where_the_reads_end_makes_no_difference(marks: list[int]) -> None:
    assert deltas_of(split(RICH, marks)) == deltas_of([RICH])


@given(st.binary(max_size=200), st.integers(0, len(RICH)))
def test_no_bytes_whatever_make_it_fall(noise: bytes, at: int) -> None:
    answer = answer_of(RICH[:at] + noise + RICH[at:])
    assert answer.committable or answer.error
