"""Reading OpenAI Responses: recorded streams, reported faults, and every way to cut them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.answers.answer import Answer
from antiphon.core.answers.deltas import Meaning, Usage
from antiphon.core.answers.schemas import compile_schema
from antiphon.core.blocks import Reasoning, Refusal, Text, ToolCall
from antiphon.core.wire.limits import Limits
from tests.support.chat_stream import cuts, split
from tests.support.responses_stream import (
    added,
    answer_of,
    call,
    called,
    created,
    delta,
    done,
    ended,
    event,
    message,
    said,
    stream,
    thinking,
    thought,
    whole,
    wire,
)

DATA = Path(__file__).parent.parent / "data"
STREAMS = sorted((DATA / "fixtures/streams/openai_responses").glob("*.sse"))
CASES = [
    case
    for path in sorted((DATA / "cases").glob("B-*.json"))
    if (case := json.loads(path.read_text(encoding="utf-8")))["provider"] == "openai-responses"
]
JSON = "application/json"
OWN_CODES = {"truncated": "unclosed_arguments", "refused": "content_filter"}
ENDS = [f'data: {{"type":"response.{w}"'.encode() for w in ("completed", "incomplete", "failed")]
COUNTED = Usage(input=7, output=9, total=16, cached=3, cache_write=1, reasoning=2)


def expected_of(recorded: Path) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads(recorded.with_suffix(".expect.json").read_text("utf-8"))
    return expected


def state_of(answer: Answer) -> list[tuple[bool, dict[str, Any]]]:
    """What of the answer goes back as it came, and whether it was the provider's own work."""
    kept = (b.opaque for b in answer.blocks if isinstance(b, Reasoning | Text))
    return [(o.work, json.loads(bytes(o.value))) for o in kept if o is not None]


def code_of(expected: dict[str, Any]) -> str | None:
    if expected["committable"]:
        return None
    if expected["error"] is None:
        return OWN_CODES[expected["finish"]["turn"]]
    word = expected["error"]["class"]
    return "stream_incomplete" if word == "stream_ended_without_terminal_event" else str(word)


# Recorded streams.


def test_there_are_recordings() -> None:
    assert len(STREAMS) == 13
    assert [case["id"] for case in CASES] == ["B-010"]


@pytest.mark.req("M71", "M72", "M73", "M74")
@pytest.mark.parametrize("recorded", STREAMS, ids=lambda path: path.stem)
def test_a_recorded_stream_comes_to_what_it_says_however_it_is_cut(recorded: Path) -> None:
    expected = expected_of(recorded)
    for how, reads in cuts(recorded.read_bytes()):
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
        assert (answer.refusal or "") == (expected["refusal"] or ""), how
        assert answer.handle == expected["handle"], how
        assert answer.usage == Usage(**(expected["usage"] or {})), how
        assert answer.error == code_of(expected), how


@pytest.mark.parametrize("recorded", STREAMS, ids=lambda path: path.stem)
def test_reasoning_that_has_to_go_back_is_kept_sealed_and_in_its_place(recorded: Path) -> None:
    wanted = expected_of(recorded)["opaque"]
    answer = answer_of(recorded.read_bytes())
    thoughts = [block for block in answer.blocks if isinstance(block, Reasoning)]
    assert len(thoughts) == len(wanted)
    for place, item in enumerate(wanted):
        kept = answer.blocks[place]
        assert isinstance(kept, Reasoning)
        assert kept.opaque is not None
        assert (kept.opaque.profile, kept.opaque.model) == ("openai-responses", "gpt-6-astra")
        state = json.loads(bytes(kept.opaque.value))
        assert (state["id"], state["encrypted_content"]) == (item["id"], item["encrypted_content"])
        assert isinstance(answer.blocks[place + 1], ToolCall)  # what it is paired with


@pytest.mark.req("M73", "M82", "M84", "M89", "M98")
@pytest.mark.parametrize("recorded", STREAMS, ids=lambda path: path.stem)
def test_no_beginning_of_a_recorded_stream_is_taken_for_the_whole(recorded: Path) -> None:
    body, expected = recorded.read_bytes(), expected_of(recorded)
    failure = body.find(b"event: error")
    ends = [at for at in (body.find(end) for end in ENDS) if at >= 0]
    # The last event is whole with its last brace; what follows is the blank line.
    end_at = len(body.rstrip()) if ends else len(body)
    for length in range(0, failure if failure >= 0 else end_at, 3):
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
    for how, reads in cuts("".join(case["given"]["chunks"]).encode()):
        answer = answer_of(*reads)
        assert answer.text == expected["text"], how
        assert answer.committable is expected["committable"], how
        assert answer.finish == expected["finish"], how
        assert answer.duplicates_dropped == expected["duplicates_dropped"], how


