"""Contract: runs are born durable, placed in turn and ended once."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from antiphon.core.blocks import Role, Status, Text
from antiphon.core.commands import (
    AddMessages,
    CancelRun,
    ClaimRun,
    CreateConversation,
    EndRun,
    Fence,
    KeepPartial,
    MoveHead,
    StartKey,
    Then,
    WaitRun,
)
from antiphon.core.dispatch import Denied, State
from antiphon.core.ids import (
    LOCAL_TENANT,
    CallId,
    ConversationId,
    MessageId,
    NodeId,
    RunId,
    SessionId,
)
from antiphon.core.placement import as_started
from antiphon.core.records import CallState, RunKind, RunStatus
from antiphon.core.tools.ledger import NOT_RUN, WAS_RUNNING
from antiphon.errors import InvalidInput, NotFound, Refused
from antiphon.stores.base import Store
from tests.stores.talk import START_MS, Talk, a_digest, done


def a_key(key: str = "key", body: str = "body", lives_ms: int = 86_400_000) -> StartKey:
    return StartKey(
        scope="me POST /v1/responses",
        key=key,
        body_digest=a_digest(body),
        expires_ms=START_MS + lives_ms,
    )


def cancel(talk: Talk, run: str = "run_1", reason: str = "user", **more: object) -> CancelRun:
    return CancelRun(**talk.head(), run=RunId(run), reason=reason, **more)  # type: ignore[arg-type]


def end(
    talk: Talk, run: str = "run_1", status: RunStatus = RunStatus.ERROR, **more: object
) -> EndRun:
    more = {"fence": talk.fence, **more}
    return EndRun(**talk.head(), run=RunId(run), status=status, **more)  # type: ignore[arg-type]


# Start.


async def test_how_a_run_is_foreseen_is_how_its_start_leaves_it(talk: Talk) -> None:
    command = talk.start("run_1", "m1", parent=None)
    run = await talk.do(command)
    assert msgspec.structs.replace(as_started(command), seq=run.seq) == run


@pytest.mark.req("M130", "M134", "M136")
async def test_a_run_is_durable_with_its_input_before_it_is_placed(talk: Talk) -> None:
    command = talk.start("run_1", "m1", parent=None)
    run = await talk.do(command)
    assert (run.status, run.input, run.leaf, run.started_ms) == (RunStatus.QUEUED, "m1", None, None)
    assert run.options == command.options
    assert run == await talk.run("run_1") == await talk.store.find_run(RunId("run_1"))
    waiting = await talk.store.run_input(talk.conversation, RunId("run_1"))
    assert waiting == command.input
    # It is no node of the tree yet, and the revision stands.
    assert await talk.store.tree(talk.conversation) == []
    assert (await talk.row()).revision == 0


async def test_a_run_knows_the_event_that_told_of_its_start(talk: Talk) -> None:
    await talk.placed("run_1", "m1")
    run = await talk.do(talk.start("run_2", "m2"))
    (event,) = await talk.store.events(talk.conversation, run.seq - 1)
    assert (event.seq, event.run) == (run.seq, "run_2")


@pytest.mark.req("M139")
async def test_the_same_key_and_body_is_the_same_run_and_nothing_is_written(talk: Talk) -> None:
    first = await talk.do(talk.start("run_1", "m1", key=a_key()))
    before = await talk.row()
    again = await talk.do(talk.start("run_2", "m2", key=a_key()))
    assert again == first
    assert await talk.row() == before
    assert [run.id for run in await talk.store.runs(talk.conversation)] == ["run_1"]


async def test_the_same_key_with_another_body_is_a_conflict(talk: Talk) -> None:
    await talk.do(talk.start("run_1", "m1", key=a_key()))
    other = talk.start("run_2", "m2", key=a_key(body="other"))
    assert await talk.denied(other) == "idempotency_conflict"
    # What was refused records nothing: its own key is free.
    await talk.do(talk.start("run_2", "m2", key=a_key("key2", body="other")))


async def test_a_key_is_free_again_once_it_has_expired(talk: Talk) -> None:
    await talk.do(talk.start("run_1", "m1", key=a_key(lives_ms=10)))
    talk.now_ms = START_MS + 10
    second = await talk.do(talk.start("run_2", "m2", key=a_key(body="other")))
    assert second.id == "run_2"
    assert (await talk.do(talk.start("run_3", "m3", key=a_key(body="other")))).id == "run_2"


@pytest.mark.parametrize("together", [True, False], ids=["one_transaction", "two"])
async def test_a_key_finds_the_run_it_started_in_another_conversation(
    store: Store, talk: Talk, together: bool
) -> None:
    first = await talk.do(talk.start("run_1", "m1", key=a_key()))
    other = Talk(store, talk.fence, ConversationId("conv_2"), SessionId("sess_2"))
    create = CreateConversation(**other.head(), tenant=LOCAL_TENANT, session=other.session)
    again = other.start("run_2", "m2", key=a_key())
    if together:
        assert done(await store.do_all(create, again))[1] == first
    else:
        await other.do(create)
        assert await other.do(again) == first
    # The conversation that was made for the repeated start is not left behind.
    with pytest.raises(NotFound):
        await store.conversation(other.conversation)


@pytest.mark.req("M27", "M139")
@pytest.mark.parametrize("placed", [False, True], ids=["waiting", "placed"])
async def test_the_same_input_under_the_same_parent_is_the_run_that_it_belongs_to(
    talk: Talk, placed: bool
) -> None:
    first = await (talk.placed("run_1", "m1") if placed else talk.do(talk.start("run_1", "m1")))
    again = await talk.do(talk.start("run_2", "m1"))
    assert again == first
    assert len(await talk.store.runs(talk.conversation)) == 1


@pytest.mark.req("M27")
async def test_an_input_that_was_withdrawn_before_it_had_a_place_starts_no_second_run(
    talk: Talk,
) -> None:
    await talk.do(talk.start("run_1", "m1"))
    withdrawn = await talk.do(CancelRun(**talk.head(), run=RunId("run_1"), reason="user"))
    assert await talk.do(talk.start("run_2", "m1")) == withdrawn
    assert await talk.denied(talk.start("run_2", "m1", text="other")) == "message_id_conflict"
    assert [run.id for run in await talk.store.runs(talk.conversation)] == ["run_1"]


@pytest.mark.req("M27", "M139")
@pytest.mark.parametrize("named", ["by key", "by input", "by withdrawn input"])
@pytest.mark.parametrize(
    "refused", [{"max_queued": 0}, {"alone": True}, {"refusal": "missing_tool_result"}], ids=str
)
async def test_what_was_acknowledged_is_not_taken_back_where_a_new_run_would_be_refused(
    talk: Talk, named: str, refused: dict[str, object]
) -> None:
    """On PostgreSQL it is foreseen that nothing is a repetition: no refusal may follow from that."""
    if named == "by input":
        await talk.answered()
    else:
        await talk.do(talk.start("run_1", "m1", key=a_key()))
    if named == "by withdrawn input":
        await talk.do(cancel(talk))
    await talk.do(talk.start("run_2", "m2"))
    again = (
        talk.start("run_3", "m3", key=a_key()) if named == "by key" else talk.start("run_3", "m1")
    )
    assert (await talk.do(replace(again, **refused))).id == "run_1"  # type: ignore[arg-type]


@pytest.mark.req("M27")
@pytest.mark.parametrize("placed", [False, True], ids=["waiting", "placed"])
async def test_the_id_of_an_input_with_other_words_or_another_parent_is_a_conflict(
    talk: Talk, placed: bool
) -> None:
    await talk.do(AddMessages(**talk.head(), messages=(talk.message("m0"),), head=None))
    await (talk.placed("run_1", "m1") if placed else talk.do(talk.start("run_1", "m1")))
    conflict = "message_id_conflict"
    assert await talk.denied(talk.start("run_2", "m1", text="other words")) == conflict
    assert await talk.denied(talk.start("run_2", "m1", parent="m0")) == conflict
    assert await talk.denied(talk.start("run_2", "m1", at_root=True)) == conflict


@pytest.mark.req("M27")
async def test_the_id_of_a_message_that_is_no_input_is_a_conflict(talk: Talk) -> None:
    await talk.do(AddMessages(**talk.head(), messages=(talk.message("m1"),), head=None))
    assert await talk.denied(talk.start("run_1", "m1")) == "message_id_conflict"


async def test_the_queue_has_an_end(talk: Talk) -> None:
    for n in range(2):
        await talk.do(talk.start(f"run_{n}", f"m{n}", max_queued=2))
    assert await talk.denied(talk.start("run_9", "m9", max_queued=2)) == "queue_full"
    await talk.do(talk.place("run_0", parent=None, revision=0))
    await talk.do(talk.start("run_9", "m9", max_queued=2))


async def test_runs_are_told_apart_by_status_and_listed_in_the_order_they_were_started(
    talk: Talk,
) -> None:
    await talk.placed("run_b", "m1")
    await talk.do(talk.start("run_a", "m2"))
    await talk.do(end(talk, "run_b"))
    everything = await talk.store.runs(talk.conversation)
    assert [run.id for run in everything] == ["run_b", "run_a"]
    queued = await talk.store.runs(talk.conversation, [RunStatus.QUEUED, RunStatus.PENDING])
    assert [run.id for run in queued] == ["run_a"]
    ended = await talk.store.runs(talk.conversation, [RunStatus.ERROR])
    assert [run.id for run in ended] == ["run_b"]
    assert [run.id for run in await talk.store.open_runs()] == ["run_a"]


async def test_open_runs_of_all_conversations_come_oldest_first(store: Store) -> None:
    for n in (2, 0, 1):
        talk = await Talk.begin(store, f"conv_{n}")
        talk.now_ms += n * 1_000
        await talk.do(talk.start(f"run_{n}", "m1"))
    assert [run.id for run in await store.open_runs()] == ["run_0", "run_1", "run_2"]


async def test_the_statuses_of_open_runs_are_told_for_the_conversations_asked_for(
    store: Store,
) -> None:
    busy, quiet, other = [await Talk.begin(store, f"conv_{name}") for name in "bqo"]
    await busy.placed("run_b1", "m1")
    await busy.do(busy.start("run_b2", "m2"))
    await quiet.placed("run_q", "m1")
    await quiet.do(end(quiet, "run_q"))
    await other.do(other.start("run_o", "m1"))
    asked = [busy.conversation, quiet.conversation, ConversationId("conv_none")]
    assert await store.open_statuses(asked) == {
        busy.conversation: {RunStatus.PENDING, RunStatus.QUEUED}
    }
    assert await store.open_statuses([]) == {}


# Placement.


@pytest.mark.req("M7", "M136", "M139")
async def test_placement_takes_the_slot_and_puts_the_input_pending_under_its_parent(
    talk: Talk,
) -> None:
    await talk.do(AddMessages(**talk.head(), messages=(talk.message("m0"),), head=MessageId("m0")))
    run = await talk.placed("run_1", "m1", parent="m0")
    row = await talk.row()
    assert (row.slot, row.revision, row.head) == ("run_1", 2, "m0")
    assert (run.status, run.leaf, run.head_left) == (RunStatus.PENDING, "m1", "m0")
    assert (run.node, run.epoch, run.session) == (talk.fence.node, talk.fence.epoch, talk.session)
    message = await talk.store.message(talk.conversation, MessageId("m1"))
    assert (message.parent, message.status, message.run) == ("m0", Status.PENDING, "run_1")
    assert message.session == talk.session
    assert await talk.store.run_input(talk.conversation, RunId("run_1")) == message


async def test_a_run_without_input_takes_the_slot_and_leaves_the_revision(talk: Talk) -> None:
    await talk.do(AddMessages(**talk.head(), messages=(talk.message("m0"),), head=None))
    await talk.do(talk.start("run_1", None, parent="m0", kind=RunKind.REGENERATE))
    run = await talk.do(talk.place("run_1", parent="m0", revision=1))
    assert (run.leaf, run.input) == ("m0", None)
    row = await talk.row()
    assert (row.slot, row.revision) == ("run_1", 1)
    assert await talk.store.run_input(talk.conversation, RunId("run_1")) is None


@pytest.mark.req("M139")
async def test_placement_is_denied_where_the_world_has_moved(talk: Talk) -> None:
    await talk.do(talk.start("run_1", "m1"))
    await talk.do(talk.start("run_2", "m2"))
    stale = talk.place("run_1", parent=None, revision=1)
    assert await talk.denied(stale) == "revision"
    await talk.do(talk.place("run_1", parent=None, revision=0))
    assert await talk.denied(talk.place("run_1", parent=None, revision=1)) == "run_queued"
    assert await talk.denied(talk.place("run_2", parent="m1", revision=1)) == "slot"


async def test_placement_needs_a_current_epoch_and_an_existing_parent(talk: Talk) -> None:
    await talk.do(talk.start("run_1", "m1"))
    old = talk.fence
    await talk.store.join(old.node, None, START_MS)
    assert await talk.denied(talk.place("run_1", parent=None, revision=0)) == "caller_current"
    talk.fence = Fence(node=old.node, epoch=old.epoch + 1)
    with pytest.raises(Refused) as caught:
        await talk.store.do(talk.place("run_1", parent="nowhere", revision=0))
    assert caught.value.code == "missing_parent"
    assert (await talk.run("run_1")).status is RunStatus.QUEUED


async def test_a_run_is_not_placed_while_another_runs_operation_is_active(talk: Talk) -> None:
    # A waiting run has given the slot back; one in flight has not, and its operation is active.
    await talk.accepted("run_1")
    await talk.do(talk.start("run_2", "m2"))
    assert await talk.denied(talk.place("run_2", parent=None, revision=1)) == "slot"


# Claims.


async def test_an_open_run_is_taken_over_only_from_an_owner_that_is_gone(talk: Talk) -> None:
    await talk.placed()
    other = await talk.store.join(NodeId("node_b"), None, START_MS)
    take = ClaimRun(**talk.head(), run=RunId("run_1"), fence=other)
    assert await talk.denied(take) == "owner_or_gone"
    await talk.store.join(talk.fence.node, None, START_MS)
    run = await talk.do(take)
    assert (run.node, run.epoch) == (other.node, other.epoch)
    assert (await talk.row()).slot == "run_1"
    # To claim what is one's own changes nothing.
    assert await talk.do(take) == run


async def test_a_stale_node_claims_nothing_and_an_ended_run_is_not_claimed(talk: Talk) -> None:
    await talk.placed()
    stale = talk.fence
    current = await talk.store.join(stale.node, None, START_MS)
    claim = ClaimRun(**talk.head(), run=RunId("run_1"), fence=stale)
    assert await talk.denied(claim) == "caller_current"
    await talk.do(end(talk, fence=current))
    claim = ClaimRun(**talk.head(), run=RunId("run_1"), fence=current)
    assert await talk.denied(claim) == "run_open"


async def handed_over(talk: Talk) -> Fence:
    """Let another process take the run from this one, which has not noticed; return it."""
    await talk.store.join(talk.fence.node, None, START_MS)
    other = await talk.store.join(NodeId("node_b"), None, START_MS)
    await talk.do(ClaimRun(**talk.head(), run=RunId("run_1"), fence=other))
    return other


async def test_a_run_is_not_ended_by_an_owner_that_another_has_followed(talk: Talk) -> None:
    await talk.placed()
    other = await handed_over(talk)
    before = await talk.run("run_1"), await talk.row()
    assert await talk.denied(end(talk, error_code="over_window")) == "caller_current"
    # Nor by a process that lives, and has nothing to do with it.
    third = await talk.store.join(NodeId("node_c"), None, START_MS)
    assert await talk.denied(end(talk, fence=third)) == "owner_or_gone"
    assert before == (await talk.run("run_1"), await talk.row())
    run = await talk.do(end(talk, fence=other, error_code="over_window"))
    assert run.status is RunStatus.ERROR


async def test_a_run_without_an_owner_or_whose_owner_is_gone_is_ended_by_anybody(
    talk: Talk,
) -> None:
    await talk.placed()
    await talk.do(talk.start("run_2", "m2"))
    other = await talk.store.join(NodeId("node_b"), None, START_MS)
    assert (await talk.do(end(talk, "run_2", fence=other))).status is RunStatus.ERROR
    await talk.store.join(talk.fence.node, None, START_MS)
    assert (await talk.do(end(talk, fence=other))).status is RunStatus.ERROR


async def test_a_run_at_work_is_not_laid_down_by_an_owner_that_another_has_followed(
    talk: Talk,
) -> None:
    await talk.answered(calls=("call_1",), then=Then.CONTINUE)
    other = await handed_over(talk)
    third = await talk.store.join(NodeId("node_c"), None, START_MS)
    for fence, why in ((talk.fence, "caller_current"), (third, "owner_or_gone")):
        wait = WaitRun(**talk.head(), run=RunId("run_1"), fence=fence)
        assert await talk.denied(wait) == why
        call = replace(talk.start_call("run_1", "call_1"), fence=fence)
        assert await talk.denied(call) == why
    run = await talk.do(WaitRun(**talk.head(), run=RunId("run_1"), fence=other))
    assert run.status is RunStatus.WAITING


async def test_results_of_a_run_at_work_are_placed_by_its_owner_alone(talk: Talk) -> None:
    await talk.answered(calls=("call_1",), then=Then.CONTINUE)
    await talk.do(talk.finish_call("run_1", "call_1", outside=True))
    other = await handed_over(talk)
    third = await talk.store.join(NodeId("node_c"), None, START_MS)
    place = talk.place_results("run_1", "r1")
    assert await talk.denied(replace(place, fence=third)) == "owner_or_gone"
    run = await talk.do(replace(place, fence=other))
    assert (run.leaf, run.node) == ("r1", other.node)


# Endings.


@pytest.mark.req("M132", "M138")
async def test_a_run_that_failed_with_nothing_committed_fails_its_input_and_leaves_the_head(
    talk: Talk,
) -> None:
    await talk.placed()
    run = await talk.do(end(talk, error_code="over_window", end_code="limit"))
    assert (run.status, run.error_code, run.end_code) == (RunStatus.ERROR, "over_window", "limit")
    assert run.ended_ms is not None
    message = await talk.store.message(talk.conversation, MessageId("m1"))
    assert (message.status, message.error_code) == (Status.ERROR, "over_window")
    row = await talk.row()
    assert (row.slot, row.head, row.revision) == (None, None, 1)


@pytest.mark.req("M131")
async def test_a_run_that_failed_after_a_commit_leaves_its_input_a_success(talk: Talk) -> None:
    await talk.answered(then=Then.CONTINUE)
    await talk.do(end(talk, error_code="provider_error"))
    message = await talk.store.message(talk.conversation, MessageId("m1"))
    assert (message.status, message.error_code) == (Status.SUCCESS, None)


async def test_a_run_ends_once(talk: Talk) -> None:
    await talk.placed()
    first = await talk.do(end(talk, error_code="a"))
    before = await talk.row()
    assert await talk.do(end(talk, status=RunStatus.SUCCESS)) == first
    assert await talk.do(cancel(talk)) == first
    assert await talk.row() == before


async def test_a_run_does_not_end_while_its_operation_is_active(talk: Talk) -> None:
    await talk.accepted()
    assert await talk.denied(end(talk)) == "no_active_operation"


@pytest.mark.parametrize("status", [RunStatus.CANCELED, RunStatus.PENDING])
async def test_a_run_ends_in_success_or_error_only(talk: Talk, status: RunStatus) -> None:
    await talk.placed()
    with pytest.raises(InvalidInput):
        await talk.store.do(end(talk, status=status))


async def test_the_end_of_a_run_closes_what_it_had_prepared(talk: Talk) -> None:
    await talk.placed()
    await talk.do(talk.prepare("run_1", "op_1", base="m1", revision=1, answer="a1"))
    await talk.do(end(talk))
    assert (await talk.attempt("op_1")).state is State.CANCELED


# Cancel.


@pytest.mark.req("M133", "M137")
async def test_a_canceled_send_frees_everything_and_moves_the_head_to_its_input(talk: Talk) -> None:
    await talk.streaming()
    run = await talk.do(cancel(talk, reason="user_stop"))
    assert (run.status, run.error_code) == (RunStatus.CANCELED, "user_stop")
    row = await talk.row()
    assert (row.slot, row.active_operation, row.head) == (None, None, "m1")
    # The fence moved, since the run held the active operation; nothing entered the tree.
    assert (row.cancel_generation, row.revision) == (1, 1)
    assert (await talk.attempt("op_1")).state is State.CANCELED
    message = await talk.store.message(talk.conversation, MessageId("m1"))
    assert message.status is Status.SUCCESS


@pytest.mark.req("M133")
@pytest.mark.parametrize("stage", ["queued", "placed", "prepared"])
async def test_a_cancel_before_acceptance_does_not_move_the_fence(talk: Talk, stage: str) -> None:
    await talk.do(talk.start("run_1", "m1"))
    if stage != "queued":
        await talk.do(talk.place("run_1", parent=None, revision=0))
    if stage == "prepared":
        await talk.do(talk.prepare("run_1", "op_1", base="m1", revision=1, answer="a1"))
    run = await talk.do(cancel(talk))
    assert run.status is RunStatus.CANCELED
    row = await talk.row()
    assert (row.cancel_generation, row.slot) == (0, None)
    # A queued run was withdrawn: its input never was a node.
    assert row.head == (None if stage == "queued" else "m1")


async def test_a_cancel_names_its_run_and_leaves_the_next_one_queued(talk: Talk) -> None:
    await talk.streaming("run_1")
    await talk.do(talk.start("run_2", "m2"))
    await talk.do(cancel(talk, "run_2"))
    row = await talk.row()
    assert (row.active_operation, row.cancel_generation) == ("op_1", 0)
    assert (await talk.run("run_1")).status is RunStatus.PENDING
    assert (await talk.attempt("op_1")).state is State.STREAMING


async def test_a_cancel_leaves_a_head_that_somebody_moved(talk: Talk) -> None:
    await talk.do(AddMessages(**talk.head(), messages=(talk.message("m0"),), head=None))
    await talk.streaming(parent="m0")
    await talk.do(MoveHead(**talk.head(), head=MessageId("m0")))
    await talk.do(cancel(talk))
    assert (await talk.row()).head == "m0"


async def test_a_canceled_regenerate_leaves_the_head(talk: Talk) -> None:
    await talk.answered()
    await talk.do(talk.start("run_2", None, parent="m1", kind=RunKind.REGENERATE))
    await talk.do(talk.place("run_2", parent="m1", revision=2))
    await talk.do(cancel(talk, "run_2"))
    assert (await talk.row()).head == "a1"


@pytest.mark.req("M137", "M22", "M77")
async def test_text_shown_before_a_cancel_is_kept_as_a_canceled_node_for_people(talk: Talk) -> None:
    await talk.streaming()
    shown = (Text(text="half an ans"),)
    await talk.do(cancel(talk, partial=shown, partial_id=MessageId("p1")))
    partial = await talk.store.message(talk.conversation, MessageId("p1"))
    assert (partial.status, partial.role, partial.parent) == (Status.CANCELED, Role.ASSISTANT, "m1")
    assert partial.blocks == shown
    row = await talk.row()
    assert (row.revision, row.head) == (1, "m1")


async def test_whoever_holds_the_text_of_a_canceled_run_stores_it_once(talk: Talk) -> None:
    await talk.streaming()
    keep = KeepPartial(
        **talk.head(), run=RunId("run_1"), partial=(Text(text="a"),), partial_id=MessageId("p1")
    )
    assert await talk.denied(keep) == "run_canceled"
    await talk.do(cancel(talk))
    await talk.do(keep)
    again = KeepPartial(
        **talk.head(), run=RunId("run_1"), partial=(Text(text="b"),), partial_id=MessageId("p2")
    )
    await talk.do(again)
    tree = await talk.store.tree(talk.conversation)
    assert [(m.id, m.text, m.status) for m in tree] == [
        ("m1", "words of m1", Status.SUCCESS),
        ("p1", "a", Status.CANCELED),
    ]


@pytest.mark.req("M34")
async def test_a_cancel_closes_open_calls_with_what_is_known_and_places_their_results(
    talk: Talk,
) -> None:
    await talk.answered(calls=("call_1", "call_2", "call_3"), then=Then.CONTINUE)
    await talk.do(talk.start_call("run_1", "call_1"))
    await talk.do(talk.finish_call("run_1", "call_1", "rain"))
    await talk.do(talk.start_call("run_1", "call_2"))
    await talk.do(cancel(talk, results_id=MessageId("r1")))
    calls = await talk.store.calls(talk.conversation, RunId("run_1"))
    assert [call.state for call in calls] == [
        CallState.SUCCESS,
        CallState.CANCELED,
        CallState.CANCELED,
    ]
    results = (await talk.store.message(talk.conversation, MessageId("r1"))).results
    assert [result.content[0] for result in results] == [
        Text(text="rain"),
        Text(text=WAS_RUNNING),
        Text(text=NOT_RUN),
    ]
    row = await talk.row()
    assert (row.revision, row.head, row.cancel_generation) == (3, "r1", 0)
    # The line is closed again: another message may follow at once.
    await talk.placed("run_2", "m2", parent="r1")


async def test_results_of_a_canceled_run_wait_while_another_operation_is_active(talk: Talk) -> None:
    await talk.do(AddMessages(**talk.head(), messages=(talk.message("m0"),), head=None))
    await talk.answered("run_1", parent="m0", calls=("call_1",), then=Then.WAIT)
    await talk.accepted("run_2", "op_2", name="m2", parent="m0", answer="a2")
    await talk.do(cancel(talk, "run_1", results_id=MessageId("r1")))
    row = await talk.row()
    assert (row.active_operation, row.cancel_generation) == ("op_2", 0)
    with pytest.raises(NotFound):
        await talk.store.message(talk.conversation, MessageId("r1"))
    # Once nothing is active, whoever sees to it places them, and the run stays ended.
    assert await talk.denied(talk.place_results("run_1", "r1")) == "no_active_operation"
    await talk.do(cancel(talk, "run_2"))
    run = await talk.do(talk.place_results("run_1", "r1"))
    assert (run.status, run.leaf) == (RunStatus.CANCELED, "r1")
    assert (await talk.row()).slot is None


# Waiting.


@pytest.mark.req("M35")
async def test_a_run_that_waits_gives_the_slot_back(talk: Talk) -> None:
    await talk.answered(calls=("call_1",), then=Then.CONTINUE)
    run = await talk.do(talk.wait("run_1", end_code="approval"))
    assert (run.status, run.end_code) == (RunStatus.WAITING, "approval")
    assert (await talk.row()).slot is None
    assert await talk.denied(talk.wait("run_1")) == "run_pending"


async def test_a_run_without_open_calls_has_nothing_to_wait_for(talk: Talk) -> None:
    await talk.placed()
    assert await talk.denied(talk.wait("run_1")) == "open_calls"
    await talk.do(end(talk))
    assert await talk.store.calls(talk.conversation, RunId("run_1")) == []


@pytest.mark.req("M34")
async def test_the_end_of_a_run_leaves_no_call_open(talk: Talk) -> None:
    await talk.answered(calls=("call_1",), then=Then.CONTINUE)
    await talk.do(end(talk, end_code="model_call_limit"))
    (call,) = await talk.store.calls(talk.conversation, RunId("run_1"))
    assert (call.call_id, call.state, call.code) == (
        CallId("call_1"),
        CallState.CANCELED,
        "run_ended",
    )


async def test_two_runs_cannot_have_one_id(talk: Talk) -> None:
    await talk.do(talk.start("run_1", "m1"))
    assert await talk.store.do(talk.start("run_1", "m2")) == Denied("run_id")
