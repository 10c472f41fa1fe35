"""Conversations, and one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path

from antiphon.core.asking import Ask, ModelTold
from antiphon.core.blocks import Block, Message
from antiphon.core.commands import StartKey
from antiphon.core.ids import ConversationId, MessageId, RunId
from antiphon.core.knowledge.kept import File, Remembered, RememberedKind
from antiphon.core.knowledge.retrieval import Beside
from antiphon.core.records import Conversation, Run, Session
from antiphon.core.tree import siblings
from antiphon.errors import InvalidInput, NotFound
from antiphon.handles.backend import Backend
from antiphon.handles.run import RunHandle


class Chat:
    """One conversation."""

    def __init__(self, backend: Backend, conversation: ConversationId, ask: Ask) -> None:
        self._backend = backend
        self.id = conversation
        self.ask = ask
        """What runs are asked to do unless they say otherwise."""

    async def row(self) -> Conversation:
        """Return where it stands now."""
        return await self._backend.conversation(self.id)

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
        run = await self._backend.send(
            self.id, content, ask or self.ask, parent=parent, message=message, key=key
        )
        return RunHandle(self._backend, run)

    async def edit(
        self, message: MessageId, content: str | Sequence[Block], *, ask: Ask | None = None
    ) -> RunHandle:
        """Start a run with a sibling of a user message; the old one stays."""
        run = await self._backend.edit(self.id, message, content, ask or self.ask)
        return RunHandle(self._backend, run)

    async def regenerate(self, message: MessageId, *, ask: Ask | None = None) -> RunHandle:
        """Start a run for another answer beside `message`; the old one stays."""
        run = await self._backend.regenerate(self.id, message, ask or self.ask)
        return RunHandle(self._backend, run)

    async def run(self, run: RunId) -> RunHandle:
        """Return the handle of an earlier run.

        Raises:
            NotFound: None of this conversation has this id.
        """
        row = await self._backend.run(run)
        if row.conversation != self.id:
            raise NotFound("This run belongs to another conversation.", at=run)
        return RunHandle(self._backend, row)

    async def runs(self) -> list[Run]:
        """Return every run, in the order they were started."""
        return await self._backend.runs(self.id)

    async def open_run(self) -> RunHandle | None:
        """Return the run that is at work or waits, if any."""
        row = await self.row()
        runs = [run for run in await self.runs() if run.open]
        held = next((run for run in runs if run.id == row.slot), runs[0] if runs else None)
        return RunHandle(self._backend, held) if held else None

    async def line(
        self, leaf: MessageId | None = None, *, limit: int | None = None
    ) -> list[Message]:
        """Return the committed line that ends in `leaf`, or in the head; its newest `limit`."""
        return await self._backend.line(self.id, leaf, limit)

    async def tree(self) -> list[Message]:
        """Return every message there is, canceled and failed ones included."""
        return await self._backend.tree(self.id)

    async def message(self, message: MessageId) -> Message:
        """Return one message.

        Raises:
            NotFound: There is none with this id here.
        """
        return await self._backend.message(self.id, message)

    async def siblings(self, message: MessageId) -> tuple[MessageId, ...]:
        """Return the alternatives to a message, itself included, in their order."""
        of = await self.message(message)
        return siblings(of, await self._backend.children(self.id, of.parent))

    async def roots(self) -> list[Message]:
        """Return the messages that nothing comes before."""
        return await self._backend.children(self.id, None)

    async def look_at(self, leaf: MessageId | None) -> Conversation:
        """Make the line that ends in `leaf` the active one."""
        return await self._backend.move_head(self.id, leaf)

    async def delete(self, messages: Iterable[MessageId]) -> Conversation:
        """Skip messages on every line; calls go with their results."""
        return await self._backend.delete(self.id, messages)

    async def keep(self, message: MessageId) -> Conversation:
        """Keep canceled text as a message."""
        return await self._backend.keep(self.id, message)

    async def attach(
        self,
        file: str | PathLike[str] | bytes,
        *,
        name: str | None = None,
        charset: str | None = None,
    ) -> File:
        """Let what is asked here be looked up in a file, given by its path or its bytes.

        It is read as text: in `charset`, or in the encoding that its bytes tell.

        Raises:
            InvalidInput: `empty_file`, `not_text`, `bad_encoding`, `file_too_large`; or
                `unreadable`: there is no such file here.
        """
        if isinstance(file, bytes):
            return await self._backend.add_file(self.id, name or "file", file, charset=charset)
        path = Path(file)
        try:
            data = await asyncio.to_thread(lambda: path.expanduser().read_bytes())
        except OSError as error:
            problem = error.strerror or "It cannot be read"
        else:
            return await self._backend.add_file(self.id, name or path.name, data, charset=charset)
        raise InvalidInput(f"{problem}.", code="unreadable", at=str(path))

    async def detach(self, file: str) -> File:
        """Look nothing more up in a file. What was found in it before stays where it stands."""
        return await self._backend.take_file(self.id, file)

    async def files(self) -> list[File]:
        """Return the files that what is asked here is looked up in."""
        return await self._backend.files(self.id)

    async def remember(
        self, key: str, text: str, *, kind: RememberedKind = RememberedKind.MEMORY
    ) -> Remembered:
        """Keep a text under a key: the model is told it from the next message on.

        The same key again replaces it. As `RememberedKind.STABLE` it is context of yours rather
        than something remembered.
        """
        return await self._backend.remember(self.id, key, text, kind=kind)

    async def forget(self, key: str, *, kind: RememberedKind = RememberedKind.MEMORY) -> None:
        """Take such a text away.

        Raises:
            NotFound: Nothing is kept under this key here.
        """
        await self._backend.forget(self.id, key, kind=kind)

    async def remembered(self) -> list[Remembered]:
        """Return what the model is told here, what is kept for all conversations included."""
        return await self._backend.remembered(self.id)

    async def beside(self, message: MessageId) -> Beside:
        """Return what was looked up for a message, and what of it the model sees beside it."""
        return await self._backend.beside(self.id, message)

    async def rename(self, title: str | None) -> Conversation:
        """Give it a title, or take it away."""
        return await self._backend.set_title(self.id, title)

    async def sessions(self) -> list[Session]:
        """Return its sessions, in their order; one of them is active."""
        return await self._backend.sessions(self.id)

    async def begin_session(self, goal: str | None = None) -> Session:
        """Archive the active session and begin another one, which carries the newest messages.

        Raises:
            Conflict: `conversation_busy`: a run is at work or waits.
        """
        return await self._backend.begin_session(self.id, goal)

    async def undo_switch(self) -> Session:
        """Go back to the session before the active one; what was said since is carried along.

        Raises:
            Conflict: `conversation_busy`; `no_switch` in its first session.
        """
        return await self._backend.undo_switch(self.id)

    async def schedule(self, on: bool | None) -> Conversation:
        """Let sessions come and go by themselves, or not; None leaves that to the settings."""
        return await self._backend.schedule(self.id, on)


class Conversations:
    """All conversations of a database, or of a server."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def create(
        self, *, title: str | None = None, ask: Ask | None = None, scheduling: bool | None = None
    ) -> Chat:
        """Create a conversation; `scheduling` says whether its sessions come and go by themselves."""
        row = await self._backend.create(title=title, scheduling=scheduling)
        return Chat(self._backend, row.id, ask or Ask())

    async def conversation(
        self, conversation: ConversationId | str, *, ask: Ask | None = None
    ) -> Chat:
        """Return an existing conversation.

        Raises:
            NotFound: There is none with this id.
        """
        row = await self._backend.conversation(ConversationId(conversation))
        return Chat(self._backend, row.id, ask or Ask())

    async def latest(self, *, ask: Ask | None = None) -> Chat | None:
        """Return the conversation that changed last, if there is any."""
        rows = await self.newest(limit=1)
        return Chat(self._backend, rows[0].id, ask or Ask()) if rows else None

    async def newest(self, *, limit: int = 50) -> list[Conversation]:
        """Return where conversations stand, last changed first."""
        return await self._backend.conversations(limit=limit)

    async def run(self, run: RunId | str) -> RunHandle:
        """Return the handle of any run.

        Raises:
            NotFound: There is none with this id.
        """
        return RunHandle(self._backend, await self._backend.run(RunId(run)))

    async def remember(
        self, key: str, text: str, *, kind: RememberedKind = RememberedKind.MEMORY
    ) -> Remembered:
        """Keep a text under a key for every conversation; one of a conversation's own wins."""
        return await self._backend.remember(None, key, text, kind=kind)

    async def forget(self, key: str, *, kind: RememberedKind = RememberedKind.MEMORY) -> None:
        """Take such a text away. Raises `NotFound`."""
        await self._backend.forget(None, key, kind=kind)

    async def remembered(self) -> list[Remembered]:
        """Return what is kept for every conversation."""
        return await self._backend.remembered(None)

    async def models(self) -> list[ModelTold]:
        """Return the models that runs may ask for, the default one first."""
        return await self._backend.models()

    async def model(self, name: str) -> str:
        """Return the name by which runs may ask for a model.

        Raises:
            NotFound: `model_not_found`, with the names there are.
        """
        return await self._backend.model(name)
