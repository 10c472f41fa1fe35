"""The library: a store, conversations, runs and their events, without a server.

    async with antiphon.open("chat.db") as app:
        chat = await app.create()
        run = await chat.send("Hello")
        async for event in run.events():
            match event:
                case antiphon.Preview(text=text):
                    print(text, end="")
                case antiphon.Committed(message=message):
                    print(f" [saved as {message.id}]")

Every method here is thin: what may happen is decided in `antiphon.core`, and carried out by
`antiphon.engine`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from antiphon.core import events
from antiphon.core.blocks import Block, Message, Text
from antiphon.core.commands import StartKey
from antiphon.core.deltas import Channel
from antiphon.core.events import Preview
from antiphon.core.ids import LOCAL_TENANT, ConversationId, MessageId, RunId
from antiphon.core.records import TERMINAL_CALL, Call, CallState, Conversation, Run, RunStatus
from antiphon.core.tree import line as visible
from antiphon.core.tree import siblings
from antiphon.engine.assembly import open_world
from antiphon.engine.engine import Ask, Engine, Output
from antiphon.engine.explain import Explanation, exact_request, explain
from antiphon.engine.live import CaughtUp, Durable
from antiphon.engine.settings import Settings
from antiphon.engine.tools import Function
from antiphon.errors import AntiphonError, OutcomeUnknown, ProviderFailed, RunCanceled


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """Take the preview of this generation off the screen: it never became history."""

    run: RunId
    generation: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """`message` is canonical: complete, durable, part of what the model sees next."""

    run: RunId
    message: Message
    generation: int
    finish: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsWaiting:
    """The run waits for the results of these calls: bring them with `Run.answer`."""

    run: RunId
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFinished:
    """A tool call has its one terminal result."""

    run: RunId
    call: Call


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """The request may have been carried out. It is not sent again; `code` says what was seen."""

    run: RunId
    code: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The run is over. `code` is its error code, or why it ended as it did."""

    run: RunId
    status: RunStatus
    code: str | None


RunEvent: TypeAlias = (
    Preview | Withdrawn | Committed | CallsWaiting | CallFinished | Unknown | Ended
)


