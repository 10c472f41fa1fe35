"""Kill a real process everywhere, for as long as is asked: `make soak`.

    make soak ARGS="--minutes 30 --seed 7"

Every scenario of `tests.crash.program` is killed at every occurrence of every point that it
passes, then at random pairs of points: once in its life and once in its recovery. Whatever is
broken is printed at once; the exit code is 1 if anything was.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.crash.program import SCENARIOS  # found once the root is on the path
from tests.crash.proof import Lives, broken

POINTS = (
    *("Lose", "End", "EndRun", "ClaimRun", "LoseCall", "PlaceRun", "Prepare+Accept"),
    *("StartCall", "FinishCall", "ApproveCall", "ResumeRun", "effect of light", "effect of pay"),
)
RECOVERY = tuple(f"{when} {what} #1" for what in POINTS for when in ("before", "after"))


def plan(points: dict[str, list[str]], chance: random.Random) -> Iterator[tuple[str, ...]]:
    """Yield (scenario, point, recovery points …): each point once, then pairs for ever."""
    yield from ((name, point) for name, passed in points.items() for point in passed)
    while True:
        name = chance.choice(list(points))
        yield (name, chance.choice(points[name]), chance.choice(RECOVERY))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    until = time.monotonic() + arguments.minutes * 60
    kills = failures = 0
    with tempfile.TemporaryDirectory() as folder, Lives(Path(folder)) as lives:
        points = {name: lives.points(name) for name in SCENARIOS}
        total = sum(map(len, points.values()))
        print(f"{len(points)} scenarios pass {total} points", flush=True)
        for scenario, point, *recoveries in plan(points, chance):
            if time.monotonic() > until:
                break
            evidence = lives.evidence(scenario, point, *recoveries)
            kills += sum(code < 0 for code in evidence.exits)
            for promise in broken(evidence):
                failures += 1
                print(f"BROKEN {scenario} at {point} {recoveries}: {promise}", flush=True)
    print(f"{kills} kills, {failures} broken promises (seed {arguments.seed})")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
