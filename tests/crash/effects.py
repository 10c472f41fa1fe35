"""The tools of the program that is killed. Each writes its effects to a file that it owns.

On either side of an effect is a point at which the process may be killed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import antiphon
from tests.crash.hooks import Killer

AGAIN: Final = frozenset({"light", "count"})
"""Tools that may be run again: one sets what is set, the other only looks."""

OWN_WORDS: Final = frozenset({"rung", "charged", "lit", "counted", "paid"})
"""What the tools say of themselves."""


def functions(file: Path, killer: Killer) -> list[antiphon.Function]:
    """Return the tools, which write to `file`."""

    def effect(tool: str, context: antiphon.ToolContext) -> None:
        killer.at(f"before effect of {tool}")
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"tool": tool, "key": context.idempotency_key}) + "\n")
        killer.at(f"after effect of {tool}")

    @antiphon.tool
    def ring(times: int, context: antiphon.ToolContext) -> str:
        effect("ring", context)
        return "rung"

    @antiphon.tool
    def charge(cents: int, context: antiphon.ToolContext) -> str:
        effect("charge", context)
        return "charged"

    @antiphon.tool(idempotent=True)
    async def light(on: bool, context: antiphon.ToolContext) -> str:
        effect("light", context)
        return "lit"

    @antiphon.tool(read_only=True)
    def count(context: antiphon.ToolContext) -> str:
        effect("count", context)
        return "counted"

    @antiphon.tool(approval=True)
    async def pay(cents: int, context: antiphon.ToolContext) -> str:
        effect("pay", context)
        return "paid"

    return [ring, charge, light, count, pay]
