"""Deltas: what an adapter reads out of a provider's events, the same for every dialect.

A delta is still only a candidate. Its position is (block, seq) within one generation of one
handle; the assembler drops what it has seen and refuses what leaves a gap.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias


class Channel(StrEnum):
    """Where a piece of text belongs."""

    TEXT = "text"
    REASONING = "reasoning"
    REFUSAL = "refusal"


class Meaning(StrEnum):
    """What a provider's finish word means for the commit."""

    COMPLETE = "complete"
    NEEDS_TOOL = "needs_tool"
    PAUSED = "paused"
    TRUNCATED = "truncated"
    FILTERED = "filtered"
    ERROR = "error"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Opened:
    """The provider named the response: its handle."""

    handle: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of readable text of block `block`."""

    block: int
    channel: Channel
    text: str
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class CallOpened:
    """A tool call began. The id may be missing: then it stays uncommittable or is given one."""

    block: int
    call_id: str | None
    name: str | None


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """A piece of a call's argument text. Private until the block has stopped and parses."""

    block: int
    text: str
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class BlockStopped:
    """The provider closed a block by itself."""

    block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the provider counted them; `reasoning` is inside `output`."""

    input: int | None = None
    output: int | None = None
    total: int | None = None
    cached: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The provider said that it has finished, in its own `word`."""

    word: str
    meaning: Meaning


@dataclass(frozen=True, slots=True)
class Failed:
    """The provider reported an error inside the stream, or sent what cannot be read."""

    code: str
    message: str
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """A deviation that was tolerated, worth a line in the diagnostics."""

    word: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The provider's own end marker (`[DONE]`) passed."""

    extra: dict[str, str] = field(default_factory=dict)


Delta: TypeAlias = (
    Opened
    | TextDelta
    | CallOpened
    | ArgumentsDelta
    | BlockStopped
    | Usage
    | Finished
    | Failed
    | Note
    | Ended
)
