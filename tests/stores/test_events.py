"""Contract: durable events, numbered without gaps and told in the order in which they count."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.core.blocks import Text
from antiphon.core.commands import (
    AddMessages,
    CancelRun,
    DeleteMessages,
    EndRun,
    KeepCanceled,
    Lose,
    MoveHead,
    Refuse,
    Resume,
    Then,
)
from antiphon.core.dispatch import State
from antiphon.core.events import (
    CallChanged,
    Committed,
    DispatchChanged,
    DurableEvent,
    HeadMoved,
    Kept,
    MessagesAdded,
    MessagesDeleted,
    Placed,
    ResultsPlaced,
    RunChanged,
    Withdrawn,
    decode_event,
)
from antiphon.core.ids import CallId, ConversationId, MessageId, OperationId, RunId
from antiphon.core.records import CallState, RunStatus, StoredEvent
from antiphon.stores.base import Store
from tests.stores.talk import Talk

RUN = RunId("run_1")
OP = OperationId("op_1")


async def told(talk: Talk, after: int = 0) -> list[DurableEvent]:
    return [decode_event(e.data) for e in await talk.store.events(talk.conversation, after)]


async def last(talk: Talk) -> int:
    return (await talk.row()).last_event


def dispatched(state: State, code: str | None = None, generation: int = 1) -> DispatchChanged:
    return DispatchChanged(run=RUN, operation=OP, generation=generation, state=state, code=code)


@pytest.mark.req("M29", "M78")
async def test_a_turn_with_a_tool_tells_a_reader_everything_it_needs(talk: Talk) -> None:
    await talk.answered(calls=("call_1",), then=Then.CONTINUE)
    await talk.do(talk.start_call("run_1", "call_1"))
    await talk.do(talk.finish_call("run_1", "call_1"))
    await talk.do(talk.place_results("run_1", "r1"))
    await talk.do(
        EndRun(**talk.head(), run=RUN, status=RunStatus.SUCCESS, fence=talk.fence, end_code="limit")
    )
    call, name = CallId("call_1"), "weather"
    assert await told(talk) == [
        RunChanged(run=RUN, status=RunStatus.QUEUED),
        Placed(run=RUN, message=MessageId("m1"), parent=None),
        RunChanged(run=RUN, status=RunStatus.PENDING),
        dispatched(State.DISPATCHING),
        Committed(
            run=RUN,
            message=MessageId("a1"),
            parent=MessageId("m1"),
            revision=2,
            generation=1,
            finish="stop",
            input_tokens=11,
            output_tokens=7,
            calls=(call,),
        ),
        HeadMoved(head=MessageId("a1")),
        CallChanged(run=RUN, call=call, name=name, state=CallState.EXECUTING),
        CallChanged(run=RUN, call=call, name=name, state=CallState.SUCCESS),
        ResultsPlaced(run=RUN, message=MessageId("r1"), revision=3),
        HeadMoved(head=MessageId("r1")),
        RunChanged(run=RUN, status=RunStatus.SUCCESS, code="limit"),
    ]
    stored = await talk.store.events(talk.conversation, 0)
    assert [event.seq for event in stored] == list(range(1, 12))
    assert await last(talk) == 11


@pytest.mark.req("M78", "M96")
@pytest.mark.parametrize("shown", [False, True])
async def test_text_that_was_shown_is_withdrawn_by_an_event_of_its_own(
    talk: Talk, shown: bool
) -> None:
    await talk.accepted()
    at = await last(talk)
    refuse = Refuse(
        **talk.head(), operation=OP, generation=1, fence=talk.fence, code="filtered", shown=shown
    )
    await talk.do(refuse)
    withdrawn = [Withdrawn(run=RUN, generation=1, reason="filtered")] if shown else []
    assert await told(talk, at) == [dispatched(State.FAILED, "filtered"), *withdrawn]


async def test_an_unknown_outcome_and_its_resumption_are_told(talk: Talk) -> None:
    await talk.accepted()
    await talk.do(talk.written("op_1", 1))
    await talk.do(talk.opened("op_1", 1, "resp_1"))
    at = await last(talk)
    await talk.do(
        Lose(**talk.head(), operation=OP, generation=1, fence=talk.fence, code="cut", shown=True)
    )
    await talk.do(Resume(**talk.head(), operation=OP, generation=1, fence=talk.fence))
    assert await told(talk, at) == [
        dispatched(State.UNKNOWN, "cut"),
        Withdrawn(run=RUN, generation=1, reason="cut"),
        RunChanged(run=RUN, status=RunStatus.UNKNOWN, code="cut"),
        dispatched(State.STREAMING),
        RunChanged(run=RUN, status=RunStatus.PENDING),
    ]


@pytest.mark.req("M78", "M137")
async def test_a_cancel_with_text_withdraws_the_preview_and_tells_of_the_kept_node(
    talk: Talk,
) -> None:
    await talk.streaming()
    at = await last(talk)
    await talk.do(
        CancelRun(
            **talk.head(),
            run=RUN,
            reason="user",
            partial=(Text(text="half"),),
            partial_id=MessageId("p1"),
        )
    )
    assert await told(talk, at) == [
        Withdrawn(run=RUN, generation=1, reason="user"),
        MessagesAdded(messages=(MessageId("p1"),)),
        HeadMoved(head=MessageId("m1")),
        RunChanged(run=RUN, status=RunStatus.CANCELED, code="user"),
    ]


async def test_what_people_do_to_the_tree_is_told(talk: Talk) -> None:
    await talk.streaming()
    await talk.do(
        CancelRun(
            **talk.head(),
            run=RUN,
            reason="user",
            partial=(Text(text="half"),),
            partial_id=MessageId("p1"),
        )
    )
    at = await last(talk)
    m2 = talk.message("m2")
    await talk.do(AddMessages(**talk.head(), messages=(m2,), head=m2.id))
    await talk.do(KeepCanceled(**talk.head(), source=MessageId("p1"), message=MessageId("k1")))
    await talk.do(MoveHead(**talk.head(), head=m2.id))
    await talk.do(MoveHead(**talk.head(), head=m2.id))
    await talk.do(DeleteMessages(**talk.head(), messages=(MessageId("k1"),)))
    assert await told(talk, at) == [
        MessagesAdded(messages=(m2.id,)),
        HeadMoved(head=m2.id),
        Kept(message=MessageId("k1"), source=MessageId("p1")),
        HeadMoved(head=MessageId("k1")),
        HeadMoved(head=m2.id),
        MessagesDeleted(messages=(MessageId("k1"),)),
    ]


@pytest.mark.req("M29")
async def test_a_reader_pages_through_events_by_number(talk: Talk) -> None:
    await talk.answered()
    everything = await talk.store.events(talk.conversation, 0)
    assert await talk.store.events(talk.conversation, 2, limit=2) == everything[2:4]
    assert await talk.store.events(talk.conversation, everything[-1].seq) == []
    assert await talk.store.events(talk.conversation, -5) == everything
    assert [e.run for e in everything] == [RUN] * 5 + [None, RUN]


async def test_conversations_count_for_themselves(store: Store, talk: Talk) -> None:
    other = await Talk.begin(store, "conv_2")
    await talk.placed("run_1")
    await other.placed("run_2")
    for one in (talk, other):
        assert [e.seq for e in await store.events(one.conversation, 0)] == [1, 2, 3]


async def test_a_denied_command_leaves_no_gap(talk: Talk) -> None:
    await talk.placed()
    before = await last(talk)
    # The first of the two commands writes an event, the second is denied: neither counts.
    answer = await talk.store.do_all(
        talk.start("run_2", "m2"), talk.place("run_2", parent=None, revision=1)
    )
    assert answer.reason == "slot"  # type: ignore[union-attr]  # denied
    assert await last(talk) == before
    run = await talk.do(talk.start("run_3", "m3"))
    assert run.seq == before + 1


async def test_listeners_hear_of_events_in_order_and_once_they_are_durable(store: Store) -> None:
    heard: list[StoredEvent] = []
    durable: list[bool] = []

    def listen(events: list[StoredEvent]) -> None:
        heard.extend(events)

    store.on_events(listen)
    talks = [await Talk.begin(store, f"conv_{n}") for n in range(5)]

    async def work(number: int, talk: Talk) -> None:
        await talk.answered(f"run_{number}", f"op_{number}")
        # Whoever has the answer of a command has heard its events before.
        mine = [e for e in heard if e.conversation == talk.conversation]
        durable.append(mine == await store.events(talk.conversation, 0))

    await asyncio.gather(*(work(n, talk) for n, talk in enumerate(talks)))
    assert durable == [True] * 5
    assert len(heard) == 5 * 7
    for talk in talks:
        mine = [e.seq for e in heard if e.conversation == talk.conversation]
        assert mine == list(range(1, 8))
    assert {e.conversation for e in heard} == {ConversationId(f"conv_{n}") for n in range(5)}


async def test_a_denied_command_tells_nobody_anything(talk: Talk) -> None:
    await talk.placed()
    heard: list[StoredEvent] = []
    talk.store.on_events(heard.extend)
    await talk.store.do_all(talk.start("run_2", "m2"), talk.place("run_2", parent=None, revision=1))
    assert heard == []
