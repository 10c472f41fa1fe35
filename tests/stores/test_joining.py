"""Contract: a message that steers joins the run that works, between two of its steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from antiphon.core.answers.judging import Verdict
from antiphon.core.blocks import Origin, Status
from antiphon.core.commands import AskAgain, CancelRun, Fence, MoveHead, Then
from antiphon.core.events import HeadMoved, Placed, RunChanged, decode_event
from antiphon.core.ids import MessageId, RunId
from antiphon.core.records import RunStatus
from tests.stores.talk import START_MS, Talk


async def between_steps(talk: Talk, *, steer: bool = True) -> None:
    """`run_1` has placed the results of its first step; `run_2` waits in the queue."""
    await talk.answered(calls=("call_1",), then=Then.CONTINUE)
    await talk.do(talk.start("run_2", "m2", steer=steer))
    await talk.do(talk.start_call("run_1", "call_1"))
    await talk.do(talk.finish_call("run_1", "call_1"))
    await talk.do(talk.place_results("run_1", "r1"))


@pytest.mark.req("M131")
async def test_a_joining_message_follows_the_results_and_its_run_has_ended(talk: Talk) -> None:
    await between_steps(talk)
    before = await talk.row()
    joined = await talk.do(talk.join("run_2", "run_1", "r1"))
    assert (joined.status, joined.end_code, joined.leaf) == (RunStatus.SUCCESS, "joined", "m2")
    message = await talk.store.message(talk.conversation, MessageId("m2"))
    assert (message.parent, message.status, message.run) == ("r1", Status.SUCCESS, "run_2")
    working = await talk.run("run_1")
    assert (working.status, working.leaf) == (RunStatus.PENDING, "m2")
    row = await talk.row()
    assert (row.slot, row.revision, row.head) == ("run_1", before.revision + 1, "m2")
    events = await talk.store.events(talk.conversation, before.last_event)
    told = [decode_event(stored.data) for stored in events]
    assert told == [
        Placed(run=RunId("run_2"), message=MessageId("m2"), parent=MessageId("r1")),
        RunChanged(
            run=RunId("run_2"), status=RunStatus.SUCCESS, code="joined", into=RunId("run_1")
        ),
        HeadMoved(head=MessageId("m2")),
    ]


async def test_the_same_message_again_is_the_run_that_joined(talk: Talk) -> None:
    await between_steps(talk)
    await talk.do(talk.join("run_2", "run_1", "r1"))
    again = await talk.do(talk.start("run_3", "m2", steer=True))
    assert (again.id, again.end_code) == ("run_2", "joined")


async def test_the_head_stays_where_a_person_has_moved_it(talk: Talk) -> None:
    await between_steps(talk)
    await talk.do(MoveHead(**talk.head(), head=MessageId("m1")))
    await talk.do(talk.join("run_2", "run_1", "r1"))
    assert (await talk.row()).head == "m1"


async def test_only_a_queued_run_that_asked_for_it_joins(talk: Talk) -> None:
    await between_steps(talk, steer=False)
    assert await talk.denied(talk.join("run_2", "run_1", "r1")) == "run_queued"
    await talk.do(talk.start("run_3", "m3", steer=True))
    await talk.do(CancelRun(**talk.head(), run=RunId("run_3"), reason="user"))
    assert await talk.denied(talk.join("run_3", "run_1", "r1")) == "run_queued"


async def test_nothing_joins_within_a_step(talk: Talk) -> None:
    await talk.answered(calls=("call_1",), then=Then.CONTINUE)
    await talk.do(talk.start("run_2", "m2", steer=True))
    assert await talk.denied(talk.join("run_2", "run_1", "a1")) == "open_calls"
    await talk.do(talk.start_call("run_1", "call_1"))
    await talk.do(talk.finish_call("run_1", "call_1"))
    # Its result is known and not in the tree: what followed the answer would stand before it.
    assert await talk.denied(talk.join("run_2", "run_1", "a1")) == "open_calls"


async def test_nothing_joins_a_call_under_way_or_a_run_that_has_not_answered(talk: Talk) -> None:
    await talk.placed()
    await talk.do(talk.start("run_2", "m2", steer=True))
    assert await talk.denied(talk.join("run_2", "run_1", "m1")) == "run_pending"


async def test_nothing_joins_while_the_next_step_is_dispatched(talk: Talk) -> None:
    await between_steps(talk)
    row = await talk.row()
    await talk.do(talk.prepare("run_1", "op_2", base="r1", revision=row.revision, answer="a2"))
    await talk.do(talk.accept("op_2"))
    assert await talk.denied(talk.join("run_2", "run_1", "r1")) == "no_active_operation"


async def test_only_the_owner_lets_a_message_join_and_only_at_the_leaf(talk: Talk) -> None:
    await between_steps(talk)
    assert await talk.denied(talk.join("run_2", "run_1", "a1")) == "leaf"
    old = talk.fence
    await talk.store.join(old.node, None, START_MS)
    assert await talk.denied(talk.join("run_2", "run_1", "r1")) == "caller_current"
    talk.fence = Fence(node=old.node, epoch=old.epoch + 1)
    await talk.do(talk.join("run_2", "run_1", "r1"))


# Asking again.


async def misfit(talk: Talk) -> None:
    """`run_1` has committed an answer that does not fit what was asked for."""
    await talk.streaming()
    commit = replace(
        talk.commit("op_1", 1, talk.answer("a1"), then=Then.CONTINUE),
        end_code="schema_mismatch",
        verdict=Verdict(fits=False, at="city", rule="type"),
    )
    await talk.do(commit)


def asking_again(talk: Talk) -> AskAgain:
    return AskAgain(
        **talk.head(),
        run=RunId("run_1"),
        message=talk.message("n1", "It does not fit.", origin=Origin.SYSTEM),
        parent=MessageId("a1"),
        fence=talk.fence,
    )


@pytest.mark.req("M104")
async def test_why_an_answer_does_not_do_follows_it_and_the_run_goes_on(talk: Talk) -> None:
    await misfit(talk)
    before = await talk.row()
    run = await talk.do(asking_again(talk))
    assert (run.status, run.leaf, run.end_code) == (RunStatus.PENDING, "n1", "answer_retried")
    message = await talk.store.message(talk.conversation, MessageId("n1"))
    assert (message.parent, message.status, message.run) == ("a1", Status.SUCCESS, "run_1")
    row = await talk.row()
    assert (row.slot, row.revision, row.head) == ("run_1", before.revision + 1, "n1")


async def test_an_answer_is_asked_for_again_once(talk: Talk) -> None:
    await misfit(talk)
    await talk.do(asking_again(talk))
    again = replace(asking_again(talk), message=talk.message("n2"), parent=MessageId("n1"))
    assert await talk.denied(again) == "end_code"


async def test_an_answer_that_fits_is_not_asked_for_again(talk: Talk) -> None:
    await talk.streaming()
    await talk.do(talk.commit("op_1", 1, talk.answer("a1"), then=Then.CONTINUE))
    assert await talk.denied(asking_again(talk)) == "end_code"
