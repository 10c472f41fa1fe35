"""Case files: one JSON object each, in the format of `tests/data/cases/README.md`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

KINDS = ("history", "stream", "operations", "context", "loop")


class Case(msgspec.Struct, frozen=True):
    """One case, as it stands in its file."""

    id: str
    kind: str
    provider: str
    given: dict[str, Any]
    expect: dict[str, Any]
    title: str = ""

    @property
    def dialect(self) -> str:
        """The provider whose wire it speaks; cases for any are put to OpenAI Chat."""
        if self.provider != "any":
            return self.provider
        return str(self.given.get("target") or "openai-chat")

    def as_dict(self) -> dict[str, Any]:
        """Return what the comparison helpers beside the cases expect."""
        return {"id": self.id, "kind": self.kind, "provider": self.provider, "given": self.given}


def read_case(path: Path) -> Case:
    """Return the case in a file.

    Raises:
        ValueError: It is no case.
    """
    try:
        return msgspec.convert(json.loads(path.read_text(encoding="utf-8")), Case)
    except (ValueError, msgspec.ValidationError) as error:
        raise ValueError(f"{path.name} is no case: {error}") from None


def cases_in(folder: Path) -> Iterator[Case]:
    """Yield every case below a folder, by name. Files without an `id` and a `kind` are no cases."""
    for path in sorted(folder.rglob("*.json")):
        value = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(value, dict) and {"id", "kind", "given", "expect"} <= value.keys():
            yield read_case(path)
