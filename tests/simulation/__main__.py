"""Thousands of simulated histories: `python -m tests.simulation --seeds 2000`.

    python -m tests.simulation --seed 4711 --trace

lives through one of them again, and prints what happened; `--shared` lives on PostgreSQL with a driver
that fails. Exits 1 where a promise is broken, or,
with `--mutants`, where a planted fault survives.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.history import History, simulate, simulate_shared
from tests.simulation.mutants import MUTANTS, hunt
from tests.support.postgres import shared_server

MUTANT_SEEDS = range(200)
COUNTED = ("life", "sent", "CommitAnswer", "effect", "store", "driver", "clock", "killed")


def on_postgres(seed: int) -> History:
    """Live through a history in PostgreSQL, where this process has a server of its own."""
    server = shared_server()
    address = server.database()
    try:
        return simulate_shared(seed, address, faults=True)
    finally:
        server.give_back(address)


def explore(seeds: range, minutes: float, jobs: int, *, shared: bool) -> bool:
    """Live through the histories of `seeds`, for so long at most; return whether all is well."""
    began, counts, done, broken = time.monotonic(), Counter[str](), 0, 0
    live, where = (on_postgres, " on PostgreSQL") if shared else (simulate, "")
    with ProcessPoolExecutor(jobs, initializer=_quiet) as pool:
        for history in pool.map(live, seeds, chunksize=4):
            done += 1
            counts += history.counts
            if history.broken:
                broken += 1
                again = f"--seed {history.seed}{' --shared' * shared} --trace"
                print(f"BROKEN: python -m tests.simulation {again}", flush=True)
                for promise in history.broken:
                    print(f"  {promise}", flush=True)
            if time.monotonic() - began > minutes * 60:
                pool.shutdown(cancel_futures=True)
                break
    figures = ", ".join(f"{counts[name]} {name}" for name in COUNTED)
    print(
        f"simulation{where}: {done} histories from seed {seeds.start} in {time.monotonic() - began:.0f} s, "
        f"{sum(counts.values())} steps told ({figures}): {broken} broken"
    )
    return broken == 0


def hunt_all(jobs: int) -> bool:
    """Plant every mutant; return whether each is caught."""
    good = True
    with ProcessPoolExecutor(jobs, initializer=_quiet) as pool:
        for mutant, found in zip(MUTANTS, pool.map(_hunted, range(len(MUTANTS))), strict=True):
            print(f"mutant    {mutant.name + ' ':.<66} {found or 'SURVIVED'}", flush=True)
            good = good and found is not None
    return good


def _hunted(number: int) -> str | None:
    found = hunt(MUTANTS[number], MUTANT_SEEDS)
    return None if found is None else f"caught at seed {found[0].seed}: {found[1]}"


def _quiet() -> None:
    logging.disable(logging.CRITICAL)  # what the engine says of bad weather is no news here


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="the first one, or the only one")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--trace", action="store_true", help="print all that happens")
    parser.add_argument("--shared", action="store_true", help="live on PostgreSQL")
    parser.add_argument("--mutants", action="store_true", help="plant faults and see them caught")
    options = parser.parse_args()
    _quiet()
    if options.mutants:
        return 0 if hunt_all(options.jobs) else 1
    if options.trace:
        history = (on_postgres if options.shared else simulate)(options.seed)
        print("\n".join([*history.lines, *(f"BROKEN {promise}" for promise in history.broken)]))
        print(f"digest {history.digest}")
        return 1 if history.broken else 0
    seeds = range(options.seed, options.seed + options.seeds)
    return 0 if explore(seeds, options.minutes, options.jobs, shared=options.shared) else 1


if __name__ == "__main__":
    sys.exit(main())
