"""The simulation's short form: some histories, and whether it can be believed.

`make soak` lives through thousands; `python -m tests.simulation --mutants` plants every fault.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.history import simulate
from tests.simulation.loop import VirtualLoop
from tests.simulation.mutants import MUTANTS, hunt

ROOT = Path(__file__).parents[2]
BATCH = 20
HISTORIES = 100
QUICK = (
    "a crash sends again what may have been sent",
    "a cancel leaves calls open",
    "a reader begins one event behind",
)


@pytest.fixture(autouse=True)
def no_news_of_bad_weather() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.req("M35", "M52", "M54", "M63", "M65", "M66", "M67", "M68", "M69", "M73", "M76", "M77")
@pytest.mark.req("M82", "M83", "M84", "M86", "M88", "M89", "M90", "M139")
@pytest.mark.parametrize("first", range(0, HISTORIES, BATCH))
def test_whatever_fails_whenever_every_promise_is_kept(first: int) -> None:
    broken = {}
    seen: Counter[str] = Counter()
    for seed in range(first, first + BATCH):
        history = simulate(seed)
        seen += history.counts
        if history.broken:
            broken[f"python -m tests.simulation --seed {seed} --trace"] = history.broken
    assert broken == {}
    # Chance decides which of them each history meets; that they are met at all is not chance.
    assert seen.keys() >= {"CommitAnswer", "Lose", "CancelRun", "effect", "store", "killed", "End"}


def test_the_same_seed_lives_the_same_history_in_another_process_too() -> None:
    for seed in (3, 8):
        once, again = simulate(seed), simulate(seed)
        assert once.lines == again.lines
        environment = {**os.environ, "PYTHONHASHSEED": "12345"}
        command = [sys.executable, "-m", "tests.simulation", "--trace", f"--seed={seed}"]
        told = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
        )
        assert told.stdout.splitlines()[-1] == f"digest {once.digest}"
    assert simulate(3).digest != simulate(8).digest


@pytest.mark.parametrize("name", QUICK)
def test_a_fault_planted_in_the_code_is_caught(name: str) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    assert hunt(mutant, range(40)) is not None


def test_every_mutant_has_a_name_of_its_own_and_is_gone_afterwards() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        with mutant.plant():
            pass
    assert simulate(1).broken == []


def test_virtual_time_passes_only_where_nothing_is_left_to_do() -> None:
    loop = VirtualLoop(5.0)
    seen: list[tuple[str, float]] = []

    async def wait(name: str, *pauses: float) -> None:
        for pause in pauses:
            await asyncio.sleep(pause)
            seen.append((name, asyncio.get_running_loop().time()))

    async def both() -> None:
        await asyncio.gather(wait("a", 2, 2), wait("b", 1, 0, 86_400))

    loop.finish(both(), 1000)
    assert seen == [("b", 6.0), ("b", 6.0), ("a", 7.0), ("a", 9.0), ("b", 86_406.0)]


def test_what_an_abandoned_life_had_under_way_never_goes_on() -> None:
    loop = VirtualLoop(0.0)
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(1)
            seen.append("went on")
        finally:
            await asyncio.sleep(1)
            seen.append("cleaned up in vain")

    with loop.entered():
        loop.create_task(work())
    assert loop.step()
    loop.abandon()
    assert not loop.step()
    assert seen == []