class RunHandle:
    """One run: its events, its answer, its end."""

    def __init__(self, engine: Engine, run: Run, since: int) -> None:
        self._engine = engine
        self._since = since
        self.id = run.id
        self.conversation = run.conversation

    async def row(self) -> Run:
        """Return where it stands now."""
        return await self._engine.world.store.run(self.conversation, self.id)

    async def events(self) -> AsyncIterator[RunEvent]:
        """Yield what happens in this run, from its start to its end.

        All text of an answer comes as previews before its `Committed`, whenever one begins to
        iterate. Ends after `Ended`, and after `CallsWaiting` if the run still waits: nothing
        follows until the results are brought. Iterating again tells it all from the start.
        """
        shown = 0  # the newest generation of which a preview was told
        stream = self._engine.follow(self.conversation, self._since)
        try:
            async for item in stream:
                if isinstance(item, Preview):
                    if item.run == self.id:
                        shown = item.generation
                        yield item
                    continue
                if isinstance(item, CaughtUp):
                    continue
                event = await self._typed(item)
                if event is None:
                    continue
                if isinstance(event, Committed) and event.generation != shown:
                    for piece in _whole(event):
                        yield piece
                yield event
                if isinstance(event, CallsWaiting | Ended):
                    return
        finally:
            await stream.aclose()

    async def _typed(self, item: Durable) -> RunEvent | None:
        event, store = item.event, self._engine.world.store
        if getattr(event, "run", None) != self.id:
            return None
        match event:
            case events.Withdrawn():
                return Withdrawn(run=self.id, generation=event.generation, reason=event.reason)
            case events.Committed():
                message = await store.message(self.conversation, event.message)
                return Committed(
                    run=self.id,
                    message=message,
                    generation=event.generation,
                    finish=event.finish,
                )
            case events.CallChanged() if event.state not in (
                CallState.PENDING,
                CallState.EXECUTING,
            ):
                calls = await store.calls(self.conversation, self.id)
                call = next(c for c in calls if c.call_id == event.call)
                return CallFinished(run=self.id, call=call)
            case events.RunChanged(status=RunStatus.UNKNOWN):
                return Unknown(run=self.id, code=event.code)
            case events.RunChanged(status=RunStatus.WAITING):
                row = await self.row()
                if row.status is not RunStatus.WAITING:
                    return None  # answered since
                calls = await store.calls(self.conversation, self.id, row.leaf)
                opened = tuple(call for call in calls if call.state not in TERMINAL_CALL)
                return CallsWaiting(run=self.id, calls=opened) if opened else None
            case events.RunChanged(status=RunStatus.SUCCESS | RunStatus.ERROR | RunStatus.CANCELED):
                return Ended(run=self.id, status=event.status, code=event.code)
            case _:
                return None

    async def result(self) -> Message:
        """Wait for the end and return the answer.

        Raises:
            OutcomeUnknown: Nobody knows what the provider did; it was not asked again.
            ProviderFailed: It said no, or what it said may not be committed.
            RunCanceled: Somebody canceled the run.
        """
        answer: Message | None = None
        async for event in self.events():
            match event:
                case Committed(message=message):
                    answer = message
                case CallsWaiting(calls=calls):
                    raise ProviderFailed(
                        "The run waits for the results of tools.",
                        code="missing_tool_result",
                        at=calls[0].call_id if calls else self.id,
                    )
                case Ended(status=RunStatus.SUCCESS) if answer is not None:
                    return answer
                case Ended(status=status, code=code):
                    raise run_error(self.id, status, code)
                case _:
                    pass
        raise run_error(self.id, RunStatus.ERROR, "internal_error")

    async def answer(self, outputs: Mapping[str, str | Output]) -> RunHandle:
        """Bring the results of all its open calls, each once; events go on from here."""
        since = (await self._engine.world.store.conversation(self.conversation)).last_event
        row = await self._engine.answer(self.conversation, self.id, outputs)
        return RunHandle(self._engine, row, since)

    async def cancel(self, reason: str = "canceled") -> Run:
        """Cancel it, in whatever state it is; for a run that has ended nothing changes."""
        return await self._engine.cancel(self.conversation, self.id, reason=reason)

    async def explain(self) -> Explanation:
        """Return its operations, attempts, calls and why each ended as it did."""
        return await explain(self._engine.world, self.id)

    async def request(self) -> bytes:
        """Return the exact body of its newest dispatch, its digest verified."""
        return (await exact_request(self._engine.world, self.id)).body


class Chat:
    """One conversation."""

    def __init__(self, engine: Engine, conversation: ConversationId, ask: Ask) -> None:
        self._engine = engine
        self.id = conversation
        self.ask = ask
        """What runs are asked to do unless they say otherwise."""

    async def row(self) -> Conversation:
        """Return where it stands now."""
        return await self._engine.world.store.conversation(self.id)

    async def send(
        self,
        content: str | Sequence[Block],
        *,
        parent: MessageId | None = None,
        message: str | None = None,
        key: StartKey | None = None,
        ask: Ask | None = None,
    ) -> RunHandle:
        """Start a run with a new message; it is durable when this returns.

        With `parent` the message branches off there. With a `message` id of your own, or a
        key, the same call again gives the same run.
        """
        run = await self._engine.send(
            self.id, content, ask or self.ask, parent=parent, message=message, key=key
        )
        return RunHandle(self._engine, run, run.seq - 1)

    async def edit(
        self, message: MessageId, content: str | Sequence[Block], *, ask: Ask | None = None
    ) -> RunHandle:
        """Start a run with a sibling of a user message; the old one stays."""
        run = await self._engine.edit(self.id, message, content, ask or self.ask)
        return RunHandle(self._engine, run, run.seq - 1)

    async def regenerate(self, message: MessageId, *, ask: Ask | None = None) -> RunHandle:
        """Start a run for another answer beside `message`; the old one stays."""
        run = await self._engine.regenerate(self.id, message, ask or self.ask)
        return RunHandle(self._engine, run, run.seq - 1)

    async def run(self, run: RunId) -> RunHandle:
        """Return the handle of an earlier run."""
        row = await self._engine.world.store.run(self.id, run)
        return RunHandle(self._engine, row, row.seq - 1)

    async def open_run(self) -> RunHandle | None:
        """Return the run that is at work or waits, if any."""
        row = await self.row()
        runs = [r for r in await self._engine.world.store.runs(self.id) if r.open]
        held = next((r for r in runs if r.id == row.slot), runs[0] if runs else None)
        return RunHandle(self._engine, held, held.seq - 1) if held else None

    async def line(self, leaf: MessageId | None = None) -> list[Message]:
        """Return the committed line that ends in `leaf`, or in the head."""
        row = await self.row()
        at = leaf or row.head
        if at is None:
            return []
        path = await self._engine.world.store.path(self.id, at)
        return visible(path, row.deletions)

    async def tree(self) -> list[Message]:
        """Return every message there is, canceled and failed ones included."""
        return await self._engine.world.store.tree(self.id)

    async def siblings(self, message: MessageId) -> tuple[MessageId, ...]:
        """Return the alternatives to a message, itself included, in their order."""
        of = await self._engine.world.store.message(self.id, message)
        children = await self._engine.world.store.children(self.id, of.parent)
        return siblings(of, children)

    async def look_at(self, leaf: MessageId | None) -> Conversation:
        """Make the line that ends in `leaf` the active one."""
        return await self._engine.move_head(self.id, leaf)

    async def delete(self, messages: Iterable[MessageId]) -> Conversation:
        """Skip messages on every line; calls go with their results."""
        return await self._engine.delete(self.id, messages)

    async def keep(self, message: MessageId) -> Conversation:
        """Keep canceled text as a message."""
        return await self._engine.keep(self.id, message)

    async def rename(self, title: str | None) -> Conversation:
        """Give it a title, or take it away."""
        return await self._engine.set_title(self.id, title)


