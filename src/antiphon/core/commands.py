"""Commands: every change of stored state, as data. One command is one transition.

A store carries out one command, or several as one, in a single transaction, and answers with
the new row or with `Denied` and the condition that failed; a loser of a compare-and-swap is
a normal answer, not an error. Since each change is a value, a test can stop the world before
or after any of them, and a recorder can say what happened.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from antiphon.core.blocks import Block, Message
from antiphon.core.deltas import Usage
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
from antiphon.core.judging import Verdict
from antiphon.core.manifest import Manifest
from antiphon.core.records import (
    Attempt,
    Call,
    CallState,
    Cause,
    Conversation,
    HandOver,
    Response,
    Run,
    RunKind,
    Runner,
    RunOptions,
    RunStatus,
)
from antiphon.core.standing import Spent

R = TypeVar("R", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """Who speaks: a node under its epoch. Stale epochs are refused where it matters."""

    node: NodeId
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Generic[R]):
    """Base of all commands; `R` is what the store answers with when it is done."""

    conversation: ConversationId
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateConversation(Command[Conversation]):
    """Create a conversation with one active session. Replays when the id exists."""

    tenant: TenantId
    session: SessionId
    title: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    scheduling: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddMessages(Command[Conversation]):
    """Create or import messages without a run; parents before children. Revision + 1.

    A message whose id exists with the same content is a replay and is left as it stands;
    with other content the whole command is Denied `message_id_conflict`. Denied
    `conversation_busy` while an operation is active. `head` becomes the head unless None.
    """

    messages: tuple[Message, ...]
    head: MessageId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartKey:
    """Start-idempotency: same scope and key with the same body digest is the same run."""

    scope: str
    key: str
    body_digest: Digest
    expires_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRun(Command[Run]):
    """Make a run durable with its input and key; status queued.

    The input message waits in the run until placement. If `key` is known with the same body
    the existing run is returned and nothing is written; with another body Denied
    `idempotency_conflict`. If a message with the input's id exists: same content under the
    same asked parent returns the run that it belongs to, else Denied `message_id_conflict`.
    Denied `queue_full` if `max_queued` runs are queued already.
    """

    run: RunId
    kind: RunKind
    options: RunOptions
    input: Message | None
    asked_parent: MessageId | None
    at_root: bool = False
    """The input is asked to become a root; without it no parent means: found at placement."""
    key: StartKey | None = None
    max_queued: int = 16
    alone: bool = False
    """Denied `conversation_busy` where a run is at work or queued; a waiting one is neither."""
    refusal: str | None = None
    """Why a new run is Denied here. A run that is known is returned all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenResponse(Command[Response]):
    """Make a response durable: first of the commands that start its run, or bring its outputs.

    It begins after the newest event. If `key` is known with the same body, Denied
    `response_known`, so that nothing of the same transaction happens twice; with another body
    Denied `idempotency_conflict`. Where not `attach`, the key is taken from whatever had it: a
    request that is no repetition, though it may look like an earlier one. Where it `continues`
    a run, that has to wait, or it is Denied `run_waiting`.
    """

    response: ResponseId
    run: RunId
    previous: ResponseId | None = None
    request: Digest | None = None
    input: tuple[MessageId, ...] = ()
    stored: bool = True
    key: StartKey | None = None
    attach: bool = True
    continues: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NotePrefix(Command[None]):
    """Remember where a history that was brought whole stands; the newest place of it counts."""

    digest: Digest
    message: MessageId


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteResponse(Command[Response]):
    """Answer for this response no longer. Its run and its messages stay as they are."""

    response: ResponseId


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRun(Command[Run]):
    """Give a queued run the slot and settle session, parent and owner.

    Needs: run queued; slot free; no active operation; the conversation's revision is
    `revision`. The input enters the tree pending under `parent`, revision + 1; without input
        the revision stays. `leaf` is the input, or `parent` without one. `head_left` is the head.
    What was found for the input stays `beside` it: its content goes before, in the same
    transaction.
        the revision stays. `leaf` is the input, or `parent` without one. `head_left` is the head. A
    parent in an archived session makes that session the active one again.
    """

    run: RunId
    parent: MessageId | None
    revision: int
    fence: Fence
    beside: Digest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRun(Command[Run]):
    """Let the input of a queued run join the run that works, between two steps of that one.

    Needs: `run` queued, with an input, and asked to steer; `into` pending, with the slot and under
    `fence`, something committed, no call open; no active operation; its leaf is `parent`. The
    input enters under `parent`, at once a success, revision + 1, and is the leaf of `into`. `run`
    ends in success with the end code `joined`; what is answered, `into` answers.
    """

    run: RunId
    into: RunId
    parent: MessageId
    fence: Fence


