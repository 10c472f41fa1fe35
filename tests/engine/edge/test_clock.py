"""Time, randomness, and the ids made of both."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.ids import SUFFIX_LENGTH
from antiphon.engine.edge.clock import NS_IN_MS, SystemClock
from antiphon.engine.edge.entropy import Ids, SystemEntropy
from tests.support.clock import START_MS, Seeded, SimulatedClock, settle
from tests.support.upstream import WAIT_S


class StubbornClock(SimulatedClock):
    """Shows the times it is given, one after another."""

    def __init__(self, times: list[int]) -> None:
        super().__init__()
        self._times = iter(times)

    def now_ms(self) -> int:
        return next(self._times)


# ------------------------------------------------------------------------------------------- ids


@given(times=st.lists(st.integers(0, 2**47), min_size=2, max_size=50), seed=st.integers(0, 9))
def test_ids_of_one_process_sort_as_they_were_made_whatever_the_clock_does(
    times: list[int], seed: int
) -> None:
    ids = Ids(StubbornClock(times), Seeded(seed))
    made = [ids.new_id("msg_") for _ in times]
    assert all(before < after for before, after in itertools.pairwise(made))
    assert {len(id_) for id_ in made} == {len("msg_") + SUFFIX_LENGTH}


def test_ids_of_one_moment_are_many_and_stay_in_order() -> None:
    ids = Ids(SimulatedClock(), SystemEntropy())
    made = [ids.new_id("op_") for _ in range(20_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_the_next_id_of_a_moment_cannot_be_counted_to() -> None:
    ids = Ids(SimulatedClock(), Seeded(1))
    one, two, three = (int(ids.new_id("")[-10:], 36) for _ in range(3))
    assert 1 not in (two - one, three - two)
    assert two - one != three - two


def test_the_same_seed_and_clock_give_the_same_ids() -> None:
    first, again, other = (Ids(SimulatedClock(), Seeded(seed)) for seed in (4, 4, 5))
    made = [first.new_id("run_") for _ in range(5)]
    assert made == [again.new_id("run_") for _ in range(5)]
    assert made != [other.new_id("run_") for _ in range(5)]


def test_a_later_moment_sorts_after_an_earlier_one_of_another_process() -> None:
    early, late = (Ids(SimulatedClock(START_MS + at), SystemEntropy()) for at in (0, 1))
    assert early.new_id("msg_") < late.new_id("msg_")


@pytest.mark.parametrize("entropy", [SystemEntropy(), Seeded(3)], ids=["the machine's", "seeded"])
def test_entropy_keeps_to_its_bounds(entropy: SystemEntropy | Seeded) -> None:
    assert all(0 <= entropy.bits(3) < 8 for _ in range(200))
    assert {entropy.bits(1) for _ in range(200)} == {0, 1}
    assert all(0 <= entropy.fraction() < 1 for _ in range(200))


# -------------------------------------------------------------------------------- the machine's clock


async def test_the_machine_s_clock_calls_back_once_unless_it_is_told_to_forget() -> None:
    clock = SystemClock()
    called = asyncio.Event()
    forgotten: list[int] = []
    forget = clock.call_later(0, lambda: forgotten.append(1))
    clock.call_later(0.001, called.set)
    forget()
    await asyncio.wait_for(called.wait(), WAIT_S)
    assert forgotten == []
    before = clock.now_ms()
    await clock.sleep(0.002)
    assert clock.now_ms() >= before > START_MS


class Machine:
    """A machine whose two clocks a test moves: one may be set, the other only goes on."""

    def __init__(self) -> None:
        self.wall_ms = START_MS
        self.steady_ms = 5_000
        self.clock = SystemClock(lambda: self.wall_ms * NS_IN_MS, lambda: self.steady_ms * NS_IN_MS)

    def passes(self, ms: int) -> int:
        self.wall_ms += ms
        self.steady_ms += ms
        return self.clock.now_ms()


@given(
    st.lists(st.tuples(st.integers(0, 120_000), st.integers(-14_400_000, 14_400_000)), max_size=40)
)
def test_time_goes_on_steadily_while_the_wall_clock_is_set_by_hours(
    steps: list[tuple[int, int]],
) -> None:
    machine = Machine()
    at_ms = machine.clock.now_ms()
    for pause_ms, jump_ms in steps:
        machine.wall_ms += jump_ms
        before_ms, at_ms = at_ms, machine.passes(pause_ms)
        length_ms = at_ms - before_ms
        assert abs(length_ms - pause_ms) <= pause_ms / 16 + 1
        assert length_ms >= 0


@pytest.mark.parametrize("hours", [-3, 3])
def test_a_clock_that_was_set_is_agreed_with_in_the_end(hours: int) -> None:
    machine = Machine()
    machine.wall_ms += hours * 3_600_000
    assert machine.passes(0) == START_MS
    for _ in range(16 * 3 * 60):
        machine.passes(60_000)
    assert abs(machine.clock.now_ms() - machine.wall_ms) <= 16


# ---------------------------------------------------------------------------- the simulated clock


async def test_simulated_time_stands_still_until_it_is_moved() -> None:
    clock = SimulatedClock()
    sleeper = asyncio.create_task(clock.sleep(3600))
    await settle()
    assert (sleeper.done(), clock.now_ms(), clock.sleeping) == (False, START_MS, 1)
    await clock.advance(3599)
    assert not sleeper.done()
    await clock.advance(1)
    assert sleeper.done()
    assert clock.now_ms() == START_MS + 3_600_000


async def test_sleepers_wake_one_moment_after_another_and_see_their_own_time() -> None:
    clock = SimulatedClock()
    seen: list[tuple[str, int]] = []

    async def sleep(name: str, *seconds: float) -> None:
        for each in seconds:
            await clock.sleep(each)
            seen.append((name, clock.now_ms() - START_MS))

    tasks = [asyncio.create_task(sleep("a", 2, 2)), asyncio.create_task(sleep("b", 1, 2))]
    clock.call_later(2.5, lambda: seen.append(("timer", clock.now_ms() - START_MS)))
    await clock.advance(10)
    assert all(task.done() for task in tasks)
    assert seen == [("b", 1000), ("a", 2000), ("timer", 2500), ("b", 3000), ("a", 4000)]


async def test_a_canceled_sleeper_and_a_forgotten_timer_are_gone() -> None:
    clock = SimulatedClock()
    called: list[int] = []
    task = asyncio.create_task(clock.sleep(1))
    forget = clock.call_later(1, lambda: called.append(1))
    await settle()
    task.cancel()
    forget()
    await clock.advance(2)
    assert task.cancelled()
    assert (called, clock.sleeping) == ([], 0)
