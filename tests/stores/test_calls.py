"""Contract: the ledger. A call has one row, and the row takes one terminal result."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import msgspec
import pytest

from antiphon.core.blocks import Outcome, Role, Text, Trust
from antiphon.core.commands import (
    CancelRun,
    FinishCall,
    LoseCall,
    MoveHead,
    NewCall,
    StartCall,
    Then,
)
from antiphon.core.dispatch import Denied
from antiphon.core.ids import CallId, MessageId, NodeId, RunId
from antiphon.core.records import Call, CallState, Runner, RunStatus
from antiphon.errors import InvalidInput, NotFound
from tests.stores.talk import DEADLINE_MS, START_MS, Talk, a_digest


async def asked(talk: Talk, *calls: str, then: Then = Then.CONTINUE) -> None:
    """A run whose committed answer asks for these calls."""
    await talk.answered(calls=calls or ("call_1",), then=then)


async def call(talk: Talk, name: str = "call_1") -> Call:
    rows = await talk.store.calls(talk.conversation, RunId("run_1"))
    return next(row for row in rows if row.call_id == name)


@pytest.mark.req("M5", "M68", "M72", "M89", "M98")
async def test_calls_are_born_in_the_commit_and_not_before(talk: Talk) -> None:
    await talk.streaming()
    assert await talk.store.calls(talk.conversation, RunId("run_1")) == []
    with pytest.raises(NotFound):
        await talk.store.do(talk.start_call("run_1", "call_1"))
    message = talk.answer("a1", "call_1", "call_2")
    await talk.do(talk.commit("op_1", 1, message, then=Then.CONTINUE, runner=Runner.CLIENT))
    first, second = await talk.store.calls(talk.conversation, RunId("run_1"))
    assert (first.call_id, first.order, first.state) == ("call_1", 0, CallState.PENDING)
    assert (second.call_id, second.order) == ("call_2", 1)
    assert (first.name, first.arguments, first.generation) == ("weather", '{"at":"Oslo"}', 1)
    assert (first.message, first.runner, first.attempt) == ("a1", Runner.CLIENT, 0)
    assert first.arguments_digest == a_digest('{"at":"Oslo"}')
    assert first.idempotency_key == "key-call_1"
    only = await talk.store.calls(talk.conversation, RunId("run_1"), MessageId("a1"))
    assert only == [first, second]
    assert await talk.store.calls(talk.conversation, RunId("run_1"), MessageId("m1")) == []


@pytest.mark.req("M33")
async def test_a_run_cannot_have_two_calls_of_one_id(talk: Talk) -> None:
    await talk.streaming()
    twice = talk.answer("a1", "call_1", "call_1")
    assert await talk.denied(talk.commit("op_1", 1, twice, then=Then.CONTINUE)) == "call_id"
    assert (await talk.row()).revision == 1


async def test_a_call_that_must_not_run_is_born_with_its_error(talk: Talk) -> None:
    await talk.streaming()
    commit = talk.commit("op_1", 1, talk.answer("a1", "call_1"), then=Then.CONTINUE)
    born = NewCall(
        call_id=CallId("call_1"),
        name="weather",
        arguments="{}",
        arguments_digest=a_digest("{}"),
        runner=Runner.FUNCTION,
        code="unknown_tool",
        content=(Text(text="There is no such tool."),),
    )
    await talk.do(replace(commit, calls=(born,)))
    row = await call(talk)
    assert (row.state, row.code, row.content) == (CallState.ERROR, "unknown_tool", born.content)
    assert row.ended_ms is not None
    assert await talk.denied(talk.start_call("run_1", "call_1")) == "call_state"
    await talk.do(talk.place_results("run_1", "r1"))


@pytest.mark.req("M34")
async def test_a_call_is_executing_before_it_runs_and_takes_its_executors_result(
    talk: Talk,
) -> None:
    await asked(talk)
    started = await talk.do(talk.start_call("run_1", "call_1"))
    assert (started.state, started.attempt) == (CallState.EXECUTING, 1)
    assert (started.node, started.epoch) == (talk.fence.node, talk.fence.epoch)
    assert started == await call(talk)
    ended = await talk.do(talk.finish_call("run_1", "call_1", "rain", code="ok"))
    assert (ended.state, ended.code, ended.content) == (
        CallState.SUCCESS,
        "ok",
        (Text(text="rain"),),
    )
    assert ended == await call(talk)


@pytest.mark.req("M34", "M40", "M80")
async def test_the_same_result_again_changes_nothing_and_another_one_is_refused(talk: Talk) -> None:
    await asked(talk)
    await talk.do(talk.start_call("run_1", "call_1"))
    first = await talk.do(talk.finish_call("run_1", "call_1", "rain"))
    assert await talk.do(talk.finish_call("run_1", "call_1", "rain")) == first
    duplicate = "duplicate_tool_result"
    assert await talk.denied(talk.finish_call("run_1", "call_1", "snow")) == duplicate
    again = talk.finish_call("run_1", "call_1", "rain", state=CallState.ERROR)
    assert await talk.denied(again) == duplicate
    assert await call(talk) == first


@pytest.mark.req("M34", "M40")
async def test_of_many_results_for_one_call_exactly_one_is_taken(talk: Talk) -> None:
    await asked(talk)
    answers = await asyncio.gather(
        *(
            talk.store.do(talk.finish_call("run_1", "call_1", f"result {n}", outside=True))
            for n in range(12)
        )
    )
    taken = [answer for answer in answers if isinstance(answer, Call)]
    assert len(taken) == 1
    assert {a.reason for a in answers if isinstance(a, Denied)} == {"duplicate_tool_result"}
    assert await call(talk) == taken[0]


async def test_of_many_that_start_a_call_exactly_one_runs_it(talk: Talk) -> None:
    await asked(talk)
    answers = await asyncio.gather(
        *(talk.store.do(talk.start_call("run_1", "call_1")) for _ in range(8))
    )
    assert sum(isinstance(answer, Call) for answer in answers) == 1
    assert (await call(talk)).attempt == 1


@pytest.mark.req("M39", "M79")
async def test_a_result_for_a_call_that_nobody_asked_for_is_not_found(talk: Talk) -> None:
    await asked(talk)
    with pytest.raises(NotFound):
        await talk.store.do(talk.finish_call("run_1", "call_9", outside=True))


@pytest.mark.req("M36", "M66")
async def test_a_result_needs_the_executors_fence_and_attempt_and_a_late_one_is_put_aside(
    talk: Talk,
) -> None:
    await asked(talk)
    assert await talk.denied(talk.finish_call("run_1", "call_1")) == "call_state"
    await talk.do(talk.start_call("run_1", "call_1"))
    assert await talk.denied(talk.finish_call("run_1", "call_1", attempt=2)) == "owner"
    mine, talk.fence = talk.fence, await talk.store.join(NodeId("node_b"), None, START_MS)
    assert await talk.denied(talk.finish_call("run_1", "call_1", "stolen")) == "owner"
    # While it executes, nobody outside may answer for it.
    outside = talk.finish_call("run_1", "call_1", outside=True)
    assert await talk.denied(outside) == "call_state"
    talk.fence = mine
    aside = await talk.store.quarantine(talk.conversation)
    assert [q.reason for q in aside] == ["late_tool_result"] * 4
    assert "stolen" in aside[2].data
    assert (await talk.do(talk.finish_call("run_1", "call_1"))).state is CallState.SUCCESS


@pytest.mark.req("M34", "M67")
async def test_a_result_that_comes_after_the_cancel_is_kept_aside_and_answers_nothing(
    talk: Talk,
) -> None:
    await asked(talk)
    await talk.do(talk.start_call("run_1", "call_1"))
    await talk.do(CancelRun(**talk.head(), run=RunId("run_1"), reason="user"))
    before = await call(talk)
    row = await talk.row()
    assert await talk.denied(talk.finish_call("run_1", "call_1", "it did happen")) == "run_open"
    (aside,) = await talk.store.quarantine(talk.conversation)
    assert aside.reason == "late_tool_result"
    assert "it did happen" in aside.data
    assert await call(talk) == before
    assert await talk.row() == row


@pytest.mark.req("M36", "M67")
async def test_a_late_result_that_is_tried_with_others_and_then_alone_is_put_aside_once(
    talk: Talk,
) -> None:
    await asked(talk, "call_1", "call_2")
    await talk.do(talk.start_call("run_1", "call_1"))
    results = [talk.finish_call("run_1", name) for name in ("call_1", "call_2")]
    assert isinstance(await talk.store.do_all(*results), Denied)
    assert [(await call(talk, name)).state for name in ("call_1", "call_2")] == [
        CallState.EXECUTING,
        CallState.PENDING,
    ]
    assert (await talk.do(results[0])).state is CallState.SUCCESS
    assert await talk.denied(results[1]) == "call_state"
    assert len(await talk.store.quarantine(talk.conversation)) == 1
    # Another result of it is another thing that somebody may want to know.
    assert await talk.denied(talk.finish_call("run_1", "call_2", "hail")) == "call_state"
    assert len(await talk.store.quarantine(talk.conversation)) == 2


async def test_no_call_is_started_for_a_run_that_has_ended_or_by_a_stale_node(talk: Talk) -> None:
    await asked(talk)
    stale = talk.fence
    talk.fence = await talk.store.join(stale.node, None, START_MS)
    by_stale = StartCall(
        **talk.head(),
        run=RunId("run_1"),
        call_id=CallId("call_1"),
        fence=stale,
        deadline_ms=START_MS,
    )
    assert await talk.denied(by_stale) == "caller_current"
    await talk.do(CancelRun(**talk.head(), run=RunId("run_1"), reason="user"))
    assert await talk.denied(talk.start_call("run_1", "call_1")) == "run_open"


@pytest.mark.parametrize("state", [CallState.PENDING, CallState.EXECUTING, CallState.UNKNOWN])
async def test_a_result_is_terminal_or_it_is_none(talk: Talk, state: CallState) -> None:
    await asked(talk)
    with pytest.raises(InvalidInput):
        await talk.store.do(talk.finish_call("run_1", "call_1", state=state, outside=True))


# Lost executors.


def lose(talk: Talk) -> LoseCall:
    return LoseCall(**talk.head(), run=RunId("run_1"), call_id=CallId("call_1"))


@pytest.mark.parametrize("read_only", [False, True], ids=["may_write", "read_only"])
async def test_a_call_whose_executor_is_gone_runs_again_only_where_that_is_safe(
    talk: Talk, read_only: bool
) -> None:
    await talk.streaming()
    message = talk.answer("a1", "call_1")
    await talk.do(talk.commit("op_1", 1, message, then=Then.CONTINUE, read_only=read_only))
    assert await talk.denied(lose(talk)) == "call_state"
    await talk.do(talk.start_call("run_1", "call_1"))
    assert await talk.denied(lose(talk)) == "owner_or_gone"
    old = talk.fence
    talk.fence = await talk.store.join(old.node, None, START_MS)
    lost = await talk.do(lose(talk))
    run = await talk.run("run_1")
    if read_only:
        assert lost.state is CallState.PENDING
        assert run.status is RunStatus.PENDING
        again = await talk.do(talk.start_call("run_1", "call_1"))
        assert (again.attempt, again.idempotency_key) == (2, "key-call_1")
        # The first executor's result belongs to the first attempt.
        talk.fence = old
        assert await talk.denied(talk.finish_call("run_1", "call_1", attempt=1)) == "owner"
    else:
        assert lost.state is CallState.UNKNOWN
        assert (run.status, run.end_code) == (RunStatus.WAITING, "tool_unknown")
        assert (await talk.row()).slot is None
        told = await talk.do(talk.finish_call("run_1", "call_1", "it rained", outside=True))
        assert told.state is CallState.SUCCESS


async def test_a_call_past_its_deadline_may_be_given_up_by_anyone(talk: Talk) -> None:
    await asked(talk)
    started = await talk.do(talk.start_call("run_1", "call_1"))
    talk.now_ms = started.deadline_ms - 2
    assert await talk.denied(lose(talk)) == "owner_or_gone"
    assert (await talk.do(lose(talk))).state is CallState.UNKNOWN
    assert started.deadline_ms - START_MS > DEADLINE_MS


# Results.


@pytest.mark.req("M34", "M42", "M81", "M146")
async def test_results_enter_the_tree_together_in_the_calls_order_whatever_order_they_came_in(
    talk: Talk,
) -> None:
    await asked(talk, "call_1", "call_2")
    await talk.do(talk.start_call("run_1", "call_2"))
    await talk.do(talk.finish_call("run_1", "call_2", "second", state=CallState.ERROR, code="x"))
    assert await talk.denied(talk.place_results("run_1", "r1")) == "open_calls"
    await talk.do(talk.start_call("run_1", "call_1"))
    await talk.do(talk.finish_call("run_1", "call_1", "first"))
    run = await talk.do(talk.place_results("run_1", "r1"))
    message = await talk.store.message(talk.conversation, MessageId("r1"))
    assert (message.parent, message.role, message.trust) == ("a1", Role.TOOL, Trust.TOOL)
    first, second = message.results
    assert (first.call_id, first.outcome, first.name) == ("call_1", Outcome.SUCCESS, "weather")
    assert (second.call_id, second.outcome, second.code) == ("call_2", Outcome.ERROR, "x")
    assert (first.generation, first.arguments_digest) == (1, a_digest('{"at":"Oslo"}'))
    row = await talk.row()
    assert (row.revision, row.head, row.slot) == (3, "r1", "run_1")
    assert (run.status, run.leaf, run.head_left) == (RunStatus.PENDING, "r1", "r1")


async def test_results_are_placed_once(talk: Talk) -> None:
    await asked(talk)
    await talk.do(talk.finish_call("run_1", "call_1", outside=True))
    run = await talk.do(talk.place_results("run_1", "r1"))
    assert await talk.do(talk.place_results("run_1", "r1")) == run
    assert await talk.denied(talk.place_results("run_1", "r2")) == "no_results"
    assert (await talk.row()).revision == 3


async def test_a_waiting_run_goes_on_with_its_results_once_the_slot_is_free(talk: Talk) -> None:
    await asked(talk)
    await talk.do(talk.wait("run_1", end_code="approval"))
    await talk.do(talk.finish_call("run_1", "call_1", outside=True))
    await talk.placed("run_2", "m2")
    assert await talk.denied(talk.place_results("run_1", "r1")) == "slot"
    await talk.do(CancelRun(**talk.head(), run=RunId("run_2"), reason="user"))
    run = await talk.do(talk.place_results("run_1", "r1"))
    assert (run.status, run.end_code) == (RunStatus.PENDING, None)
    assert (await talk.row()).slot == "run_1"


async def test_results_are_placed_by_a_current_node_which_owns_the_run_then(talk: Talk) -> None:
    await asked(talk, then=Then.WAIT)
    await talk.do(talk.finish_call("run_1", "call_1", outside=True))
    stale = talk.fence
    await talk.store.join(stale.node, None, START_MS)
    assert await talk.denied(talk.place_results("run_1", "r1")) == "caller_current"
    talk.fence = await talk.store.join(NodeId("node_b"), None, START_MS)
    run = await talk.do(talk.place_results("run_1", "r1"))
    assert (run.node, run.epoch) == (talk.fence.node, talk.fence.epoch)


async def test_results_leave_a_head_that_somebody_moved(talk: Talk) -> None:
    await asked(talk)
    await talk.do(talk.finish_call("run_1", "call_1", outside=True))
    await talk.do(MoveHead(**talk.head(), head=MessageId("m1")))
    run = await talk.do(talk.place_results("run_1", "r1"))
    assert (await talk.row()).head == "m1"
    assert (run.leaf, run.head_left) == ("r1", "a1")


@pytest.mark.req("M81", "M36")
async def test_a_second_step_follows_the_results_and_its_calls_are_its_own(talk: Talk) -> None:
    await asked(talk)
    await talk.do(talk.finish_call("run_1", "call_1", outside=True))
    await talk.do(talk.place_results("run_1", "r1"))
    await talk.do(talk.prepare("run_1", "op_2", base="r1", revision=3, answer="a2"))
    await talk.do(talk.accept("op_2"))
    await talk.do(talk.written("op_2", 2))
    await talk.do(talk.opened("op_2", 2))
    message = talk.answer("a2", "call_2")
    run = await talk.do(talk.commit("op_2", 2, message, then=Then.CONTINUE))
    assert (run.committed, run.input_tokens) == (2, 22)
    rows = await talk.store.calls(talk.conversation, RunId("run_1"))
    assert [(r.call_id, r.message, r.generation) for r in rows] == [
        ("call_1", "a1", 1),
        ("call_2", "a2", 2),
    ]
    path = await talk.store.path(talk.conversation, MessageId("a2"))
    assert [m.id for m in path] == ["m1", "a1", "r1", "a2"]


async def test_a_result_of_images_and_text_comes_back_as_it_was(talk: Talk) -> None:
    await asked(talk)
    content = (Text(text="é\x00"), Text(text=""))
    command = FinishCall(
        **talk.head(),
        run=RunId("run_1"),
        call_id=CallId("call_1"),
        state=CallState.SUCCESS,
        content=content,
    )
    assert (await talk.do(command)).content == content
    assert msgspec.json.encode((await call(talk)).content) == msgspec.json.encode(content)