@pytest.mark.req("M81", "M96")
def test_a_part_that_comes_again_with_other_words_is_no_repetition() -> None:
    events = [created(), *said(0, "It ", "is.")]
    twice = wire(events) + wire([events[2]], numbered=False).replace(
        b'"type"', b'"sequence_number":2,"type"', 1
    )
    assert answer_of(twice.replace(b"It ", b"At ", 1), wire([ended("completed")])).error == (
        "malformed_event"
    )


def test_calls_that_are_told_again_are_made_once() -> None:
    events = [created(), *call(0, "c", "look", '{"at":', '"sea"}')]
    body = wire(events) + wire(events) + wire([ended("completed", called("c", "look", '{"at":"sea"}'))], numbered=False)  # fmt: skip
    answer = answer_of(body)
    assert [c.arguments for c in answer.calls] == ['{"at":"sea"}']
    assert answer.duplicates_dropped == 2


# Servers that say less.


@pytest.mark.req("M71", "M72")
def test_a_server_that_numbers_neither_events_nor_items_is_read_by_their_names() -> None:
    parts = [*thinking(0, "hm"), *said(1, "I ", "look."), *call(2, "c", "look", '{"a', '":1}')]
    names = ["rs_0", "msg_1", "fc_c"]
    places = {"output_index", "content_index", "summary_index"}
    bare = [
        {k: v for k, v in one.items() if k not in places} | {"item_id": names[one["output_index"]]}
        for one in parts
    ]
    items = [one["item"] for one in parts if one["type"].endswith("done")]
    body = wire([created(), *bare, ended("completed", *items)], numbered=False)
    answer = answer_of(body)
    assert (answer.text, answer.reasoning) == ("I look.", "hm")
    assert [c.arguments for c in answer.calls] == ['{"a":1}']
    assert [type(b) for b in answer.blocks] == [Reasoning, Text, ToolCall]


def test_a_call_s_pieces_may_name_it_by_its_call_id() -> None:
    """As llama.cpp does: its items of calls have no id of their own."""
    opening = {"type": "function_call", "call_id": "fc_1", "name": "look", "arguments": "", "status": "in_progress"}  # fmt: skip
    closing = {**opening, "arguments": "{}", "status": "completed"}
    body = wire(
        [
            event("response.output_item.added", item=opening),
            event("response.output_item.added", item=message(name="msg_1")),
            event("response.function_call_arguments.delta", item_id="fc_1", delta="{}"),
            event("response.output_text.delta", item_id="msg_1", delta="so"),
            event("response.output_item.done", item=closing),
            ended("completed", closing, message("so")),
        ],
        numbered=False,
    )
    answer = answer_of(body)
    assert ([c.arguments for c in answer.calls], answer.text) == (["{}"], "so")


def test_an_answer_that_comes_only_at_its_end_is_all_there() -> None:
    items = (thought("hm"), message("It ", "is."), called("c", "look", '{"at":1}'))
    answer = answer_of(wire([created(), ended("completed", *items)]))
    assert (answer.text, answer.reasoning) == ("It is.", "hm")
    assert [c.arguments for c in answer.calls] == ['{"at":1}']
    assert [type(b) for b in answer.blocks] == [Reasoning, Text, Text, ToolCall]


def test_an_end_that_repeats_nothing_takes_nothing_back() -> None:
    body = wire([created(), *said(0, "It is."), *call(1, "c", "look", "{}"), ended("completed")])
    answer = answer_of(body)
    assert (answer.committable, answer.text) == (True, "It is.")
    assert [c.call_id for c in answer.calls] == ["c"]


# What an item says of itself at its end.


@pytest.mark.parametrize(
    ("pieces", "item", "committable"),
    [
        (("It ", "is."), message("It is."), True),
        (("It ",), message("It is."), True),
        ((), message("It is."), True),
        (("It is so.",), message("It is."), False),
        (("Is it?",), message("It is."), False),
    ],
)
def test_the_whole_item_counts_and_what_had_come_has_to_agree(
    pieces: tuple[str, ...], item: dict[str, Any], committable: bool
) -> None:
    deltas = [delta("output_text", 0, piece, content_index=0) for piece in pieces]
    answer = answer_of(stream(added(0, item), *deltas, done(0, item)))
    assert answer.committable is committable
    assert (answer.text == "It is.") is committable
    assert answer.error == (None if committable else "malformed_event")


