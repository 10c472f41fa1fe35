"""Workers of all conversations: one for each that has work, begun when it is kicked.

What a worker knows does not outlive it. One that the store has failed is begun anew from what is
stored, after a pause; one that ends by a bug leaves its run as stored, and whoever waits is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from antiphon.core.dispatch import Denied
from antiphon.core.ids import ConversationId, RunId
from antiphon.core.records import OPEN_RUN
from antiphon.engine.dispatch.dispatcher import Dispatcher
from antiphon.engine.runs.entering import Start
from antiphon.engine.runs.startup import recover_own
from antiphon.engine.runs.worker import Worker
from antiphon.engine.world import FIRST_PAUSE_S, LONGEST_PAUSE_S, World
from antiphon.errors import StoreError, is_all


class Workers:
    """Keeps a conversation's worker going while there is something for it to do."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._dispatcher = Dispatcher(world)
        self._workers: dict[ConversationId, Worker] = {}
        self._tasks: dict[ConversationId, asyncio.Task[None]] = {}
        self._again: set[ConversationId] = set()
        self._starts: dict[ConversationId, Start] = {}
        """Runs that are to be started by their conversation's worker, each until it is told of."""
        self._strays: set[asyncio.Task[None]] = set()
        self._alarms: dict[ConversationId, tuple[int, Callable[[], None]]] = {}
        self._shaken: dict[ConversationId, float] = {}
        """Conversations whose worker the store has failed, and the pause that was made then."""
        self._closing = False
        self.failures: list[BaseException] = []

    @property
    def under_way(self) -> dict[ConversationId, tuple[RunId, ...]]:
        """The runs that are worked on here."""
        return {name: worker.under_way for name, worker in self._workers.items()}

    # To work.

    def kick(self, conversation: ConversationId) -> None:
        """Let the conversation's worker look for work; begin one where there is none."""
        if self._closing:
            return
        if conversation in self._tasks:
            self._again.add(conversation)
            if conversation in self._workers:
                self._workers[conversation].call()
            return
        task = asyncio.create_task(self._work(conversation), name=f"worker {conversation}")
        self._tasks[conversation] = task
        task.add_done_callback(lambda done: self._done(conversation, done))

    async def start(self, start: Start) -> tuple[Any, ...] | Denied:
        """Carry out the start of a run, and let its worker look for it.

        One that has nothing else to do may let it begin in the very same transaction.
        """
        conversation = start.conversation.id
        if await self._busy(conversation):
            with self.kicked(conversation):
                await start.alone()
        else:
            self._starts[conversation] = start
            start.told.add_done_callback(lambda _: self._starts.pop(conversation))
            self.kick(conversation)
        return await start.told

    async def _busy(self, conversation: ConversationId) -> bool:
        """Whether a run that is started here has to wait for anything that is at work."""
        if conversation in self._tasks and await self._world.store.runs(conversation, OPEN_RUN):
            return True
        # Asked last, for others may have come while the store was asked.
        return self._closing or conversation in self._starts or conversation in self._shaken

    def _start_of(self, conversation: ConversationId) -> Start | None:
        """Return the run that is to be started here, while nobody was told of it yet."""
        start = self._starts.get(conversation)
        return None if start is None or start.told.done() else start

    @contextmanager
    def kicked(self, conversation: ConversationId) -> Iterator[None]:
        """Let the worker look for work after a command that makes some.

        Also where it failed: a broken connection does not say whether it was kept.
        """
        try:
            yield
        finally:
            self.kick(conversation)

    def beside(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Do something that belongs to no worker; it ends with them."""
        task = asyncio.create_task(work, name=name)
        self._strays.add(task)
        task.add_done_callback(self._strays.discard)

    def tell_canceled(self, conversation: ConversationId, runs: Sequence[RunId]) -> None:
        """Let go of runs that were canceled in the store."""
        worker = self._workers.get(conversation)
        if worker is not None:
            for run in runs:
                worker.cancel(run)
        self.kick(conversation)

    async def idle(self, conversation: ConversationId) -> None:
        """Wait until the conversation's worker has nothing left to do."""
        while (task := self._tasks.get(conversation)) is not None:
            await asyncio.wait({task})
            await asyncio.sleep(0)

    # To an end.

    def stop(self) -> None:
        """Begin no worker any more."""
        self._closing = True

    async def drain(self, grace_s: float) -> None:
        """Begin no further run, and wait up to `grace_s` for those that are under way."""
        self.stop()
        for _, forget in self._alarms.values():
            forget()
        for worker in self._workers.values():
            worker.leave()
        tasks = [*self._tasks.values(), *self._strays]
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)

    async def let_go(self) -> None:
        """Stop what is under way; what is in flight is recorded as UNKNOWN."""
        tasks = [*self._tasks.values(), *self._strays]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # One of them.

    async def _work(self, conversation: ConversationId) -> None:
        worker = self._workers[conversation] = Worker(
            self._world,
            self._dispatcher,
            conversation,
            self._strays,
            partial(self._wake_at, conversation),
            partial(self._start_of, conversation),
        )
        if conversation in self._shaken:
            await recover_own(self._world, conversation)
            del self._shaken[conversation]
        while True:
            self._again.discard(conversation)
            await worker.work()
            if conversation not in self._again:
                return

    def _done(self, conversation: ConversationId, task: asyncio.Task[None]) -> None:
        self._tasks.pop(conversation, None)
        self._workers.pop(conversation, None)
        if self._closing or task.cancelled() or task.exception() is not None:
            start = self._start_of(conversation)
            if start is not None:
                start.give_up(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(error)
            if is_all(error, StoreError):
                self._shake(conversation)
            else:  # a bug: the run stays as stored, and whoever waits is told
                self._world.broker.fail(conversation, error)
        elif conversation in self._again:
            self._again.discard(conversation)
            self.kick(conversation)

    def _shake(self, conversation: ConversationId) -> None:
        """Begin anew from what is stored, once the store has had time to come back."""
        pause_s = self._shaken.get(conversation, FIRST_PAUSE_S / 2) * 2
        self._shaken[conversation] = min(pause_s, LONGEST_PAUSE_S)
        self._world.clock.call_later(pause_s, partial(self.kick, conversation))

    def _wake_at(self, conversation: ConversationId, due_ms: int) -> None:
        """Kick the conversation at a time; only the earliest that was asked for is kept."""
        held = self._alarms.get(conversation)
        if held is not None:
            if held[0] <= due_ms:
                return
            held[1]()

        def ring() -> None:
            self._alarms.pop(conversation, None)
            self.kick(conversation)

        pause_s = max(0, due_ms - self._world.clock.now_ms()) / 1000
        self._alarms[conversation] = (due_ms, self._world.clock.call_later(pause_s, ring))
