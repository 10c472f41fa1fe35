"""Runs: born durable, placed in turn, claimed, waiting, ended; and the responses that show them."""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.core.blocks import Block, Message
from antiphon.core.commands.base import Command, Fence
from antiphon.core.ids import Digest, MessageId, ResponseId, RunId
from antiphon.core.records import Conversation, Response, Run, RunKind, RunOptions, RunStatus


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
class KeepCanceled(Command[Conversation]):
    """A person keeps canceled text: a new message of origin kept, revision + 1, and head."""

    source: MessageId
    message: MessageId