@pytest.mark.req("M82")
def test_arguments_that_differ_from_their_end_run_nothing() -> None:
    item = called("c", "look", '{"at":"land"}')
    body = stream(added(0, item), delta("function_call_arguments", 0, '{"at":"sea"}'), done(0, item))  # fmt: skip
    answer = answer_of(body)
    assert (answer.calls, answer.error) == ((), "malformed_event")


def test_a_part_that_the_whole_item_does_not_have_is_an_error() -> None:
    item = message("a")
    parts = [delta("output_text", 0, text, content_index=n) for n, text in enumerate("ab")]
    assert answer_of(stream(added(0, item), *parts, done(0, item))).error == "malformed_event"


def test_an_item_that_goes_on_after_its_end_is_an_error() -> None:
    more = delta("output_text", 0, " More.", content_index=0)
    assert answer_of(stream(said(0, "It is."), more)).error == "malformed_event"


def test_a_call_that_changes_its_name_is_an_error() -> None:
    begun, item = called("c", "look", "{}"), called("c", "find", "{}")
    assert answer_of(stream(added(0, begun), done(0, item))).error == "malformed_function_call"


@pytest.mark.req("M41", "M73")
def test_arguments_of_a_call_that_never_came_leave_nothing_to_commit() -> None:
    piece = delta("function_call_arguments", 1, "{}")
    found = answer_of(
        wire([created(), *said(0, "Aye."), piece, ended("completed", message("Aye."))])
    )
    assert (found.error, found.committable) == ("orphan_argument_delta", False)


def test_sealed_thoughts_are_taken_from_the_end_of_their_item() -> None:
    answer = answer_of(stream(thinking(0, "It ", "floats."), said(1, "Yes.")))
    assert answer.reasoning == "It floats."
    assert state_of(answer) == [(False, thought("It floats.", name="rs_0"))]


def test_paragraphs_of_a_summary_stay_apart() -> None:
    item = thought("One.", "Two.")
    parts = [delta("reasoning_summary_text", 0, text, summary_index=n) for n, text in enumerate(("One.", "Two."))]  # fmt: skip
    streamed = answer_of(stream(added(0, item), *parts, done(0, item), *said(1, "x")))
    at_once = answer_of(whole(item, message("x")), content_type=JSON)
    assert streamed.reasoning == at_once.reasoning == "One.\n\nTwo."


def test_the_phase_of_a_message_is_kept_with_its_text() -> None:
    body = stream(said(0, "I look.", phase="commentary"), call(1, "c", "look", "{}"))
    assert state_of(answer_of(body)) == [(False, {"phase": "commentary"})]


@pytest.mark.req("M31")
def test_the_provider_s_own_work_is_kept_byte_for_byte_and_never_run() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"n": 1.50}}
    body = stream(added(0, search), done(0, search), *said(1, "It is x."))
    answer = answer_of(body)
    assert (state_of(answer), answer.calls) == ([(True, search)], ())
    kept = answer.blocks[0]
    assert isinstance(kept, Reasoning)
    assert kept.opaque is not None
    assert kept.opaque.work


def test_a_refusal_is_told_apart_from_text() -> None:
    item = {**message(), "content": [{"type": "refusal", "refusal": "I will not."}]}
    answer = answer_of(stream(added(0, item), delta("refusal", 0, "I will ", content_index=0), done(0, item)))  # fmt: skip
    assert (answer.committable, answer.blocks) == (True, (Refusal(text="I will not."),))


# Ends.

ENDINGS: list[tuple[str, dict[str, Any], str, Meaning | None, str | None]] = [
    ("completed", {}, "completed", Meaning.COMPLETE, None),
    ("incomplete", {"incomplete_details": {"reason": "max_output_tokens"}}, "incomplete:max_output_tokens", Meaning.TRUNCATED, None),
    ("incomplete", {"incomplete_details": {"reason": "content_filter"}}, "incomplete:content_filter", Meaning.FILTERED, "content_filter"),
    ("incomplete", {"incomplete_details": {"reason": "mood"}}, "incomplete:mood", Meaning.UNKNOWN, "incomplete:mood"),
    ("incomplete", {}, "incomplete:unknown", Meaning.UNKNOWN, "incomplete:unknown"),
    ("failed", {"error": {"code": "server_error", "message": "Oh."}}, "failed", Meaning.ERROR, "server_error"),
    ("failed", {}, "failed", Meaning.ERROR, "failed"),
    ("cancelled", {}, "cancelled", Meaning.ERROR, "cancelled"),
]  # fmt: skip


