"""What goes from one session into the next, and what stays behind."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.blocks import (
    Block,
    Message,
    Origin,
    Role,
    Status,
    Text,
    ToolCall,
    ToolResult,
    default_trust,
)
from antiphon.core.ids import CallId, ConversationId, MessageId, OperationId, SessionId
from antiphon.core.inputs import Retrieved, Summary
from antiphon.core.knowledge.retrieval import Beside
from antiphon.core.records import HandOver
from antiphon.core.sessions.handover import (
    PRECIS_CHARACTERS,
    carried,
    copies,
    precis,
    structural,
    summarized,
    with_precis,
    without_control,
)
from antiphon.core.tree import open_calls

CONVERSATION = ConversationId("c")


def line(*said: tuple[Role, tuple[Block, ...]]) -> list[Message]:
    messages: list[Message] = []
    for number, (role, blocks) in enumerate(said):
        messages.append(
            Message(
                id=MessageId(f"m{number}"),
                conversation=CONVERSATION,
                parent=messages[-1].id if messages else None,
                role=role,
                blocks=blocks,
                origin=Origin.CLIENT,
                trust=default_trust(role, Origin.CLIENT),
            )
        )
    return messages


def words(text: str) -> tuple[Block, ...]:
    return (Text(text=text),)


def call(name: str, call_id: str) -> ToolCall:
    return ToolCall(call_id=CallId(call_id), name=name, arguments="{}")


def result(call_id: str) -> ToolResult:
    return ToolResult(call_id=CallId(call_id), content=(Text(text="done"),))


@st.composite
def lines(draw: st.DrawFn) -> list[Message]:
    """Turns of any length: words, tools, switches of older days, switches beside tools."""
    said: list[tuple[Role, tuple[Block, ...]]] = []
    numbers = itertools.count()
    if draw(st.booleans()):
        said.append((Role.SYSTEM, words("Be brief.")))
    for _ in range(draw(st.integers(0, 8))):
        said.append((Role.USER, words(draw(st.text(max_size=5)))))
        for names in draw(
            st.lists(
                st.lists(
                    st.sampled_from(["look", "session_switch", "session::switch"]),
                    min_size=1,
                    max_size=3,
                ),
                max_size=4,
            )
        ):
            calls = [call(name, f"c{next(numbers)}") for name in names]
            before: tuple[Block, ...] = words("I look.") if draw(st.booleans()) else ()
            said.append((Role.ASSISTANT, (*before, *calls)))
            said.append((Role.TOOL, tuple(result(one.call_id) for one in calls)))
        if draw(st.booleans()):
            said.append((Role.ASSISTANT, words("So it is.")))
    return line(*said)


@pytest.mark.req("M159", "M165", "M166")
@given(lines(), st.integers(0, 25))
def test_what_is_carried_is_bounded_whole_and_without_a_trace_of_a_switch(
    old: list[Message], most: int
) -> None:
    taken = carried(old, most)
    talk = [m for m in taken if m.role is not Role.SYSTEM]
    assert len(talk) <= most
    assert not talk or talk[0].role is Role.USER
    assert open_calls(taken) == ()
    asked = [c.call_id for m in taken for c in m.calls]
    answered = [r.call_id for m in taken for r in m.results]
    assert sorted(asked) == sorted(answered)
    assert {c.name for m in taken for c in m.calls} <= {"look"}
    assert all(m.blocks for m in taken)
    assert [m.id for m in taken if m.role is Role.SYSTEM] == [
        m.id for m in old if m.role is Role.SYSTEM
    ]
    # The newest turn that fits is there, and nothing between it and the end is left out.
    ids = [m.id for m in without_control(old) if m.role is not Role.SYSTEM]
    assert [m.id for m in talk] == ids[len(ids) - len(talk) :]


@pytest.mark.req("M167")
@given(lines(), st.integers(0, 3))
def test_the_turn_that_is_being_answered_goes_along_whole_however_long(
    old: list[Message], most: int
) -> None:
    users = [m for m in old if m.role is Role.USER]
    if not users:
        return
    taken = carried(old, most, current=users[-1].id)
    clean = without_control(old)
    now = next(n for n, m in enumerate(clean) if m.id == users[-1].id)
    assert [m.id for m in taken][-len(clean[now:]) :] == [m.id for m in clean[now:]]


@pytest.mark.req("M165", "M166")
def test_a_switch_goes_with_its_result_and_its_neighbours_stay() -> None:
    old = line(
        (Role.USER, words("Look, then cook.")),
        (Role.ASSISTANT, (Text(text="Wait."), call("look", "c1"), call("session_switch", "c2"))),
        (Role.TOOL, (result("c2"), result("c1"))),
        (Role.ASSISTANT, (call("session::switch", "c3"),)),
        (Role.TOOL, (result("c3"),)),
    )
    clean = without_control(old)
    assert [m.id for m in clean] == ["m0", "m1", "m2"]
    assert [c.call_id for c in clean[1].calls] == ["c1"]
    assert [r.call_id for r in clean[2].results] == ["c1"]
    assert clean[1].text == "Wait."


@pytest.mark.req("M159", "M165")
def test_copies_stand_under_the_last_real_message_and_say_whose_they_are() -> None:
    old = line((Role.USER, words("a")), (Role.ASSISTANT, words("b")), (Role.USER, words("c")))
    ids = iter("xyz")
    made = copies(
        [old[0], old[2]],
        conversation=CONVERSATION,
        session=SessionId("s2"),
        new_id=lambda: MessageId(next(ids)),
    )
    assert [(m.id, m.parent, m.copied_from) for m in made] == [("x", None, "m0"), ("y", "x", "m2")]
    assert {(m.session, m.origin, m.status, m.run) for m in made} == {
        ("s2", Origin.COPIED, Status.SUCCESS, None)
    }


@pytest.mark.req("M158")
def test_a_hand_over_reads_identifiers_the_last_answer_and_what_is_still_asked() -> None:
    old = line(
        (Role.USER, words("Check item A-17 and invoice_2024.pdf, see #88.")),
        (Role.ASSISTANT, words("A-17 is wrong; the rest is right.")),
        (Role.USER, words("Then mend it, and tell Ann.")),
    )
    left = structural("Check the items.", old)
    assert set(left.identifiers) == {"A-17", "invoice_2024.pdf", "#88"}
    assert left.facts == ("A-17 is wrong; the rest is right.",)
    assert left.open == ("Then mend it, and tell Ann.",)
    told = precis(left, None)
    for word in ("Check the items.", "A-17", "invoice_2024.pdf", "tell Ann"):
        assert word in told


@pytest.mark.req("M158", "M160")
@given(st.lists(st.text(max_size=6_000), max_size=6))
def test_a_chain_of_sessions_is_carried_on_and_stays_bounded(summaries: list[str]) -> None:
    before: str | None = None
    for text in summaries:
        left = summarized(HandOver(goal="A goal."), text, OperationId("op_1"))
        before = precis(left, before)
        assert len(before) <= PRECIS_CHARACTERS
        assert before.startswith("Earlier task: A goal.")


@pytest.mark.req("M159")
def test_a_precis_stands_first_and_takes_the_place_of_the_one_before() -> None:
    found = Retrieved(id="r1", text="t", source="s", scope="c")
    old = Summary(id="precis:s1", text="old", scope="s1")
    beside = with_precis(Beside(inputs=(old, found)), SessionId("s2"), "new")
    assert beside is not None
    assert [(block.id, block.text) for block in beside.inputs] == [
        ("precis:s2", "new"),
        ("r1", "t"),
    ]
    assert with_precis(None, SessionId("s2"), None) is None
    without = with_precis(Beside(inputs=(old, found)), SessionId("s2"), None)
    assert without is not None
    assert without.inputs == (found,)
