"""What a person may do about sessions: begin one, take a switch back, turn scheduling on or off."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from antiphon.core.commands import SetScheduling
from antiphon.core.dispatch import Condition, Denied
from antiphon.core.ids import ConversationId
from antiphon.core.records import Conversation
from antiphon.core.sessions.scheduling import GOAL_CHARACTERS, as_goal
from antiphon.engine.runs.refusals import carried_out, refusal
from antiphon.engine.sessions.scheduler import Scheduler
from antiphon.engine.world import World
from antiphon.errors import InvalidInput

TRIES: Final = 3
"""A switch is decided on rows as they stand; where they have moved it is decided again."""


class Sessions:
    """Sessions in a person's hands."""

    def __init__(self, world: World, kick: Callable[[ConversationId], None]) -> None:
        self._world = world
        self._kick = kick
        self._scheduler = Scheduler(world)

    async def begin(self, conversation: ConversationId, goal: str | None = None) -> Conversation:
        """Archive the active session and begin another one, whether scheduling is on or not.

        Raises:
            Conflict: `conversation_busy`: a run is at work or waits; nothing was changed.
            InvalidInput: `bad_goal`.
        """
        told = None if goal is None else as_goal(goal)
        if goal is not None and told is None:
            raise InvalidInput(
                f"A goal is one line of at most {GOAL_CHARACTERS} characters.",
                code="bad_goal",
                at="goal",
            )
        return await self._done(conversation, lambda row: self._scheduler.force(row, told))

    async def undo(self, conversation: ConversationId) -> Conversation:
        """Go back to the session before the active one; what was said since is carried along.

        Raises:
            Conflict: `conversation_busy`, or `no_switch` in a conversation's first session.
        """
        return await self._done(conversation, self._scheduler.undo)

    async def schedule(self, conversation: ConversationId, on: bool | None) -> Conversation:
        """Let sessions come and go by themselves, or not; None leaves that to the settings."""
        return await carried_out(
            self._world,
            SetScheduling(conversation=conversation, now_ms=self._world.clock.now_ms(), on=on),
        )

    async def _done(
        self,
        conversation: ConversationId,
        work: Callable[[Conversation], Awaitable[Conversation | Denied]],
    ) -> Conversation:
        """Do it on the row as it stands; again where that has moved meanwhile."""
        for tries in range(TRIES):
            done = await work(await self._world.store.conversation(conversation))
            if not isinstance(done, Denied):
                self._kick(conversation)
                return done
            if done.reason not in (Condition.REVISION, "session") or tries + 1 == TRIES:
                raise refusal(done)
        raise AssertionError("a last try ends")
