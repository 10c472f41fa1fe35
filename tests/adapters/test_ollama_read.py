"""Reading Ollama's chat API: recorded streams, faults, and every way to cut them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.adapters.ollama.read import Reader
from antiphon.core.answers.answer import Answer
from antiphon.core.answers.assembler import Assembler
from antiphon.core.answers.deltas import Delta, Meaning, Usage
from antiphon.core.blocks import WHOEVER, Reasoning
from antiphon.core.wire.limits import Limits
from tests.support.chat_stream import cuts, split

DATA = Path(__file__).parent.parent / "data"
STREAMS = sorted((DATA / "fixtures/streams/ollama_native").glob("*.ndjson"))
LINES = "application/x-ndjson"


def line(content: str = "", **fields: Any) -> bytes:
    message = {"role": "assistant", "content": content, **fields.pop("message", {})}
    said = {"model": "qwen3:8b", "message": message, "done": False, **fields}
    return json.dumps(said, ensure_ascii=False).encode() + b"\n"


def called(name: str, arguments: str = "{}", call_id: str | None = "c1") -> bytes:
    function = f'{{"index":0,"name":"{name}","arguments":{arguments}}}'
    named = "" if call_id is None else f'"id":"{call_id}",'
    calls = f'[{{{named}"function":{function}}}]'
    made = f'{{"message":{{"role":"assistant","content":"","tool_calls":{calls}}},"done":false}}\n'
    return made.encode()


def done(reason: str | None = "stop", **fields: Any) -> bytes:
    return line(done=True, done_reason=reason, prompt_eval_count=7, eval_count=9, **fields)


def deltas_of(reads: Iterable[bytes], content_type: str = LINES, **options: Any) -> list[Delta]:
    reader = Reader(content_type, **options)
    deltas = [delta for data in reads for delta in reader.feed(data)]
    return [*deltas, *reader.end()]


def answer_of(*reads: bytes, cut: str | None = None, **options: Any) -> Answer:
    assembler = Assembler(**options)
    for made in deltas_of(reads):
        assembler.feed(made)
    return assembler.end(cut)


def expected_of(stream: Path) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads(stream.with_suffix(".expect.json").read_text("utf-8"))
    return expected


def code_of(expected: dict[str, Any]) -> str | None:
    if expected["error"] is None:
        return None
    words = {"stream_ended_without_finish": "stream_incomplete", "error": "provider_error"}
    return words[expected["error"]["class"]]


def test_there_are_recordings() -> None:
    assert len(STREAMS) == 8


@pytest.mark.req("M71", "M72", "M73", "M74")
@pytest.mark.parametrize("stream", STREAMS, ids=lambda path: path.stem)
def test_a_recorded_stream_comes_to_what_it_says_however_it_is_cut(stream: Path) -> None:
    expected = expected_of(stream)
    for how, reads in cuts(stream.read_bytes()):
        answer = answer_of(*reads)
        assert answer.text == expected["text"], how
        assert [(c.call_id, c.name, c.arguments) for c in answer.calls] == [
            (c["id"], c["name"], c["arguments"]) for c in expected["tool_calls"]
        ], how
        assert [c.call_id for c in answer.released] == expected["dispatchable"], how
        assert answer.finish == expected["finish"]["native"], how
        assert answer.committable is expected["committable"], how
        assert answer.reasoning == expected["reasoning"], how
        assert answer.usage == Usage(**(expected["usage"] or {})), how
        assert answer.error == code_of(expected), how
        if expected["committable"]:
            assert answer.meaning == expected["finish"]["turn"], how


@pytest.mark.req("M73", "M82", "M84", "M89", "M98")
@pytest.mark.parametrize("stream", STREAMS, ids=lambda path: path.stem)
def test_no_beginning_of_a_recorded_stream_is_taken_for_the_whole(stream: Path) -> None:
    body, expected = stream.read_bytes(), expected_of(stream)
    # The last line counts without its line end, for there it is whole.
    last = body.rstrip().rfind(b"\n") + 1
    whole = len(body.rstrip()) if b'"done":true' in body[last:] or b'"error"' in body[last:] else len(body)  # fmt: skip
    for length in range(whole):
        answer = answer_of(body[:length])
        assert (answer.committable, answer.error) == (False, "stream_incomplete"), length
        assert (answer.definite, answer.released) == (False, ())
        assert expected["text"].startswith(answer.text)


@pytest.mark.req("M73")
@pytest.mark.parametrize(
    ("word", "meaning", "error"),
    [
        ("stop", Meaning.COMPLETE, None),
        ("length", Meaning.TRUNCATED, None),
        ("load", Meaning.ERROR, "load"),
        ("unload", Meaning.ERROR, "unload"),
        ("what_is_this", Meaning.UNKNOWN, "what_is_this"),
    ],
)
def test_a_done_reason_means_what_the_server_says_of_it(
    word: str, meaning: Meaning, error: str | None
) -> None:
    answer = answer_of(line("Hello"), done(word))
    assert (answer.finish, answer.meaning, answer.error) == (word, meaning, error)


def test_an_end_without_a_reason_is_none() -> None:
    answer = answer_of(line("Hello"), done(None))
    assert (answer.committable, answer.error) == (False, "missing_finish_reason")


def test_a_call_in_an_answer_that_was_cut_by_its_length_is_not_released() -> None:
    answer = answer_of(called("look"), done("length"))
    assert (answer.committable, answer.error, answer.calls) == (False, "truncated_by_length", ())


@pytest.mark.parametrize("said", ['"the model fell over"', '{"message":"the model fell over"}'])
def test_an_error_inside_the_stream_ends_it(said: str) -> None:
    answer = answer_of(line("So"), f'{{"error":{said}}}\n'.encode(), done())
    assert (answer.committable, answer.text, answer.definite) == (False, "So", True)
    assert (answer.error, answer.error_message) == ("provider_error", "the model fell over")


@pytest.mark.parametrize(
    "broken", [b"{oops}\n", b"<html>\n", b'{"message":5}\n', b"data: {}\n\n", b'"text"\n']
)
def test_what_cannot_be_understood_ends_the_reading(broken: bytes) -> None:
    answer = answer_of(line("x"), broken, done())
    assert (answer.committable, answer.error) == (False, "malformed_event")


def test_a_line_that_is_too_large_ends_the_reading() -> None:
    made = deltas_of([line("x" * 100)], limits=Limits(max_event_bytes=50))
    assert getattr(made[-1], "code", None) == "event_too_large"


def test_a_line_of_a_later_release_is_noted() -> None:
    answer = answer_of(b'{"progress":5}\n', line("Hello"), done())
    assert (answer.committable, answer.diagnostics) == (True, ("unknown_event",))


@pytest.mark.req("M72")
def test_numbers_in_arguments_come_through_digit_for_digit() -> None:
    arguments = '{"n":12345678901234567890,"x": 1.10}'
    answer = answer_of(called("look", arguments), done())
    assert [c.arguments for c in answer.calls] == [arguments]
    assert answer.meaning is Meaning.NEEDS_TOOL


def test_a_call_without_an_id_is_given_one_that_the_line_does_not_have() -> None:
    first = answer_of(called("look", call_id=None), called("look", call_id=None), done())
    ids = [c.call_id for c in first.calls]
    assert len(set(ids)) == 2
    again = answer_of(called("look", call_id=None), done(), known_call_ids=ids)
    assert again.calls[0].call_id not in ids


def test_arguments_that_are_no_object_are_refused() -> None:
    answer = answer_of(called("look", '"{}"'), done())
    assert (answer.committable, answer.error) == (False, "malformed_function_call")


@pytest.mark.parametrize(("model", "kept"), [("qwen3:8b", "qwen3:8b"), ("", WHOEVER)])
def test_thinking_is_kept_with_the_name_of_its_model(model: str, kept: str) -> None:
    thought = line(message={"thinking": "hm "}), line(message={"thinking": "so"})
    answer = answer_of(*thought, line("Yes."), done(model=model))
    block = answer.blocks[0]
    assert isinstance(block, Reasoning)
    assert (block.text, answer.text) == ("hm so", "Yes.")
    assert block.opaque is not None
    assert (block.opaque.profile, block.opaque.model) == ("ollama", kept)


@pytest.mark.req("M74")
def test_a_whole_answer_is_a_last_line_alone() -> None:
    message = {"content": "Hello", "thinking": "hm", "tool_calls": [{"function": {"name": "look", "arguments": {}}}]}  # fmt: skip
    body = done(message=message).rstrip()
    answer = answer_of(body)
    assert (answer.text, answer.reasoning, answer.usage.total) == ("Hello", "hm", 16)
    assert [c.name for c in answer.calls] == ["look"]
    for length in range(len(body)):
        assert answer_of(body[:length]).error == "stream_incomplete", length


def test_a_cut_after_the_end_costs_nothing() -> None:
    assert answer_of(line("Hello"), done(), cut="reset").committable


RICH = b"".join((line(message={"thinking": "hm ✓"}), line("Sea, "), line("🧭"), called("look", '{"at":"sea"}'), done()))  # fmt: skip


@pytest.mark.req("M82")
@given(st.lists(st.integers(0, len(RICH)), max_size=12))
def test_where_the_reads_end_makes_no_difference(marks: list[int]) -> None:
    assert deltas_of(split(RICH, marks)) == deltas_of([RICH])


@given(st.binary(max_size=200), st.integers(0, len(RICH)))
def test_no_bytes_whatever_make_it_fall(noise: bytes, at: int) -> None:
    answer = answer_of(RICH[:at] + noise + RICH[at:])
    assert answer.committable or answer.error
