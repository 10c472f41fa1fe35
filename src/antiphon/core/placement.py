"""Placement: where a run's input goes once the conversation's slot is free.

Decided from rows and a line, carried out by `PlaceRun`, which compares the revision again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from antiphon.core.answers.usage import Cost
from antiphon.core.blocks import Message, Status
from antiphon.core.commands import StartRun
from antiphon.core.ids import CallId, ConversationId, Digest, MessageId, RunId, SessionId
from antiphon.core.records import Run, RunStatus
from antiphon.core.tree import last_closed_point, open_calls


@dataclass(frozen=True, slots=True)
class PlaceAt:
    """The input becomes a child of `parent`; None is the root."""

    parent: MessageId | None


@dataclass(frozen=True, slots=True)
class StayQueued:
    """The branch has open calls that somebody else will close: the input waits."""

    calls: tuple[CallId, ...]


@dataclass(frozen=True, slots=True)
class CannotPlace:
    """The input can never go there: the run ends with `code`."""

    code: str
    message: str


Placement: TypeAlias = PlaceAt | StayQueued | CannotPlace


def place(run: Run, line: Sequence[Message], others: Sequence[Run]) -> Placement:
    """Return where `run` goes.

    Args:
        run: A queued run.
        line: Committed messages from the root to the asked parent, or to the head where none
            was asked for; deleted and uncommitted ones are gone already.
        others: The conversation's other open runs, for what they still owe to the line.
    """
    if run.at_root:
        return PlaceAt(None)
    waiting = open_calls(line)
    if run.asked_parent is not None:
        if not line or line[-1].id != run.asked_parent:
            return CannotPlace(
                "uncommitted_block",
                "The parent is deleted, or was never committed; name another one.",
            )
        if waiting and _owed_by(others, line):
            return StayQueued(waiting)
        if waiting:
            return CannotPlace(
                "missing_tool_result",
                "The parent asks for tools whose results are missing; branch above it.",
            )
        return PlaceAt(run.asked_parent)
    if waiting and _owed_by(others, line):
        return StayQueued(waiting)
    return PlaceAt(last_closed_point(line))


def as_started(command: StartRun) -> Run:
    """Return the row of a run as its start leaves it, but for its number among the events."""
    return Run(
        id=command.run,
        conversation=command.conversation,
        kind=command.kind,
        status=RunStatus.QUEUED,
        options=command.options,
        input=None if command.input is None else command.input.id,
        asked_parent=command.asked_parent,
        at_root=command.at_root,
        session=None,
        leaf=None,
        head_left=None,
        answer=None,
        committed=0,
        node=None,
        epoch=0,
        error_code=None,
        end_code=None,
        input_tokens=0,
        output_tokens=0,
        cost=Cost(micros=0),
        created_ms=command.now_ms,
        started_ms=None,
        ended_ms=None,
        seq=0,
    )


def as_placed(
    waiting: Message,
    *,
    conversation: ConversationId,
    session: SessionId,
    run: RunId,
    parent: MessageId | None,
    beside: Digest | None = None,
) -> Message:
    """Return an input as it enters the tree: pending, its run's own, under `parent`."""
    return msgspec.structs.replace(
        waiting,
        conversation=conversation,
        session=session,
        run=run,
        parent=parent,
        beside=beside,
        status=Status.PENDING,
        error_code=None,
    )


def as_joined(
    waiting: Message,
    *,
    conversation: ConversationId,
    session: SessionId,
    run: RunId,
    parent: MessageId,
) -> Message:
    """Return an input as it joins a run that works: nothing about it is open any more."""
    placed = as_placed(waiting, conversation=conversation, session=session, run=run, parent=parent)
    return msgspec.structs.replace(placed, status=Status.SUCCESS)


def _owed_by(others: Sequence[Run], line: Sequence[Message]) -> bool:
    """Whether an open run of this line still has to close its calls."""
    on_line = {message.run for message in line if message.calls}
    return any(
        other.id in on_line
        and other.status in (RunStatus.WAITING, RunStatus.PENDING, RunStatus.UNKNOWN)
        for other in others
    )


def refuses_new_text(line: Sequence[Message], others: Sequence[Run]) -> tuple[CallId, ...]:
    """Return the open calls because of which new text on this line is refused, if any.

    A waiting run takes outputs only. Text that was queued before it began to wait stays in
    the queue; text that comes now is refused, so that its sender can decide.
    """
    waiting = open_calls(line)
    on_line = {message.run for message in line if message.calls}
    owed = any(o.id in on_line and o.status is RunStatus.WAITING for o in others)
    return waiting if owed else ()
