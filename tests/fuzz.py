"""Feed damaged requests, answers and files until told to stop: `make fuzz`.

    make fuzz ARGS="--minutes 10 --seed 7"
    make fuzz ARGS="--only chat_door --minutes 5"

Recorded answers and requests are changed with a sense of their structure, so that they get far
in, and now and then bitten. Nothing may raise but our own errors, no request may be answered by a
fault of ours, any cut of the same bytes must give the same answer, no call may come out of an
answer that may not be committed, and what the rules accept must pass a judge that knows nothing
of them. Exit code 1 if anything did not hold.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.fuzzing import answers, files, requests  # found once the root is on the path

Check: TypeAlias = Callable[[random.Random], list[str]]
CHECKS: Final[dict[str, Check]] = {
    "chat_door": requests.chat_door,
    "responses_door": requests.responses_door,
    "messages_door": requests.messages_door,
    "parsers": requests.parsers,
    "screens": requests.screens,
    "shadows": requests.shadows,
    "chat_streams": answers.chat_streams,
    "event_streams": answers.event_streams,
    "frame_streams": answers.frame_streams,
    "line_streams": answers.line_streams,
    "imports": files.imports,
    "configurations": files.configurations,
}
"""One for each kind of bytes that come from outside."""


def faults(name: str, chance: random.Random) -> list[str]:
    """Return what one try found; whatever is raised but our own errors is a fault."""
    try:
        return CHECKS[name](chance)
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        at = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(at.filename).name}:{at.lineno}"
        return [f"{name} raised {type(error).__name__} at {where}: {error}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="shared by the checks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=sorted(CHECKS), action="append")
    arguments = parser.parse_args()
    chosen = arguments.only or list(CHECKS)
    tries: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for name in chosen:
        chance = random.Random(f"{name} {arguments.seed}")
        until = time.monotonic() + arguments.minutes * 60 / len(chosen)
        while time.monotonic() < until:
            for fault in faults(name, chance):
                found[name] += 1
                print(f"FOUND {fault}", flush=True)
            tries[name] += 1
        print(f"{name}: {tries[name]:,} tries, {found[name]} found", flush=True)
    print(f"{tries.total():,} tries, {found.total()} faults found (seed {arguments.seed})")
    return int(found.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
