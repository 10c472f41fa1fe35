"""Rows as the stores return them: where each thing stands now.

They are snapshots. A decision made on one is carried out by a command that compares again
inside the transaction, so a stale row costs a retry and never a fork.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from antiphon.core.answers.said import Said
from antiphon.core.answers.usage import Cost, Used
from antiphon.core.blocks import Block
from antiphon.core.dispatch import State
from antiphon.core.ids import (
    CallId,
    ConversationId,
    Digest,
    MessageId,
    NodeId,
    OperationId,
    ResponseId,
    RunId,
    SessionId,
    TenantId,
)
from antiphon.core.manifest import Mapping, Purpose


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all rows."""


class Pause(_Row, frozen=True, kw_only=True):
    """Why a conversation is paused: the adapter's version that is pinned does not know a block.

    Nothing is sent and nothing is said in other words: `run`, and what is queued behind it, waits
    until the version is no longer pinned for its model, or another is that knows the kind.
    """

    run: RunId
    model: str
    adapter_version: int
    block_kind: str
    reason: str = "adapter_too_old"
    fix: str = "Pin another version for this model, or none: antiphon rollout set."


class Conversation(_Row, frozen=True, kw_only=True):
    """The row that every compare-and-swap of a conversation looks at.

    `head` is the leaf of the active session; an archived session keeps its own. `scheduling` says
    whether sessions come and go by themselves; None leaves that to the settings. Since `erased_ms`
    nothing of what was said is here any more, and nothing more may be said. `paused` is found when
    it is asked for; the stores do not know of it.
    """

    id: ConversationId
    tenant: TenantId
    session: SessionId
    head: MessageId | None
    revision: int
    cancel_generation: int
    attempt_generation: int
    active_operation: OperationId | None
    slot: RunId | None
    title: str | None
    created_ms: int
    updated_ms: int
    last_event: int
    metadata: dict[str, str] = {}
    scheduling: bool | None = None
    deleted: bool = False
    erased_ms: int | None = None
    deletions: frozenset[MessageId] = frozenset()
    paused: Pause | None = None


