"""Put a folder of cases to the product: `make cases DIR=tests/data/cases`.

Prints one JSON line for each case, then one with totals. Exit code 1 if a case is wrong, 2 if
the folder holds none or one that cannot be read.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.cases.context import run_context
from tests.cases.files import KINDS, Case, cases_in
from tests.cases.history import run_history
from tests.cases.loop import run_loop
from tests.cases.operations import run_operations
from tests.cases.report import Result, keys_of, show, totals
from tests.cases.stream import run_stream

TOGETHER = 3
"""How many cases of kind `operations` are played at the same time: most of it is waiting."""


def run_case(case: Case) -> Result:
    """Put one case to the product."""
    return next(run_cases([case]))


def run_cases(cases: Sequence[Case]) -> Iterator[Result]:
    """Put cases to the product and yield their results in the order of the cases."""
    played = iter(asyncio.run(_play(case for case in cases if case.kind == "operations")))
    for case in cases:
        match case.kind:
            case "history":
                yield run_history(case)
            case "stream":
                yield run_stream(case)
            case "operations":
                yield next(played)
            case "context":
                yield asyncio.run(run_context(case))
            case "loop":
                yield asyncio.run(run_loop(case))
            case kind:
                result = Result(id=case.id, kind=kind, keys=keys_of(kind, case.expect))
                result.skipped = f"there is no kind {kind!r}; known: {KINDS}"
                yield result


async def _play(cases: Iterable[Case]) -> list[Result]:
    places = asyncio.Semaphore(TOGETHER)

    async def one(case: Case) -> Result:
        async with places:
            return await run_operations(case)

    return await asyncio.gather(*map(one, cases))


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="+")
    parser.add_argument("--only", nargs="+", default=[], metavar="ID")
    arguments = parser.parse_args()
    all_results: list[Result] = []
    for folder in arguments.folder:
        try:
            cases = list(cases_in(folder))
        except (OSError, ValueError) as error:
            print(f"{folder}: {error}", file=sys.stderr)
            return 2
        chosen = [case for case in cases if not arguments.only or case.id in arguments.only]
        for result in run_cases(chosen):
            all_results.append(result)
            print(show(result.line()), flush=True)
    if not all_results:
        print(f"no case in {', '.join(map(str, arguments.folder))}", file=sys.stderr)
        return 2
    found = totals(all_results)
    print(show(found))
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
