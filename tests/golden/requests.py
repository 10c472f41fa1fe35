"""Golden requests: a sequence, and the exact bytes that it has to render to.

    python -m tests.golden.requests           compare, and show what differs
    python -m tests.golden.requests --write   take over what differs, after showing it

Other bytes for the same sequence mean a new adapter version: what was recorded under the old one
could not be rendered again.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from antiphon.adapters import registry
from antiphon.adapters.base import Adapter, Rendering, render
from antiphon.core.blocks import Message
from antiphon.core.manifest import Policy, ToolDeclaration

HERE = Path(__file__).parent
KEY = b"the key of a tenant in a test..."


class Golden(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`sequence.json`: everything that a request is made from, in stored form."""

    why: str
    policy: Policy
    messages: tuple[Message, ...]
    tools: tuple[ToolDeclaration, ...] = ()
    mapped: tuple[str, ...] = ()
    since: int = 1
    """The first version of the dialect that can say it."""

    @property
    def adapter(self) -> Adapter:
        return registry.get(self.policy.profile, self.policy.facts)

    @property
    def versions(self) -> tuple[int, ...]:
        """Those that are carried and can say it."""
        return tuple(n for n in registry.versions(self.policy.profile) if n >= self.since)

    def of_version(self, version: int) -> Rendering:
        adapter = registry.get(self.policy.profile, self.policy.facts, version)
        return render(adapter, self.messages, self.policy, self.tools, key=KEY)

    def rendering(self, key: bytes = KEY) -> Rendering:
        return render(self.adapter, self.messages, self.policy, self.tools, key=key)


def cases() -> Iterator[tuple[str, Path]]:
    """Yield the name and folder of each golden case."""
    for path in sorted(HERE.glob("*/*/sequence.json")):
        yield f"{path.parent.parent.name}/{path.parent.name}", path.parent


def load(folder: Path) -> tuple[Golden, bytes]:
    """Return a case and the bytes that were recorded for it."""
    recorded = folder / "request.json"
    return (
        msgspec.json.decode((folder / "sequence.json").read_bytes(), type=Golden),
        recorded.read_bytes() if recorded.exists() else b"",
    )


def fingerprints() -> dict[str, str]:
    """Return what each case renders to, digests included, for comparing two processes."""
    made = {}
    for name, folder in cases():
        golden, _ = load(folder)
        rendering = golden.rendering()
        body = hashlib.sha256(rendering.request.body).hexdigest()
        made[name] = (
            f"{body} {rendering.request_digest} {rendering.sequence_digest} {golden.adapter.digest}"
        )
    return made


def main(arguments: list[str]) -> int:
    stale = 0
    for name, folder in cases():
        golden, recorded = load(folder)
        made = golden.rendering().request.body
        if made == recorded:
            continue
        stale += 1
        before = json.dumps(json.loads(recorded), indent=1).splitlines() if recorded else []
        after = json.dumps(json.loads(made), indent=1).splitlines()
        print(
            "\n".join(
                difflib.unified_diff(before, after, f"{name} recorded", f"{name} now", lineterm="")
            )
        )
        if arguments == ["--write"]:
            (folder / "request.json").write_bytes(made)
    return 1 if stale and arguments != ["--write"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
