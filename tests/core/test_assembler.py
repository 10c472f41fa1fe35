"""The assembler: what deltas come to, and what keeps an answer out of the history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.answers import assembler as assembler_module
from antiphon.core.answers.answer import Answer, Piece
from antiphon.core.answers.arguments import Worth, worth
from antiphon.core.answers.assembler import Assembler
from antiphon.core.answers.deltas import (
    ArgumentsDelta,
    BlockStopped,
    CallOpened,
    Channel,
    Delta,
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
from antiphon.core.blocks import Reasoning, Refusal, Text, ToolCall, decode_blocks, encode_blocks
from antiphon.core.wire.limits import Limits

STOP = Finished("stop", Meaning.COMPLETE)
TOOLS = Finished("tool_calls", Meaning.NEEDS_TOOL)
LENGTH = Finished("length", Meaning.TRUNCATED)
FILTERED = Finished("content_filter", Meaning.FILTERED)
PAUSE = Finished("pause_turn", Meaning.PAUSED)
CITY = '{"city":"Oslo"}'


def text(value: str, seq: int | None = None, block: int = 1) -> TextDelta:
    return TextDelta(block, Channel.TEXT, value, seq)


def reasoning(value: str) -> TextDelta:
    return TextDelta(0, Channel.REASONING, value)


def refusal(value: str) -> TextDelta:
    return TextDelta(2, Channel.REFUSAL, value)


def call(
    arguments: str = CITY, call_id: str | None = "c1", name: str | None = "weather", block: int = 3
) -> tuple[Delta, ...]:
    return CallOpened(block, call_id, name), ArgumentsDelta(block, arguments)


def assemble(*deltas: Delta, cut: str | None = None, **options: Any) -> Answer:
    assembler = Assembler(**options)
    for delta in deltas:
        assembler.feed(delta)
    return assembler.end(cut)


def withheld(answer: Answer) -> str | None:
    """The code of an answer of which nothing may be used."""
    assert not answer.committable
    assert answer.blocks == ()
    assert answer.calls == ()
    assert answer.released == ()
    assert answer.error_message
    return answer.error


# What may be committed.


@pytest.mark.req("M71")
def test_text_with_an_explicit_end_becomes_one_block() -> None:
    answer = assemble(
        Opened("h1"), text("The "), text("bridge."), STOP, Usage(input=3, output=2), Ended()
    )
    assert answer == Answer(
        committable=True,
        blocks=(Text(text="The bridge."),),
        text="The bridge.",
        finish="stop",
        meaning=Meaning.COMPLETE,
        usage=Usage(input=3, output=2),
        handle="h1",
    )


def test_reasoning_text_and_calls_keep_the_order_of_their_blocks() -> None:
    answer = assemble(
        *call(block=3), text("I look."), reasoning("Hm."), *call(call_id="c2", block=4), TOOLS
    )
    assert answer.blocks == (
        Reasoning(text="Hm."),
        Text(text="I look."),
        ToolCall(call_id="c1", name="weather", arguments=CITY),  # type: ignore[arg-type]
        ToolCall(call_id="c2", name="weather", arguments=CITY),  # type: ignore[arg-type]
    )
    assert [c.call_id for c in answer.calls] == ["c1", "c2"]
    assert (answer.text, answer.reasoning) == ("I look.", "Hm.")


@pytest.mark.parametrize("finish", [STOP, TOOLS, PAUSE])
def test_calls_decide_that_a_tool_is_needed_whichever_settled_word_came(finish: Finished) -> None:
    answer = assemble(*call(), finish)
    assert answer.committable
    assert answer.meaning is (Meaning.PAUSED if finish is PAUSE else Meaning.NEEDS_TOOL)
    assert [c.arguments for c in answer.released] == [CITY]


def test_interleaved_fragments_of_parallel_calls_stay_apart() -> None:
    answer = assemble(
        CallOpened(3, "c1", "weather"),
        CallOpened(4, "c2", "time"),
        ArgumentsDelta(3, '{"city":'),
        ArgumentsDelta(4, '{"zone":'),
        ArgumentsDelta(3, '"Oslo"}'),
        ArgumentsDelta(4, '"CET"}'),
        TOOLS,
    )
    assert [(c.call_id, c.arguments) for c in answer.calls] == [
        ("c1", CITY),
        ("c2", '{"zone":"CET"}'),
    ]


@pytest.mark.parametrize("arguments", ["", "  ", "\n"])
def test_no_arguments_after_a_clean_finish_are_an_empty_object(arguments: str) -> None:
    answer = assemble(*call(arguments), TOOLS)
    assert [c.arguments for c in answer.calls] == ["{}"]


def test_argument_text_is_kept_exactly_as_it_came() -> None:
    spelled = '{ "a" : 1.50,\n "b":"\\u00e9" }'
    assert assemble(*call(spelled), TOOLS).calls[0].arguments == spelled


def test_a_refusal_in_the_models_own_words_is_committed() -> None:
    answer = assemble(refusal("I would "), refusal("rather not."), STOP)
    assert answer.blocks == (Refusal(text="I would rather not."),)
    assert answer.refusal == "I would rather not."


@pytest.mark.parametrize("before", [(), (reasoning("Nothing to say."),)])
def test_a_model_that_said_nothing_said_the_empty_text(before: tuple[Delta, ...]) -> None:
    answer = assemble(*before, STOP)
    assert answer.committable
    assert answer.blocks[-1] == Text(text="")


def test_a_pause_commits_and_says_that_the_run_goes_on() -> None:
    answer = assemble(text("Searching"), PAUSE)
    assert answer.committable
    assert answer.paused


@pytest.mark.parametrize("said", [text("The capital of"), refusal("I can not")])
def test_text_alone_that_the_length_limit_cut_is_committed_as_cut(said: TextDelta) -> None:
    answer = assemble(said, LENGTH)
    assert answer.committable
    assert answer.truncated
    assert answer.finish == "length"


def test_blocks_survive_storage() -> None:
    blocks = assemble(text("潮位 😀"), *call(), TOOLS).blocks
    assert decode_blocks(encode_blocks(blocks)) == blocks


# What may not.


@pytest.mark.req("M73", "M77", "M84")
@pytest.mark.parametrize("said", [(text("The bridge"),), call(), (text("x"), *call()), ()])
def test_without_a_finish_nothing_is_committed_and_the_outcome_is_unknown(
    said: tuple[Delta, ...],
) -> None:
    answer = assemble(*said)
    assert withheld(answer) == "stream_incomplete"
    assert not answer.definite
    assert answer.retryable


@pytest.mark.req("M84")
def test_an_end_marker_without_a_finish_is_known_to_be_over_and_worth_nothing() -> None:
    answer = assemble(text("The bridge"), *call(), Ended())
    assert withheld(answer) == "missing_finish_reason"
    assert answer.definite


def test_a_cut_is_named_in_the_message() -> None:
    answer = assemble(text("The"), cut="idle_timeout")
    assert withheld(answer) == "stream_incomplete"
    assert "idle_timeout" in (answer.error_message or "")


def test_a_cut_after_the_finish_costs_nothing_that_matters() -> None:
    answer = assemble(text("Done."), STOP, cut="connection_reset")
    assert answer.committable
    assert answer.diagnostics == ("cut_after_finish",)


def test_a_provider_that_went_on_after_its_finish_and_was_cut_has_not_finished() -> None:
    assert (
        withheld(assemble(text("Do"), STOP, text("ne"), cut="connection_reset"))
        == "stream_incomplete"
    )
    whole = assemble(text("Do"), STOP, text("ne."), Ended())
    assert whole.blocks == (Text(text="Done."),)
    assert whole.diagnostics == ("content_after_finish",)
    again = assemble(text("Do"), STOP, text("ne."), STOP, cut="connection_reset")
    assert again.committable


@pytest.mark.parametrize(
    ("deltas", "code", "retryable"),
    [
        ((text("x"), *call(), LENGTH), "truncated_by_length", False),
        ((*call('{"city":"Os'), LENGTH), "unclosed_arguments", False),
        ((*call(""), LENGTH), "unclosed_arguments", False),
        ((LENGTH,), "truncated_by_length", False),
        ((reasoning("Let me think about"), LENGTH), "truncated_by_length", False),
        ((text("Half"), FILTERED), "content_filter", False),
        ((refusal("No."), FILTERED), "content_filter", False),
        ((*call('{"city":"Os'), FILTERED), "unclosed_arguments", False),
        ((*call('{"city":"Os'), TOOLS), "unclosed_arguments", True),
        ((*call('{"city":"Os'), STOP), "unclosed_arguments", True),
        ((*call('["Oslo"]'), TOOLS), "malformed_function_call", True),
        ((*call('{"a":1,"a":2}'), TOOLS), "malformed_function_call", True),
        ((*call(name=None), TOOLS), "malformed_function_call", True),
        ((*call(name=""), TOOLS), "malformed_function_call", True),
        ((text("I'll check."), TOOLS), "malformed_function_call", True),
        ((TOOLS,), "malformed_function_call", True),
        ((*call(), *call(block=4), TOOLS), "duplicate_call_id", True),
        ((text("x"), Finished("error", Meaning.ERROR)), "error", True),
        ((*call('{"ci'), Finished("error", Meaning.ERROR)), "error", True),
        ((text("x"), Finished("abort", Meaning.UNKNOWN)), "abort", True),
        ((text("x"), STOP, LENGTH), "malformed_event", True),
        ((text("x"), FILTERED, STOP), "malformed_event", True),
    ],
)
@pytest.mark.req("M41", "M72", "M73", "M74")
def test_a_finished_answer_that_may_not_be_committed_says_why_and_is_a_definite_no(
    deltas: tuple[Delta, ...], code: str, retryable: bool
) -> None:
    answer = assemble(Opened("h1"), *deltas, Ended())
    assert withheld(answer) == code
    assert answer.definite
    assert answer.retryable is retryable
    assert answer.handle == "h1"


def test_the_setting_can_refuse_text_that_was_cut() -> None:
    assert withheld(assemble(text("The"), LENGTH, commit_truncated=False)) == "truncated_by_length"


def test_a_call_that_comes_with_the_id_of_an_earlier_one_is_given_another() -> None:
    reused = assemble(*call(), TOOLS, known_call_ids=["c0", "c1"])
    assert reused.committable
    assert "reused_call_id" in reused.diagnostics
    assert reused.calls[0].call_id not in ("c0", "c1")
    assert assemble(*call(), TOOLS, known_call_ids=["c0"]).committable


@pytest.mark.parametrize("name", ["no.such", "a b", "weather\n", "é", "x" * 65])
def test_a_call_by_a_name_that_the_provider_never_takes_back_is_no_answer(name: str) -> None:
    pattern = "[a-zA-Z0-9_-]{1,64}"
    answer = assemble(*call(name=name), TOOLS, tool_name_pattern=pattern)
    assert withheld(answer) == "malformed_function_call"
    assert answer.retryable
    assert assemble(*call(), TOOLS, tool_name_pattern=pattern).committable


def test_a_call_is_of_the_tool_whose_name_was_sent_so_and_is_held_against_its_schema() -> None:
    pattern, names = "[a-zA-Z0-9_-]{1,64}", {"look_1f": "look.up"}
    check = compile_schema({"type": "object", "required": ["city"]})
    options: dict[str, Any] = {
        "tools": {"look.up": check},
        "tool_name_pattern": pattern,
        "tool_names": names,
    }
    for said in ("look_1f", "look.up"):
        answer = assemble(*call(name=said), TOOLS, **options)
        assert answer.committable
        assert [(c.name, c.schema_digest) for c in answer.calls] == [("look.up", check.digest)]
    unknown = assemble(*call(name="look.in"), TOOLS, **options)
    assert withheld(unknown) == "malformed_function_call"


def test_two_calls_of_one_answer_share_no_id_even_where_the_line_has_it_already() -> None:
    twice = assemble(*call(), *call(block=4), TOOLS, known_call_ids=["c1"])
    assert withheld(twice) == "duplicate_call_id"


def test_two_settled_finishes_do_not_contradict_each_other() -> None:
    assert assemble(*call(), STOP, TOOLS).committable
    assert assemble(text("x"), STOP, STOP).committable


def test_an_error_in_the_stream_is_a_definite_no_with_the_providers_code() -> None:
    answer = assemble(text("The cap"), *call(), Failed("server_error", "Sorry.", retryable=True))
    assert withheld(answer) == "server_error"
    assert (answer.error_message, answer.retryable, answer.definite) == ("Sorry.", True, True)
    assert answer.text == "The cap"


def test_an_error_after_the_finish_still_voids_the_answer() -> None:
    assert withheld(assemble(text("x"), STOP, Failed("server_error", "Sorry."))) == "server_error"


def test_a_fault_of_our_reading_is_no_word_of_the_provider() -> None:
    answer = assemble(text("x"), Failed("malformed_event", "Garbage.", definite=False))
    assert withheld(answer) == "malformed_event"
    assert not answer.definite


def test_the_first_reason_stands() -> None:
    answer = assemble(Failed("one", "1"), Failed("two", "2"), ArgumentsDelta(9, "x"))
    assert withheld(answer) == "one"


def test_the_engine_learns_at_once_that_reading_on_is_a_waste() -> None:
    assembler = Assembler()
    assembler.feed(text("x"))
    assert not assembler.failed
    assembler.feed(ArgumentsDelta(5, "{}"))
    assert assembler.failed


def test_arguments_for_a_call_that_was_never_opened_are_orphans() -> None:
    for stray in (ArgumentsDelta(5, "{}"), ArgumentsDelta(1, "{}")):
        answer = assemble(text("x"), stray, STOP)
        assert withheld(answer) == "orphan_argument_delta"
        assert answer.finish == "stop"


@pytest.mark.req("M70")
def test_a_delta_of_another_response_is_refused() -> None:
    answer = assemble(Opened("h1"), text("x"), Opened("h2"), text("y"), STOP)
    assert withheld(answer) == "malformed_event"
    assert answer.handle == "h1"
    assert assemble(Opened("h1"), Opened("h1"), text("x"), STOP).committable


@pytest.mark.parametrize(
    "deltas",
    [
        (text("x"), TextDelta(1, Channel.REASONING, "y")),
        (*call(), TextDelta(3, Channel.TEXT, "y")),
        (text("x"), CallOpened(1, "c1", "weather")),
        (*call(), CallOpened(3, "c2", "weather")),
        (*call(), CallOpened(3, "c1", "time")),
    ],
)
def test_a_block_never_changes_what_it_is(deltas: tuple[Delta, ...]) -> None:
    assert withheld(assemble(*deltas, STOP)) == "malformed_event"


# Blocks that their dialect closes by itself.


@pytest.mark.req("M72", "M84")
def test_where_the_dialect_closes_blocks_a_lost_stop_event_leaves_the_call_half() -> None:
    opened = CallOpened(3, "c1", "weather", needs_stop=True)
    arguments = ArgumentsDelta(3, CITY)
    assert withheld(assemble(opened, arguments, TOOLS)) == "unclosed_arguments"
    answer = assemble(opened, arguments, BlockStopped(3), TOOLS)
    assert [c.arguments for c in answer.released] == [CITY]


def test_a_closed_block_does_not_go_on() -> None:
    answer = assemble(*call("{"), BlockStopped(3), ArgumentsDelta(3, "}"), TOOLS)
    assert withheld(answer) == "malformed_event"


def test_a_stop_of_text_or_of_nothing_means_nothing() -> None:
    assert assemble(text("x"), BlockStopped(1), BlockStopped(8), STOP).committable


# Order and repetition.


@pytest.mark.req("M70", "M83")
def test_a_delta_that_comes_again_is_dropped_and_counted() -> None:
    answer = assemble(
        text("Hau", 0), text("l it ", 1), text("Hau", 0), text("l it ", 1), text("in.", 2), STOP
    )
    assert answer.text == "Haul it in."
    assert answer.duplicates_dropped == 2


@pytest.mark.req("M70", "M83")
def test_a_repeated_argument_delta_is_dropped_and_counted() -> None:
    answer = assemble(
        CallOpened(3, "c1", "weather"),
        ArgumentsDelta(3, '{"city":', 0),
        CallOpened(3, "c1", "weather"),
        ArgumentsDelta(3, '{"city":', 0),
        ArgumentsDelta(3, '"Oslo"}', 1),
        TOOLS,
    )
    assert [c.arguments for c in answer.calls] == [CITY]
    assert answer.duplicates_dropped == 2


@pytest.mark.req("M70")
def test_blocks_number_their_deltas_apart() -> None:
    answer = assemble(
        text("a", 0, block=1),
        text("A", 0, block=5),
        text("b", 1, block=1),
        text("B", 1, block=5),
        STOP,
    )
    assert answer.text == "abAB"


@pytest.mark.req("M70")
@pytest.mark.parametrize(
    "deltas",
    [
        (text("a", 0), text("c", 2)),
        (text("b", 1),),
        (text("a", 0), text("b", 1), text("x", 0)),
        (CallOpened(3, "c1", "w"), ArgumentsDelta(3, "}", 1)),
    ],
)
def test_a_gap_or_a_contradiction_in_the_numbers_is_refused(deltas: tuple[Delta, ...]) -> None:
    assert withheld(assemble(*deltas, STOP)) == "malformed_event"


def test_equal_deltas_without_numbers_are_all_meant() -> None:
    assert assemble(*[text("ha")] * 200, STOP).text == "ha" * 200


@given(
    parts=st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=8),
    repeats=st.lists(st.integers(0, 7), max_size=8),
)
@pytest.mark.req("M70", "M83")
def test_any_replay_of_what_was_seen_changes_nothing_but_the_count(
    parts: list[str], repeats: list[int]
) -> None:
    deltas: list[Delta] = []
    dropped = 0
    for seq, part in enumerate(parts):
        deltas.append(text(part, seq))
        for again in repeats:
            if again <= seq:
                deltas.append(text(parts[again], again))
                dropped += 1
    answer = assemble(*deltas, STOP)
    assert answer.text == "".join(parts)
    assert answer.duplicates_dropped == dropped


# Previews.


@pytest.mark.req("M71", "M78")
def test_text_is_shown_as_it_comes_at_its_place_in_its_block() -> None:
    assembler = Assembler()
    deltas = (text("潮"), reasoning("Hm"), text(""), text("位!"), refusal("No"))
    assert [assembler.feed(delta) for delta in deltas] == [
        Piece(1, Channel.TEXT, 0, "潮"),
        Piece(0, Channel.REASONING, 0, "Hm"),
        None,
        Piece(1, Channel.TEXT, 1, "位!"),
        Piece(2, Channel.REFUSAL, 0, "No"),
    ]


@pytest.mark.req("M72", "M78", "M89", "M98")
def test_of_a_call_nothing_is_shown_before_the_answer_has_ended() -> None:
    assembler = Assembler()
    for delta in (*call(), TOOLS, Usage(), Note("x"), Ended(), BlockStopped(3), Opened("h")):
        assert assembler.feed(delta) is None


@given(st.lists(st.tuples(st.integers(0, 2), st.text(max_size=3)), max_size=20))
@pytest.mark.req("M71")
def test_the_pieces_of_a_block_put_together_are_its_text(said: list[tuple[int, str]]) -> None:
    channels = (Channel.REASONING, Channel.TEXT, Channel.REFUSAL)
    assembler = Assembler()
    shown = dict.fromkeys(channels, "")
    for block, part in said:
        piece = assembler.feed(TextDelta(block, channels[block], part))
        if piece is not None:
            assert piece.offset == len(shown[piece.channel])
            shown[piece.channel] += piece.text
    assembler.feed(STOP)
    answer = assembler.end()
    assert shown[Channel.TEXT] == answer.text
    assert shown[Channel.REASONING] == (answer.reasoning or "")
    assert shown[Channel.REFUSAL] == (answer.refusal or "")


# Half characters.


def test_a_character_cut_between_two_deltas_is_joined_before_anybody_sees_it() -> None:
    assembler = Assembler()
    pieces = [assembler.feed(text(part)) for part in ("a\ud83d", "\ude00b", "\ud83d", "\ude00")]
    assert [piece and (piece.offset, piece.text) for piece in pieces] == [
        (0, "a"), (1, "😀b"), None, (3, "😀"),
    ]  # fmt: skip
    assembler.feed(STOP)
    answer = assembler.end()
    assert answer.blocks == (Text(text="a😀b😀"),)
    assert answer.diagnostics == ("split_character",)


def test_a_character_cut_between_two_pieces_of_arguments_is_joined() -> None:
    answer = assemble(
        CallOpened(3, "c", "w"),
        ArgumentsDelta(3, '{"a":"\ud83d'),
        ArgumentsDelta(3, '\ude00"}'),
        TOOLS,
    )
    assert answer.calls[0].arguments == '{"a":"😀"}'


@pytest.mark.parametrize("parts", [("\ud83d", "x"), ("\ude00",), ("x\ud83d",)])
def test_half_a_character_that_stays_alone_is_no_text(parts: tuple[str, ...]) -> None:
    answer = assemble(*map(text, parts), STOP)
    assert withheld(answer) == "malformed_event"
    answer.text.encode()


# Ids that nobody gave.


def test_a_call_without_an_id_gets_one_that_is_the_same_every_time() -> None:
    def made(**options: Any) -> list[str]:
        answer = assemble(
            Opened("h1"), *call(call_id=None), *call(call_id=None, block=4), TOOLS, **options
        )
        assert answer.diagnostics == ("missing_call_id",)
        return [c.call_id for c in answer.calls]

    first = made()
    assert made() == first
    assert len(set(first)) == 2
    assert all(len(i) == 29 and i.startswith("call_") for i in first)
    other = made(known_call_ids=first)
    assert made(known_call_ids=first) == other
    assert len(set(other)) == 2
    assert not set(other) & set(first)


# Tools that were declared.


@pytest.mark.req("M5", "M72", "M144")
def test_a_call_that_fits_no_declared_tool_is_committed_and_never_released() -> None:
    check = compile_schema({"type": "object", "required": ["city"]})
    answer = assemble(
        *call(),
        *call("{}", "c2", block=4),
        *call("{}", "c3", "unheard_of", block=5),
        TOOLS,
        tools={"weather": check},
    )
    assert answer.committable
    assert [c.call_id for c in answer.calls] == ["c1", "c2", "c3"]
    assert [c.call_id for c in answer.released] == ["c1"]
    assert set(answer.problems) == {"c2", "c3"}
    assert [c.schema_digest for c in answer.calls] == [check.digest, check.digest, None]


def test_without_declared_tools_no_call_is_judged() -> None:
    assert assemble(*call("{}"), TOOLS).problems == {}
    assert set(assemble(*call(), TOOLS, tools={}).problems) == {"c1"}


# Every byte of the arguments, every way to end.

ARGUMENTS = '{"city":"Os\\"lo 潮","n":[1,2.50,{"x":null}],"deep":{"a":"}"}}'
WAYS: dict[str, tuple[tuple[Delta, ...], str | None]] = {
    "clean end": ((TOOLS, Ended()), None),
    "stop": ((STOP, Ended()), None),
    "end marker": ((Ended(),), None),
    "length": ((LENGTH, Ended()), None),
    "end of body": ((), None),
    "cut": ((), "connection_reset"),
    "cut after the finish": ((TOOLS,), "connection_reset"),
    "error": ((Failed("server_error", "Sorry."),), None),
}


@pytest.mark.req("M72", "M73", "M82", "M89", "M98")
@pytest.mark.parametrize("way", WAYS)
def test_arguments_cut_after_any_character_release_nothing(way: str) -> None:
    ending, cut = WAYS[way]
    for length in range(1, len(ARGUMENTS)):
        answer = assemble(text("I look."), *call(ARGUMENTS[:length]), *ending, cut=cut)
        withheld(answer)
        assert answer.text == "I look."
        assert [(p.name, p.arguments) for p in answer.partial_calls] == [
            ("weather", ARGUMENTS[:length])
        ]


@pytest.mark.req("M82")
@pytest.mark.parametrize("way", WAYS)
def test_whole_arguments_are_released_only_where_the_end_means_it(way: str) -> None:
    ending, cut = WAYS[way]
    answer = assemble(*call(ARGUMENTS), *ending, cut=cut)
    allowed = way in ("clean end", "stop", "cut after the finish")
    assert [c.arguments for c in answer.released] == ([ARGUMENTS] if allowed else [])
    assert answer.committable is allowed


@pytest.mark.req("M82", "M89")
def test_one_half_call_holds_back_the_whole_one_beside_it() -> None:
    answer = assemble(*call(), *call('{"zone":', "c2", "time", 4), TOOLS)
    assert withheld(answer) == "unclosed_arguments"
    assert [p.call_id for p in answer.partial_calls] == ["c1", "c2"]


# Limits and cost.


@pytest.mark.parametrize(
    ("deltas", "limits"),
    [
        ([text("x" * 60), text("y" * 41), text("z")], Limits(max_answer_bytes=100)),
        ([text("潮" * 34)], Limits(max_answer_bytes=100)),
        ([text("x" * 60), *call('{"a":"' + "y" * 50 + '"}')], Limits(max_answer_bytes=100)),
        ([*call('{"a":"' + "y" * 50 + '"}')], Limits(max_arguments_bytes=50)),
        ([*call(), *call(call_id="c2", block=4), text("x")], Limits(max_blocks=2)),
        ([text("a", block=n) for n in range(9)], Limits(max_blocks=8)),
    ],
)
def test_an_answer_larger_than_the_limit_ends_with_a_clear_error(
    deltas: list[Delta], limits: Limits
) -> None:
    answer = assemble(*deltas, STOP, limits=limits)
    assert withheld(answer) == "answer_too_large"
    assert not answer.retryable


def test_an_answer_of_exactly_the_limit_passes() -> None:
    assert assemble(text("潮" * 33 + "!"), STOP, limits=Limits(max_answer_bytes=100)).committable
    size = len(CITY)
    assert assemble(*call(), TOOLS, limits=Limits(max_arguments_bytes=size)).committable


def test_after_the_limit_nothing_more_is_kept() -> None:
    assembler = Assembler(limits=Limits(max_answer_bytes=10))
    for _ in range(1000):
        assembler.feed(text("xxxx"))
    assert assembler.end().text == "xxxxxxxx"


def test_arguments_are_parsed_once_however_many_pieces_they_come_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed: list[int] = []

    def counted(arguments: str) -> Worth:
        parsed.append(len(arguments))
        return worth(arguments)

    monkeypatch.setattr(assembler_module, "worth", counted)
    arguments = '{"a":"' + "x" * 20_000 + '"}'
    pieces = [ArgumentsDelta(3, arguments[i : i + 4]) for i in range(0, len(arguments), 4)]
    assert assemble(CallOpened(3, "c1", "w"), *pieces, TOOLS).committable
    assert parsed == [len(arguments)]


class Joining(list[str]):
    """Parts that count how many characters are taken out of them."""

    read = 0

    def __iter__(self) -> Iterator[str]:
        Joining.read += sum(map(len, super().__iter__()))
        return super().__iter__()


def characters_read(count: int) -> int:
    assembler = Assembler()
    for delta in (text("", block=1), CallOpened(3, "c1", "w")):
        assembler.feed(delta)
    for held in assembler._blocks.values():
        held.parts = Joining()
    Joining.read = 0
    assembler.feed(ArgumentsDelta(3, '{"a":"'))
    for _ in range(count):
        assembler.feed(text("words "))
        assembler.feed(ArgumentsDelta(3, "word"))
    assembler.feed(ArgumentsDelta(3, '"}'))
    assembler.feed(TOOLS)
    assert assembler.end().committable
    return Joining.read


def test_four_times_the_deltas_cost_four_times_the_reading() -> None:
    small, large = characters_read(1250), characters_read(5000)
    assert small > 0
    assert large <= 4.1 * small


def test_an_answer_is_a_value() -> None:
    answer = assemble(text("x"), STOP)
    with pytest.raises(AttributeError):
        answer.text = "y"  # type: ignore[misc]
    assert msgspec.structs.asdict(answer)["committable"] is True
