"""Make the table of commands in `docs/chat.md` from the chat's own, or say that it is stale: `--write` makes it anew."""

from __future__ import annotations

import sys
from pathlib import Path

from antiphon.cli.chat.commands import COMMANDS

PAGE = Path(__file__).parent.parent / "docs" / "chat.md"
BEGIN, END = "<!-- commands: made by scripts/check_chat.py -->\n", "<!-- end -->"


def table() -> str:
    """Return the table as it should be."""
    rows = [
        f"| `/{name} {c.usage}`".rstrip("` ") + f"` | {c.help} |" for name, c in COMMANDS.items()
    ]
    return "\n".join(["| command | what it does |", "|---|---|", *rows]) + "\n"


def main() -> int:
    """Compare, or write; return the exit code."""
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    page = f"{head}{BEGIN}{table()}{END}{tail}"
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    if page == text:
        return 0
    print(f"{PAGE.name} is stale; run: python scripts/check_chat.py --write")
    return 1


if __name__ == "__main__":
    sys.exit(main())
