"""Make `docs/cli.md` from the commands' own help, or say that it is stale: `--write` makes it anew."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from antiphon.cli import cli as program

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"

HEAD = """# The command line

Made from the commands' own help by `scripts/check_cli.py --write`; `make check` compares.

Flags come before `ANTIPHON_*` of the environment, that before `antiphon.toml`. Answers go to standard output, notes to standard error. Exit codes: 0 ok, 1 our own fault, 2 usage or unreadable input, 3 refused before anything was sent, 4 refused by the provider or not committable, 5 outcome unknown, 130 canceled.
"""


def page() -> str:
    """Return the page as it should be."""
    os.environ.update(COLUMNS="90", NO_COLOR="1")
    context = click.Context(
        program, info_name="antiphon", max_content_width=90, **program.context_settings
    )
    parts = [HEAD, "```text", program.get_help(context), "```"]
    for name in program.list_commands(context):
        command = program.get_command(context, name)
        if command is None:
            raise SystemExit(f"the command {name} cannot be loaded")
        inner = click.Context(command, info_name=name, parent=context, max_content_width=90)
        parts += ["", f"## {name}", "", "```text", command.get_help(inner), "```"]
        if isinstance(command, click.Group):
            for one, part in command.commands.items():
                leaf = click.Context(part, info_name=one, parent=inner, max_content_width=90)
                parts += ["", f"### {name} {one}", "", "```text", part.get_help(leaf), "```"]
    return "\n".join(parts) + "\n"


def main() -> int:
    """Compare, or write; return the exit code."""
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page():
        return 0
    print(f"{PAGE.name} is stale; run: python scripts/check_cli.py --write")
    return 1


if __name__ == "__main__":
    sys.exit(main())