@pytest.mark.req("M73", "M85")
@pytest.mark.parametrize(("status", "more", "word", "meaning", "error"), ENDINGS)
def test_an_end_means_what_it_says_streamed_or_whole(
    status: str, more: dict[str, Any], word: str, meaning: Meaning | None, error: str | None
) -> None:
    streamed = answer_of(wire([created(), *said(0, "It is."), ended(status, message("It is.", name="msg_0"), **more)]))  # fmt: skip
    at_once = answer_of(whole(message("It is."), status=status, **more), content_type=JSON)
    for answer in (streamed, at_once):
        assert (answer.finish, answer.meaning, answer.error) == (word, meaning, error)
        assert answer.committable is (error is None)
        assert answer.definite
        assert answer.usage == COUNTED


@pytest.mark.parametrize(
    ("code", "retryable"),
    [("server_error", True), ("rate_limit_exceeded", True), ("invalid_prompt", False), ("image_too_large", False)],
)  # fmt: skip
def test_a_failed_response_says_whether_another_may_fare_better(code: str, retryable: bool) -> None:
    body = wire([created(), ended("failed", error={"code": code, "message": "Oh."})])
    answer = answer_of(body)
    assert (answer.error, answer.retryable, answer.definite) == (code, retryable, True)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    ("code", "retryable"), [("server_error", True), ("insufficient_quota", False)]
)
def test_an_error_event_has_two_shapes(nested: bool, code: str, retryable: bool) -> None:
    said_so = {"code": code, "message": "Oh."}
    failure = event("error", error=said_so) if nested else event("error", **said_so)
    answer = answer_of(wire([created(), failure]))
    assert (answer.error, answer.error_message) == (code, "Oh.")
    assert (answer.retryable, answer.definite) == (retryable, True)


@pytest.mark.req("M82")
@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_a_response_that_is_still_at_work_is_no_answer(status: str) -> None:
    answer = answer_of(whole(message("It is"), status=status), content_type=JSON)
    assert (answer.committable, answer.error, answer.definite) == (
        False,
        "stream_incomplete",
        False,
    )


@pytest.mark.req("M83")
def test_a_call_that_its_item_calls_incomplete_is_half_a_call() -> None:
    item = called("c", "look", "{}", status="incomplete")
    cut = {"incomplete_details": {"reason": "max_output_tokens"}}
    answer = answer_of(wire([created(), added(0, item), done(0, item), ended("incomplete", item, **cut)]))  # fmt: skip
    assert (answer.calls, answer.error) == ((), "unclosed_arguments")


def test_a_response_that_changes_into_another_is_an_error() -> None:
    other = {**created(), "response": {**created()["response"], "id": "resp_2"}}
    assert answer_of(stream(said(0, "It is."), other)).error == "malformed_event"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"data: [DONE]\n\n", "missing_finish_reason"),
        (b"data: {]\n\n", "malformed_event"),
        (b"event: error\ndata: out of order\n\n", "provider_error"),
        (b'data: {"error":{"message":"Oh.","type":"overloaded"}}\n\n', "overloaded"),
        (wire([event("response.output_text.delta", output_index=0, delta=5)]), "malformed_event"),
        (wire([event("response.output_item.added", output_index=0, item=7)]), "malformed_event"),
        (wire([added(0, message()), added(0, message())]), "malformed_event"),
        (wire([event("ping"), event("response.new_thing")]), "stream_incomplete"),
    ],
)  # fmt: skip
def test_what_is_no_stream_of_this_dialect_is_refused(body: bytes, error: str) -> None:
    assert answer_of(body).error == error


# Blocks.


@pytest.mark.req("M72", "M144")
def test_arguments_are_held_against_the_schema_of_the_tool() -> None:
    schema = b'{"type":"object","properties":{"at":{"type":"string"}},"required":["at"]}'
    tools = {"look": compile_schema(schema)}
    good, bad = call(0, "a", "look", '{"at":', '"sea"}'), call(1, "b", "look", '{"at":1}')
    answer = answer_of(stream(good, bad, call(2, "c", "fly", "{}")), tools=tools)
    assert [c.call_id for c in answer.released] == ["a"]
    assert set(answer.problems) == {"b", "c"}