@dataclass(frozen=True, slots=True, kw_only=True)
class AskAgain(Command[Run]):
    """Let a run's answer be followed by why it does not do; the model is asked once more.

    Needs what `JoinRun` needs of the run, and its end code `schema_mismatch`, which becomes
    `answer_retried`. `message` enters under `parent`, at once a success; revision + 1.
    """

    run: RunId
    message: Message
    parent: MessageId
    fence: Fence


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRun(Command[Run]):
    """Take over an open run whose owner's epoch is stale. The slot stays with the run."""

    run: RunId
    fence: Fence


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
    spent: Spent | None = None
    """What it cost the key that asked, counted in the same transaction."""
    wish: str | None = None
    """The goal of a new session that the model has asked for beside its other calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerQuestion(Command[Attempt]):
    """Row 6 for a question beside the turn: its answer is noted, its usage counts for the run.

    Nothing else changes. `answer` names the content that was put before it.
    """

    operation: OperationId
    generation: int
    answer: Digest
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class DropQuestion(Command[Attempt]):
    """Row 17 for a question beside the turn: nobody waits for its answer any more.

    By its asker, or by whoever comes after one that is gone (`fence`).
    """

    operation: OperationId
    fence: Fence
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteDecision(Command[Run]):
    """Note what was decided before a queued run is placed; a `goal` becomes the active session's.

    Denied `run_queued` where it is no longer, `run_decided` where that was noted already, and
    `revision` where the conversation has moved since.
    """

    run: RunId
    decision: str
    revision: int
    goal: str | None = None
    reason: str | None = None
    operation: OperationId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetGoal(Command[Conversation]):
    """Give the active session another goal. Denied `session` where another one is active."""

    session: SessionId
    goal: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteWish(Command[Run]):
    """A model has asked for a new session and for nothing else: its answer was refused (row 8).

    The run goes on once the wish is settled. What the answer cost counts for it.
    """

    run: RunId
    goal: str
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class DropWish(Command[Run]):
    """The wish of a run for a new session is not fulfilled; it is told to go on without."""

    run: RunId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchSession(Command[Conversation]):
    """Archive the active session with a hand-over and open a new one; revision + 1.

    Compares the revision and the active session. Denied `conversation_busy` while an operation is
    active or an open run is placed, but for `run`: a pending run that holds the slot and goes on in
    the new session, with its leaf's copy as its leaf. The `copies` stand one under the other from
    the new session's root; the last one is the head.
    """

    session: SessionId
    previous: SessionId
    cause: Cause
    revision: int
    fence: Fence
    goal: str | None = None
    precis: str | None = None
    handover: HandOver | None = None
    copies: tuple[Message, ...] = ()
    run: RunId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoSwitch(Command[Conversation]):
    """Make the session before the active one active again; revision + 1.

    What was said in the active one is carried along: `copies` stand under the head of the session
    that is active then. Denied as `SwitchSession`, and `no_switch` for a first session.
    """

    session: SessionId
    revision: int
    copies: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SetScheduling(Command[Conversation]):
    """Say whether sessions come and go by themselves; None leaves that to the settings."""

    on: bool | None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Lose(Command[Attempt]):
    """Table row 9: nobody knows any more. The run's status becomes unknown."""

    operation: OperationId
    generation: int
    fence: Fence
    code: str
    shown: bool = False


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


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRun(Command[Run]):
    """End an open run that has no active operation: status success or error.

    Its unfinished operation is closed. On error with nothing committed its input becomes
    status error and the head stays. A no-op that returns the row if the run has ended. By its
    owner, or by anybody where it has none or that one's epoch is stale.
    """

    run: RunId
    status: RunStatus
    fence: Fence
    error_code: str | None = None
    end_code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRun(Command[Run]):
    """Table row 17, by run, in any state of it. A no-op for a run that has ended.

    One transaction: run canceled with `reason` as error code; its operation canceled and
    released; cancel generation + 1 only if it held the active operation; open calls closed
    with a canceled result; its input success; the slot freed. `partial` is text shown so far:
    kept as a canceled node `partial_id` under the run's leaf, on no line that a model sees.
    If calls were closed and no operation is active, their results enter the tree as
    `results_id`, revision + 1. The head moves to the input after a canceled plain send, if
    it stands at `head_left` and nothing was committed.
    """

    run: RunId
    reason: str
    partial: tuple[Block, ...] = ()
    partial_id: MessageId | None = None
    results_id: MessageId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepPartial(Command[None]):
    """Store what a canceled run had shown, as a canceled node; by whoever holds it. Once."""

    run: RunId
    partial: tuple[Block, ...]
    partial_id: MessageId


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCall(Command[Call]):
    """PENDING to EXECUTING, durable before the call. Needs an open run; by who may end it."""

    run: RunId
    call_id: CallId
    fence: Fence
    deadline_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishCall(Command[Call]):
    """Take a call's one terminal result.

    From EXECUTING by its executor (`fence` and `attempt` must match), from PENDING or
    UNKNOWN by a client or person (`fence` None). The same result again changes nothing; other
    content is Denied `duplicate_tool_result`. A late result of an ended run is Denied and
    goes to quarantine.
    """

    run: RunId
    call_id: CallId
    state: CallState
    content: tuple[Block, ...]
    code: str | None = None
    fence: Fence | None = None
    attempt: int = 0
    reused_from: CallId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproveCall(Command[Call]):
    """Let a pending call of an open run be executed, with other arguments where given.

    The same approval again changes nothing. Denied `not_approvable` where the call needs none
    or has begun, and `approval_expired` after its time.
    """

    run: RunId
    call_id: CallId
    arguments: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseCall(Command[Call]):
    """EXECUTING with a stale owner or past its deadline, or said so by its owner (`fence`).

    Back to PENDING where the tool is read-only or idempotent; else UNKNOWN, and the run waits
    with end code `tool_unknown`.
    """

    run: RunId
    call_id: CallId
    fence: Fence | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitRun(Command[Run]):
    """A pending run with open calls that others must close: status waiting, slot freed.

    By who may end the run.
    """

    run: RunId
    fence: Fence
    end_code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRun(Command[Run]):
    """A waiting run has calls again that this process may run: pending, with the slot.

    Needs a free slot and no active operation.
    """

    run: RunId
    fence: Fence


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceResults(Command[Run]):
    """Every call of the run's last message is closed: their results enter the tree.

    Needs no active operation, and the slot free or the run's. Revision + 1; the run is
    pending and holds the slot, unless it has ended. Results stand in the calls' order. A
    pending run's are placed by who may end it; a waiting one has no owner, and gets this one.
    """

    run: RunId
    message: MessageId
    fence: Fence


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveHead(Command[Conversation]):
    """Look at another line. Does not move the revision."""

    head: MessageId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTitle(Command[Conversation]):
    """Name the conversation; None takes the name away.

    Where it is done `unless_named`, a conversation with a title is left alone: Denied `title`.
    """

    title: str | None
    unless_named: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMetadata(Command[Conversation]):
    """Put these pairs in place of the conversation's metadata."""

    metadata: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteConversation(Command[Conversation]):
    """Answer for this conversation no longer; its open runs are canceled with `reason`.

    What was said stays stored until it is erased.
    """

    reason: str = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseConversation(Command[Conversation]):
    """Take away all that was said here, for good; its open runs are canceled with `reason`.

    One transaction: the blocks, names and metadata of every message, what runs were asked and
    still wait to be told, arguments and results of the ledger, what was quarantined, title,
    metadata and goals, and stored content that no other conversation needs. Structure, statuses,
    manifests and keyed digests stay. From then on every command that would bring content is
    Denied `conversation_erased`. A no-op for one that is erased.
    """

    reason: str = "erased"
    at_once: bool = True
    """Whether the file's log, too, holds nothing of it when this is answered, and not soon after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteMessages(Command[Conversation]):
    """Append a deletion marker: these are skipped on every line. Revision + 1.

    A call and its results go together: the caller passes both. Runs in `cancel` (those at
    work below the deleted ones) are canceled in the same transaction with `reason`.
    """

    messages: tuple[MessageId, ...]
    cancel: tuple[RunId, ...] = ()
    reason: str = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepCanceled(Command[Conversation]):
    """A person keeps canceled text: a new message of origin kept, revision + 1, and head."""

    source: MessageId
    message: MessageId


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine(Command[None]):
    """Note what came late or from elsewhere. Changes nothing else."""

    operation: OperationId | None
    generation: int
    reason: str
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair(Command[Conversation]):
    """Mend one contradiction that an examination has found: `code` about `at`.

    The store asks once more whether it is there; Denied `sound` where it is not. An event says
    what was wrong. Nothing is made up: what had begun and was never told the end of is closed
    with a result that says so.
    """

    code: str
    at: str
