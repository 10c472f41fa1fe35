"""Contract: the life of an attempt, through the commands that a dispatcher gives."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import msgspec
import pytest

from antiphon.core.answers.deltas import Usage
from antiphon.core.answers.usage import Cost, Used
from antiphon.core.blocks import Role, Status
from antiphon.core.commands import (
    Accept,
    AddMessages,
    BindHandle,
    CancelRun,
    Close,
    ConflictAnswer,
    End,
    EndRun,
    ExtendDeadline,
    Fence,
    Lose,
    MoveHead,
    Prepare,
    Refuse,
    Replay,
    Resume,
    Retry,
    Supersede,
    Then,
)
from antiphon.core.dispatch import ACTIVE, Denied, State
from antiphon.core.ids import MessageId, NodeId, OperationId, RunId
from antiphon.core.manifest import manifest_digest
from antiphon.core.records import Attempt, RunKind, RunStatus
from antiphon.errors import InternalError, NotFound
from antiphon.stores.base import Store
from tests.stores.talk import DEADLINE_MS, START_MS, Talk, a_digest, done

OP = OperationId("op_1")


def lose(
    talk: Talk, generation: int = 1, *, shown: bool = False, fence: Fence | None = None
) -> Lose:
    return Lose(
        **talk.head(),
        operation=OP,
        generation=generation,
        fence=fence or talk.fence,
        code="cut",
        shown=shown,
    )


def refuse(talk: Talk, *, not_sent: bool = False, shown: bool = False) -> Refuse:
    return Refuse(
        **talk.head(),
        operation=OP,
        generation=1,
        fence=talk.fence,
        code="overloaded",
        not_sent=not_sent,
        shown=shown,
    )


def end(talk: Talk, generation: int = 1) -> End:
    return End(**talk.head(), operation=OP, generation=generation, proof="connection")


async def unknown(talk: Talk, handle: str | None = "resp_1") -> Attempt:
    attempt = await talk.accepted()
    await talk.do(talk.written("op_1", attempt.generation))
    await talk.do(talk.opened("op_1", attempt.generation, handle))
    return await talk.do(lose(talk))


# Prepare.


@pytest.mark.req("M50", "M55", "M8", "M9", "M10", "M11", "M12")
async def test_a_manifest_comes_back_field_by_field_with_its_digest(talk: Talk) -> None:
    await talk.placed()
    manifest = msgspec.structs.replace(
        talk.manifest("run_1", "op_1", base="m1", revision=1),
        mappings_digest=a_digest("mappings"),
        max_output_tokens=None,
        idempotency_key="k",
        linked_to=OperationId("op_0"),
    )
    digest = manifest_digest(talk.key, manifest)
    attempt = await talk.do(
        Prepare(**talk.head(), manifest=manifest, manifest_digest=digest, answer=MessageId("a1"))
    )
    assert await talk.store.manifest(OP) == (manifest, digest)
    assert manifest_digest(talk.key, (await talk.store.manifest(OP))[0]) == digest
    assert (attempt.state, attempt.number, attempt.generation) == (State.PREPARED, 1, 0)
    assert await talk.store.attempts(OP) == [attempt]
    assert (await talk.run("run_1")).answer == "a1"


@pytest.mark.req("M1")
async def test_prepare_needs_the_slot_and_one_operation_at_a_time(talk: Talk) -> None:
    await talk.do(talk.start("run_1", "m1"))
    prepare = talk.prepare("run_1", "op_1", base="m1", revision=1, answer="a1")
    assert await talk.denied(prepare) == "slot"
    await talk.do(talk.place("run_1", parent=None, revision=0))
    await talk.do(prepare)
    second = talk.prepare("run_1", "op_2", base="m1", revision=1, answer="a1")
    assert await talk.denied(second) == "run_idle"
    with pytest.raises(NotFound):
        await talk.store.manifest(OperationId("op_2"))
    assert await talk.store.operations(talk.conversation, RunId("run_1")) == ["op_1"]


@pytest.mark.req("M35", "M33")
async def test_prepare_is_denied_while_a_call_is_open(talk: Talk) -> None:
    await talk.answered(calls=("call_1",), then=Then.CONTINUE)
    prepare = talk.prepare("run_1", "op_2", base="a1", revision=2, answer="a2")
    assert await talk.denied(prepare) == "run_idle"


async def test_prepare_under_a_leaf_or_session_that_is_not_here_is_refused(talk: Talk) -> None:
    await talk.placed()
    with pytest.raises(NotFound):
        await talk.store.do(talk.prepare("run_1", "op_1", base="nowhere", revision=1, answer="a1"))
    talk.session = type(talk.session)("sess_elsewhere")
    with pytest.raises(NotFound):
        await talk.store.do(talk.prepare("run_1", "op_1", base="m1", revision=1, answer="a1"))


# Accept.


@pytest.mark.req("M52", "M53", "M54", "M56")
async def test_acceptance_gives_the_generation_and_takes_the_conversation(talk: Talk) -> None:
    attempt = await talk.accepted()
    row = await talk.row()
    assert (attempt.state, attempt.generation) == (State.DISPATCHING, 1)
    assert (attempt.node, attempt.epoch) == (talk.fence.node, talk.fence.epoch)
    assert attempt.deadline_ms > START_MS
    assert (row.active_operation, row.attempt_generation, row.revision) == ("op_1", 1, 1)
    assert await talk.store.attempts_in(ACTIVE) == [attempt]
    assert await talk.store.attempts_in([State.PREPARED]) == []


@pytest.mark.req("M52")
async def test_acceptance_is_denied_once_the_revision_has_moved_and_then_superseded(
    talk: Talk,
) -> None:
    await talk.placed()
    await talk.do(talk.prepare("run_1", "op_1", base="m1", revision=1, answer="a1"))
    assert await talk.denied(Supersede(**talk.head(), operation=OP)) == "fence_moved"
    await talk.do(AddMessages(**talk.head(), messages=(talk.message("m9"),), head=None))
    assert await talk.denied(talk.accept("op_1")) == "revision"
    attempt = await talk.do(Supersede(**talk.head(), operation=OP))
    assert attempt.state is State.CANCELED
    # The run prepares anew, under a new operation.
    await talk.do(talk.prepare("run_1", "op_2", base="m1", revision=2, answer="a1"))
    assert (await talk.do(talk.accept("op_2"))).generation == 1


@pytest.mark.req("M52")
async def test_a_stale_node_accepts_nothing(talk: Talk) -> None:
    await talk.placed()
    await talk.do(talk.prepare("run_1", "op_1", base="m1", revision=1, answer="a1"))
    await talk.store.join(talk.fence.node, None, START_MS)
    assert await talk.denied(talk.accept("op_1")) == "caller_current"
    row = await talk.row()
    assert (row.active_operation, row.attempt_generation) == (None, 0)


@pytest.mark.req("M52", "M90")
async def test_of_many_that_accept_at_once_exactly_one_wins(talk: Talk) -> None:
    await talk.placed()
    await talk.do(talk.prepare("run_1", "op_1", base="m1", revision=1, answer="a1"))
    nodes = [await talk.store.join(NodeId(f"node_{n}"), None, START_MS) for n in range(8)]
    answers = await asyncio.gather(
        *(
            talk.store.do(
                Accept(**talk.head(), operation=OP, fence=fence, deadline_ms=START_MS + DEADLINE_MS)
            )
            for fence in nodes
            for _ in range(4)
        )
    )
    winners = [answer for answer in answers if isinstance(answer, Attempt)]
    assert len(winners) == 1
    assert {a.reason for a in answers if isinstance(a, Denied)} == {"state"}
    assert (await talk.row()).attempt_generation == 1


@pytest.mark.req("M65")
async def test_a_generation_is_never_given_twice_in_a_conversation(talk: Talk) -> None:
    given = []
    parent = None
    for n in range(3):
        attempt = await talk.streaming(
            f"run_{n}", f"op_{n}", name=f"m{n}", parent=parent, answer=f"a{n}"
        )
        given.append(attempt.generation)
        message = talk.answer(f"a{n}")
        await talk.do(talk.commit(f"op_{n}", attempt.generation, message))
        parent = f"a{n}"
    assert given == [1, 2, 3]


# Written, opened, bound.


@pytest.mark.req("M57", "M58", "M62")
async def test_bytes_leave_the_answer_opens_and_the_handle_is_bound(talk: Talk) -> None:
    attempt = await talk.accepted()
    sent = await talk.do(talk.written("op_1", attempt.generation))
    assert (sent.state, sent.handle) == (State.SENT, None)
    opened = await talk.do(talk.opened("op_1", attempt.generation, "resp_1"))
    assert (opened.state, opened.handle) == (State.STREAMING, "resp_1")
    assert None not in (opened.accepted_ms, opened.written_ms, opened.opened_ms)


@pytest.mark.req("M61", "M66")
async def test_a_report_out_of_order_of_another_generation_or_owner_is_denied(talk: Talk) -> None:
    await talk.accepted()
    assert await talk.denied(talk.opened("op_1", 1)) == "state"
    assert await talk.denied(talk.written("op_1", 2)) == "generation"
    mine, talk.fence = talk.fence, await talk.store.join(NodeId("node_b"), None, START_MS)
    assert await talk.denied(talk.written("op_1", 1)) == "owner"
    talk.fence = mine
    await talk.do(talk.written("op_1", 1))
    assert await talk.denied(talk.written("op_1", 1)) == "state"


def bind(
    talk: Talk, handle: str = "resp_1", generation: int = 1, digest: str | None = None
) -> BindHandle:
    manifest = talk.manifest("run_1", "op_1", base="m1", revision=1)
    return BindHandle(
        **talk.head(),
        operation=OP,
        generation=generation,
        manifest_digest=manifest_digest(talk.key, manifest) if digest is None else a_digest(digest),
        handle=handle,
    )


@pytest.mark.req("M62", "M85")
async def test_a_handle_is_bound_once_and_to_its_own_manifest(talk: Talk) -> None:
    await talk.accepted()
    assert await talk.denied(bind(talk)) == "state"
    await talk.do(talk.written("op_1", 1))
    assert await talk.denied(bind(talk, digest="another manifest")) == "handle"
    assert await talk.denied(bind(talk, generation=2)) == "generation"
    assert (await talk.do(bind(talk))).handle == "resp_1"
    assert (await talk.do(bind(talk))).handle == "resp_1"
    assert await talk.denied(bind(talk, "resp_2")) == "handle"
    assert await talk.denied(talk.opened("op_1", 1, "resp_2")) == "handle"
    assert (await talk.do(talk.opened("op_1", 1, "resp_1"))).handle == "resp_1"


@pytest.mark.req("M62")
async def test_a_handle_may_still_be_bound_when_the_outcome_is_unknown(talk: Talk) -> None:
    await unknown(talk, handle=None)
    assert (await talk.do(bind(talk))).state is State.UNKNOWN


# Commit.


@pytest.mark.req("M3", "M59", "M71", "M74", "M131", "M136")
async def test_a_commit_writes_the_answer_frees_the_conversation_and_moves_the_head(
    talk: Talk,
) -> None:
    run = await talk.answered()
    row = await talk.row()
    assert (row.revision, row.active_operation, row.slot, row.head) == (2, None, None, "a1")
    assert (run.status, run.leaf, run.head_left, run.answer) == (
        RunStatus.SUCCESS,
        "a1",
        "a1",
        None,
    )
    assert (run.committed, run.input_tokens, run.output_tokens) == (1, 11, 7)
    assert (await talk.attempt("op_1")).state is State.COMMITTED
    path = await talk.store.path(talk.conversation, MessageId("a1"))
    assert [(m.id, m.status, m.role) for m in path] == [
        ("m1", Status.SUCCESS, Role.USER),
        ("a1", Status.SUCCESS, Role.ASSISTANT),
    ]
    assert await talk.store.open_runs() == []


async def test_what_an_answer_took_and_cost_stands_with_its_attempt_and_its_run(
    talk: Talk,
) -> None:
    cost = Cost(micros=30, prices_of="2026-11-30")
    attempt = await talk.streaming("run_1", "op_1", name="m1", answer="a1")
    before = await talk.store.run(talk.conversation, RunId("run_1"))
    assert before.cost == Cost(micros=0), "nothing was asked yet"
    whole = talk.commit("op_1", attempt.generation, talk.answer("a1"))
    usage = Usage(input=4, output=7, cached=6, reasoning=2, cache_apart=True)
    run = await talk.do(replace(whole, usage=usage, cost=cost))
    assert (run.input_tokens, run.output_tokens) == (10, 7)
    assert (run.cached_tokens, run.reasoning_tokens, run.cost) == (6, 2, cost)
    assert run == await talk.store.run(talk.conversation, RunId("run_1"))
    took = (await talk.attempt("op_1")).used
    assert took == Used(
        input_tokens=10, output_tokens=7, cached_tokens=6, reasoning_tokens=2, cost=cost
    )
    unpriced = await talk.answered("run_2", "op_2", name="m2", parent="a1", answer="a2")
    assert unpriced.cost is None


@pytest.mark.req("M66", "M84")
async def test_an_answer_is_committed_only_from_its_own_open_stream(talk: Talk) -> None:
    await talk.accepted()
    message = talk.answer("a1")
    assert await talk.denied(talk.commit("op_1", 1, message)) == "state"
    await talk.do(talk.written("op_1", 1))
    await talk.do(talk.opened("op_1", 1))
    assert await talk.denied(talk.commit("op_1", 2, message)) == "generation"
    assert await talk.denied(talk.commit("op_1", 1, message, found=True)) == "state"
    assert len(await talk.store.tree(talk.conversation)) == 1
    await talk.do(talk.commit("op_1", 1, message))


@pytest.mark.req("M66", "M67", "M86")
async def test_nothing_commits_after_a_cancel(talk: Talk) -> None:
    await talk.streaming()
    await talk.do(CancelRun(**talk.head(), run=RunId("run_1"), reason="user"))
    message = talk.answer("a1")
    assert await talk.denied(talk.commit("op_1", 1, message)) == "state"
    assert await talk.denied(talk.commit("op_1", 1, message, found=True)) == "state"
    # Another operation is accepted at once, and the old stream does not reach it.
    await talk.streaming("run_2", "op_2", name="m2", parent="m1", answer="a2")
    assert await talk.denied(talk.commit("op_1", 1, message)) == "state"
    await talk.do(talk.commit("op_2", 2, talk.answer("a2")))
    assert [m.id for m in await talk.store.tree(talk.conversation)] == ["m1", "m2", "a2"]


@pytest.mark.req("M90")
async def test_one_base_revision_has_one_canonical_answer(talk: Talk) -> None:
    run = await talk.answered()
    assert run.committed == 1
    assert await talk.denied(talk.commit("op_1", 1, talk.answer("a1"))) == "state"
    assert await talk.denied(talk.commit("op_1", 1, talk.answer("a2"), found=True)) == "state"


async def test_an_answer_under_another_id_than_the_reserved_one_is_our_own_fault(
    talk: Talk,
) -> None:
    await talk.streaming(answer="a1")
    with pytest.raises(InternalError) as caught:
        await talk.store.do(talk.commit("op_1", 1, talk.answer("another")))
    assert caught.value.code == "reserved_answer"
    # Nothing of it was kept.
    assert (await talk.attempt("op_1")).state is State.STREAMING
    assert (await talk.row()).active_operation == "op_1"


@pytest.mark.req("M128")
async def test_an_answer_stands_under_its_manifests_base_whatever_its_sender_thinks(
    talk: Talk,
) -> None:
    await talk.do(AddMessages(**talk.head(), messages=(talk.message("m0"),), head=None))
    await talk.streaming(parent="m0")
    message = msgspec.structs.replace(talk.answer("a1"), parent=MessageId("m0"))
    await talk.do(talk.commit("op_1", 1, message))
    assert (await talk.store.message(talk.conversation, MessageId("a1"))).parent == "m1"


@pytest.mark.req("M125")
async def test_the_head_follows_only_while_it_stands_where_the_run_left_it(talk: Talk) -> None:
    await talk.do(AddMessages(**talk.head(), messages=(talk.message("m0"),), head=None))
    await talk.streaming(parent="m0")
    await talk.do(MoveHead(**talk.head(), head=MessageId("m0")))
    run = await talk.do(talk.commit("op_1", 1, talk.answer("a1")))
    assert (await talk.row()).head == "m0"
    assert (run.leaf, run.head_left) == ("a1", None)


@pytest.mark.req("M125")
async def test_a_regenerated_answer_is_a_sibling_and_the_other_one_stays(talk: Talk) -> None:
    await talk.answered()
    await talk.do(talk.start("run_2", None, parent="m1", kind=RunKind.REGENERATE))
    await talk.do(talk.place("run_2", parent="m1", revision=2))
    await talk.do(talk.prepare("run_2", "op_2", base="m1", revision=2, answer="a2"))
    await talk.do(talk.accept("op_2"))
    await talk.do(talk.written("op_2", 2))
    await talk.do(talk.opened("op_2", 2))
    await talk.do(talk.commit("op_2", 2, talk.answer("a2")))
    children = await talk.store.children(talk.conversation, MessageId("m1"))
    assert [m.id for m in children] == ["a1", "a2"]
    assert (await talk.row()).head == "a2"


@pytest.mark.parametrize(
    ("then", "status", "slot"),
    [
        (Then.FINISH, RunStatus.SUCCESS, None),
        (Then.CONTINUE, RunStatus.PENDING, "run_1"),
        (Then.WAIT, RunStatus.WAITING, None),
    ],
)
async def test_what_becomes_of_the_run_after_its_commit(
    talk: Talk, then: Then, status: RunStatus, slot: str | None
) -> None:
    run = await talk.answered(then=then)
    assert run.status is status
    assert (run.ended_ms is None) is (then is not Then.FINISH)
    assert (await talk.row()).slot == slot


@pytest.mark.req("M64", "M75")
async def test_an_answer_found_whole_is_committed_from_unknown(talk: Talk) -> None:
    await unknown(talk)
    message = talk.answer("a1")
    assert await talk.denied(talk.commit("op_1", 1, message)) == "state"
    assert await talk.denied(talk.commit("op_1", 2, message, found=True)) == "generation"
    run = await talk.do(talk.commit("op_1", 1, message, found=True))
    assert run.status is RunStatus.SUCCESS


# Conflict.


@pytest.mark.req("M67", "M97")
async def test_a_whole_answer_for_a_base_that_moved_goes_to_quarantine(talk: Talk) -> None:
    await talk.streaming()
    conflict = ConflictAnswer(**talk.head(), operation=OP, generation=1, data="the answer")
    assert await talk.denied(conflict) == "fence_moved"
    # No command moves the revision under an active operation, so this cannot be reached here;
    # the crafted rows of `test_conditions.py` take row 7.


# Refused, lost, and what comes after.


@pytest.mark.req("M96")
@pytest.mark.parametrize("not_sent", [False, True], ids=["refused", "not_sent"])
async def test_a_definite_no_releases_the_conversation_and_keeps_the_run(
    talk: Talk, not_sent: bool
) -> None:
    await talk.accepted()
    attempt = await talk.do(refuse(talk, not_sent=not_sent))
    assert (attempt.state, attempt.error_code) == (State.FAILED, "overloaded")
    row = await talk.row()
    assert (row.active_operation, row.slot) == (None, "run_1")
    assert (await talk.run("run_1")).status is RunStatus.PENDING


async def test_bytes_that_left_were_sent(talk: Talk) -> None:
    await talk.accepted()
    await talk.do(talk.written("op_1", 1))
    assert await talk.denied(refuse(talk, not_sent=True)) == "sent_again"
    assert (await talk.attempt("op_1")).state is State.SENT


@pytest.mark.req("M60", "M63")
async def test_a_lost_attempt_keeps_the_conversation_and_its_run_is_unknown(talk: Talk) -> None:
    attempt = await unknown(talk)
    assert (attempt.state, attempt.error_code) == (State.UNKNOWN, "cut")
    row = await talk.row()
    assert (row.active_operation, row.slot) == ("op_1", "run_1")
    assert (await talk.run("run_1")).status is RunStatus.UNKNOWN


@pytest.mark.req("M63")
async def test_a_stranger_may_give_up_on_an_attempt_only_when_its_owner_or_its_time_is_gone(
    talk: Talk,
) -> None:
    attempt = await talk.accepted()
    stranger = await talk.store.join(NodeId("node_b"), None, START_MS)
    assert await talk.denied(lose(talk, fence=stranger)) == "owner_or_gone"
    talk.now_ms = attempt.deadline_ms
    assert (await talk.do(lose(talk, fence=stranger))).state is State.UNKNOWN


@pytest.mark.req("M63")
async def test_after_a_restart_what_was_in_flight_becomes_unknown(talk: Talk) -> None:
    await talk.accepted()
    talk.fence = await talk.store.join(talk.fence.node, None, START_MS)
    assert (await talk.do(lose(talk))).state is State.UNKNOWN


@pytest.mark.req("M64", "M75")
async def test_an_unknown_attempt_is_resumed_by_its_handle_under_a_new_owner(talk: Talk) -> None:
    await unknown(talk)
    other = await talk.store.join(NodeId("node_b"), None, START_MS)
    resume = Resume(**talk.head(), operation=OP, generation=1, fence=other)
    attempt = await talk.do(resume)
    assert (attempt.state, attempt.node, attempt.sent_again) == (State.STREAMING, "node_b", True)
    assert attempt.generation == 1
    assert (await talk.run("run_1")).status is RunStatus.PENDING
    # A no to the second sending says nothing of the first.
    talk.fence = other
    assert (await talk.do(refuse(talk))).state is State.UNKNOWN
    assert (await talk.run("run_1")).status is RunStatus.UNKNOWN


@pytest.mark.req("M65")
async def test_without_a_handle_nothing_is_resumed(talk: Talk) -> None:
    await unknown(talk, handle=None)
    resume = Resume(**talk.head(), operation=OP, generation=1, fence=talk.fence)
    assert await talk.denied(resume) == "handle"


def replay(talk: Talk, *, digest: str = "request", honours_key: bool = True) -> Replay:
    return Replay(
        **talk.head(),
        operation=OP,
        generation=1,
        fence=talk.fence,
        request_digest=a_digest(digest),
        honours_key=honours_key,
    )


@pytest.mark.req("M51", "M54", "M64")
async def test_a_replay_is_the_same_bytes_under_the_same_key_before_the_deadline(
    talk: Talk,
) -> None:
    attempt = await unknown(talk)
    assert await talk.denied(replay(talk, digest="other bytes")) == "same_bytes"
    assert await talk.denied(replay(talk, honours_key=False)) == "honours_key"
    again = await talk.do(replay(talk))
    assert (again.state, again.generation, again.sent_again) == (State.DISPATCHING, 1, True)
    await talk.do(lose(talk))
    talk.now_ms = attempt.deadline_ms
    assert await talk.denied(replay(talk)) == "before_deadline"


@pytest.mark.req("M65")
async def test_a_generation_may_not_advance_until_the_old_attempt_is_confirmed_ended(
    talk: Talk,
) -> None:
    await unknown(talk)
    retry = Retry(**talk.head(), operation=OP, attempts_allowed=3)
    assert await talk.denied(retry) == "state"
    assert await talk.denied(talk.accept("op_1")) == "state"
    assert await talk.denied(end(talk, generation=2)) == "generation"
    ended = await talk.do(end(talk))
    assert (ended.state, ended.proof) == (State.FAILED, "connection")
    assert (await talk.row()).active_operation is None
    second = await talk.do(retry)
    assert (second.number, second.state, second.generation) == (2, State.PREPARED, 0)
    assert (await talk.run("run_1")).status is RunStatus.PENDING
    assert (await talk.do(talk.accept("op_1"))).generation == 2
    # The first attempt stands beside it as it ended; its reports reach nothing.
    first, _ = await talk.store.attempts(OP)
    assert first == ended
    assert await talk.denied(talk.written("op_1", 1)) == "generation"


async def test_retries_have_an_end_and_end_with_the_run(talk: Talk) -> None:
    await talk.accepted()
    await talk.do(refuse(talk))
    assert (
        await talk.denied(Retry(**talk.head(), operation=OP, attempts_allowed=1)) == "attempts_left"
    )
    await talk.do(CancelRun(**talk.head(), run=RunId("run_1"), reason="user"))
    assert await talk.denied(Retry(**talk.head(), operation=OP, attempts_allowed=9)) == "state"
    assert (await talk.attempt("op_1")).state is State.CANCELED


async def test_a_failed_attempt_is_closed_and_another_operation_may_follow(talk: Talk) -> None:
    await talk.accepted()
    await talk.do(refuse(talk))
    other = talk.prepare("run_1", "op_2", base="m1", revision=1, answer="a1")
    assert await talk.denied(other) == "run_idle"
    assert (await talk.do(Close(**talk.head(), operation=OP))).state is State.CLOSED
    await talk.do(other)
    assert await talk.store.operations(talk.conversation, RunId("run_1")) == ["op_1", "op_2"]


async def test_the_end_of_a_run_closes_the_attempt_it_failed_at(talk: Talk) -> None:
    await talk.accepted()
    await talk.do(refuse(talk))
    await talk.do(
        EndRun(
            **talk.head(),
            run=RunId("run_1"),
            status=RunStatus.ERROR,
            fence=talk.fence,
            error_code="x",
        )
    )
    assert (await talk.attempt("op_1")).state is State.CLOSED


async def test_a_cancel_releases_an_unknown_attempt_at_once(talk: Talk) -> None:
    await unknown(talk)
    await talk.do(CancelRun(**talk.head(), run=RunId("run_1"), reason="user"))
    row = await talk.row()
    assert (row.active_operation, row.slot, row.cancel_generation) == (None, None, 1)
    assert await talk.denied(end(talk)) == "state"


# Deadlines.


def extend(talk: Talk, to_ms: int, fence: Fence | None = None) -> ExtendDeadline:
    return ExtendDeadline(
        **talk.head(), operation=OP, generation=1, fence=fence or talk.fence, deadline_ms=to_ms
    )


async def test_the_owner_moves_the_deadline_forward_while_bytes_arrive(talk: Talk) -> None:
    attempt = await talk.streaming()
    assert (
        await talk.do(extend(talk, attempt.deadline_ms + 5))
    ).deadline_ms == attempt.deadline_ms + 5
    assert (await talk.do(extend(talk, 0))).deadline_ms == attempt.deadline_ms + 5
    stranger = await talk.store.join(NodeId("node_b"), None, START_MS)
    assert await talk.denied(extend(talk, START_MS * 2, stranger)) == "owner"
    talk.now_ms = attempt.deadline_ms + 5
    assert await talk.denied(extend(talk, START_MS * 2)) == "before_deadline"
    await talk.do(lose(talk))
    assert await talk.denied(extend(talk, START_MS * 2)) == "state"


# All or none.


async def test_several_commands_are_one_transaction(talk: Talk) -> None:
    answers = done(
        await talk.store.do_all(
            talk.start("run_1", "m1"),
            talk.place("run_1", parent=None, revision=0),
            talk.prepare("run_1", "op_1", base="m1", revision=1, answer="a1"),
            talk.accept("op_1"),
        )
    )
    assert answers[-1].state is State.DISPATCHING
    assert answers[-1] == await talk.attempt("op_1")


async def test_of_several_commands_none_is_kept_where_one_is_denied(talk: Talk) -> None:
    before = await talk.row()
    answer = await talk.store.do_all(
        talk.start("run_1", "m1"),
        talk.place("run_1", parent=None, revision=7),
        talk.prepare("run_1", "op_1", base="m1", revision=1, answer="a1"),
    )
    assert answer == Denied("revision")
    assert await talk.row() == before
    assert await talk.store.runs(talk.conversation) == []
    assert await talk.store.events(talk.conversation, 0) == []


@pytest.mark.req("M52")
async def test_what_an_earlier_command_of_the_transaction_moved_is_compared_too(talk: Talk) -> None:
    await talk.placed()
    await talk.do(talk.prepare("run_1", "op_1", base="m1", revision=1, answer="a1"))
    answer = await talk.store.do_all(
        AddMessages(**talk.head(), messages=(talk.message("m9"),), head=None), talk.accept("op_1")
    )
    assert answer == Denied("revision")
    assert (await talk.do(talk.accept("op_1"))).generation == 1


async def test_an_operation_of_another_conversation_is_not_found_here(
    store: Store, talk: Talk
) -> None:
    other = await Talk.begin(store, "conv_2")
    await other.accepted("run_9", "op_9")
    with pytest.raises(NotFound):
        await store.do(talk.written("op_9", 1))
