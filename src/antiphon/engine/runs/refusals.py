"""What a caller is told of a command that the store denied."""

from __future__ import annotations

from typing import Final, TypeVar

from antiphon.core.commands import Command
from antiphon.core.dispatch import Denied
from antiphon.engine.texts import storable
from antiphon.engine.world import World
from antiphon.errors import Conflict

R = TypeVar("R")

REFUSALS: Final = {
    "message_id_conflict": "A message with this id exists, with other content.",
    "idempotency_conflict": "This key was used for another request.",
    "queue_full": "Too many runs wait in this conversation.",
    "conversation_busy": "An operation is active here; wait for it or cancel it.",
    "duplicate_tool_result": "This call has been answered with other content.",
    "conversation_erased": "This conversation was erased: nothing more may be said in it.",
    "no_switch": "This is the conversation's first session: there is no switch to take back.",
    "not_approvable": "This call needs no approval, or has begun or ended.",
    "approval_expired": "The time in which this call could be approved has passed.",
    "call_not_unknown": "The fate of this call is not unknown: nobody has to say what became of it.",
}


def refusal(denied: Denied) -> Conflict:
    """Return the error that tells a caller of a denied command."""
    return Conflict(
        REFUSALS.get(denied.reason, "The conversation is not as the caller believed."),
        code=denied.reason if denied.reason in REFUSALS else "conflict",
        at=None if denied.reason in REFUSALS else denied.reason,
        retryable=denied.reason in ("queue_full", "conversation_busy"),
    )


async def carried_out(world: World, command: Command[R]) -> R:
    """Return what a command of a caller came to.

    Raises:
        Conflict: The store denied it; nothing was changed.
        InvalidInput: `invalid_unicode`.
    """
    with storable(command.conversation):
        done = await world.store.do(command)
    if isinstance(done, Denied):
        raise refusal(done)
    return done
