"""What came of a case: one JSON line each, then totals."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Result:
    """One case's outcome.

    Attributes:
        skipped: Why it was not run; then it is neither right nor wrong.
        wrong: What differs, one sentence each.
        compared: Keys of `expect` that were compared, at any depth.
        notes: What a reader should know of how it was played.
    """

    id: str
    kind: str
    keys: tuple[str, ...]
    skipped: str | None = None
    wrong: list[str] = field(default_factory=list)
    compared: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    @property
    def not_compared(self) -> list[str]:
        return [key for key in self.keys if key not in self.compared]

    @property
    def right(self) -> bool | None:
        """True, False, or None where it was not run. A key that is not compared makes it wrong."""
        if self.skipped is not None:
            return None
        return not self.wrong and not self.not_compared

    def check(self, key: str, problem: str | None) -> None:
        """Note that `key` was compared, and what was wrong with it if anything was."""
        self.compared.add(key)
        if problem is not None:
            self.wrong.append(f"{key}: {problem}")

    def line(self) -> dict[str, Any]:
        """Return the JSON line's object."""
        shown: dict[str, Any] = {
            "id": self.id,
            "kind": self.kind,
            "right": self.right,
            "wrong": self.wrong,
            "keys compared": len(self.compared),
            "keys there": len(self.keys),
            "not compared": self.not_compared,
        }
        if self.skipped is not None:
            shown["skipped"] = self.skipped
        if self.notes:
            shown["notes"] = self.notes
        return shown


def keys_of(kind: str, expect: dict[str, Any], inspected: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the keys of an `expect` that are assertions, those under an inspection with its name."""
    names = set(inspected) if kind == "operations" else set()
    keys: list[str] = []
    for key, value in expect.items():
        if key in names and isinstance(value, dict):
            keys += [f"{key}.{inner}" for inner in value]
        else:
            keys.append(key)
    return tuple(keys)


def totals(results: list[Result]) -> dict[str, Any]:
    """Return the closing line's object."""
    counts = Counter(
        "skipped" if r.right is None else "right" if r.right else "wrong" for r in results
    )
    run = [r for r in results if r.right is not None]
    return {
        "cases": len(results),
        "run": len(run),
        "right": counts["right"],
        "wrong": counts["wrong"],
        "skipped": counts["skipped"],
        "keys compared": sum(len(r.compared) for r in run),
        "keys there": sum(len(r.keys) for r in run),
        "wrong ids": [r.id for r in run if not r.right],
    }


def show(value: dict[str, Any]) -> str:
    """Return an object as a line of JSON."""
    return json.dumps(value, ensure_ascii=False)
