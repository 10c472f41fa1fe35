"""The ledger of tool calls: their states, and what the model is told when one did not run.

PENDING -> EXECUTING -> SUCCESS | ERROR | CANCELED | UNKNOWN, with exactly one terminal result.
Rows are born in the commit of the assistant message; EXECUTING is durable before the call.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final

from antiphon.core.blocks import (
    Message,
    Origin,
    Outcome,
    ResultPart,
    Role,
    Text,
    ToolResult,
    Trust,
)
from antiphon.core.digests import canonical_json, digest, parse_exact
from antiphon.core.ids import Digest, MessageId, SessionId
from antiphon.core.records import TERMINAL_CALL, Call, CallState
from antiphon.core.tools.bounding import bounded
from antiphon.core.tools.loop import TOOL_LIMIT
from antiphon.errors import InternalError

OUTCOMES: Final = {
    CallState.SUCCESS: Outcome.SUCCESS,
    CallState.ERROR: Outcome.ERROR,
    CallState.CANCELED: Outcome.CANCELED,
}

REFUSED: Final = frozenset({"unknown_tool", "invalid_arguments", TOOL_LIMIT})
"""Codes of calls that are born closed: nobody runs them, and the model is told why."""

NOT_RUN: Final = "Not run: the run was canceled before this call began."
OVER_LIMIT: Final = "Not run: this run has used up its tool calls. Answer with what you have."
NOT_APPROVED: Final = "Not run: nobody agreed to this call in time."
APPROVAL_EXPIRED: Final = "approval_expired"
NOT_EXECUTED: Final = "Not run: the tool has no trace of this call."
TOO_LATE: Final = "Not run: other calls were still running when its time was over."
REFUSED_BY_PERSON: Final = "Not run: a person refused this call."
WAS_RUNNING: Final = (
    "Canceled while it was running. It may have taken effect; do not assume that it did not."
)


@lru_cache(maxsize=4096)
def arguments_digest(key: bytes, name: str, arguments: str) -> Digest:
    """Return the digest of a call: the tool's name and its arguments in canonical form.

    The order of keys and the spelling of numbers do not matter, their exact values do.

    Raises:
        InvalidInput: The arguments are not JSON.
    """
    return digest(key, "call", name.encode(), canonical_json(parse_exact(arguments)).encode())


def unknown_tool(name: str, available: Iterable[str]) -> str:
    """Return what the model is told when it asks for a tool that does not exist."""
    names = ", ".join(sorted(available)) or "none"
    return f"There is no tool {json.dumps(name)}. Available: {names}."


def invalid_arguments(problem: str) -> str:
    """Return what the model is told when its arguments do not fit the tool's schema."""
    return f"The arguments do not fit the tool's schema: {problem}. Nothing was run."


def repeated(times: int) -> str:
    """Return what the model is told when it asks the same thing over and over."""
    return (
        f"Not run: this call was made {times} times before in this run, with the same arguments. "
        "Use the results that you have, or ask for something else."
    )


def changed(arguments: str) -> str:
    """Return what the model is told of a call that was run on other arguments than its own."""
    return f"[A person changed the arguments; this was run: {arguments}]\n"


def fate_unknown() -> str:
    """Return what the model is told of a call whose fate nobody could find out in time."""
    return (
        "Nobody knows what became of this call. It may have taken effect; do not assume either way."
    )


def timed_out(seconds: float) -> str:
    """Return what the model is told when a tool did not answer in its time."""
    return (
        f"No answer within {seconds:g} s. It may have taken effect all the same; "
        "do not assume either way."
    )


def result_of(call: Call) -> ToolResult:
    """Return the result block of a closed call, bound to the call it answers.

    It holds as much of the result as the model is shown.

    Raises:
        InternalError: The call is still open: no result may be made up for it.
    """
    if call.state not in TERMINAL_CALL:
        raise InternalError("An open call has no result.", code="call_open", at=call.call_id)
    return ToolResult(
        call_id=call.call_id,
        content=bounded(
            [part for part in call.content if isinstance(part, ResultPart)], call.max_result_chars
        ),
        outcome=OUTCOMES[call.state],
        code=call.code,
        name=call.name,
        arguments_digest=call.arguments_digest,
        generation=call.generation,
    )


def results_message(
    calls: Sequence[Call],
    *,
    message: MessageId,
    parent: MessageId | None,
    session: SessionId | None,
    created_ms: int,
) -> Message:
    """Return the message that holds the results of a step's closed calls, in their order.

    Raises:
        InternalError: One of them is still open.
    """
    return Message(
        id=message,
        conversation=calls[0].conversation,
        parent=parent,
        role=Role.TOOL,
        blocks=tuple(result_of(call) for call in calls),
        origin=Origin.TOOL,
        trust=Trust.TOOL,
        session=session,
        run=calls[0].run,
        created_ms=created_ms,
    )


def text_result(text: str) -> tuple[Text, ...]:
    """Return the content of a result that is plain text."""
    return (Text(text=text),)


class CallAction(StrEnum):
    """What may safely be done next about a call of unknown fate."""

    QUERY = "query"
    """Ask the tool, which can look the call up."""
    WAIT = "wait"
    """Until its deadline; a result may still be brought."""
    CLOSE = "close"
    """Tell the model that its fate is unknown: its deadline has passed, and nobody can be asked."""


def next_call_action(call: Call, *, can_query: bool, now_ms: int) -> CallAction:
    """Return what comes next for an UNKNOWN call. It is never run again."""
    if can_query:
        return CallAction.QUERY
    return CallAction.WAIT if now_ms < call.deadline_ms else CallAction.CLOSE
