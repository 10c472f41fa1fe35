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

Here the handles of `antiphon.handles` stand on an engine in this process. Every method is thin:
what may happen is decided in `antiphon.core`, and carried out by `antiphon.engine`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from antiphon.core.asking import Ask, ModelTold, Output
from antiphon.core.blocks import Block, Message, Trust
from antiphon.core.commands import StartKey
from antiphon.core.events import StreamItem
from antiphon.core.ids import LOCAL_TENANT, ConversationId, MessageId, RunId
from antiphon.core.knowledge.kept import File, Remembered, RememberedKind
from antiphon.core.knowledge.retrieval import Beside, Retriever
from antiphon.core.records import Call, Conversation, Run, Session
from antiphon.core.telling.explanation import Explanation, PlanTold
from antiphon.engine.assembly import open_world
from antiphon.engine.engine import Engine
from antiphon.engine.keeping.explain import exact_request, explain, newest_sent, plan_told
from antiphon.engine.keeping.looking import line, models_told
from antiphon.engine.knowledge.searching import beside_message
from antiphon.engine.settings import Settings
from antiphon.engine.tools.function import Function
from antiphon.handles.chat import Conversations


class Antiphon(Conversations):
    """An open store and the engine on it. Made by `open`."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(Local(engine))
        self.engine = engine


@asynccontextmanager
async def open(
    db: str | Path | None = None,
    *,
    settings: Settings | None = None,
    functions: Iterable[Function] = (),
    retrievers: Iterable[Retriever] = (),
) -> AsyncIterator[Antiphon]:
    """Open a store, settle what an earlier process left behind, and serve it until the end.

    Args:
        db: A path, `:memory:`, or a `sqlite:///` address; by default what the settings say.
        settings: Those of flags, environment and file by default.
        functions: Tools that run in this process.
        retrievers: What is searched for each new message, beside the conversation's files.

    Raises:
        StoreLocked: Another process serves this file.
        StoreTooNew: A newer release wrote it.
    """
    async with open_world(
        db, settings=settings, functions=functions, retrievers=retrievers
    ) as world:
        engine = Engine(world)
        await engine.start()
        try:
            yield Antiphon(engine)
        finally:
            await engine.close()


class Local:
    """A `Backend` on an engine in this process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._store = engine.world.store

    async def create(self, *, title: str | None, scheduling: bool | None) -> Conversation:
        """Create a conversation."""
        return await self._engine.create_conversation(title=title, scheduling=scheduling)

    async def send(
        self,
        conversation: ConversationId,
        content: str | Sequence[Block],
        ask: Ask,
        *,
        parent: MessageId | None,
        message: str | None,
        key: StartKey | None,
    ) -> Run:
        """Start a run with a new message."""
        return await self._engine.send(
            conversation, content, ask, parent=parent, message=message, key=key
        )

    async def edit(
        self,
        conversation: ConversationId,
        message: MessageId,
        content: str | Sequence[Block],
        ask: Ask,
    ) -> Run:
        """Start a run with a sibling of a user message."""
        return await self._engine.edit(conversation, message, content, ask)

    async def regenerate(self, conversation: ConversationId, message: MessageId, ask: Ask) -> Run:
        """Start a run for another answer."""
        return await self._engine.regenerate(conversation, message, ask)

    async def answer(
        self, conversation: ConversationId, run: RunId, outputs: Mapping[str, str | Output]
    ) -> Run:
        """Bring the results of all open calls of a run."""
        return await self._engine.answer(conversation, run, outputs)

    async def approve(
        self, conversation: ConversationId, run: RunId, call: str, *, arguments: str | None
    ) -> Call:
        """Let a call run that waits for approval."""
        return await self._engine.verdicts.approve(conversation, run, call, arguments=arguments)

    async def refuse(
        self, conversation: ConversationId, run: RunId, call: str, *, reason: str
    ) -> Call:
        """Close a call that waits for approval."""
        return await self._engine.verdicts.refuse(conversation, run, call, reason=reason)

    async def resolve(
        self, conversation: ConversationId, run: RunId, call: str, output: Output
    ) -> Call:
        """Give a call of unknown fate its result."""
        return await self._engine.verdicts.resolve(conversation, run, call, output)

    async def cancel(self, conversation: ConversationId, run: RunId, *, reason: str) -> Run:
        """Cancel a run."""
        return await self._engine.cancel(conversation, run, reason=reason)

    async def move_head(self, conversation: ConversationId, head: MessageId | None) -> Conversation:
        """Look at another line."""
        return await self._engine.move_head(conversation, head)

    async def delete(
        self, conversation: ConversationId, messages: Iterable[MessageId]
    ) -> Conversation:
        """Skip messages on every line."""
        return await self._engine.delete(conversation, messages)

    async def keep(self, conversation: ConversationId, message: MessageId) -> Conversation:
        """Keep canceled text as a message."""
        return await self._engine.keep(conversation, message)

    async def set_title(self, conversation: ConversationId, title: str | None) -> Conversation:
        """Name a conversation."""
        return await self._engine.set_title(conversation, title)

    async def begin_session(self, conversation: ConversationId, goal: str | None) -> Session:
        """Archive the active session and begin another one."""
        row = await self._engine.sessions.begin(conversation, goal)
        return await self._store.session(conversation, row.session)

    async def undo_switch(self, conversation: ConversationId) -> Session:
        """Go back to the session before."""
        row = await self._engine.sessions.undo(conversation)
        return await self._store.session(conversation, row.session)

    async def schedule(self, conversation: ConversationId, on: bool | None) -> Conversation:
        """Let sessions come and go by themselves, or not."""
        return await self._engine.sessions.schedule(conversation, on)

    async def sessions(self, conversation: ConversationId) -> list[Session]:
        """Return the sessions in their order."""
        return await self._store.sessions(conversation)

    async def add_file(
        self, conversation: ConversationId, name: str, data: bytes, *, charset: str | None
    ) -> File:
        """Keep a file and look a conversation's questions up in it."""
        return await self._engine.files.add(
            LOCAL_TENANT, name, data, conversation=conversation, charset=charset
        )

    async def take_file(self, conversation: ConversationId, file: str) -> File:
        """Look nothing more up in a file."""
        return await self._store.knowledge.take_file(LOCAL_TENANT, file, conversation)

    async def remember(
        self,
        conversation: ConversationId | None,
        key: str,
        text: str,
        *,
        kind: RememberedKind,
    ) -> Remembered:
        """Keep a text under a key."""
        trust = Trust.DEVELOPER if kind is RememberedKind.STABLE else Trust.USER
        one = Remembered(key=key, text=text, kind=kind, conversation=conversation, trust=trust)
        return await self._engine.memories.remember(LOCAL_TENANT, one)

    async def forget(
        self, conversation: ConversationId | None, key: str, *, kind: RememberedKind
    ) -> None:
        """Take such a text away."""
        await self._engine.memories.forget(LOCAL_TENANT, key, kind=kind, conversation=conversation)

    async def files(self, conversation: ConversationId) -> list[File]:
        """Return the files that a conversation's questions are looked up in."""
        return await self._store.knowledge.files_of(conversation)

    async def remembered(self, conversation: ConversationId | None) -> list[Remembered]:
        """Return what is kept for a conversation and for all."""
        return await self._engine.memories.kept(LOCAL_TENANT, conversation)

    async def beside(self, conversation: ConversationId, message: MessageId) -> Beside:
        """Return what stands beside a message for the model."""
        row = await self._store.message(conversation, message)
        return await beside_message(self._engine.world, LOCAL_TENANT, row)

    def follow(self, conversation: ConversationId, after: int) -> AsyncGenerator[StreamItem, None]:
        """Yield what came after event number `after`, and what comes."""
        return self._engine.follow(conversation, after)

    async def conversation(self, conversation: ConversationId) -> Conversation:
        """Return the row."""
        return await self._store.conversation(conversation)

    async def conversations(self, *, limit: int) -> list[Conversation]:
        """Return conversations, last changed first."""
        return await self._store.conversations(LOCAL_TENANT, limit=limit)

    async def run(self, run: RunId) -> Run:
        """Return the row."""
        return await self._store.find_run(run)

    async def runs(self, conversation: ConversationId) -> list[Run]:
        """Return a conversation's runs."""
        return await self._store.runs(conversation)

    async def calls(self, conversation: ConversationId, run: RunId) -> list[Call]:
        """Return the ledger of a run."""
        return await self._store.calls(conversation, run)

    async def message(self, conversation: ConversationId, message: MessageId) -> Message:
        """Return one message."""
        return await self._store.message(conversation, message)

    async def line(
        self, conversation: ConversationId, leaf: MessageId | None, limit: int | None
    ) -> list[Message]:
        """Return the line that a model may see."""
        return await line(self._store, conversation, leaf, limit)

    async def tree(self, conversation: ConversationId) -> list[Message]:
        """Return every message."""
        return await self._store.tree(conversation)

    async def children(
        self, conversation: ConversationId, parent: MessageId | None
    ) -> list[Message]:
        """Return the children of a message, or the roots."""
        return await self._store.children(conversation, parent)

    async def explain(self, run: RunId) -> Explanation:
        """Return everything that is recorded about a run."""
        return await explain(self._engine.world, run)

    async def request(self, run: RunId) -> bytes:
        """Return the exact body of a run's newest dispatch."""
        return (await exact_request(self._engine.world, run)).body

    async def plan(self, run: RunId) -> PlanTold:
        """Return what a run's newest dispatch was made of, and why."""
        manifest = await newest_sent(self._engine.world, run)
        return await plan_told(self._engine.world, manifest)

    async def models(self) -> list[ModelTold]:
        """Return the models that there are."""
        return models_told(self._engine.world.settings.models)

    async def model(self, name: str) -> str:
        """Return the name of a model as runs are to ask for it."""
        return self._engine.world.settings.models.get(name).name
