"""What enters the tree in the same transaction that accepts the model call about it.

An input takes its place, or the results of a step do, and the request is made of exactly that:
two changes that want one flush of the disk. So the rows are foreseen here, the request is
rendered on them, and the store carries out all of it or nothing. What was foreseen wrongly is
denied like any other claim, and then the two go one after the other.

Where a run may begin the moment that it is started, its start is part of that too, and who asked
for it hears of it then: it is as durable as it would be alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from msgspec.structs import replace

from antiphon.core.blocks import Message
from antiphon.core.commands import (
    AddMessages,
    Command,
    CreateConversation,
    FinishCall,
    GiveFile,
    PlaceResults,
    PlaceRun,
    PutContent,
    StartRun,
)
from antiphon.core.dispatch import Denied
from antiphon.core.ids import MessageId
from antiphon.core.inputs import InputBlock
from antiphon.core.knowledge.retrieval import Beside, stored_beside
from antiphon.core.placement import as_placed, as_started
from antiphon.core.records import OPEN_RUN, Call, Conversation, Run, RunStatus
from antiphon.core.tools.ledger import results_message
from antiphon.core.tools.loop import lasting
from antiphon.engine.world import World
from antiphon.errors import StoreError
from antiphon.stores.base import Store


class NotAtOnce(Exception):
    """A run cannot begin in the transaction that starts it: it is started, and looked at anew."""


class Start:
    """The start of a run whose conversation is idle, how all will stand then, and who waits for it.

    `run` is queued, with its input `waiting` in it, and the messages `before` that come with it are
    in the tree of the `conversation`, which may be `new`. `contents` are stored.
    """

    def __init__(
        self, store: Store, conversation: Conversation, commands: Sequence[Command[Any]]
    ) -> None:
        self._store = store
        self._commands = tuple(commands)
        stored = [c.items for c in commands if isinstance(c, PutContent)]
        self.contents = dict(chain.from_iterable(stored))
        brought = [c.messages for c in commands if isinstance(c, AddMessages)]
        self.new = any(isinstance(c, CreateConversation) for c in commands)
        self.gives_files = any(isinstance(c, GiveFile) for c in commands)
        self.before = brought[0] if brought else ()
        self.conversation = replace(conversation, revision=conversation.revision + len(brought))
        started = next(c for c in commands if isinstance(c, StartRun))
        self.run = as_started(started)
        self.waiting = started.input
        self.told: asyncio.Future[tuple[Any, ...] | Denied]
        self.told = asyncio.get_running_loop().create_future()
        """What the commands came to, once that is durable."""

    async def alone(self) -> None:
        """Carry it out, and nothing else; whatever comes of it, whoever waits is told."""
        try:
            done = await self._store.do_all(*self._commands)
        except Exception as error:  # noqa: BLE001 - it is the caller's who waits
            self._fail(error)
        else:
            self._tell(done)

    async def and_then(self, *commands: Command[Any]) -> tuple[Any, ...] | Denied:
        """Carry it out in one transaction with what follows, and return what that came to.

        Nothing was done of either where one was denied: nobody is told of it then.
        """
        try:
            done = await self._store.do_all(*self._commands, *commands)
        except StoreError as error:
            self._fail(error)
            raise
        if isinstance(done, Denied):
            return done
        own = len(self._commands)
        self._tell(done[:own])
        return done[own:]

    def give_up(self, worker: asyncio.Task[None]) -> None:
        """Tell whoever still waits that the worker has ended, who was to carry it out."""
        error = None if worker.cancelled() else worker.exception()
        self._fail(error or StoreError("The engine is closing.", code="store_closed"))

    def _tell(self, done: tuple[Any, ...] | Denied) -> None:
        if not self.told.done():  # otherwise who asked has left
            self.told.set_result(done)

    def _fail(self, error: BaseException) -> None:
        if not self.told.done():
            self.told.set_exception(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entering:
    """Commands, and how the rows that a dispatch looks at stand once they are carried out.

    `message` is the new leaf of the run's line, with the `inputs` that are to stand beside it;
    None for a run without an input of its own. The last command lets it enter; before it may stand
    the results of calls that have just ended. `start` is the start of the run, where that is not
    carried out yet and comes first.
    """

    commands: tuple[Command[Any], ...]
    run: Run
    conversation: Conversation
    message: Message | None
    inputs: tuple[InputBlock, ...] = ()
    start: Start | None = None


async def begins_at_once(world: World, start: Start) -> bool:
    """Return whether nothing is to be looked up or waited for before a run begins.

    Who starts a run waits for no search and for no other run.
    """
    if world.retrievers or start.gives_files:
        return False
    store, conversation = world.store, start.conversation
    if not start.new and (
        await store.runs(conversation.id, OPEN_RUN)
        or await store.knowledge.files_of(conversation.id)
    ):
        return False
    await world.rollouts.refresh()
    rollout = world.rollouts.of(conversation.tenant, start.run.options.model)
    return rollout is None or rollout.adapter_version is None  # an older one may not know the line


def input_enters(
    world: World,
    conversation: Conversation,
    run: Run,
    waiting: Message | None,
    parent: MessageId | None,
    beside: Beside | None = None,
    *,
    key: bytes = b"",
    start: Start | None = None,
) -> Entering:
    """Let the `waiting` input of a queued run take its place under `parent`, and what is `beside` it.

    The latter is stored by its digest under the tenant's `key`. With `start` the run is started
    first.
    """
    now_ms = world.clock.now_ms()
    commands: list[Command[Any]] = []
    digest = None
    if beside is not None:
        digest, data = stored_beside(key, beside)
        commands.append(
            PutContent(conversation=conversation.id, now_ms=now_ms, items=((digest, data),))
        )
    command = PlaceRun(
        conversation=conversation.id,
        now_ms=now_ms,
        run=run.id,
        parent=parent,
        revision=conversation.revision,
        fence=world.fence,
        beside=digest,
    )
    message = None
    if waiting is not None:
        message = as_placed(
            waiting,
            conversation=conversation.id,
            session=conversation.session,
            run=run.id,
            parent=parent,
            beside=digest,
        )
    return Entering(
        commands=(*commands, command),
        run=replace(
            run,
            status=RunStatus.PENDING,
            session=conversation.session,
            leaf=parent if message is None else message.id,
            head_left=conversation.head,
        ),
        conversation=replace(
            conversation, revision=conversation.revision + (message is not None), slot=run.id
        ),
        message=message,
        inputs=beside.inputs if beside is not None else (),
        start=start,
    )


def as_closed(calls: Sequence[Call], results: Iterable[FinishCall]) -> list[Call]:
    """Return `calls` as they stand once these results of theirs are stored."""
    ended = {result.call_id: result for result in results}
    return [
        call
        if (result := ended.get(call.call_id)) is None
        else replace(call, state=result.state, content=result.content, code=result.code)
        for call in calls
    ]


def results_enter(
    world: World,
    conversation: Conversation,
    run: Run,
    calls: Sequence[Call],
    last: Sequence[FinishCall] = (),
) -> Entering:
    """Let the results of the closed `calls` of the run's newest message follow it.

    `last` are the results that closed them, where these are not stored yet.
    """
    command = PlaceResults(
        conversation=conversation.id,
        now_ms=world.clock.now_ms(),
        run=run.id,
        message=MessageId(world.new_id("msg_")),
        fence=world.fence,
    )
    message = results_message(
        calls,
        message=command.message,
        parent=run.leaf,
        session=run.session,
        created_ms=command.now_ms,
    )
    return Entering(
        commands=(*last, command),
        run=replace(run, status=RunStatus.PENDING, leaf=message.id, end_code=lasting(run.end_code)),
        conversation=replace(conversation, revision=conversation.revision + 1, slot=run.id),
        message=message,
    )
