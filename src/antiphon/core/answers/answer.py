"""What reading an attempt yields: pieces of preview while it lasts, one answer when it is over."""

from __future__ import annotations

import msgspec

from antiphon.core.answers.deltas import Channel, Meaning, Usage
from antiphon.core.blocks import Block, ToolCall
from antiphon.core.ids import CallId


class Piece(msgspec.Struct, frozen=True):
    """Preview text: `text` stands at code point `offset` of block `block`. It may be withdrawn."""

    block: int
    channel: Channel
    offset: int
    text: str


class PartialCall(msgspec.Struct, frozen=True, kw_only=True):
    """What had come of a call that was never released. For people and tests only."""

    call_id: str | None
    name: str | None
    arguments: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt came to.

    Attributes:
        committable: Whether it may become the assistant message. `error` is None exactly then.
        blocks: The message's blocks in their order; empty unless committable. Never without
            a text, a refusal or a call: a model that said nothing said the empty text.
        calls: The tool calls among them.
        problems: Per call that must not run, one sentence why: no such tool, or arguments
            that do not fit its schema. It is committed all the same, and answered with an
            error that the model can read. Empty where no tools were given to compare with.
        text: All text, preview only where not committable.
        reasoning: The model's thinking, or None where there was none.
        refusal: The model's own words for a refusal, or None.
        finish: The provider's own finish word, or None where none came.
        meaning: What it means for the commit; with calls present a plain end needs a tool.
        usage: Tokens as the provider counted them last.
        handle: The provider's name for the response.
        error: Why it may not be committed: a stable code, or the provider's own.
        error_message: One sentence for people.
        retryable: Whether the same request may fare better.
        definite: Whether the provider is known to be done with this attempt. False after a
            cut: then the outcome is unknown.
        diagnostics: Deviations that were tolerated, each word once.
        duplicates_dropped: How many deltas came a second time.
        partial_calls: Calls of an answer that may not be committed.
    """

    committable: bool
    blocks: tuple[Block, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    problems: dict[CallId, str] = msgspec.field(default_factory=dict)
    text: str = ""
    reasoning: str | None = None
    refusal: str | None = None
    finish: str | None = None
    meaning: Meaning | None = None
    usage: Usage = Usage()
    handle: str | None = None
    error: str | None = None
    error_message: str | None = None
    retryable: bool = False
    definite: bool = True
    diagnostics: tuple[str, ...] = ()
    duplicates_dropped: int = 0
    partial_calls: tuple[PartialCall, ...] = ()

    @property
    def truncated(self) -> bool:
        """Whether the provider stopped at a length limit."""
        return self.meaning is Meaning.TRUNCATED

    @property
    def paused(self) -> bool:
        """Whether the provider wants to be asked again with the same content."""
        return self.meaning is Meaning.PAUSED

    @property
    def released(self) -> tuple[ToolCall, ...]:
        """The calls that may run once the answer is committed."""
        return tuple(call for call in self.calls if call.call_id not in self.problems)
