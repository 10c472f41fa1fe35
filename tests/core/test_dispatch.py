"""The dispatch table against its contract, which `dispatch_contract` states a second time by hand."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core import dispatch
from antiphon.core.dispatch import Condition, Denied, Event, Facts, Row, State, step
from antiphon.core.ids import Digest, NodeId, OperationId
from antiphon.errors import IllegalTransition
from tests.core.dispatch_contract import (
    ACTIVE,
    BACKWARD,
    CONTRACT,
    EVENTS,
    FAILS,
    HOLDS,
    IN_FLIGHT,
    MEANING,
    ORDER,
    STATES,
    Change,
    Line,
    cells_by_hand,
    cells_of_the_table,
    read,
    written,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


def cases() -> Iterator[Any]:
    """Every line of the contract from every one of its sources."""
    for line in CONTRACT:
        for source in line.sources.split():
            yield pytest.param(
                line, source, id=f"{line.number}-{source}-{line.event}-{line.target}"
            )


def satisfying(line: Line, source: str) -> list[Facts]:
    """Facts on which all of the line's conditions hold: every way of each."""
    ways = [HOLDS[condition] for condition in line.conditions.split()]
    found = []
    for choice in itertools.product(*ways):
        merged: Change = {}
        for change in choice:
            merged |= change
        found.append(Facts(state=read(source), **merged))
    return found


# ------------------------------------------------------------------------------------------ rows


@pytest.mark.req("M55", "M56", "M57", "M58", "M59", "M60", "M61")
def test_the_table_holds_the_rows_of_the_contract_none_more_less_or_other() -> None:
    table = cells_of_the_table()
    assert set(table) - cells_by_hand() == set(), "rows that nobody agreed to"
    assert cells_by_hand() - set(table) == set(), "rows of the contract that are missing"
    assert len(table) == len(set(table)), "a row stands twice"


def test_the_words_are_those_of_the_contract() -> None:
    assert sorted(State) == sorted(STATES[1:])
    assert sorted(Event) == sorted(EVENTS)
    assert sorted(Condition) == sorted(HOLDS) == sorted(FAILS)
    assert sorted(dispatch.PREDICATES) == sorted(Condition)
    assert sorted(dispatch.ACTIVE) == sorted(ACTIVE.split())
    assert sorted(dispatch.IN_FLIGHT) == sorted(IN_FLIGHT.split())
    assert sorted(dispatch.FINAL) == ["CANCELED", "CLOSED", "COMMITTED"]


@pytest.mark.req("M52", "M66")
@pytest.mark.parametrize(("line", "source"), list(cases()))
def test_a_row_is_taken_where_all_of_its_conditions_hold(line: Line, source: str) -> None:
    for facts in satisfying(line, source):
        row = step(facts, Event(line.event))
        assert isinstance(row, Row), f"denied {row} on {facts}"
        assert (row.number, str(row.target)) == (line.number, line.target)


@pytest.mark.req("M52", "M66")
@pytest.mark.parametrize(("line", "source"), list(cases()))
def test_each_single_condition_that_fails_is_the_reason_for_the_denial(
    line: Line, source: str
) -> None:
    same_pair = [x for x in CONTRACT if source in x.sources.split() and x.event == line.event]
    for facts in satisfying(line, source):
        for condition in line.conditions.split():
            for change in FAILS[condition]:
                changed = dataclasses.replace(facts, **change)
                answer = step(changed, Event(line.event))
                if isinstance(answer, Denied):
                    broken = {
                        c
                        for x in same_pair
                        for c in x.conditions.split()
                        if not MEANING[c](changed)
                    }
                    assert condition in broken
                    assert answer.reason in broken
                    assert len(same_pair) > 1 or len(broken) > 1 or answer.reason == condition
                else:
                    # A no to the first sending is a failure, to a second one it says nothing: the other row is taken.
                    assert {line.number, answer.number} == {8, 12}
                    assert condition in {"first_sending", "sent_again"}


@pytest.mark.req("M61")
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", STATES)
def test_a_pair_without_a_row_raises_whatever_the_facts(state: str, event: str) -> None:
    in_contract = any(state in line.sources.split() and line.event == event for line in CONTRACT)
    if in_contract:
        step(Facts(state=read(state)), Event(event))  # taken or denied, but no mistake
        return
    with pytest.raises(IllegalTransition) as raised:
        step(willing(state), Event(event))
    assert raised.value.code == "illegal_transition"
    assert (raised.value.state, raised.value.event) == (read(state), Event(event))


