"""The ledger of tool calls."""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.core.blocks import Block
from antiphon.core.commands.base import Command, Fence
from antiphon.core.ids import CallId, RunId
from antiphon.core.records import Call, CallState


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
