"""Deltas: what an adapter reads out of a provider's events, the same for every dialect.

A delta is still only a candidate. Its position is (block, seq) within one generation of one
handle; the assembler drops what it has seen and refuses what leaves a gap.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from antiphon.core.blocks import Opaque


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


class _Delta(msgspec.Struct, frozen=True):
    """Base of all deltas. A struct, since one is made for every token of every answer."""


class Opened(_Delta, frozen=True):
    """The provider named the response: its handle."""

    handle: str


class TextDelta(_Delta, frozen=True):
    """A piece of readable text of block `block`."""

    block: int
    channel: Channel
    text: str
    seq: int | None = None


class CallOpened(_Delta, frozen=True):
    """A tool call began.

    A call that the provider gave no id is given one when it is committed. `needs_stop` says
    that the dialect closes each block by itself: without `BlockStopped` the call is half.
    """

    block: int
    call_id: str | None
    name: str | None
    needs_stop: bool = False


class ArgumentsDelta(_Delta, frozen=True):
    """A piece of a call's argument text. Private until the block has stopped and parses."""

    block: int
    text: str
    seq: int | None = None


class BlockStopped(_Delta, frozen=True):
    """The provider closed a block by itself."""

    block: int


class OpaqueState(_Delta, frozen=True):
    """What the provider wants back with block `block`, whole: it comes once, in no pieces.

    For a block that never said anything readable it opens one of reasoning.
    """

    block: int
    opaque: Opaque


class Usage(_Delta, frozen=True, kw_only=True):
    """Tokens as the provider counted them; `reasoning` is inside `output`.

    `cached` and `cache_write` are inside `input` too, but for providers that count them
    beside it: then they are `cache_apart`.
    """

    input: int | None = None
    output: int | None = None
    total: int | None = None
    cached: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    cache_apart: bool = False

    @property
    def whole_input(self) -> int | None:
        """All that the model was given, whether a cache had it or not."""
        if self.input is None or not self.cache_apart:
            return self.input
        return self.input + (self.cached or 0) + (self.cache_write or 0)


class Finished(_Delta, frozen=True):
    """The provider said that it has finished, in its own `word`.

    `tells_cut` is False of a server that has one word for an answer that is whole and for one
    that reached its limit: then the count of tokens tells them apart.
    """

    word: str
    meaning: Meaning
    tells_cut: bool = True


class Failed(_Delta, frozen=True):
    """The provider reported an error inside the stream, or sent what cannot be read.

    `definite` is False where only our reading failed: then the provider has not said no, and
    may still be at work.
    """

    code: str
    message: str
    retryable: bool = False
    definite: bool = True


class Note(_Delta, frozen=True):
    """A deviation that was tolerated, worth a line in the diagnostics."""

    word: str


class Ended(_Delta, frozen=True):
    """The provider's own end marker (`[DONE]`) passed."""

    extra: dict[str, str] = msgspec.field(default_factory=dict)


Delta: TypeAlias = (
    Opened
    | TextDelta
    | CallOpened
    | ArgumentsDelta
    | BlockStopped
    | OpaqueState
    | Usage
    | Finished
    | Failed
    | Note
    | Ended
)
