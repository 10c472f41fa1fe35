"""`make bench`: every goal that reaches this release, each beside its floor or rival.

One JSON object a line on standard output, what is going on on standard error. A goal that is
missed is a figure like any other; the exit code is not 0 only where a measurement failed.

    make bench                       about three minutes
    make bench ARGS=--quick          under a minute, for CI: fewer samples, the same lines
    make bench ARGS="--only G12,G16"
    make bench ARGS="--write docs/performance.md"
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import msgspec

from bench import (
    cold,
    dialects,
    durable,
    gateway,
    histories,
    load,
    planning,
    postgres,
    retrieval,
    streams,
    throughput,
    tools,
)
from bench.measure import Figure, note
from bench.report import page

PARTS: Final[dict[str, Callable[..., AsyncIterator[Figure]]]] = {
    "G3": throughput.figures,
    "G1 G2 G4 G5 G6 G7 load": gateway.figures,
    "streams": load.figures,
    "G8 G9 G10": durable.figures,
    "G11": cold.figures,
    "G12 G13": streams.figures,
    "G14 G15 G16": histories.figures,
    "plan": planning.figures,
    "tools": tools.figures,
    "retrieval": retrieval.figures,
    "dialects": dialects.figures,
    "PG": postgres.figures,
}
"""The goals, and what measures them: those that share a set-up are measured together."""


async def measure(wanted: set[str], *, quick: bool) -> list[Figure]:
    """Print each figure as it is known, and return them all."""
    figures: list[Figure] = []
    for goals, part in PARTS.items():
        if wanted and not wanted & set(goals.split()):
            continue
        async for figure in part(quick=quick):
            print(msgspec.json.encode(figure).decode(), flush=True)
            figures.append(figure)
    return figures


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer samples, for CI")
    parser.add_argument("--only", default="", help="goals, with commas between them")
    parser.add_argument("--write", type=Path, help="also write the figures as a page")
    chosen = parser.parse_args()
    wanted = set(filter(None, chosen.only.split(",")))
    if unknown := wanted - {goal for goals in PARTS for goal in goals.split()}:
        parser.error(f"nothing measures {', '.join(sorted(unknown))}: {', '.join(PARTS)}")
    logging.disable(logging.WARNING)
    figures = asyncio.run(measure(wanted, quick=chosen.quick))
    missed = [f"{f.goal} {f.ratio:g} ({f.target})" for f in figures if not f.met]
    note(f"{len(figures) - len(missed)} of {len(figures)} met; missed: {', '.join(missed) or '-'}")
    if chosen.write is not None:
        chosen.write.write_text(page(figures, quick=chosen.quick), "utf-8")


if __name__ == "__main__":
    main()
