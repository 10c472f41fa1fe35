"""What handles stand on: the engine of this process, or a server.

Every method is one question or one change. What a change may do is decided behind it, never
here; what it raises is the same on either side.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Protocol

from antiphon.core.asking import Ask, ModelTold, Output
from antiphon.core.blocks import Block, Message
from antiphon.core.commands import StartKey
from antiphon.core.events import StreamItem
from antiphon.core.ids import ConversationId, MessageId, RunId
from antiphon.core.knowledge.kept import File, Remembered, RememberedKind
from antiphon.core.knowledge.retrieval import Beside
from antiphon.core.records import Call, Conversation, Run, Session
from antiphon.core.telling.explanation import Explanation, PlanTold


class Backend(Protocol):
    """Conversations, and what may be done with them."""

    # Changes.

    async def create(self, *, title: str | None, scheduling: bool | None) -> Conversation:
        """Create a conversation."""

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
        """Start a run with a new message; it is durable when this returns."""

    async def edit(
        self,
        conversation: ConversationId,
        message: MessageId,
        content: str | Sequence[Block],
        ask: Ask,
    ) -> Run:
        """Start a run with a sibling of a user message."""

    async def regenerate(self, conversation: ConversationId, message: MessageId, ask: Ask) -> Run:
        """Start a run for another answer."""

    async def answer(
        self, conversation: ConversationId, run: RunId, outputs: Mapping[str, str | Output]
    ) -> Run:
        """Bring the results of all open calls of a run."""

    async def approve(
        self, conversation: ConversationId, run: RunId, call: str, *, arguments: str | None
    ) -> Call:
        """Let a call run that waits for approval, with other arguments where given."""

    async def refuse(
        self, conversation: ConversationId, run: RunId, call: str, *, reason: str
    ) -> Call:
        """Close a call that waits for approval."""

    async def resolve(
        self, conversation: ConversationId, run: RunId, call: str, output: Output
    ) -> Call:
        """Give a call of unknown fate the result that somebody found out."""

    async def cancel(self, conversation: ConversationId, run: RunId, *, reason: str) -> Run:
        """Cancel a run."""

    async def move_head(self, conversation: ConversationId, head: MessageId | None) -> Conversation:
        """Look at another line."""

    async def delete(
        self, conversation: ConversationId, messages: Iterable[MessageId]
    ) -> Conversation:
        """Skip messages on every line."""

    async def keep(self, conversation: ConversationId, message: MessageId) -> Conversation:
        """Keep canceled text as a message."""

    async def set_title(self, conversation: ConversationId, title: str | None) -> Conversation:
        """Name a conversation."""

    async def begin_session(self, conversation: ConversationId, goal: str | None) -> Session:
        """Archive the active session and begin another one."""

    async def undo_switch(self, conversation: ConversationId) -> Session:
        """Go back to the session before, with what was said since."""

    async def schedule(self, conversation: ConversationId, on: bool | None) -> Conversation:
        """Let sessions come and go by themselves, or not."""

    async def add_file(
        self, conversation: ConversationId, name: str, data: bytes, *, charset: str | None
    ) -> File:
        """Keep a file and look a conversation's questions up in it."""

    async def take_file(self, conversation: ConversationId, file: str) -> File:
        """Look nothing more up in a file; it stays."""

    async def remember(
        self,
        conversation: ConversationId | None,
        key: str,
        text: str,
        *,
        kind: RememberedKind,
    ) -> Remembered:
        """Keep a text under a key, for a conversation or for all."""

    async def forget(
        self, conversation: ConversationId | None, key: str, *, kind: RememberedKind
    ) -> None:
        """Take such a text away. Raises `NotFound`."""

    # Questions.

    async def files(self, conversation: ConversationId) -> list[File]:
        """Return the files that a conversation's questions are looked up in."""

    async def remembered(self, conversation: ConversationId | None) -> list[Remembered]:
        """Return what is kept for a conversation and for all, or only for all."""

    async def beside(self, conversation: ConversationId, message: MessageId) -> Beside:
        """Return what stands beside a message for the model."""

    def follow(self, conversation: ConversationId, after: int) -> AsyncGenerator[StreamItem, None]:
        """Yield what came after event number `after`, previews, and what comes, for ever."""

    async def conversation(self, conversation: ConversationId) -> Conversation:
        """Return the row. Raises `NotFound`."""

    async def conversations(self, *, limit: int) -> list[Conversation]:
        """Return conversations, last changed first."""

    async def run(self, run: RunId) -> Run:
        """Return the row. Raises `NotFound`."""

    async def runs(self, conversation: ConversationId) -> list[Run]:
        """Return a conversation's runs in the order they were started."""

    async def calls(self, conversation: ConversationId, run: RunId) -> list[Call]:
        """Return the ledger of a run."""

    async def message(self, conversation: ConversationId, message: MessageId) -> Message:
        """Return one message. Raises `NotFound`."""

    async def line(
        self, conversation: ConversationId, leaf: MessageId | None, limit: int | None
    ) -> list[Message]:
        """Return the line that a model may see, to `leaf` or the head; the newest `limit` of it."""

    async def sessions(self, conversation: ConversationId) -> list[Session]:
        """Return the sessions in their order."""

    async def tree(self, conversation: ConversationId) -> list[Message]:
        """Return every message."""

    async def children(
        self, conversation: ConversationId, parent: MessageId | None
    ) -> list[Message]:
        """Return the children of a message, or the roots, in the order they came."""

    async def explain(self, run: RunId) -> Explanation:
        """Return everything that is recorded about a run."""

    async def request(self, run: RunId) -> bytes:
        """Return the exact body of a run's newest dispatch, its digest verified."""

    async def plan(self, run: RunId) -> PlanTold:
        """Return what a run's newest dispatch was made of, and why."""

    async def models(self) -> list[ModelTold]:
        """Return the models that there are, the default one first."""

    async def model(self, name: str) -> str:
        """Return the name of a model as runs are to ask for it. Raises `NotFound`."""
