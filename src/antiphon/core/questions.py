"""Questions beside the turn: what a model is asked about a conversation, not in it.

A decision, a summary, a title. Each has its manifest and its attempt like a turn, but holds no
slot, writes no message and moves nothing; where no answer comes in time, the conversation goes
on as if nobody had asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from antiphon.core.answers.deltas import Usage
from antiphon.core.blocks import Message, Origin, Role, Status, ToolCall, Trust
from antiphon.core.ids import ConversationId, MessageId, OperationId
from antiphon.core.manifest import Purpose, QuestionText, ToolDeclaration
from antiphon.core.records import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked, for which run, and how long and how much its answer may be.

    `about` is the message that stood last on the line when it was asked. `text` holds what people
    and models said as data, whatever it looks like: whoever writes it escapes it.
    """

    purpose: Purpose
    run: Run
    about: MessageId
    instructions: str
    text: str
    timeout_s: float
    max_output_tokens: int
    tool: ToolDeclaration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The whole answer; it is stored, and its usage counts for the run."""

    operation: OperationId
    text: str
    calls: tuple[ToolCall, ...]
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsaid:
    """There is no answer, and why: a code of ours or the provider's own.

    `timeout`, `moved` (what it was asked on has changed) and `canceled` beside those of a turn.
    """

    reason: str
    operation: OperationId | None = None


Reply: TypeAlias = Said | Unsaid


def as_message(
    conversation: ConversationId, operation: OperationId, question: QuestionText
) -> Message:
    """Return the one message that a question is sent as; it never enters the tree."""
    return Message(
        id=MessageId(operation),
        conversation=conversation,
        parent=None,
        role=Role.USER,
        blocks=question.blocks,
        origin=Origin.SYSTEM,
        trust=Trust.USER,
        status=Status.PENDING,
    )