def willing(state: str) -> Facts:
    """Facts on which as many conditions hold as can hold at once."""
    merged: Change = {}
    for condition, ways in HOLDS.items():
        if condition not in {"fence_moved", "no_active_operation", "sent_again"}:
            merged |= ways[0]
    return Facts(state=read(state), **merged)


# ------------------------------------------------------------------------------------- conditions

few = st.integers(0, 2)
a_node = st.sampled_from([None, NodeId("a"), NodeId("b")])
an_operation = st.sampled_from([OperationId("op_1"), OperationId("op_2")])
a_digest = st.sampled_from([None, Digest("d1"), Digest("d2")])
any_facts = st.builds(
    Facts,
    state=st.sampled_from([None, *State]),
    operation=an_operation,
    generation=few,
    owner=a_node,
    owner_epoch=few,
    owner_epoch_current=few,
    deadline_ms=few,
    handle=st.sampled_from([None, "resp_9"]),
    sent_again=st.booleans(),
    base_revision=few,
    base_cancel_generation=few,
    request_digest=a_digest,
    attempts_made=few,
    revision=few,
    cancel_generation=few,
    active_operation=st.none() | an_operation,
    run_open=st.booleans(),
    run_idle=st.booleans(),
    my_node=a_node,
    my_epoch=few,
    my_epoch_current=few,
    my_generation=few,
    now_ms=few,
    my_request_digest=a_digest,
    line_legal=st.booleans(),
    whole_answer=st.booleans(),
    definite=st.booleans(),
    honours_key=st.booleans(),
    proof=st.sampled_from([None, "deadline"]),
    attempts_allowed=few,
    names_run=st.booleans(),
)


@given(facts=any_facts)
def test_each_condition_means_what_the_contract_says(facts: Facts) -> None:
    for name, meaning in MEANING.items():
        assert dispatch.PREDICATES[Condition(name)](facts) is meaning(facts), name


@given(facts=any_facts, event=st.sampled_from(list(Event)))
def test_an_event_is_taken_denied_or_raised_as_the_contract_says(
    facts: Facts, event: Event
) -> None:
    lines = [x for x in CONTRACT if written(facts.state) in x.sources.split() and x.event == event]
    targets = [x.target for x in lines if all(MEANING[c](facts) for c in x.conditions.split())]
    assert len(targets) <= 1, "two rows would be taken at once"
    try:
        answer = step(facts, event)
    except IllegalTransition:
        assert lines == []
        return
    if isinstance(answer, Denied):
        assert targets == []
        assert not MEANING[answer.reason](facts), "the reason given holds"
    else:
        assert targets == [answer.target]


@pytest.mark.parametrize("condition", sorted(HOLDS))
def test_the_ways_written_here_hold_and_fail_as_they_claim(condition: str) -> None:
    for way in HOLDS[condition]:
        assert MEANING[condition](Facts(**way))
        for change in FAILS[condition]:
            assert not MEANING[condition](Facts(**(way | change)))


# ------------------------------------------------------------------------------------------ shape


def edges() -> set[tuple[str, str, str]]:
    return {(source, event, target) for _, source, event, target, _, _ in cells_of_the_table()}


@pytest.mark.req("M61")
def test_an_attempt_moves_forward_but_for_the_three_ways_back_that_keep_or_end_its_generation() -> (
    None
):
    back = {(source, event) for source, event, target in edges() if ORDER[source] >= ORDER[target]}
    assert back == BACKWARD


@pytest.mark.req("M61")
def test_final_states_leave_by_nothing() -> None:
    for state in dispatch.FINAL:
        for event in Event:
            with pytest.raises(IllegalTransition):
                step(willing(state), event)


@pytest.mark.req("M53")
def test_only_the_accept_opens_a_generation() -> None:
    openers = {
        (row.number, row.event) for row in dispatch.TABLE if "open_generation" in row.effects
    }
    assert openers == {(2, Event.ACCEPT)}


