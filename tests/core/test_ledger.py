"""The ledger of tool calls, and what a run does next."""

from __future__ import annotations

import msgspec
import pytest

from antiphon.core.blocks import Outcome, Text
from antiphon.core.digests import NO_KEY
from antiphon.core.ids import CallId, ConversationId, Digest, MessageId, RunId
from antiphon.core.records import Call, CallState, Runner, RunStatus
from antiphon.core.tools.ledger import arguments_digest, invalid_arguments, result_of, unknown_tool
from antiphon.core.tools.loop import (
    AwaitOutputs,
    CallModel,
    NextStep,
    PlaceToolResults,
    RunTools,
    may_go_on,
    next_step,
    over_limit,
)
from antiphon.errors import InternalError
from tests.core.test_placement import run

OURS = frozenset({"clock"})


def call(
    name: str = "clock",
    state: CallState = CallState.PENDING,
    runner: Runner = Runner.FUNCTION,
    call_id: str = "c1",
) -> Call:
    return Call(
        conversation=ConversationId("conv_a"),
        run=RunId("run_new"),
        message=MessageId("a1"),
        call_id=CallId(call_id),
        order=0,
        name=name,
        arguments="{}",
        arguments_digest=Digest("d"),
        generation=3,
        runner=runner,
        read_only=False,
        idempotent=False,
        state=state,
        attempt=0,
        node=None,
        epoch=0,
        deadline_ms=0,
        idempotency_key="k",
        code=None,
        content=(Text(text="noon"),),
        ended_ms=None,
    )


@pytest.mark.req("M36")
def test_a_result_names_the_tool_arguments_and_generation_of_its_call() -> None:
    block = result_of(call(state=CallState.SUCCESS))
    assert (block.call_id, block.name, block.arguments_digest, block.generation) == (
        "c1", "clock", "d", 3,
    )  # fmt: skip
    assert block.outcome is Outcome.SUCCESS


@pytest.mark.req("M34", "M35")
@pytest.mark.parametrize("state", [CallState.PENDING, CallState.EXECUTING, CallState.UNKNOWN])
def test_no_result_is_made_up_for_an_open_call(state: CallState) -> None:
    with pytest.raises(InternalError):
        result_of(call(state=state))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('{"a":1,"b":2}', '{ "b": 2.0, "a": 1 }', True),
        ('{"a":0.1}', '{"a":0.10}', True),
        ('{"a":1}', '{"a":"1"}', False),
        ('{"a":0.1}', '{"a":0.1000000000000000055}', False),
        ('{"a":9007199254740993}', '{"a":9007199254740992}', False),
        ("{}", '{"a":null}', False),
    ],
)
def test_calls_are_the_same_when_their_exact_values_are(one: str, other: str, same: bool) -> None:
    digests = [arguments_digest(NO_KEY, "pay", text) for text in (one, other)]
    assert (digests[0] == digests[1]) is same
    assert digests[0] != arguments_digest(NO_KEY, "refund", one)


def test_the_model_is_told_which_tools_there_are_and_what_does_not_fit() -> None:
    assert 'no tool "calculator"' in unknown_tool("calculator", ["compute", "clock"])
    assert "clock, compute" in unknown_tool("calculator", ["compute", "clock"])
    assert "Nothing was run" in invalid_arguments("expr: missing")


@pytest.mark.parametrize(
    ("calls", "step"),
    [
        ([], CallModel()),
        ([call()], RunTools((call(),))),
        ([call(state=CallState.SUCCESS)], PlaceToolResults()),
        ([call(state=CallState.ERROR), call(state=CallState.CANCELED)], PlaceToolResults()),
        ([call(runner=Runner.CLIENT)], AwaitOutputs()),
        ([call("weather")], AwaitOutputs()),
        ([call(state=CallState.EXECUTING)], AwaitOutputs()),
        ([call(state=CallState.UNKNOWN)], AwaitOutputs("tool_unknown")),
        (
            [call(state=CallState.SUCCESS), call(runner=Runner.CLIENT, call_id="c2")],
            AwaitOutputs(),
        ),
        (
            [call(), call(runner=Runner.CLIENT, call_id="c2")],
            RunTools((call(),)),
        ),
    ],
)
@pytest.mark.req("M35", "M37")
def test_a_run_calls_the_model_only_when_every_call_is_closed(
    calls: list[Call], step: NextStep
) -> None:
    assert next_step(run(status=RunStatus.PENDING), calls, OURS) == step


def test_the_last_model_call_allowed_offers_no_tools_and_none_follows() -> None:
    fresh = run(status=RunStatus.PENDING)
    options = msgspec.structs.replace(fresh.options, max_model_calls=2)
    steps = [msgspec.structs.replace(fresh, options=options, committed=n) for n in range(3)]
    assert [next_step(step, [], OURS) for step in steps[:2]] == [
        CallModel(),
        CallModel(tools=False),
    ]
    assert [over_limit(step) for step in steps] == [False, False, True]


def test_only_a_run_at_work_may_be_taken_up() -> None:
    taken = [status for status in RunStatus if may_go_on(run(status=status))]
    assert taken == [RunStatus.PENDING, RunStatus.UNKNOWN]
