"""Erasure as people ask for it: one conversation, or what a tenant has, or what of it is old."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from antiphon.core.commands import EraseConversation
from antiphon.core.dispatch import Denied
from antiphon.core.ids import ConversationId, RunId, TenantId
from antiphon.core.records import OPEN_RUN, Conversation
from antiphon.engine.refusals import refusal
from antiphon.engine.world import World

DAY_MS = 24 * 60 * 60 * 1000


class Erasure:
    """Takes away what was said, for good.

    Args:
        world: What it works with.
        canceled: Told which runs of a conversation were canceled.
    """

    def __init__(
        self,
        world: World,
        canceled: Callable[[ConversationId, Sequence[RunId]], None] = lambda where, runs: None,
    ) -> None:
        self._world = world
        self._canceled = canceled

    async def found(self, tenant: TenantId, older_than_days: int = 0) -> list[ConversationId]:
        """Return the tenant's conversations that hold anything, unchanged for so many days."""
        before_ms = self._world.clock.now_ms() - older_than_days * DAY_MS
        return await self._world.store.unerased(tenant, before_ms)

    async def erase(self, conversations: Sequence[ConversationId]) -> list[Conversation]:
        """Erase conversations, all of them or none; what works in them is canceled first.

        When this returns, nothing of it is left in the database's files, unless another program
        holds them open to read; then it is gone soon after that one lets go.

        Raises:
            NotFound: There is no such conversation.
        """
        world, running = self._world, {}
        for conversation in conversations:
            rows = await world.store.runs(conversation, OPEN_RUN)
            running[conversation] = [run.id for run in rows]
        now_ms = world.clock.now_ms()
        done = await world.store.do_all(
            *(EraseConversation(conversation=name, now_ms=now_ms) for name in conversations)
        )
        if isinstance(done, Denied):
            raise refusal(done)
        for conversation, runs in running.items():
            world.lines.forget(conversation)
            for run in runs:
                world.broker.drop(run)
            self._canceled(conversation, runs)
        return list(done)
