"""An attempt, from its manifest to what is known of its end: the dispatch table's transitions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from antiphon.core.answers.deltas import Usage
from antiphon.core.answers.judging import Verdict
from antiphon.core.answers.said import Said
from antiphon.core.answers.usage import Cost
from antiphon.core.blocks import Block, Message
from antiphon.core.commands.base import Command, Fence
from antiphon.core.ids import CallId, Digest, MessageId, OperationId
from antiphon.core.manifest import Manifest
from antiphon.core.records import Attempt, CallState, Run, Runner
from antiphon.core.traffic.standing import Spent


@dataclass(frozen=True, slots=True, kw_only=True)
class PutContent(Command[None]):
    """Store content by its digest within the tenant: policies, toolsets, input blocks.

    It goes with the last conversation that put it, where that is erased. What is `structure` holds
    no words of anybody (rules and ids), and stays.
    """

    items: tuple[tuple[Digest, bytes], ...]
    structure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare(Command[Attempt]):
    """Table row 1. Writes the manifest and its first attempt; reserves `answer` in the run.

    The caller has validated the line from the manifest's base leaf; the store checks that
    the run is open, holds the slot, and has no unfinished operation and no open call. A question
    beside the turn (any other purpose) reserves nothing, and none of that is asked of its run.
    """

    manifest: Manifest
    manifest_digest: Digest
    answer: MessageId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accept(Command[Attempt]):
    """Table row 2, the point of acceptance: gives the generation."""

    operation: OperationId
    fence: Fence
    deadline_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Supersede(Command[Attempt]):
    """Table row 3: the world moved before acceptance; the run prepares anew."""

    operation: OperationId


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(Command[Attempt]):
    """Table row 4: bytes have left."""

    operation: OperationId
    generation: int
    fence: Fence


@dataclass(frozen=True, slots=True, kw_only=True)
class BindHandle(Command[Attempt]):
    """Bind the provider's handle to the operation, once, in SENT, STREAMING or UNKNOWN.

    Denied `handle` if another handle is bound, or if `manifest_digest` is not the
    operation's. Binding the same handle again changes nothing.
    """

    operation: OperationId
    generation: int
    manifest_digest: Digest
    handle: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOpened(Command[Attempt]):
    """Table row 5: the answer has begun."""

    operation: OperationId
    generation: int
    fence: Fence
    handle: str | None = None


class Then(StrEnum):
    """What becomes of the run after its commit."""

    FINISH = "finish"
    CONTINUE = "continue"
    WAIT = "wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCall:
    """A ledger row to be born in the commit, and how its tool was declared.

    A call that must not run (no such tool, arguments that do not fit) is born in state ERROR
    with `code` and `content`, one that repeats another in SUCCESS with the other's content;
    every other one is born PENDING. `approve_by_ms` is until when somebody may approve a call
    that needs it.
    """

    call_id: CallId
    name: str
    arguments: str
    arguments_digest: Digest
    runner: Runner
    read_only: bool = False
    idempotent: bool = False
    idempotency_key: str = ""
    code: str | None = None
    content: tuple[Block, ...] = ()
    repeatable: bool = False
    approve_by_ms: int | None = None
    max_result_chars: int = 0
    reused_from: CallId | None = None

    @property
    def state(self) -> CallState:
        """The state that it is born in."""
        if self.reused_from is not None:
            return CallState.SUCCESS
        return CallState.PENDING if self.code is None else CallState.ERROR

    @property
    def runnable(self) -> bool:
        """Whether it may be executed as soon as it is born."""
        return (
            self.state is CallState.PENDING
            and self.runner is Runner.FUNCTION
            and self.approve_by_ms is None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitAnswer(Command[Run]):
    """Table rows 6 and 13 (`found`): the whole answer becomes canonical.

    One transaction: the message under the manifest's base leaf, ledger rows PENDING, usage,
    revision + 1, release, attempt COMMITTED; the input's status success at the run's first
    commit; the run per `then` (FINISH and WAIT free the slot); the head follows where it
    stands at the run's `head_left`.
    """

    operation: OperationId
    generation: int
    message: Message
    calls: tuple[NewCall, ...] = ()
    usage: Usage = Usage()
    finish: str | None = None
    then: Then = Then.FINISH
    end_code: str | None = None
    found: bool = False
    verdict: Verdict | None = None
    """What the schema that was asked for says of it, where one was."""
    cost: Cost | None = None
    """What it cost, as far as anybody knows."""
    spent: Spent | None = None
    """What it cost the key that asked, counted in the same transaction."""
    wish: str | None = None
    """The goal of a new session that the model has asked for beside its other calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictAnswer(Command[Attempt]):
    """Table row 7: a whole answer for a base that moved goes to quarantine. Must stay 0."""

    operation: OperationId
    generation: int
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse(Command[Attempt]):
    """Table rows 8 and 12: a definite no, or (`not_sent`) no byte left.

    To FAILED, or back to UNKNOWN where this was not the first sending.
    """

    operation: OperationId
    generation: int
    fence: Fence
    code: str
    not_sent: bool = False
    shown: bool = False
    """Whether preview text was shown: then a withdrawal event is written too."""
    said: Said | None = None
    """What the provider said of it, where it said anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lose(Command[Attempt]):
    """Table row 9: nobody knows any more. The run's status becomes unknown."""

    operation: OperationId
    generation: int
    fence: Fence
    code: str
    shown: bool = False
    said: Said | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(Command[Attempt]):
    """Table row 10: go on reading by the handle."""

    operation: OperationId
    generation: int
    fence: Fence


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay(Command[Attempt]):
    """Table row 11: the same bytes under the same key, same generation."""

    operation: OperationId
    generation: int
    fence: Fence
    request_digest: Digest
    honours_key: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class End(Command[Attempt]):
    """Table row 14: proof that nothing of the attempt can reach us any more."""

    operation: OperationId
    generation: int
    proof: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry(Command[Attempt]):
    """Table row 15: the next attempt of the same manifest, PREPARED; run pending again."""

    operation: OperationId
    attempts_allowed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Close(Command[Attempt]):
    """Table row 16."""

    operation: OperationId


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendDeadline(Command[Attempt]):
    """While bytes arrive, its owner moves the deadline of an attempt in flight."""

    operation: OperationId
    generation: int
    fence: Fence
    deadline_ms: int
