"""Questions that a run asks beside its turn, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.core.answers.deltas import Usage
from antiphon.core.answers.usage import Cost
from antiphon.core.commands.base import Command, Fence
from antiphon.core.ids import Digest, OperationId, RunId
from antiphon.core.records import Attempt, Run
from antiphon.core.traffic.standing import Spent


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerQuestion(Command[Attempt]):
    """Row 6 for a question beside the turn: its answer is noted, its usage counts for the run.

    Nothing else changes. `answer` names the content that was put before it, and `spent` what it
    cost the key that asked for the turn, counted in the same transaction.
    """

    operation: OperationId
    generation: int
    answer: Digest
    usage: Usage = Usage()
    cost: Cost | None = None
    spent: Spent | None = None


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
