"""Erasure: one conversation, what a tenant has, what of it is old; and what was not to be stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from antiphon.core.commands import Command, DeleteConversation, EraseConversation
from antiphon.core.dispatch import Denied
from antiphon.core.ids import ConversationId, RunId, TenantId
from antiphon.core.records import OPEN_RUN, Conversation, Response, RunStatus
from antiphon.engine.runs.refusals import refusal
from antiphon.engine.world import World

log = logging.getLogger("antiphon.erasure")

DAY_MS: Final = 24 * 60 * 60 * 1000

KEPT_S: Final = 600.0
"""How long an answer that is not to be stored is kept for a client that may ask for it again."""


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
        self._forgetting: set[asyncio.Task[None]] = set()

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
        now_ms = self._world.clock.now_ms()
        return await self._carried_out(
            conversations,
            [EraseConversation(conversation=name, now_ms=now_ms) for name in conversations],
        )

    async def erase_kept(self, tenant: TenantId) -> int:
        """Erase what a tenant keeps beside its conversations, and return how many files it had."""
        return await self._world.store.knowledge.delete_all(tenant)

    async def drop(self, conversation: ConversationId) -> None:
        """Erase a conversation that nobody is to find again; of the file's log soon after."""
        now_ms = self._world.clock.now_ms()
        await self._carried_out(
            [conversation],
            [
                EraseConversation(conversation=conversation, now_ms=now_ms, at_once=False),
                DeleteConversation(conversation=conversation, now_ms=now_ms),
            ],
        )

    async def _carried_out(
        self, conversations: Sequence[ConversationId], commands: Sequence[Command[Conversation]]
    ) -> list[Conversation]:
        world, running = self._world, {}
        for conversation in conversations:
            rows = await world.store.runs(conversation, OPEN_RUN)
            running[conversation] = [run.id for run in rows]
        done = await world.store.do_all(*commands)
        if isinstance(done, Denied):
            raise refusal(done)
        for conversation, runs in running.items():
            world.lines.forget(conversation)
            for run in runs:
                world.broker.drop(run)
            self._canceled(conversation, runs)
        return list(done)

    # What was not to be stored.

    def forget_later(self, response: Response, *, had: bool) -> None:
        """Drop the conversation of a response that is not to be stored, once its run rests.

        Where it was not `had` for good, whoever asked may come back for it, for a while.
        """
        task = asyncio.create_task(self._forget(response, had=had), name=f"forget {response.id}")
        self._forgetting.add(task)
        task.add_done_callback(self._forgotten)

    def _forgotten(self, task: asyncio.Task[None]) -> None:
        self._forgetting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # What is left is dropped by the next start; the text of an error may hold what was said.
            log.error("%s failed: %s", task.get_name(), type(error).__name__)

    async def idle(self) -> None:
        """Wait until nothing is left to be forgotten."""
        while self._forgetting:
            await asyncio.wait(self._forgetting)

    async def close(self) -> None:
        """Forget no more; what is left is dropped by the next start."""
        tasks = [*self._forgetting]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _forget(self, response: Response, *, had: bool) -> None:
        stream = self._world.broker.follow(response.conversation, response.since)
        try:
            async for _ in stream:
                run = await self._world.store.run(response.conversation, response.run)
                if not run.open or run.status is RunStatus.WAITING:
                    break
        finally:
            await stream.aclose()
        if not had:
            await self._pause(KEPT_S)
        await self.drop(response.conversation)

    async def _pause(self, seconds: float) -> None:
        over = asyncio.Event()
        forget = self._world.clock.call_later(seconds, over.set)
        try:
            await over.wait()
        finally:
            forget()
