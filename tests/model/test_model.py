"""The model's short form: one scenario and a few mutants in seconds. `make verify` runs all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from antiphon.core import dispatch
from tests.model.explore import Explorer
from tests.model.inbox import INBOX_RULES, explore_inbox
from tests.model.mutants import MUTANTS, Mutant, hunt, planted
from tests.model.scenarios import SCENARIOS, explore
from tests.model.world import Breach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHORT = (
    "accept from UNKNOWN",
    "commit without cancel_generation and active_operation",
    "run ended without owner and epoch",
    "tool result without state, owner, attempt",
    "key row in a second transaction",
)


def named(name: str) -> Mutant:
    return next(mutant for mutant in MUTANTS if mutant.name == name)


@pytest.mark.req("M52", "M65", "M66")
def test_a_cancel_in_two_strides_holds_in_every_interleaving() -> None:
    found = explore(SCENARIOS["cancel in two strides"])
    assert found.breach is None, found.path
    assert found.states > 1000, "the scenario has become too tame to say anything"


def test_a_repeated_key_starts_one_run_in_every_interleaving() -> None:
    assert explore_inbox(INBOX_RULES).breach is None


@pytest.mark.parametrize("name", SHORT)
def test_a_mutant_is_caught_by_the_invariant_that_the_contract_names(name: str) -> None:
    mutant = named(name)
    found = hunt(mutant)
    assert found.breach is not None, "survived"
    assert mutant.wanted(found.breach)
    assert found.path, "nobody can tell how it came about"


def test_every_mutant_is_planted_in_a_scenario_that_exists_under_a_name_of_its_own() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names))
    assert {mutant.scenario for mutant in MUTANTS} <= {*SCENARIOS, "inbox"}


def test_a_planted_mutant_changes_something_and_is_gone_afterwards() -> None:
    before = (dispatch._BY_PAIR, dispatch.PREDICATES)
    for mutant in MUTANTS:
        changes_table = mutant.table(dispatch.TABLE) != dispatch.TABLE
        assert changes_table or mutant.meanings or mutant.rules or mutant.inbox, mutant.name
        with planted(mutant):
            assert changes_table is (dict(dispatch._BY_PAIR) != dict(before[0]))
    assert before == (dispatch._BY_PAIR, dispatch.PREDICATES)


# ---------------------------------------------------------------------------------- the explorer

Steps = list[tuple[tuple[object, ...], int, Breach | None, bool]]


def explorer(steps: dict[int, Steps], ends: set[int]) -> Explorer[int]:
    moves: Callable[[int], Steps] = lambda world: steps.get(world, [])  # noqa: E731
    return Explorer(
        moves, lambda world: Breach("9", "nine") if world == 9 else None, ends.__contains__
    )


def test_the_explorer_finds_the_shortest_way_to_a_breach() -> None:
    steps: dict[int, Steps] = {
        0: [(("far",), 1, None, True), (("near",), 2, None, True)],
        1: [(("on",), 3, None, True)],
        3: [(("there",), 9, None, True)],
        2: [(("there",), 9, None, True)],
    }
    found = explorer(steps, {9}).run(0)
    assert found.breach == Breach("9", "nine")
    assert found.path == (("near",), ("there",))


def test_the_explorer_calls_a_world_stuck_from_which_only_misfortune_helps() -> None:
    steps: dict[int, Steps] = {0: [(("work",), 1, None, True)], 1: [(("crash",), 2, None, False)]}
    stuck = explorer(steps, {2}).run(0)
    assert stuck.breach is not None
    assert stuck.breach.number == "stuck"
    steps[1] = [(("work",), 2, None, True)]
    assert explorer(steps, {2}).run(0).breach is None


def test_the_explorer_sees_every_world_once() -> None:
    def ring(world: int) -> Iterator[tuple[tuple[object, ...], int, Breach | None, bool]]:
        for step in (1, 2):
            yield (step,), (world + step) % 7, None, True

    found = Explorer(ring, lambda _: None, lambda world: world == 0).run(0)
    assert (found.states, found.transitions) == (7, 14)