class Antiphon:
    """An open store and the engine on it. Made by `open`."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def create(self, *, title: str | None = None, ask: Ask | None = None) -> Chat:
        """Create a conversation."""
        row = await self.engine.create_conversation(title=title)
        return Chat(self.engine, row.id, ask or Ask())

    async def conversation(
        self, conversation: ConversationId | str, *, ask: Ask | None = None
    ) -> Chat:
        """Return an existing conversation.

        Raises:
            NotFound: There is none with this id.
        """
        row = await self.engine.world.store.conversation(ConversationId(conversation))
        return Chat(self.engine, row.id, ask or Ask())

    async def latest(self, *, ask: Ask | None = None) -> Chat | None:
        """Return the conversation that changed last, if there is any."""
        rows = await self.engine.world.store.conversations(LOCAL_TENANT, limit=1)
        return Chat(self.engine, rows[0].id, ask or Ask()) if rows else None


@asynccontextmanager
async def open(
    db: str | Path | None = None,
    *,
    settings: Settings | None = None,
    functions: Iterable[Function] = (),
) -> AsyncIterator[Antiphon]:
    """Open a store, settle what an earlier process left behind, and serve it until the end.

    Args:
        db: A path, `:memory:`, or a `sqlite:///` address; by default what the settings say.
        settings: Those of flags, environment and file by default.
        functions: Tools that run in this process.

    Raises:
        StoreLocked: Another process serves this file.
        StoreTooNew: A newer release wrote it.
    """
    async with open_world(db, settings=settings, functions=functions) as world:
        engine = Engine(world)
        await engine.start()
        try:
            yield Antiphon(engine)
        finally:
            await engine.close()


def _whole(event: Committed) -> list[Preview]:
    """Return the text of an answer that was committed before anybody looked at its preview."""
    return [
        Preview(
            run=event.run,
            generation=event.generation,
            block=number,
            channel=Channel.TEXT,
            offset=0,
            text=block.text,
        )
        for number, block in enumerate(event.message.blocks)
        if isinstance(block, Text)
    ]


def run_error(run: RunId, status: RunStatus, code: str | None) -> AntiphonError:
    """Return the error that tells how a run ended, for those who wanted its answer."""
    if status is RunStatus.CANCELED:
        return RunCanceled("The run was canceled.", code=code, at=run)
    if code == "outcome_unknown":
        return OutcomeUnknown(
            "The provider may have done the work; nothing came back, and it was not asked again.",
            at=run,
        )
    return ProviderFailed("The run ended without an answer.", code=code, at=run)
