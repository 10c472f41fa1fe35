"""Where a run's input goes, and when it has to wait."""

from __future__ import annotations

import pytest

from antiphon.core.blocks import Message, Role
from antiphon.core.ids import CallId, ConversationId, Digest, MessageId, RunId
from antiphon.core.placement import CannotPlace, PlaceAt, StayQueued, place, refuses_new_text
from antiphon.core.records import Run, RunKind, RunOptions, RunStatus
from tests.core.test_tree import TALK, call, node, result

ASKED = [
    node("u1"),
    node("a1", "u1", Role.ASSISTANT, call("c1")),
]


def run(
    name: str = "run_new",
    status: RunStatus = RunStatus.QUEUED,
    parent: str | None = None,
    *,
    at_root: bool = False,
) -> Run:
    return Run(
        id=RunId(name),
        conversation=ConversationId("conv_a"),
        kind=RunKind.SEND,
        status=status,
        options=RunOptions(model="m", policy_digest=Digest("p"), toolset_digest=Digest("t")),
        input=MessageId("new"),
        asked_parent=MessageId(parent) if parent else None,
        at_root=at_root,
        session=None,
        leaf=None,
        head_left=None,
        answer=None,
        committed=0,
        node=None,
        epoch=0,
        error_code=None,
        end_code=None,
        input_tokens=0,
        output_tokens=0,
        created_ms=0,
        started_ms=None,
        ended_ms=None,
        seq=1,
    )


def of_run(messages: list[Message], name: str) -> list[Message]:
    import msgspec

    return [msgspec.structs.replace(m, run=RunId(name)) for m in messages]


@pytest.mark.req("M129")
def test_without_a_parent_it_goes_to_the_last_closed_point() -> None:
    assert place(run(), TALK[:4], ()) == PlaceAt(MessageId("a2"))
    assert place(run(), (), ()) == PlaceAt(None)


def test_a_parent_that_was_asked_for_is_taken() -> None:
    assert place(run(parent="a2"), TALK[:4], ()) == PlaceAt(MessageId("a2"))


def test_a_root_that_was_asked_for_is_taken() -> None:
    assert place(run(at_root=True), TALK, ()) == PlaceAt(None)


@pytest.mark.parametrize("line", [[], TALK[:3]])
def test_a_parent_that_left_the_line_ends_the_run_with_a_reason(line: list[Message]) -> None:
    placed = place(run(parent="a2"), line, ())
    assert isinstance(placed, CannotPlace)
    assert placed.code == "uncommitted_block"


@pytest.mark.req("M139")
@pytest.mark.parametrize("parent", [None, "a1"])
def test_what_was_queued_waits_while_another_run_owes_results_to_the_line(
    parent: str | None,
) -> None:
    waiting = run("run_w", RunStatus.WAITING)
    placed = place(run(parent=parent), of_run(ASKED, "run_w"), [waiting])
    assert placed == StayQueued((CallId("c1"),))


def test_calls_that_nobody_will_close_are_stepped_over() -> None:
    assert place(run(), of_run(ASKED, "run_dead"), ()) == PlaceAt(MessageId("u1"))


def test_a_parent_whose_calls_nobody_will_close_is_refused() -> None:
    placed = place(run(parent="a1"), of_run(ASKED, "run_dead"), ())
    assert isinstance(placed, CannotPlace)
    assert placed.code == "missing_tool_result"


def test_a_waiting_run_refuses_new_text_on_its_own_line_only() -> None:
    waiting = run("run_w", RunStatus.WAITING)
    assert refuses_new_text(of_run(ASKED, "run_w"), [waiting]) == ("c1",)
    assert refuses_new_text(of_run(ASKED[:1], "run_w"), [waiting]) == ()
    answered = [*ASKED, node("t1", "a1", Role.TOOL, result("c1"))]
    assert refuses_new_text(of_run(answered, "run_w"), [waiting]) == ()
