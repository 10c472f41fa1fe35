"""Questions beside the turn: answered, or dropped. Neither touches the tree or the slot."""

from __future__ import annotations

from typing import Any

from antiphon.core.answers.usage import used
from antiphon.core.commands import AnswerQuestion, Command, DropQuestion, Fence
from antiphon.core.dispatch import IN_FLIGHT, Condition, Denied, Event
from antiphon.core.records import Attempt
from antiphon.errors import InternalError
from antiphon.stores.sql.commands.dispatch import question_told
from antiphon.stores.sql.packing import encode_json, pack
from antiphon.stores.sql.rows import AttemptRow, RunRow
from antiphon.stores.sql.standing import spend
from antiphon.stores.sql.transaction import Transaction
from antiphon.stores.sql.transitions import Claim, move


def answer(tx: Transaction, command: AnswerQuestion) -> Attempt | Denied:
    """Row 6: note the answer, if what it was asked on has not moved."""
    attempt = _question(tx, command)
    took = used(command.usage, command.cost)
    claim = Claim(now_ms=command.now_ms, generation=command.generation, whole_answer=True)
    news = {"answer": pack(command.answer), "used": encode_json(took)}
    moved = move(tx, attempt, Event.COMMIT, claim, **news)
    if isinstance(moved, Denied):
        return moved
    run = tx.run_at(attempt.run_place)
    tx.change_run(run, **run.counted(took))
    if command.spent is not None:
        spend(tx, command.spent, command.now_ms, took)
    return question_told(tx, command, moved.attempt, took)


def drop(tx: Transaction, command: DropQuestion) -> Attempt | Denied:
    """Row 17: by its asker, or by anybody once nobody asks any more."""
    attempt = _question(tx, command)
    fence = command.fence
    if not tx.current(fence):
        return Denied(Condition.CALLER_CURRENT)
    theirs = attempt.node is not None and (attempt.node, attempt.epoch) != (fence.node, fence.epoch)
    if theirs and attempt.state in IN_FLIGHT:
        assert attempt.node is not None
        if tx.current(Fence(node=attempt.node, epoch=attempt.epoch)):
            return Denied(Condition.OWNER_OR_GONE)
    claim = Claim(now_ms=command.now_ms, names_run=attempt.run)
    moved = move(tx, attempt, Event.CANCEL, claim, error_code=command.code)
    return moved if isinstance(moved, Denied) else question_told(tx, command, moved.attempt)


def drop_all(tx: Transaction, command: Command[Any], run: RunRow, reason: str) -> None:
    """Row 17 for every question that is still asked for a run which is being canceled."""
    for attempt in tx.questions(run):
        claim = Claim(now_ms=command.now_ms, names_run=run.id)
        moved = move(tx, attempt, Event.CANCEL, claim, error_code=reason)
        if not isinstance(moved, Denied):
            question_told(tx, command, moved.attempt)


def _question(tx: Transaction, command: AnswerQuestion | DropQuestion) -> AttemptRow:
    attempt = tx.attempt(command.conversation, command.operation)
    if not attempt.beside:
        raise InternalError("This is a turn, not a question beside it.", at=command.operation)
    return attempt
