"""Why the model saw what it saw: the plan of a dispatch as it is stored with its manifest.

Counts and ids, never content: a plan is stored by its digest and may outlive what was said. It
says enough for the request to be made again (`Selection`), and for a process that has just
started to go on without counting what was counted (`sealed`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from antiphon.core.digests import digest
from antiphon.core.ids import Digest, MessageId
from antiphon.core.planning.tokens import Weight


class BlockKind(StrEnum):
    """What a part of a prompt is for."""

    SYSTEM_POLICY = "system_policy"
    TOOL_GUIDANCE = "tool_guidance"
    STABLE_CONTEXT = "stable_context"
    TRANSCRIPT = "transcript"
    DYNAMIC_CONTEXT = "dynamic_context"


ORDER: Final = tuple(BlockKind)
"""The order in which they stand: what changes least comes first."""

CACHEABLE: Final = frozenset(ORDER) - {BlockKind.DYNAMIC_CONTEXT}
"""What is sent again as it was, and so may be cached by a provider."""


class Reason(StrEnum):
    """Why something was left out, or why the prefix moved."""

    BRANCH = "another_branch"
    DELETION = "deletion"
    TRUNCATION = "truncation"
    COMPACTION = "compaction"
    INSTRUCTIONS = "instructions"
    TOOLS = "tools"
    CONTEXT = "stable_context"
    MODEL = "model"
    OPTIONS = "options"
    ADAPTER = "adapter"
    BUDGET = "over_budget"
    STATUS = "not_committed"


class BlockTrace(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of block: what it costs, whether it may be cached, and of how much it is made."""

    kind: BlockKind
    tokens: int
    cacheable: bool
    sources: int


class LeftOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was left out for one reason; `first` and `last` are ids, of messages or of blocks."""

    reason: Reason
    count: int
    tokens: int | None = None
    first: str | None = None
    last: str | None = None


class Prefix(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much of the last dispatch's body this one begins with, and what moved the rest."""

    last_bytes: int
    matched_bytes: int
    moved_by: tuple[Reason, ...] = ()


class Selection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which part of a path is sent: all of it, or what follows from `start` on.

    `checkpoint` is the digest of the checkpoint that stands for what comes before `start`.
    """

    start: MessageId | None = None
    checkpoint: Digest | None = None


WHOLE: Final = Selection()


class PromptTrace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The plan of one dispatch, explained.

    Attributes:
        total_tokens: What the request costs, the beginning of the answer included.
        counted_by: The vocabulary, `provider`, or `estimate`.
        factor_permille: What the estimate was multiplied by, or would have to be to come to what
            the provider says; 1000 for an exact count.
        window: What the model holds; absent where nobody knows.
        margin_tokens: What was kept free against counts that are too low.
        output_tokens: What the answer may have; absent where that is left to the provider.
        output_reduced_from: What had been asked for it, where that was more than was free.
        blocks: What was sent, by kind, in its order.
        left_out: What was not.
        selection: Which part of the line was sent.
        messages: How many messages of the line were sent.
        compaction: What came of compacting the line before this dispatch: `made`, or why there is
            no checkpoint; absent where it was not due.
        prefix: How much of the last dispatch still matches; absent for the first one of a session.
        sealed: What stands fast of the request, before the factor.
        stretch: The newest part of its line that is stored as it was rendered.
    """

    total_tokens: int
    counted_by: str
    blocks: tuple[BlockTrace, ...]
    messages: int
    factor_permille: int = 1000
    window: int | None = None
    margin_tokens: int = 0
    output_tokens: int | None = None
    output_reduced_from: int | None = None
    left_out: tuple[LeftOut, ...] = ()
    selection: Selection = WHOLE
    compaction: str | None = None
    prefix: Prefix | None = None
    sealed: Weight = Weight()
    stretch: Digest | None = None
    schema: int = 1

    @property
    def cacheable_tokens(self) -> int:
        """What of it may be cached by a provider."""
        return sum(block.tokens for block in self.blocks if block.cacheable)


_encode: Final = msgspec.json.Encoder(order="deterministic").encode
_decode: Final = msgspec.json.Decoder(PromptTrace).decode


def encode_trace(key: bytes, trace: PromptTrace) -> tuple[Digest, bytes]:
    """Return name and stored form of a trace, under the tenant's key."""
    data = _encode(trace)
    return digest(key, "plan", data), data


def decode_trace(data: bytes) -> PromptTrace:
    """Return the trace that was stored.

    Raises:
        msgspec.ValidationError: It is no trace of ours.
    """
    return _decode(data)
