"""Draw `docs/dispatch.md` from the table, or say that it is stale: `--write` makes it anew."""

from __future__ import annotations

import sys
from pathlib import Path

from antiphon.core.dispatch import FINAL, QUESTION_TABLE, TABLE, Row, State

PAGE = Path(__file__).parent.parent / "docs" / "dispatch.md"

MEANINGS = {
    State.PREPARED: "The manifest is durable. Nothing has left.",
    State.DISPATCHING: "Accepted: the generation is given, bytes may leave from now on.",
    State.SENT: "Bytes have left.",
    State.STREAMING: "An answer has begun.",
    State.UNKNOWN: "Nobody knows what the provider did. It keeps the conversation.",
    State.FAILED: "It has ended for certain, without an answer. Another attempt may follow.",
    State.COMMITTED: "Its answer is canonical.",
    State.CANCELED: "Its run was canceled, or the world moved before it was accepted.",
    State.CLOSED: "It has failed, and no attempt follows.",
}

HEAD = """# The life of one model call

Made from `antiphon.core.dispatch.TABLE` by `scripts/check_dispatch.py --write`; `make check` compares.

A state changes only by a row of this table. Every condition is compared in the store, in the transaction that writes; where one does not hold the event did not happen, and whoever reported it drops what it holds. What each state means:

| state | meaning |
|---|---|
"""

BESIDE = """## Questions beside the turn

Decisions about sessions, summaries and titles are asked of a model too: `QUESTION_TABLE`. Such a question has its manifest and its attempt, but takes no slot, moves no revision and writes no message, so it holds up nothing. It is sent once. Where no whole answer comes in its time, or the conversation has moved meanwhile, there is none, and the conversation goes on as if nobody had asked."""

TAIL = """
## Why you may believe it

- `tests/core/test_dispatch.py` holds the rows again, written by hand: none more, less or other.
- `tests/stores/test_conditions.py` compares the SQL with the table on crafted rows, one condition flipped at a time, and sees every planted omission.
- `make verify` explores every interleaving of two workers, a provider, crashes, expired leases, late answers, cancels and tools in small scenarios, with transitions decided by this very table: 19 scenarios, 208,036 states, 667,749 transitions, all of which hold; 45 planted mistakes, each caught by the promise that it breaks.
- The whole engine lives through simulated histories: scheduler, clock, network and store follow from a seed, the process dies between any two steps, and what clients were told is held against what is stored. `make test` lives through a hundred, `make soak` through thousands; `make verify` plants ten faults in the running code and sees each caught. A failure names the one command that lives through it again.
- `tests/crash` kills a real process before and after each of these events.
"""


def rows_of(row: Row) -> str:
    """Return a row of the table as a row of the page."""
    sources = ", ".join(sorted("none" if s is None else s.value for s in row.sources))
    conditions = ", ".join(c.value for c in row.conditions) or "state alone"
    effects = ", ".join(e.value for e in row.effects) or "none"
    return f"| {row.number} | {sources} | {row.event} | {row.target} | {conditions} | {effects} |"


def page() -> str:
    """Return the page as it should be."""
    lines = [HEAD + "\n".join(f"| {state} | {text} |" for state, text in MEANINGS.items())]
    lines += ["", "```mermaid", "stateDiagram-v2"]
    drawn: dict[tuple[str, str], list[str]] = {}
    for row in TABLE:
        for source in sorted("[*]" if s is None else s.value for s in row.sources):
            events = drawn.setdefault((source, row.target.value), [])
            if row.event.value not in events:
                events.append(row.event.value)
    lines += [f"  {a} --> {b}: {', '.join(events)}" for (a, b), events in drawn.items()]
    lines += [f"  {state} --> [*]" for state in sorted(FINAL)]
    lines += ["```", "", "## The rows", ""]
    lines += ["| # | from | event | to | conditions | effects |", "|---|---|---|---|---|---|"]
    lines += [rows_of(row) for row in TABLE]
    lines += ["", BESIDE, ""]
    lines += ["| # | from | event | to | conditions | effects |", "|---|---|---|---|---|---|"]
    lines += [rows_of(row) for row in QUESTION_TABLE]
    return "\n".join(lines) + "\n" + TAIL


def main() -> int:
    """Compare, or write; return the exit code."""
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page():
        return 0
    print(f"{PAGE.name} is stale; run: python scripts/check_dispatch.py --write")
    return 1


if __name__ == "__main__":
    sys.exit(main())