def test_a_character_cut_in_two_is_whole_again() -> None:
    item = message("🧭")
    halves = [delta("output_text", 0, f"HALF{n}", content_index=0) for n in (1, 2)]
    body = stream(added(0, item), *halves, done(0, item))
    body = body.replace(b"HALF1", rb"\ud83e").replace(b"HALF2", rb"\udded")
    assert answer_of(body).text == "🧭"


def test_an_empty_answer_is_an_answer_of_nothing() -> None:
    assert answer_of(wire([created(), ended("completed")])).blocks == (Text(text=""),)


@pytest.mark.req("M93")
def test_an_answer_beyond_the_limit_ends_with_a_clear_error() -> None:
    limits = Limits(max_answer_bytes=100)
    answer = answer_of(stream(said(0, *["x" * 40] * 4)), limits=limits)
    assert (answer.error, answer.retryable) == ("answer_too_large", False)


@pytest.mark.req("M93")
def test_reading_takes_time_in_proportion_to_what_is_read() -> None:
    """Counted in steps of the interpreter, which a busy machine does not change."""

    def steps(pieces: int) -> int:
        body = stream(call(0, "c", "look", '{"a":"', *["x" * 40] * pieces, '"}'))
        taken = 0

        def count(*_: object) -> None:
            nonlocal taken
            taken += 1

        sys.setprofile(count)
        try:
            answer_of(*(body[at : at + 1000] for at in range(0, len(body), 1000)))
        finally:
            sys.setprofile(None)
        return taken

    assert steps(2000) < 2.2 * steps(1000)


# Whole answers.


@pytest.mark.req("M74")
def test_a_whole_answer_is_the_stream_that_it_could_have_been() -> None:
    items = (thought("hm", name="rs_0"), message("I look.", name="msg_1"), called("c", "look", '{"at":[1,null]}'))  # fmt: skip
    streamed = answer_of(stream(thinking(0, "hm"), said(1, "I look."), call(2, "c", "look", '{"at":[1,null]}')))  # fmt: skip
    at_once = answer_of(whole(*items), content_type=JSON)
    assert at_once == streamed


@pytest.mark.req("M82", "M98")
def test_no_beginning_of_a_whole_answer_is_taken_for_it() -> None:
    body = whole(message("It is."), called("c", "look", "{}"))
    for length in range(len(body)):
        answer = answer_of(body[:length], content_type=JSON)
        assert (answer.committable, answer.error) == (False, "stream_incomplete"), length


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"error":{"code":"server_error","message":"Oh."}}', "server_error"),
        (b'{"object":"response"}', "malformed_event"),
        (b'{"output":7}', "malformed_event"),
        (b'{"status":"completed","output":[{"type":"message","content":7}]}', "malformed_event"),
    ],
)
def test_a_whole_body_that_is_no_response_is_refused(body: bytes, error: str) -> None:
    answer = answer_of(body, content_type=JSON)
    assert (answer.committable, answer.error) == (False, error)


# Any cut.

RICH = stream(thinking(0, "hm ✓"), said(1, "Sea, ", "🧭"), call(2, "c", "look", '{"at":', '"sea"}'))
RICH_ANSWER = answer_of(RICH)


@pytest.mark.req("M71", "M74")
@given(st.lists(st.integers(0, len(RICH)), max_size=30), st.booleans())
def test_any_cut_and_either_line_end_come_to_the_same(marks: list[int], crlf: bool) -> None:
    body = RICH.replace(b"\n", b"\r\n") if crlf else RICH
    assert answer_of(*split(body, marks)) == RICH_ANSWER


@given(st.lists(st.integers(1, 12), min_size=1, max_size=4))
def test_events_that_come_again_change_nothing(from_where: list[int]) -> None:
    """As a stream that was taken up at an event which had been read already."""
    events = RICH.split(b"\n\n")[:-1]
    body = b""
    at = 0
    for back in from_where:
        upto = min(len(events) - 1, at + 2 * back)
        body += b"".join(piece + b"\n\n" for piece in events[at:upto])
        at = max(0, upto - back)
    body += b"".join(piece + b"\n\n" for piece in events[at:])
    answer = answer_of(body)
    assert (answer.committable, answer.text, answer.calls, answer.reasoning) == (
        True,
        RICH_ANSWER.text,
        RICH_ANSWER.calls,
        RICH_ANSWER.reasoning,
    )