class HandOver(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a session leaves to the next one.

    `summary` are the words of a model, where one was asked (`operation`) and answered in time; the
    rest is read from the messages themselves.
    """

    goal: str | None = None
    identifiers: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    summary: str | None = None
    operation: OperationId | None = None


class Cause(StrEnum):
    """Why a session began."""

    IDLE = "idle"
    DECISION = "decision"
    TOOL = "tool"
    CLOSING = "closing"
    PERSON = "person"


class Session(_Row, frozen=True, kw_only=True):
    """A goal-carrying stretch of a conversation.

    It began after `previous`, for a `cause`, with a `precis` of what came before; a conversation's
    first session has none of these. `handover` is what it left when it last ended.
    """

    id: SessionId
    conversation: ConversationId
    goal: str | None
    active: bool
    head: MessageId | None
    created_ms: int
    previous: SessionId | None = None
    cause: Cause | None = None
    precis: str | None = None
    handover: HandOver | None = None
    archived_ms: int | None = None


class RunStatus(StrEnum):
    """Where a run stands."""

    QUEUED = "queued"
    PENDING = "pending"
    WAITING = "waiting"
    UNKNOWN = "unknown"
    SUCCESS = "success"
    ERROR = "error"
    CANCELED = "canceled"


OPEN_RUN: Final = frozenset(
    {RunStatus.QUEUED, RunStatus.PENDING, RunStatus.WAITING, RunStatus.UNKNOWN}
)


class RunKind(StrEnum):
    """What started a run."""

    SEND = "send"
    REGENERATE = "regenerate"


class Fallback(_Row, frozen=True, kw_only=True):
    """Who is asked where the model gave a definite no, and on which policy."""

    model: str
    policy_digest: Digest


class RunOptions(_Row, frozen=True, kw_only=True, omit_defaults=True):
    """What a run was asked to do; durable with it, so that any process can go on with it.

    `tools` are digests in the content store; functions run here are found by name in the
    process that serves the run. `repairs` are what was done to a history that came broken.
    """

    model: str
    policy_digest: Digest
    toolset_digest: Digest
    max_model_calls: int = 16
    max_tool_calls: int = 64
    steer: bool = False
    answer_schema: Digest | None = None
    retry_answer: bool = False
    metadata: dict[str, str] = {}
    repairs: tuple[Mapping, ...] = ()
    key: str = ""
    """The id of the key that asked; what it costs is counted there."""
    fallbacks: tuple[Fallback, ...] = ()


class Run(_Row, frozen=True, kw_only=True):
    """One input worked through to an answer.

    `asked_parent` is what the caller named; None is the last closed point, found at placement,
    or the root where `at_root` says so.
    `leaf` is the newest message of the run's own line: its input, then each commit.
    `head_left` is where the run's placement or its own last commit left the head: the head
    follows the run only while it still stands there. `answer` is the id reserved for the next
    assistant message. `operation` is the newest one prepared for it; `committed` counts its
    assistant messages. `seq` is the number of the event that told of its start. `decision` is what
    was decided before it was placed; `wish` is the goal of a new session that its model has asked
    for, empty where it named none, and `switched` says that such a wish was settled.

    Tokens and `cost` are those of its whole answers, questions beside the turn included; what of
    them is counted where says `core.answers.usage.Used`. `cost` is None once one answer has no known price.
    """

    id: RunId
    conversation: ConversationId
    kind: RunKind
    status: RunStatus
    options: RunOptions
    input: MessageId | None
    asked_parent: MessageId | None
    at_root: bool = False
    session: SessionId | None
    leaf: MessageId | None
    head_left: MessageId | None
    answer: MessageId | None
    operation: OperationId | None = None
    committed: int
    node: NodeId | None
    epoch: int
    error_code: str | None
    end_code: str | None
    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost: Cost | None = None
    created_ms: int
    started_ms: int | None
    ended_ms: int | None
    seq: int
    decision: str | None = None
    wish: str | None = None
    switched: bool = False

    @property
    def open(self) -> bool:
        """Whether it has not ended."""
        return self.status in OPEN_RUN


class Response(_Row, frozen=True, kw_only=True):
    """What one request of a client started: a stretch of a run.

    The stretch begins after event number `since` and ends where the run next ends or waits for
    the client; what came of it is read from the run's events and messages, so nothing here ever
    changes but `deleted`. `request` is the digest of what the client asked for beside its input,
    None once that was dropped; `input` are the messages that it brought.
    """

    id: ResponseId
    conversation: ConversationId
    run: RunId
    previous: ResponseId | None
    since: int
    request: Digest | None
    input: tuple[MessageId, ...]
    stored: bool
    created_ms: int
    deleted: bool = False

    @property
    def erased(self) -> bool:
        """Whether what was asked and said is gone."""
        return self.request is None


class Attempt(_Row, frozen=True, kw_only=True):
    """One try at an operation. `number` counts tries from 1; `generation` is 0 until accepted.

    `answer` names what was answered to a question beside the turn; a turn's answer is in the tree.
    `used` is what its answer took, where that was had whole; `said` is what its provider said in
    place of one, which is content and goes with it.
    """

    operation: OperationId
    conversation: ConversationId
    run: RunId
    purpose: Purpose = Purpose.TURN
    number: int
    generation: int
    state: State
    handle: str | None
    node: NodeId | None
    epoch: int
    deadline_ms: int
    sent_again: bool
    proof: str | None
    error_code: str | None
    prepared_ms: int
    accepted_ms: int | None
    written_ms: int | None
    opened_ms: int | None
    ended_ms: int | None
    answer: Digest | None = None
    used: Used | None = None
    said: Said | None = None


class CallState(StrEnum):
    """Where a tool call stands in the ledger."""

    PENDING = "PENDING"
    EXECUTING = "EXECUTING"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"
    CANCELED = "CANCELED"
    UNKNOWN = "UNKNOWN"


TERMINAL_CALL: Final = frozenset({CallState.SUCCESS, CallState.ERROR, CallState.CANCELED})
OPEN_CALL: Final = frozenset(CallState) - TERMINAL_CALL


class Approval(StrEnum):
    """Whether a person has to agree before a call may run."""

    NEEDED = "needed"
    GIVEN = "given"


class Runner(StrEnum):
    """Who executes a call."""

    CLIENT = "client"
    FUNCTION = "function"


class Call(_Row, frozen=True, kw_only=True):
    """One tool call in the ledger: born in the commit of the message that asks for it.

    `arguments` are the model's. `changed_arguments` are what whoever approved it made of them;
    those are run. `deadline_ms` is when its executor is given up, and before it runs when its
    approval comes too late. `content` is the whole result; the model is shown at most
    `max_result_chars` of its text (0 is no limit). `reused_from` is the call of the same run
    whose result this one was given instead of being run. Of a call that is `erased` arguments and
    result are gone.
    """

    conversation: ConversationId
    run: RunId
    message: MessageId
    call_id: CallId
    order: int
    name: str
    arguments: str
    arguments_digest: Digest
    generation: int
    runner: Runner
    read_only: bool
    idempotent: bool
    state: CallState
    attempt: int
    node: NodeId | None
    epoch: int
    deadline_ms: int
    idempotency_key: str
    code: str | None
    content: tuple[Block, ...]
    ended_ms: int | None
    repeatable: bool = False
    approval: Approval | None = None
    changed_arguments: str | None = None
    max_result_chars: int = 0
    reused_from: CallId | None = None
    erased: bool = False

    @property
    def runnable(self) -> bool:
        """Whether it may be executed here and now, as far as its own row says."""
        return (
            self.state is CallState.PENDING
            and self.runner is Runner.FUNCTION
            and self.approval is not Approval.NEEDED
        )


class StoredEvent(_Row, frozen=True, kw_only=True):
    """A durable event: numbered per conversation without gaps. `data` is an event in JSON."""

    conversation: ConversationId
    seq: int
    at_ms: int
    run: RunId | None
    data: msgspec.Raw


class Quarantined(_Row, frozen=True, kw_only=True):
    """Something that came too late or from the wrong place. It changed nothing."""

    conversation: ConversationId
    operation: OperationId | None
    generation: int
    reason: str
    data: str
    at_ms: int


LATE_TOOL_RESULT: Final = "late_tool_result"
"""Reason of a result that came when its call was closed, or from who may not give it."""


class LateResult(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of such a result, as the `data` of what is quarantined."""

    call: CallId
    state: CallState
    content: msgspec.Raw
    run: RunId | None = None
