"""Put a folder of cases to the product: `make cases DIR=tests/data/cases`.

Prints one JSON line for each case, then one with totals. Exit code 1 if a case is wrong, 2 if
the folder holds none or one that cannot be read.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.cases.files import KINDS, Case, cases_in
from tests.cases.history import run_history
from tests.cases.operations import run_operations
from tests.cases.report import NOT_RUN, Result, keys_of, show, totals
from tests.cases.stream import run_stream


def run_case(case: Case) -> Result:
    """Put one case to the product."""
    match case.kind:
        case "history":
            return run_history(case)
        case "stream":
            return run_stream(case)
        case "operations":
            return asyncio.run(run_operations(case))
        case kind:
            result = Result(id=case.id, kind=kind, keys=keys_of(kind, case.expect))
            result.skipped = NOT_RUN.get(kind, f"there is no kind {kind!r}; known: {KINDS}")
            return result


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
        for case in cases:
            if not arguments.only or case.id in arguments.only:
                result = run_case(case)
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
