"""What the demo claims, judged on what was found: facts in, claims out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from antiphon.cli.view.text import count

TOOL_TURN: Final = 'tool dice {"sides": 6}'
LONG_TURN: Final = "long 60"
LAST_TURN: Final = "hello again"
QUESTIONS: Final = (TOOL_TURN, LONG_TURN, LAST_TURN)

DISPATCHES: Final = 4
"""The tool turn makes two, the killed one and the last one make one each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Something that was promised, and what was measured."""

    claim: str
    held: bool
    measured: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was found when all was over.

    Attributes:
        said: Every answer that a chat reported as saved, by its message's id.
        half: What the killed chat had shown of the answer that it never had whole.
        stored: The text of every message in the database, by its id.
        tool_starts: How often each tool call in the ledger was started.
        dispatched: The body of each dispatch, rendered again from the database and verified.
        received: The body of each request that the model received, in its order.
    """

    said: Mapping[str, str]
    half: str
    stored: Mapping[str, str]
    tool_starts: Sequence[int]
    dispatched: Sequence[bytes]
    received: Sequence[bytes]


def judge(facts: Facts) -> list[Claim]:
    """Return the claims, each with what was measured and whether it held."""
    return [_lost(facts), _doubled(facts), _half(facts), _once(facts), _bytes(facts)]


def _lost(facts: Facts) -> Claim:
    kept = sum(facts.stored.get(name) == text for name, text in facts.said.items())
    asked = sum(question in facts.stored.values() for question in QUESTIONS)
    return Claim(
        claim="nothing lost",
        held=kept == len(facts.said) > 0 and asked == len(QUESTIONS),
        measured=f"{kept} of {len(facts.said)} answers that were called saved are there, "
        f"and {asked} of {len(QUESTIONS)} questions",
    )


def _doubled(facts: Facts) -> Claim:
    times = Counter(facts.stored.values())
    twice = sum(times[question] > 1 for question in QUESTIONS)
    starts = sum(facts.tool_starts)
    return Claim(
        claim="nothing doubled",
        held=twice == 0 and list(facts.tool_starts) == [1],
        measured=f"{twice} of {len(QUESTIONS)} questions stand twice; "
        f"{count(len(facts.tool_starts), 'tool call')}, started {count(starts, 'time')}",
    )


def _half(facts: Facts) -> Claim:
    half = facts.half.strip()
    escaped = json.dumps(half, ensure_ascii=False)[1:-1].encode()
    kept = sum(half in text for text in facts.stored.values())
    later = [body for body in facts.received if LAST_TURN.encode() in body]
    leaked = sum(escaped in body for body in later)
    return Claim(
        claim="nothing half",
        held=bool(half) and kept == leaked == 0 and len(later) == 1,
        measured=f"the {count(len(half), 'character')} of preview stand in {kept} of "
        f"{count(len(facts.stored), 'message')} and {leaked} of {len(later)} later requests",
    )


def _once(facts: Facts) -> Claim:
    received, made, different = map(len, (facts.received, facts.dispatched, set(facts.received)))
    return Claim(
        claim="sent once",
        held=received == made == different == DISPATCHES,
        measured=f"the model received {received} requests for {made} dispatches, "
        f"{different} of them different",
    )


def _bytes(facts: Facts) -> Claim:
    received, made = Counter(facts.received), Counter(facts.dispatched)
    same = (received & made).total()
    total = sum(map(len, facts.received))
    return Claim(
        claim="to the byte",
        held=received == made,
        measured=f"{same} of {received.total()} bodies are what the database renders again "
        f"({total} bytes, digests verified)",
    )
