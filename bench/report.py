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
the milliseconds. Lines marked *aim* say where we want to be, lines marked *floor* how far we are
from the least that anybody could do.

| goal | what | ours | beside it | | ratio | target | met |
|---|---|---:|---:|---|---:|---|---|
"""

FOOT = """
## Where it falls short

What is missed is missed for these reasons, and none of them is a surprise waiting for you:

- **G10, CPU of a warm turn.** It does not grow with the conversation, and that was the point; but
  a turn is eighteen commands, some 40 statements and four flushed commits in Python, where the
  rival that reads ten thousand messages spends its time in one C function. What is left is spread
  thin: no function takes more than a twentieth of it.
- **G11, a history that no model has seen yet.** One that was talked in is opened as it was rendered
  ([ADR 14](adr/0014-lines-as-they-were-rendered.md)). One that was brought is digested, judged by
  every rule, rendered and hashed, some 30 microseconds a message: a quarter of it to read it, an
  eighth each to digest and to judge it, the rest to render and hash it. Its own digest stands in its
  row; it is made anew all the same, for a manifest says what is sent, not what a row says of it.
  All of it is paid once a conversation, and once more after each release.
- **G9, bytes.** Within the goal, above the aim: a turn touches some fifteen trees (the ledger, the
  manifests, the indexes behind each invariant), and SQLite writes whole pages. With checkpoints
  counted in, which copy every page once more, the distance to the bare floor is smaller.
- **G1, G2 and G4, the server under load and its first word.** A call through the gateway is a whole
  durable run: parsed, judged, planned, recorded before it is sent, committed and told, in twelve
  commands, some 25 statements and two flushed commits: one before the first byte, of the run with its
  input and of the dispatch together, and one of the answer. What is left is Python, of which no part
  takes more than a tenth: HTTP on both sides a quarter, the store's thread a third, then reading,
  rendering and telling. It is a third of LiteLLM's and twice Portkey's, which keeps nothing.
- **G5, CPU of a delta.** Each is decoded, checked, kept as preview and told to its reader by number;
  a relay that only passes bytes on needs a good half of that.
- **Tools, what a call costs.** The floor is two rows and nothing else. Ours is a call that was read from
  a stream, held against its schema, digested for reuse, written as ledger row and events, its result
  bounded, stored, put into the tree, judged and rendered: half a millisecond of Python, spread as thin as that
  of a turn. The two writes themselves share their commits with all other calls.
- **G3, throughput.** Durability costs little, since commits are shared and our own work is
  what limits us; beside a bare HTTP client with four rows a call we are several times dearer.
- **PG, PostgreSQL.** A batch of any size is three journeys to the database, and what its requests say
  alike is one statement. What is left is processor, ours for the commands and the server's for rows
  with their indexes and constraints; one function without the protocol has neither.
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
    return head + "".join(f"{_row(figure)}\n" for figure in figures) + FOOT


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
