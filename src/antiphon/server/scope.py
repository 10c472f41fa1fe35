"""What one principal can see: every read of a handler goes through here.

An id of another tenant is answered like one that does not exist, so that nobody learns
which of the two it is.
"""

from __future__ import annotations

from starlette.requests import Request

from antiphon.core.blocks import Message
from antiphon.core.ids import ConversationId, MessageId, OperationId, RunId
from antiphon.core.manifest import Manifest
from antiphon.core.records import Conversation, Run
from antiphon.engine.engine import Engine
from antiphon.errors import NotFound
from antiphon.server.body import engine_of
from antiphon.server.principals import Principal, principal_of


class View:
    """The part of the store that belongs to a principal's tenant."""

    def __init__(self, engine: Engine, principal: Principal) -> None:
        self.engine = engine
        self.principal = principal
        self._store = engine.world.store

    async def conversation(self, conversation: str) -> Conversation:
        """Return the row. Raises `NotFound`, for one of another tenant too."""
        row = await self._store.conversation(ConversationId(conversation))
        if row.tenant != self.principal.tenant:
            raise NotFound("There is no such conversation.", at=conversation)
        return row

    async def conversations(
        self, *, limit: int, before: ConversationId | None
    ) -> list[Conversation]:
        """Return the tenant's conversations, last changed first."""
        return await self._store.conversations(self.principal.tenant, limit=limit, before=before)

    async def run(self, run: str) -> Run:
        """Return the row. Raises `NotFound`."""
        row = await self._store.find_run(RunId(run))
        try:
            await self.conversation(row.conversation)
        except NotFound:
            raise NotFound("There is no such run.", at=run) from None
        return row

    async def operation(self, operation: str) -> Manifest:
        """Return an operation's manifest. Raises `NotFound`."""
        manifest, _ = await self._store.manifest(OperationId(operation))
        try:
            await self.conversation(manifest.conversation)
        except NotFound:
            raise NotFound("There is no such operation.", at=operation) from None
        return manifest

    async def message(self, conversation: str, message: str) -> Message:
        """Return one message of a conversation. Raises `NotFound`."""
        row = await self.conversation(conversation)
        return await self._store.message(row.id, MessageId(message))


def view_of(request: Request) -> View:
    """Return what whoever asks can see."""
    return View(engine_of(request), principal_of(request))
