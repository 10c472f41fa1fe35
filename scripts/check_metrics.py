#!/usr/bin/env python3
"""Keeps the table of metrics in docs/server.md true: it is made from the metrics themselves.

    check_metrics.py [--write]

Without --write it only compares, and fails where the page is stale.
"""

import re
import sys
from pathlib import Path

from antiphon.server.metrics import METRICS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "server.md"
TABLE = re.compile(r"<!-- metrics -->\n.*?<!-- end of metrics -->", re.DOTALL)


def table() -> str:
    """Return the table as it should be."""
    rows = [f"| `antiphon_{name}` | {kind} | {words} |" for name, (kind, words) in METRICS.items()]
    head = ["<!-- metrics -->", "| metric | kind | what it is |", "|---|---|---|"]
    return "\n".join([*head, *rows, "<!-- end of metrics -->"])


def main() -> int:
    """Compare, or write; return the exit code."""
    page = PAGE.read_text(encoding="utf-8")
    true = TABLE.sub(table().replace("\\", r"\\"), page)
    if true == page:
        return 0
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(true, encoding="utf-8")
        return 0
    print(f"{PAGE.name} is stale; run: python scripts/check_metrics.py --write")
    return 1


if __name__ == "__main__":
    sys.exit(main())
