"""Rollout: how much of a tenant's traffic for a model goes which way, and what differs.

The *old* way sends what the client sent; *ours* parses, judges and renders it anew under a
manifest. In the shadow the old request goes out while ours is built beside it and compared. Here
is what is decided and compared; who sends what is the server's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final

import msgspec

from antiphon.core.ids import TenantId


class Stage(StrEnum):
    """How far a rollout has come."""

    OFF = "off"
    SHADOW = "shadow"
    WITHOUT_TOOLS = "without_tools"
    TOOLS = "tools"


class Way(StrEnum):
    """Which way one request goes."""

    OLD = "old"
    """As it is, and nothing is compared."""
    SHADOWED = "shadowed"
    """As it is, and ours is built and compared."""
    OURS = "ours"


EVERY_MODEL: Final = "*"


class Rollout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What holds for a tenant and a model, or for every model of it that has none of its own.

    `share` is how many of a hundred conversations the stage holds for; for the others it is the
    stage before. `adapter_version` pins the version that renders ours; None is the newest.
    """

    tenant: TenantId
    model: str
    stage: Stage
    share: int = 100
    adapter_version: int | None = None
    updated_ms: int = 0
    by: str = ""


def way(rollout: Rollout, *, tools: bool, bucket: int) -> Way:
    """Return which way a request goes.

    Args:
        rollout: What holds for it.
        tools: Whether it declares tools or its history holds calls.
        bucket: 0 to 99, the same for all requests of one conversation.

    Example:
        >>> way(Rollout(tenant="t", model="m", stage=Stage.SHADOW), tools=True, bucket=7)
        <Way.SHADOWED: 'shadowed'>
    """
    stages = list(Stage)
    at = stages.index(rollout.stage)
    stage = rollout.stage if bucket < rollout.share else stages[max(0, at - 1)]
    match stage:
        case Stage.OFF:
            return Way.OLD
        case Stage.SHADOW:
            return Way.SHADOWED
        case Stage.WITHOUT_TOOLS:
            return Way.SHADOWED if tools else Way.OURS
        case Stage.TOOLS:
            return Way.OURS


class Kind(StrEnum):
    """What sort of difference it is, the harmless first."""

    BYTES = "bytes"
    """The same JSON, spelled in other bytes."""
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    REFUSED = "refused"
    """Ours would not have sent it."""
    FAILED = "failed"
    """Ours could not be built, for a reason that is no refusal of the history."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One cause for which requests differed, how often, and one example of it.

    `cause` is a place without its numbers (`messages[].content`), or a reason code. The example
    names the place in one request; what people and models said is told by its length only.
    """

    kind: Kind
    cause: str
    example: str = ""
    count: int = 1
    first_ms: int = 0
    last_ms: int = 0


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests came out so: `equal`, `bytes`, `meaning`, `refused`, `failed`, `ours`, `old`."""

    outcome: str
    count: int


WORDS: Final = frozenset(
    {"content", "text", "arguments", "input", "output", "data", "url", "thinking", "system"}
    | {"instructions", "description", "refusal", "reasoning_content"}
)
"""Fields that hold what somebody said: examples tell their length."""

MOST_TOLD: Final = 120
MOST_DIFFERENCES: Final = 50


def compare(old: bytes, ours: bytes) -> tuple[Difference, ...]:
    """Return in what two bodies differ, each cause once; nothing for the same bytes.

    Raises:
        ValueError: One of them is no JSON.
    """
    if old == ours:
        return ()
    found: dict[tuple[Kind, str], Difference] = {}
    for difference in _walk(_read(old), _read(ours), (), ""):
        found.setdefault((difference.kind, difference.cause), difference)
        if len(found) == MOST_DIFFERENCES:
            break
    if not found:
        return (Difference(kind=Kind.BYTES, cause="spelling", example=_spelling(old, ours)),)
    return tuple(found.values())


class _Number(str):
    """A number, digit for digit: 1.0 and 1 are not the same request."""

    __slots__ = ()


def _read(body: bytes) -> Any:  # noqa: ANN401 - whatever JSON says
    return json.loads(body, parse_float=_Number, parse_int=_Number)


def _walk(
    old: Any,  # noqa: ANN401
    ours: Any,  # noqa: ANN401
    place: tuple[str, ...],
    at: str,
) -> Iterator[Difference]:
    if isinstance(old, dict) and isinstance(ours, dict):
        for name in sorted(old.keys() | ours.keys()):
            below, there = (*place, str(name)), f"{at}.{name}" if at else str(name)
            if name not in ours:
                yield _one(Kind.REMOVED, below, there, old[name], None)
            elif name not in old:
                yield _one(Kind.ADDED, below, there, None, ours[name])
            else:
                yield from _walk(old[name], ours[name], below, there)
    elif isinstance(old, list) and isinstance(ours, list):
        for number in range(max(len(old), len(ours))):
            below, there = (*place[:-1], f"{place[-1] if place else ''}[]"), f"{at}[{number}]"
            if number >= len(ours):
                yield _one(Kind.REMOVED, below, there, old[number], None)
            elif number >= len(old):
                yield _one(Kind.ADDED, below, there, None, ours[number])
            else:
                yield from _walk(old[number], ours[number], below, there)
    elif old != ours or type(old) is not type(ours):
        yield _one(Kind.CHANGED, place, at, old, ours)


def _one(
    kind: Kind,
    place: tuple[str, ...],
    at: str,
    old: Any,  # noqa: ANN401
    ours: Any,  # noqa: ANN401
) -> Difference:
    said = any(part.rstrip("[]") in WORDS for part in place)
    was, now = _told(old, said=said), _told(ours, said=said)
    shown = {Kind.REMOVED: was, Kind.ADDED: now}.get(kind, f"{was} -> {now}")
    return Difference(kind=kind, cause=".".join(place), example=f"{at}: {shown}")


def _told(value: Any, *, said: bool) -> str:  # noqa: ANN401
    if said or isinstance(value, dict | list):
        return f"{type(value).__name__} of {len(json.dumps(value))} bytes"
    return (value if isinstance(value, _Number) else json.dumps(value))[:MOST_TOLD]


def _spelling(old: bytes, ours: bytes) -> str:
    at = next((n for n, pair in enumerate(zip(old, ours, strict=False)) if pair[0] != pair[1]), 0)
    return f"from byte {at} on; {len(old)} and {len(ours)} bytes"
