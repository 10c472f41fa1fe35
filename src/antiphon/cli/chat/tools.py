"""Two small functions for `--tools demo`, so that a tool turn can be seen with any model."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Final

from antiphon.engine.tools.function import Function


def clock() -> str:
    """Return the time of this machine."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def dice(sides: int = 6) -> str:
    """Return a throw of a die."""
    return str(1 + secrets.randbelow(sides))


DEMO: Final = (
    Function(
        name="clock",
        run=clock,
        description="The time now, where the user is.",
        read_only=True,
    ),
    Function(
        name="dice",
        run=dice,
        description="Throw a die.",
        parameters={
            "type": "object",
            "properties": {"sides": {"type": "integer", "minimum": 2, "maximum": 1000}},
            "additionalProperties": False,
        },
    ),
)
