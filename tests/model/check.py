"""`make verify`: the dispatch table against its contract and against every interleaving of a small world.

First the table's rows against those written by hand; then every scenario, explored to its end;
then every mutant of the contract, planted and hunted. Exits 1 if the table differs, a scenario
has a breach, a row of the table is never taken, or a mutant survives.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).parents[2])
)  # run as a file, the project's tests are a package beside it

from tests.core.dispatch_contract import CONTRACT, cells_by_hand, cells_of_the_table
from tests.model.explore import Found
from tests.model.inbox import INBOX_RULES, explore_inbox
from tests.model.mutants import MUTANTS, hunt
from tests.model.scenarios import SCENARIOS, explore

WIDTH = 66


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one scenario or mutant."""

    name: str
    found: Found
    seconds: float


def run_scenario(name: str) -> Outcome:
    """Explore one scenario to its end."""
    began = time.perf_counter()
    found = explore_inbox(INBOX_RULES) if name == "inbox" else explore(SCENARIOS[name])
    return Outcome(name=name, found=found, seconds=time.perf_counter() - began)


def run_mutant(number: int) -> Outcome:
    """Hunt one mutant."""
    began = time.perf_counter()
    mutant = MUTANTS[number]
    return Outcome(name=mutant.name, found=hunt(mutant), seconds=time.perf_counter() - began)


def say(kind: str, name: str, verdict: str) -> None:
    """Print one line, at once."""
    print(f"{kind:9} {name + ' ':.<{WIDTH}} {verdict}", flush=True)


def show_path(found: Found) -> None:
    """Print how the breach was reached."""
    for step in found.path:
        print("         ", *step)


def compare_table() -> bool:
    """Compare the table with the rows written by hand."""
    table, by_hand = cells_of_the_table(), cells_by_hand()
    same = set(table) == by_hand and len(table) == len(by_hand)
    rows = len({line.number for line in CONTRACT})
    say(
        "table",
        f"{rows} rows in {len(CONTRACT)} lines",
        "as written by hand" if same else "DIFFERS",
    )
    for more in sorted(set(table) - by_hand, key=str):
        print("          only in the table:  ", *more)
    for less in sorted(by_hand - set(table), key=str):
        print("          only in the contract:", *less)
    return same


def check_scenarios(pool: ProcessPoolExecutor, *, trace: bool) -> tuple[bool, int]:
    """Explore every scenario; the rows that they take together have to be all there are."""
    good, states, transitions = True, 0, 0
    taken: set[tuple[int, str]] = set()
    for outcome in pool.map(run_scenario, [*SCENARIOS, "inbox"]):
        found = outcome.found
        states, transitions = states + found.states, transitions + found.transitions
        taken |= found.rows
        verdict = f"BROKEN: {found.breach}" if found.breach else "holds"
        say(
            "scenario",
            outcome.name,
            f"{verdict}  {found.states:,} states, {found.transitions:,} transitions",
        )
        if found.breach:
            good = False
            show_path(found)
        elif trace:
            print(f"          {outcome.seconds:.1f} s")
    missing = {(line.number, line.event) for line in CONTRACT} - taken
    for number, event in sorted(missing):
        say("row", f"{number} {event}", "NEVER TAKEN")
    say(
        "total",
        f"{len(SCENARIOS) + 1} scenarios",
        f"{states:,} states, {transitions:,} transitions",
    )
    return good and not missing, states


def check_mutants(pool: ProcessPoolExecutor, *, trace: bool) -> tuple[bool, int]:
    """Hunt every mutant."""
    good, states = True, 0
    for mutant, outcome in zip(MUTANTS, pool.map(run_mutant, range(len(MUTANTS))), strict=True):
        found = outcome.found
        states += found.states
        if found.breach:
            verdict = f"caught: {found.breach}"
        else:
            verdict, good = f"SURVIVED in {mutant.scenario}", False
        say("mutant", outcome.name, f"{verdict}  ({found.states:,} states)")
        if trace:
            show_path(found)
    return good, states


def main() -> int:
    """Run the whole check and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", action="store_true", help="show how each mutant was caught")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)"
    )
    options = parser.parse_args()
    began = time.perf_counter()
    same = compare_table()
    with ProcessPoolExecutor(max_workers=options.jobs) as pool:
        hold, explored = check_scenarios(pool, trace=options.trace)
        caught, hunted = check_mutants(pool, trace=options.trace)
    seconds = time.perf_counter() - began
    good = same and hold and caught
    verdict = "all scenarios hold, all mutants caught" if good else "FAILED"
    print(f"{verdict}: {explored + hunted:,} states in {seconds:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
