"""Calls that repeat an earlier one of their run."""

from __future__ import annotations

import pytest

from antiphon.core.commands import NewCall
from antiphon.core.ids import CallId, Digest
from antiphon.core.records import CallState, Runner
from antiphon.core.tools.repeats import AwaitTwin, Fresh, Reuse, TooOften, may_begin, repetition
from tests.support.calls import ledger_call

LIMIT = 3


def new(digest: str = "a", *, read_only: bool = False, repeatable: bool = False) -> NewCall:
    return NewCall(
        call_id=CallId("new"),
        name="look",
        arguments="{}",
        arguments_digest=Digest(digest),
        runner=Runner.FUNCTION,
        read_only=read_only,
        repeatable=repeatable,
    )


@pytest.mark.req("M143", "M146")
def test_the_newest_success_of_the_same_call_answers_it_again() -> None:
    first = ledger_call("c1", digest="a", state=CallState.SUCCESS)
    second = ledger_call("c2", digest="a", state=CallState.SUCCESS)
    other = ledger_call("c3", digest="b", state=CallState.SUCCESS)
    assert repetition(new(), [first, second, other], repeat_limit=LIMIT) == Reuse(second)


@pytest.mark.parametrize("state", [CallState.ERROR, CallState.CANCELED])
def test_a_call_that_failed_may_be_tried_again(state: CallState) -> None:
    assert repetition(new(), [ledger_call("c1", state=state)], repeat_limit=LIMIT) == Fresh()


def test_what_was_never_asked_is_run() -> None:
    assert repetition(new(), [], repeat_limit=LIMIT) == Fresh()
    assert repetition(new("b"), [ledger_call("c1", digest="a")], repeat_limit=LIMIT) == Fresh()


@pytest.mark.req("M143")
def test_calls_are_counted_however_they_ended_and_beyond_the_limit_they_are_refused() -> None:
    ends = [CallState.ERROR, CallState.SUCCESS, CallState.SUCCESS]
    before = [ledger_call(f"c{n}", state=state) for n, state in enumerate(ends)]
    assert repetition(new(), before[:2], repeat_limit=LIMIT) == Reuse(before[1])
    assert repetition(new(), before, repeat_limit=LIMIT) == TooOften(3)


def test_a_repeatable_tool_is_never_a_repetition() -> None:
    before = [ledger_call(f"c{n}", state=CallState.SUCCESS) for n in range(9)]
    assert repetition(new(repeatable=True), before, repeat_limit=LIMIT) == Fresh()
    asked = [new(repeatable=True), new(repeatable=True)]
    assert list(may_begin(asked)) == asked


@pytest.mark.parametrize("state", [CallState.PENDING, CallState.EXECUTING, CallState.UNKNOWN])
def test_the_same_call_under_way_is_waited_for(state: CallState) -> None:
    twin = ledger_call("c1", state=state)
    assert repetition(new(), [twin], repeat_limit=LIMIT) == AwaitTwin()
    same = ledger_call("c2", state=CallState.PENDING)
    other = ledger_call("c3", digest="b", state=CallState.PENDING)
    assert list(may_begin([twin, same, other])) == [twin, other]


def test_what_has_its_answer_keeps_the_same_call_from_nothing() -> None:
    step = [ledger_call(f"c{n}", state=state) for n, state in enumerate((CallState.ERROR,) * 2)]
    assert list(may_begin(step)) == step


@pytest.mark.req("M143")
def test_what_was_read_is_read_again_once_something_may_have_been_written() -> None:
    read = ledger_call("c1", digest="a", state=CallState.SUCCESS, read_only=True)
    wrote = ledger_call("c2", digest="w", state=CallState.SUCCESS)
    asked = new("a", read_only=True)
    assert repetition(asked, [read], repeat_limit=LIMIT) == Reuse(read)
    assert repetition(asked, [read, wrote], repeat_limit=LIMIT) == Fresh()
    assert repetition(asked, [read, wrote, read], repeat_limit=LIMIT) == Reuse(read)
    # A call that is not known to only read is not run again, whatever was written.
    assert repetition(new("a"), [read, wrote], repeat_limit=LIMIT) == Reuse(read)


@pytest.mark.parametrize("state", [CallState.ERROR, CallState.UNKNOWN, CallState.EXECUTING])
def test_a_write_of_any_fate_may_have_written(state: CallState) -> None:
    read = ledger_call("c1", digest="a", state=CallState.SUCCESS, read_only=True)
    wrote = ledger_call("c2", digest="w", state=state)
    assert repetition(new("a", read_only=True), [read, wrote], repeat_limit=LIMIT) == Fresh()


@pytest.mark.parametrize(
    "code", ["unknown_tool", "invalid_arguments", "tool_limit", "repeated_call", "refused"]
)
def test_a_call_that_never_began_has_written_nothing(code: str) -> None:
    read = ledger_call("c1", digest="a", state=CallState.SUCCESS, read_only=True)
    closed = ledger_call("c2", digest="w", state=CallState.ERROR, code=code)
    pending = ledger_call("c3", digest="x", state=CallState.PENDING)
    asked = new("a", read_only=True)
    assert repetition(asked, [read, closed, pending], repeat_limit=LIMIT) == Reuse(read)
