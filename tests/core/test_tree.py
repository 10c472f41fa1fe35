"""The tree: one line for the model, closed points, deletions, siblings."""

from __future__ import annotations

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
    Trust,
)
from antiphon.core.ids import CallId, ConversationId, MessageId
from antiphon.core.tree import (
    last_closed_point,
    line,
    nearest_visible,
    open_calls,
    siblings,
    walk,
    with_results,
)
from antiphon.errors import Refused

HERE = ConversationId("conv_a")


def node(
    name: str,
    parent: str | None = None,
    role: Role = Role.USER,
    *blocks: Block,
    status: Status = Status.SUCCESS,
    conversation: ConversationId = HERE,
) -> Message:
    return Message(
        id=MessageId(name),
        conversation=conversation,
        parent=MessageId(parent) if parent else None,
        role=role,
        blocks=blocks or (Text(text=name),),
        origin=Origin.CLIENT,
        trust=Trust.USER,
        status=status,
    )


def call(name: str) -> ToolCall:
    return ToolCall(call_id=CallId(name), name="f", arguments="{}")


def result(name: str) -> ToolResult:
    return ToolResult(call_id=CallId(name))


TALK = [
    node("u1"),
    node("a1", "u1", Role.ASSISTANT, call("c1"), call("c2")),
    node("t1", "a1", Role.TOOL, result("c1"), result("c2")),
    node("a2", "t1", Role.ASSISTANT),
    node("u2", "a2"),
]


@pytest.mark.req("M127")
def test_a_walk_returns_the_ancestors_root_first() -> None:
    by_id = {m.id: m for m in [*TALK, node("stray", "u1", Role.ASSISTANT)]}
    assert [m.id for m in walk(HERE, MessageId("a2"), by_id.get)] == ["u1", "a1", "t1", "a2"]


@pytest.mark.req("M127")
@pytest.mark.parametrize(
    ("nodes", "code", "at"),
    [
        ([node("a", "b"), node("b", "a")], "cycle", "a"),
        ([node("a", "a")], "cycle", "a"),
        ([node("a", "gone")], "missing_parent", "gone"),
        (
            [node("a", "b"), node("b", conversation=ConversationId("conv_other"))],
            "foreign_parent",
            "b",
        ),
    ],
)
def test_a_broken_tree_is_an_error_at_its_place_and_never_a_silent_stop(
    nodes: list[Message], code: str, at: str
) -> None:
    by_id = {m.id: m for m in nodes}
    with pytest.raises(Refused) as caught:
        walk(HERE, MessageId("a"), by_id.get)
    assert (caught.value.code, caught.value.at) == (code, at)


@pytest.mark.req("M22", "M3", "M126")
def test_a_line_holds_committed_messages_and_one_pending_input_at_its_end() -> None:
    path = [
        node("u1"),
        node("bad", "u1", Role.ASSISTANT, status=Status.CANCELED),
        node("failed", "bad", status=Status.ERROR),
        node("early", "failed", status=Status.PENDING),
        node("u2", "early", status=Status.PENDING),
    ]
    assert [m.id for m in line(path, ())] == ["u1", "u2"]


def test_a_line_skips_what_was_deleted() -> None:
    assert [m.id for m in line(TALK, {MessageId("u1")})] == ["a1", "t1", "a2", "u2"]


@pytest.mark.req("M129")
@pytest.mark.parametrize(
    ("upto", "closed"),
    [(0, None), (1, "u1"), (2, "u1"), (3, "t1"), (4, "a2"), (5, "u2")],
)
def test_the_default_parent_is_the_newest_committed_message_with_no_call_open(
    upto: int, closed: str | None
) -> None:
    assert last_closed_point(TALK[:upto]) == closed


def test_an_assistant_message_whose_calls_are_half_answered_is_not_closed() -> None:
    half = [*TALK[:2], node("t1", "a1", Role.TOOL, result("c1"))]
    assert last_closed_point(half) == "u1"
    assert open_calls(half) == ("c2",)


@pytest.mark.parametrize("status", [Status.ERROR, Status.CANCELED, Status.PENDING])
def test_what_failed_was_canceled_or_is_pending_is_never_a_parent(status: Status) -> None:
    assert last_closed_point([*TALK, node("x", "u2", Role.ASSISTANT, status=status)]) == "u2"


def test_siblings_are_alternatives_of_the_same_role() -> None:
    a, b = node("a", "p", Role.ASSISTANT), node("b", "p", Role.ASSISTANT, status=Status.CANCELED)
    assert siblings(b, [a, node("u", "p"), b]) == ("a", "b")


def test_an_input_that_is_still_worked_on_is_an_alternative_already() -> None:
    old, new = node("a", "p"), node("b", "p", status=Status.PENDING)
    assert siblings(old, [old, new]) == siblings(new, [old, new]) == ("a", "b")


def test_the_nearest_visible_ancestor_stands_in_for_a_deleted_one() -> None:
    assert nearest_visible(TALK, {MessageId("u2"), MessageId("a2")}) == "t1"
    assert nearest_visible(TALK, {m.id for m in TALK}) is None


@pytest.mark.req("M39")
@given(st.sets(st.sampled_from([m.id for m in TALK])))
def test_a_deletion_takes_a_call_and_its_results_together(wanted: set[MessageId]) -> None:
    left = [m for m in TALK if m.id not in with_results(wanted, TALK)]
    calls = {c.call_id for m in left for c in m.calls}
    results = {r.call_id for m in left for r in m.results}
    assert calls == results
    assert wanted <= with_results(wanted, TALK)
