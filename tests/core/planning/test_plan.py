"""Plans: required first, then by priority, the newest turns in one piece, and nothing in silence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.blocks import Role
from antiphon.core.ids import MessageId
from antiphon.core.planning.budget import Budget
from antiphon.core.planning.plan import Slot, over_window, plan, select
from antiphon.core.planning.trace import (
    BlockKind,
    PromptTrace,
    Reason,
    Selection,
    decode_trace,
    encode_trace,
)
from antiphon.core.planning.trimming import Candidate
from tests.core.planning.test_trimming import talk

RULES = Slot(kind=BlockKind.SYSTEM_POLICY, id="rules", tokens=20, required=True)
TOOLS = Slot(kind=BlockKind.TOOL_GUIDANCE, id="tools", tokens=30, required=True)


def found(name: str, tokens: int, priority: int = 0, *, required: bool = False) -> Slot:
    kind = BlockKind.DYNAMIC_CONTEXT
    return Slot(kind=kind, id=name, tokens=tokens, priority=priority, required=required)


@pytest.mark.req("M113", "M114")
def test_required_slots_come_first_and_the_rest_by_priority_while_it_fits() -> None:
    slots = [found("low", 40, -1), found("a", 40), found("b", 40), found("must", 90, required=True)]
    assert [slot.id for slot in select(slots, 175)] == ["must", "a", "b"]
    assert [slot.id for slot in select(slots, 140)] == ["must", "a"]
    assert [slot.id for slot in select(slots, 10)] == ["must"]
    assert [slot.id for slot in select(slots, None)] == ["must", "a", "b", "low"]


@pytest.mark.req("M108", "M109", "M110", "M111")
def test_a_plan_says_what_each_kind_costs_and_what_changes_least_comes_first() -> None:
    memory = Slot(kind=BlockKind.STABLE_CONTEXT, id="memory", tokens=5)
    made = plan(talk("s", "u", "a", "u"), [found("passage", 7), TOOLS, memory, RULES])
    assert [(b.kind.value, b.tokens, b.cacheable, b.sources) for b in made.trace.blocks] == [
        ("system_policy", 30, True, 2),
        ("tool_guidance", 30, True, 1),
        ("stable_context", 5, True, 1),
        ("transcript", 30, True, 3),
        ("dynamic_context", 7, False, 1),
    ]
    assert made.trace.total_tokens == 102
    assert made.trace.cacheable_tokens == 95
    assert made.kept == ("m0", "m1", "m2", "m3")
    assert [slot.id for slot in made.slots] == ["rules", "tools", "memory", "passage"]


def test_what_is_left_out_is_told_with_its_reason() -> None:
    made = plan(
        talk("u", "a", "u", "a", "u"),
        [RULES, found("passage", 60)],
        Budget(window=60, output=0),
    )
    assert made.fits
    assert made.kept == ("m2", "m3", "m4")
    assert made.trace.selection == Selection(start=MessageId("m2"))
    gone, dropped = made.trace.left_out
    assert (gone.reason, gone.count, gone.tokens, gone.first, gone.last) == (
        Reason.TRUNCATION, 2, 20, "m0", "m1",
    )  # fmt: skip
    assert (dropped.reason, dropped.count, dropped.tokens, dropped.first) == (
        Reason.BUDGET, 1, 60, "passage",
    )  # fmt: skip


def test_required_over_the_budget_is_refused_and_not_cut() -> None:
    made = plan(talk("u", "a", "u"), [RULES, TOOLS], Budget(window=59, output=0))
    assert not made.fits
    assert made.grant.over_tokens == 1
    assert "m2" in made.kept
    told = over_window("m2", made.trace.total_tokens, made.grant, 59)
    assert (told.code, told.at) == ("over_window", "m2")
    assert "60 tokens, 1 more" in told.message


def test_nothing_is_left_out_unless_it_may_be() -> None:
    made = plan(talk("u", "a", "u"), [RULES], Budget(window=40, output=0), trim=False)
    assert not made.fits
    assert made.kept == ("m0", "m1", "m2")


def test_a_message_larger_than_the_window_is_over_it() -> None:
    huge = Candidate(id=MessageId("huge"), role=Role.USER, tokens=10_000)
    made = plan([*talk("u", "a"), huge], (), Budget(window=4_000, output=500))
    assert made.kept == ("huge",)
    assert made.grant.over_tokens == 10_000 + 64 - 4_000


def test_a_result_larger_than_the_window_takes_its_call_along() -> None:
    line = talk("u", "c1", "r1", "a", "u")
    line[2] = Candidate(id=line[2].id, role=Role.TOOL, tokens=10_000, results=line[2].results)
    made = plan(line, (), Budget(window=4_000, output=500))
    assert made.fits
    assert made.kept == ("m4",)


def test_a_stored_trace_comes_back_as_it_was() -> None:
    made = plan(talk("u", "a", "u"), [RULES], Budget(window=45, output=100)).trace
    name, stored = encode_trace(b"k" * 32, made)
    assert decode_trace(stored) == made
    assert isinstance(decode_trace(stored), PromptTrace)
    assert encode_trace(b"k" * 32, made)[0] == name != encode_trace(b"j" * 32, made)[0]


words = st.lists(st.sampled_from(["u", "a", "s"]), min_size=1, max_size=14)
slot_lists = st.lists(
    st.builds(
        Slot,
        kind=st.sampled_from(list(BlockKind)),
        id=st.text("abc", min_size=1, max_size=4),
        tokens=st.integers(0, 60),
        priority=st.integers(-2, 2),
        required=st.booleans(),
    ),
    max_size=6,
    unique_by=lambda slot: slot.id,
)


@given(words, slot_lists, st.integers(1, 400), st.one_of(st.none(), st.integers(0, 200)))
def test_a_plan_fits_or_says_so_keeps_what_is_required_and_is_always_the_same(
    said: list[str], slots: list[Slot], window: int, output: int | None
) -> None:
    line, budget = talk(*said), Budget(window=window, output=output, output_minimum=8)
    made = plan(line, slots, budget)
    assert made == plan(line, slots, budget)
    kept = [m for m in line if m.id in made.kept]
    total = sum(m.tokens for m in kept) + sum(slot.tokens for slot in made.slots)
    assert made.trace.total_tokens == total == sum(b.tokens for b in made.trace.blocks)
    assert made.fits is (budget.grant(total).over_tokens == 0)
    assert {s.id for s in slots if s.required} <= {s.id for s in made.slots}
    assert {m.id for m in line if m.role is Role.SYSTEM} <= set(made.kept)
    assert line[-1].id in made.kept
    # Where what is required alone fits, all of it does.
    floor = plan(line, [s for s in slots if s.required], budget)
    if floor.fits:
        assert made.fits
    # What is kept of the talk is its end, in one piece.
    start = next(n for n, m in enumerate(line) if m.id in made.kept and m.role is not Role.SYSTEM) if any(m.role is not Role.SYSTEM for m in kept) else len(line)  # fmt: skip
    assert all(m.id in made.kept for m in line[start:])


@given(words, slot_lists)
def test_without_a_budget_nothing_is_left_out_and_the_order_is_the_same(
    said: list[str], slots: list[Slot]
) -> None:
    line = talk(*said)
    free, roomy = plan(line, slots), plan(line, slots, Budget(window=10**9, output=10))
    assert free.kept == roomy.kept == tuple(m.id for m in line)
    assert free.slots == roomy.slots
    assert free.trace.blocks == roomy.trace.blocks
    assert free.trace.left_out == roomy.trace.left_out == ()
