"""Kill real processes everywhere, on every store, for as long as is asked: `make soak`.

    make soak ARGS="--minutes 30 --seed 7"

Every scenario of `tests.crash.program` is killed at every occurrence of every point that it passes,
then at random pairs of points: once in its life and once in its recovery. The server is killed at
every occurrence of every point while a client streams from it. The time is shared out evenly; where
PostgreSQL is not installed, its share goes to the file, and that is said. Whatever is broken is
printed at once; the exit code is 1 if anything was.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.crash.places import Databases, Files, Place  # found once the root is on the path
from tests.crash.program import SCENARIOS
from tests.crash.proof import Lives, broken
from tests.crash.visits import Servers, killed_at, points_of
from tests.support.parts import PARTS

POINTS = (
    *("Lose", "End", "EndRun", "ClaimRun", "LoseCall", "PlaceRun", "Prepare+Accept"),
    *("StartCall", "FinishCall", "ApproveCall", "ResumeRun", "effect of light", "effect of pay"),
)
RECOVERY = tuple(f"{when} {what} #1" for what in POINTS for when in ("before", "after"))


class Count:
    """How often something was killed, and what came of it."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.kills = self.broken = self.points = 0

    def take(self, where: object, promises: list[str], kills: int = 1) -> None:
        self.kills += kills
        self.broken += len(promises)
        for promise in promises:
            print(f"BROKEN {self.what}, {where}: {promise}", flush=True)

    def __str__(self) -> str:
        passed = f"{self.points} points passed"
        return f"{self.what}: {passed}, {self.kills} kills, {self.broken} broken promises"


def plan(points: dict[str, list[str]], chance: random.Random) -> Iterator[tuple[str, ...]]:
    """Yield (scenario, point, recovery points …): each point once, then pairs for ever."""
    single = [(name, point) for name, passed in points.items() for point in passed]
    chance.shuffle(single)  # a run that is short has seen some of everything
    yield from single
    while True:
        name = chance.choice(list(points))
        yield (name, chance.choice(points[name]), chance.choice(RECOVERY))


def library(place: Place, chance: random.Random, until: float) -> Count:
    """Kill a program that uses the library."""
    count = Count(f"library on {type(place).__name__}")
    with tempfile.TemporaryDirectory() as folder, Lives(Path(folder), place) as lives:
        points = {name: lives.points(name) for name in SCENARIOS}
        count.points = sum(map(len, points.values()))
        for scenario, point, *recoveries in plan(points, chance):
            if time.monotonic() > until:
                return count
            evidence = lives.evidence(scenario, point, *recoveries)
            kills = sum(code < 0 for code in evidence.exits)
            count.take((scenario, point, recoveries), broken(evidence), kills)
    raise AssertionError("the plan has no end")


def server(place: Place, chance: random.Random, until: float) -> Count:
    """Kill the server while a client streams from it."""
    count = Count(f"server on {type(place).__name__}")
    with tempfile.TemporaryDirectory() as folder, Servers(Path(folder), place) as servers:
        passed = [
            (tools, point)
            for tools in (False, True)
            for point in asyncio.run(points_of(servers, tools=tools))
        ]
        count.points = len(passed)
        chance.shuffle(passed)
        for tools, point in cycle(passed):
            if time.monotonic() > until:
                return count
            promises = asyncio.run(killed_at(servers, point, tools=tools))
            count.take((point, "tools" if tools else "text"), promises)
    raise AssertionError("the points are gone through again and again")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    places: list[type[Files | Databases]] = [Files]
    if PARTS["postgres"].there():
        places.append(Databases)
    else:
        print(f"PostgreSQL is not attacked: it is not here ({PARTS['postgres'].install})")
    share_s = arguments.minutes * 60 / (2 * len(places))
    counts = []
    for place in places:
        for attack in (library, server):
            counts.append(attack(place(), chance, time.monotonic() + share_s))
            print(counts[-1], flush=True)
    failures = sum(count.broken for count in counts)
    kills = sum(count.kills for count in counts)
    print(f"{kills} kills, {failures} broken promises (seed {arguments.seed})")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
