"""Sessions: goals, wishes to switch, switches and their undoing."""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.core.answers.deltas import Usage
from antiphon.core.answers.usage import Cost
from antiphon.core.blocks import Message
from antiphon.core.commands.base import Command, Fence
from antiphon.core.ids import RunId, SessionId
from antiphon.core.records import Cause, Conversation, HandOver, Run
from antiphon.core.traffic.standing import Spent


@dataclass(frozen=True, slots=True, kw_only=True)
class SetGoal(Command[Conversation]):
    """Give the active session another goal. Denied `session` where another one is active."""

    session: SessionId
    goal: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteWish(Command[Run]):
    """A model has asked for a new session and for nothing else: its answer was refused (row 8).

    The run goes on once the wish is settled. What the answer cost counts for it, and for
    the key that asked.
    """

    run: RunId
    goal: str
    usage: Usage = Usage()
    cost: Cost | None = None
    spent: Spent | None = None


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
