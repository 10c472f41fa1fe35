"""Repair of a broken history: legal afterwards, listed, and nothing in it made up."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.blocks import Message, Origin, Outcome, Role, Text, ToolResult
from antiphon.core.rules.graph import check
from antiphon.core.rules.repair import RESULT_MISSING, listed, repair
from tests.support.lines import answer, asks, call, line, model, system, user

MENDED = frozenset(
    {
        "missing_tool_result",
        "orphan_tool_result",
        "duplicate_tool_result",
        "result_before_call",
        "duplicate_call_id",
        "unclosed_arguments",
        "malformed_item",
        "tool_mismatch",
        "generation_mismatch",
    }
)
"""What a repair leaves none of; written down here once more, by hand."""


def told(messages: tuple[Message, ...]) -> list[str]:
    """Write a line down, one word a block."""
    words = []
    for message in messages:
        for block in message.blocks:
            match block:
                case ToolResult(call_id=call_id, code=code):
                    words.append(f"{call_id}={'?' if code == RESULT_MISSING else '.'}")
                case Text(text=text):
                    words.append(text)
                case _:
                    words.append(f"{getattr(block, 'call_id', '')}()")
    return words


def made(*messages: Message) -> list[tuple[str, str]]:
    return [(one.change.value, one.reason) for one in repair(line(*messages)).repairs]


def test_a_whole_history_comes_back_as_the_very_same_values() -> None:
    whole = line(system(), user("Hi"), asks("c1", "c2"), answer("c2"), answer("c1"), model("Done"))
    repaired = repair(whole)
    assert repaired.repairs == ()
    assert all(one is other for one, other in zip(repaired.messages, whole, strict=True))


def test_a_call_without_a_result_gets_one_that_says_that_its_fate_is_unknown() -> None:
    repaired = repair(line(user("Hi"), asks("c1", "c2"), answer("c1"), user("Well?")))
    assert told(repaired.messages) == ["Hi", "c1()", "c2()", "c1=.", "c2=?", "Well?"]
    added = repaired.messages[3].results[0]
    assert (added.outcome, added.code) == (Outcome.ERROR, RESULT_MISSING)
    assert isinstance(added.content[0], Text)
    assert "may have taken effect" in added.content[0].text
    assert repaired.messages[3].origin is Origin.SYSTEM
    assert [listed(one).rule for one in repaired.repairs] == ["repair_result_added"]
    assert listed(repaired.repairs[0]).detail == "missing_tool_result: c2"


def test_a_result_that_answers_nothing_goes_and_the_second_of_one_call_too() -> None:
    assert made(user("Hi"), answer("c9"), user("Well?")) == [
        ("result_removed", "orphan_tool_result")
    ]
    repaired = repair(line(user("Hi"), asks("c1"), answer("c1"), answer("c1"), user("Well?")))
    assert told(repaired.messages) == ["Hi", "c1()", "c1=.", "Well?"]
    assert [one.reason for one in repaired.repairs] == ["duplicate_tool_result"]


def test_a_result_before_its_call_is_moved_behind_it() -> None:
    repaired = repair(line(user("Hi"), answer("c1"), asks("c1"), user("Well?")))
    assert told(repaired.messages) == ["Hi", "c1()", "c1=.", "Well?"]
    assert [one.change.value for one in repaired.repairs] == ["result_moved"]


def test_a_call_that_was_cut_goes_with_its_message_and_its_result() -> None:
    cut = asks(call("c1", arguments='{"city":'))
    repaired = repair(line(user("Hi"), cut, answer("c1"), user("Well?")))
    assert told(repaired.messages) == ["Hi", "Well?"]
    assert [one.reason for one in repaired.repairs] == ["unclosed_arguments", "orphan_tool_result"]


def test_the_second_call_of_an_id_gets_another_and_keeps_its_own_result() -> None:
    repaired = repair(
        line(user("Hi"), asks("c1"), answer("c1"), asks("c1"), answer("c1"), user("Well?"))
    )
    assert told(repaired.messages) == ["Hi", "c1()", "c1=.", "c1_2()", "c1_2=.", "Well?"]
    assert [one.change.value for one in repaired.repairs] == ["call_renamed"]


def test_where_nobody_can_say_whose_result_it_is_both_fates_are_unknown() -> None:
    two = asks(call("c1", arguments='{"city":"Oslo"}'), call("c1", arguments='{"city":"Rome"}'))
    repaired = repair(line(user("Hi"), two, answer("c1"), user("Well?")))
    assert told(repaired.messages) == ["Hi", "c1()", "c1_2()", "c1=?", "c1_2=?", "Well?"]


def test_a_result_under_another_tools_name_is_not_the_calls() -> None:
    swapped = answer("c1", name="other")
    assert made(user("Hi"), asks("c1"), swapped, user("Well?")) == [
        ("result_added", "missing_tool_result"),
        ("result_removed", "tool_mismatch"),
    ]


def test_a_message_of_nothing_goes_unless_it_is_the_one_that_is_asked() -> None:
    nothing = msgspec.structs.replace(user(), blocks=())
    assert made(user("Hi"), nothing, user("Well?")) == [("message_removed", "empty_content")]
    assert made(user("Hi"), nothing) == []


IDS = st.sampled_from(["a", "b", "c", ""])
MESSAGES = st.one_of(
    st.builds(lambda text: user(text), st.sampled_from(["Hi", "Well?"])),
    st.builds(lambda text: model(text), st.sampled_from(["Yes", "No"])),
    st.builds(
        lambda calls: asks(*calls),
        st.lists(
            st.builds(
                lambda name, arguments: call(name, arguments=arguments),
                IDS,
                st.sampled_from(["{}", '{"x":1}', '{"x":', ""]),
            ),
            min_size=1,
            max_size=3,
        ),
    ),
    st.builds(
        lambda name, tool: answer(name, name=tool), IDS, st.sampled_from([None, "look", "other"])
    ),
)


@pytest.mark.req("M34", "M88")
@given(st.lists(MESSAGES, min_size=1, max_size=12))
def test_whatever_was_brought_is_legal_afterwards_and_needs_no_second_repair(
    messages: list[Message],
) -> None:
    brought = line(*messages, user("Then?"))
    once = repair(brought)
    assert not {finding.code for finding in check(once.messages)} & MENDED
    again = repair(once.messages)
    assert again.repairs == ()
    assert again.messages == once.messages
    assert repair(brought) == once
    said = [m.text for m in brought if m.role in (Role.USER, Role.ASSISTANT) and m.text]
    assert [m.text for m in once.messages if m.text] == said  # nobody's words are touched
    had = {b.call_id for m in brought for b in m.results}
    known = {one.call_id for one in once.repairs if one.change == "call_renamed"}
    for message in once.messages:
        for block in message.results:
            assert block.code == RESULT_MISSING or block.call_id in had | known
    if not check(brought):
        assert once.repairs == ()
