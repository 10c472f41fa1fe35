"""The figures of one run as a page for people."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version

from bench.measure import Figure

HEAD = """# Performance

Made by `make bench ARGS="--write docs/performance.md"`; do not edit. What each line measures,
and how, stands in [`bench/README.md`](../bench/README.md).

{when}, {machine}, Python {python}, SQLite {sqlite}; {rivals}.
{effort}
The machine is shared with others: read the ratios, which compare medians of one run, and not
the milliseconds. A goal that is missed says so.

| goal | what | ours | beside it | | ratio | target | met |
|---|---|---:|---:|---|---:|---|---|
"""

RIVALS = ("openai", "anthropic", "openai-agents", "orjson", "msgspec")


def page(figures: Iterable[Figure], *, quick: bool) -> str:
    """Return the whole page."""
    head = HEAD.format(
        when=f"Measured {datetime.now(UTC):%Y-%m-%d}",
        machine=f"{os.cpu_count()} cores, {platform.system()} on {platform.machine()}",
        python=platform.python_version(),
        sqlite=sqlite3.sqlite_version,
        rivals=", ".join(f"{name} {version(name)}" for name in RIVALS),
        effort="This was a quick run, with few samples.\n" if quick else "",
    )
    return head + "".join(f"{_row(figure)}\n" for figure in figures)


def _row(f: Figure) -> str:
    cells = (
        f.goal,
        f.what,
        f"{f.ours:,.4g} {f.unit}" if f.ours < 10_000 else f"{f.ours:,.0f} {f.unit}",
        f"{f.rival:,.4g}" if f.rival < 10_000 else f"{f.rival:,.0f}",
        f.rival_name,
        f"{f.ratio:.3g}",
        f.target,
        "yes" if f.met else "**no**",
    )
    return f"| {' | '.join(cells)} |"
