"""Events: what a reader of a conversation is told, durable ones and live ones.

Durable events are numbered per conversation and kept. Live ones carry preview text, which
may still be withdrawn: they are addressed by (run, generation, block, offset), are never
stored, and have a type of their own so that a preview cannot be taken for what is true.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from antiphon.core.answers.deltas import Channel
from antiphon.core.answers.judging import Verdict
from antiphon.core.answers.usage import Used
from antiphon.core.dispatch import State
from antiphon.core.ids import CallId, MessageId, OperationId, RunId, SessionId
from antiphon.core.manifest import Purpose
from antiphon.core.records import CallState, Cause, RunStatus


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """Base of durable events; `type` tells them apart in stored form."""


class RunChanged(_Event, frozen=True, kw_only=True, tag="run.changed"):
    """A run has a new status. `code` is its error code, or why it ended as it did.

    One that ended since its message `joined` another run names that one: its answer is there.
    """

    run: RunId
    status: RunStatus
    code: str | None = None
    into: RunId | None = None


class Placed(_Event, frozen=True, kw_only=True, tag="message.placed"):
    """A run's input has entered the tree."""

    run: RunId
    message: MessageId
    parent: MessageId | None


class DispatchChanged(_Event, frozen=True, kw_only=True, tag="dispatch.changed"):
    """An attempt of the run has a new state."""

    run: RunId
    operation: OperationId
    generation: int
    state: State
    code: str | None = None


class QuestionChanged(_Event, frozen=True, kw_only=True, tag="question.changed"):
    """A question beside the turn has a new state; of its answer no model sees anything."""

    run: RunId
    operation: OperationId
    purpose: Purpose
    generation: int
    state: State
    code: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0


class Committed(_Event, frozen=True, kw_only=True, tag="message.committed"):
    """An assistant message is canonical. It is true from here on; its preview is obsolete."""

    run: RunId
    message: MessageId
    parent: MessageId | None
    revision: int
    generation: int
    finish: str | None = None
    calls: tuple[CallId, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    verdict: Verdict | None = None

    @property
    def used(self) -> Used:
        """What the answer took; what it cost is no part of the event."""
        return Used(
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cached_tokens=self.cached_tokens,
            cache_write_tokens=self.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens,
        )


class Withdrawn(_Event, frozen=True, kw_only=True, tag="preview.withdrawn"):
    """What was shown of this generation never became history: take it off the screen."""

    run: RunId
    generation: int
    reason: str


class CallChanged(_Event, frozen=True, kw_only=True, tag="call.changed"):
    """A tool call has a new state."""

    run: RunId
    call: CallId
    name: str
    state: CallState
    code: str | None = None


class ResultsPlaced(_Event, frozen=True, kw_only=True, tag="results.placed"):
    """All calls of a step are closed and their results stand in the tree."""

    run: RunId
    message: MessageId
    revision: int


class Decided(_Event, frozen=True, kw_only=True, tag="session.decided"):
    """What was decided about the session for a run, and why where that is no model's choice."""

    run: RunId
    decision: str
    reason: str | None = None
    operation: OperationId | None = None


class GoalChanged(_Event, frozen=True, kw_only=True, tag="session.goal"):
    """A session has another goal; what it is, the session says."""

    session: SessionId


class SessionSwitched(_Event, frozen=True, kw_only=True, tag="session.switched"):
    """A new session is the active one, and `previous` is archived; `run` goes on in the new one."""

    session: SessionId
    previous: SessionId
    cause: Cause
    revision: int
    run: RunId | None = None


class SessionActivated(_Event, frozen=True, kw_only=True, tag="session.activated"):
    """An archived session is the active one again; `undone` says that a switch was taken back."""

    session: SessionId
    previous: SessionId
    undone: bool = False


class SchedulingSet(_Event, frozen=True, kw_only=True, tag="scheduling.set"):
    """Whether sessions come and go by themselves here; None leaves that to the settings."""

    on: bool | None


class HeadMoved(_Event, frozen=True, kw_only=True, tag="head.moved"):
    """The active line now ends in `head`."""

    head: MessageId | None


class MessagesAdded(_Event, frozen=True, kw_only=True, tag="messages.added"):
    """Messages were created or imported without a run."""

    messages: tuple[MessageId, ...]


class MessagesDeleted(_Event, frozen=True, kw_only=True, tag="messages.deleted"):
    """These are skipped on every line from here on; they stay stored."""

    messages: tuple[MessageId, ...]


class ConversationErased(_Event, frozen=True, kw_only=True, tag="conversation.erased"):
    """What was said here is gone for good; that it was said stays."""


class Repaired(_Event, frozen=True, kw_only=True, tag="conversation.repaired"):
    """Rows that contradicted each other were mended: `code` says which rule, `why` what was found."""

    code: str
    at: str
    why: str


class Kept(_Event, frozen=True, kw_only=True, tag="message.kept"):
    """A person kept canceled text: it is a message of its own now."""

    message: MessageId
    source: MessageId


DurableEvent: TypeAlias = (
    RunChanged
    | Placed
    | DispatchChanged
    | QuestionChanged
    | Decided
    | GoalChanged
    | SessionSwitched
    | SessionActivated
    | SchedulingSet
    | Committed
    | Withdrawn
    | CallChanged
    | ResultsPlaced
    | HeadMoved
    | MessagesAdded
    | MessagesDeleted
    | ConversationErased
    | Repaired
    | Kept
)


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of an answer that may still be withdrawn.

    `offset` counts code points before it in its block. A snapshot has offset 0 and holds all
    there is so far.
    """

    run: RunId
    generation: int
    block: int
    channel: Channel
    offset: int
    text: str
    message: MessageId | None = None
    """The id that the answer will have, if it is committed."""
    after_call: bool = False
    """Whether a call of the same answer stands before it: its place is not known until then."""


@dataclass(frozen=True, slots=True)
class Durable:
    """A durable event with its number in the conversation."""

    seq: int
    at_ms: int
    event: DurableEvent


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Everything up to `seq` has been told; what follows is happening now."""

    seq: int


StreamItem: TypeAlias = Durable | Preview | CaughtUp
"""What a reader is told: durable events after its number, previews, and when it is up to date."""


_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(DurableEvent).decode


def encode_event(event: DurableEvent) -> bytes:
    """Return the stored form of `event`; `decode_event` is its inverse."""
    return _encode(event)


def decode_event(data: bytes | msgspec.Raw) -> DurableEvent:
    """Return the event that `encode_event` stored."""
    event: DurableEvent = _decode(data)
    return event