@pytest.mark.req("M52", "M54")
def test_sending_is_reached_only_through_a_manifest_and_an_accept_or_a_replay_of_the_same_bytes() -> (
    None
):
    into = {(source, event) for source, event, target in edges() if target == "DISPATCHING"}
    assert into == {("PREPARED", "accept"), ("UNKNOWN", "replay")}
    to_prepared = {(source, event) for source, event, target in edges() if target == "PREPARED"}
    assert to_prepared == {("none", "prepare"), ("FAILED", "retry")}
    assert [row.number for row in dispatch.TABLE if "write_manifest" in row.effects] == [1]
    (replay,) = (row for row in dispatch.TABLE if row.number == 11)
    assert "same_bytes" in replay.conditions


@pytest.mark.req("M63")
@pytest.mark.parametrize("state", IN_FLIGHT.split())
def test_what_a_crash_left_in_flight_becomes_unknown_and_nothing_else(state: str) -> None:
    # The owner's process is gone: another node holds nothing of the attempt but its row.
    left = Facts(
        state=State(state),
        operation=OperationId("op_1"),
        active_operation=OperationId("op_1"),
        generation=1,
        my_generation=1,
        owner=NodeId("a"),
        owner_epoch=1,
        owner_epoch_current=2,
        my_node=NodeId("b"),
        my_epoch=1,
        my_epoch_current=1,
        deadline_ms=1,
        attempts_allowed=3,
        proof="the lease ran out",
        honours_key=True,
        handle="resp_9",
        definite=True,
    )
    open_ways: dict[Event, str] = {}
    for event in Event:
        try:
            answer = step(left, event)
        except IllegalTransition:
            continue
        if isinstance(answer, Row):
            open_ways[event] = str(answer.target)
    assert open_ways == {Event.LOST: "UNKNOWN"}


@pytest.mark.req("M64", "M65")
def test_unknown_leaves_by_the_same_generation_or_by_proof_and_never_straight_to_another_attempt() -> (
    None
):
    ways = {event: target for source, event, target in edges() if source == "UNKNOWN"}
    assert ways == {
        "resume": "STREAMING",
        "replay": "DISPATCHING",
        "found": "COMMITTED",
        "ended": "FAILED",
        "conflict": "FAILED",
        "cancel": "CANCELED",
    }
    for row in dispatch.TABLE:
        if State.UNKNOWN in row.sources and row.target in {State.FAILED, State.PREPARED}:
            assert {"proof", "whole_answer"} & set(row.conditions), "an end without proof of it"


@pytest.mark.req("M62")
def test_the_handle_is_bound_in_the_row_that_opens_the_answer() -> None:
    assert [row.number for row in dispatch.TABLE if "bind_handle" in row.effects] == [5]


@pytest.mark.req("M67")
def test_a_whole_answer_for_a_base_that_moved_goes_to_quarantine_and_writes_nothing() -> None:
    (conflict,) = (row for row in dispatch.TABLE if row.event is Event.CONFLICT)
    assert "quarantine" in conflict.effects
    assert not {"write_message", "bear_calls", "advance_revision"} & set(conflict.effects)


@pytest.mark.req("M68")
def test_calls_are_born_only_where_the_whole_message_is_written() -> None:
    bearing = {row.number for row in dispatch.TABLE if "bear_calls" in row.effects}
    writing = {row.number for row in dispatch.TABLE if "write_message" in row.effects}
    assert bearing == writing == {6, 13}
    for row in dispatch.TABLE:
        if row.number in bearing:
            assert "whole_answer" in row.conditions


def test_every_row_that_leaves_the_active_states_releases_and_no_other_but_the_cancel_does() -> (
    None
):
    active = set(ACTIVE.split())
    for row in dispatch.TABLE:
        leaves = bool({written(s) for s in row.sources} & active) and row.target not in active
        assert ("release" in row.effects) is leaves, row


def test_from_every_state_that_is_not_final_a_final_one_can_be_reached_without_a_cancel() -> None:
    forward: dict[str, set[str]] = {}
    for source, event, target in edges():
        if event != "cancel":
            forward.setdefault(source, set()).add(target)
    for start in STATES[:-3]:
        seen, todo = {start}, [start]
        while todo:
            for target in forward.get(todo.pop(), set()) - seen:
                seen.add(target)
                todo.append(target)
        assert seen & {"COMMITTED", "CLOSED"}, start
