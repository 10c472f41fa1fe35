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
from antiphon.errors import InvalidInput, NotFound
from antiphon.server.http.body import engine_of
from antiphon.server.rights.principals import Principal, principal_of


class View:
    """The part of the store that belongs to a principal's tenant."""

    def __init__(self, engine: Engine, principal: Principal) -> None:
        self.engine = engine
        self.principal = principal
        self._store = engine.world.store

    async def conversation(self, conversation: str) -> Conversation:
        """Return the row. Raises `NotFound`, for one of another tenant too."""
        row = await self._store.conversation(ConversationId(conversation))
        if row.tenant != self.principal.tenant or row.deleted:
            raise NotFound("There is no such conversation.", at=conversation)
        return row

    async def sees(self, conversation: ConversationId) -> bool:
        """Return whether a conversation, which exists, is the tenant's."""
        row = await self._store.conversation(conversation)
        return row.tenant == self.principal.tenant

    async def conversations(
        self, *, limit: int, before: ConversationId | None, words: str | None = None
    ) -> list[Conversation]:
        """Return the tenant's conversations, last changed first; with `words` those that hold them."""
        return await self._store.conversations(
            self.principal.tenant, limit=limit, before=before, words=words
        )

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

    async def message(self, message: str, conversation: str | None = None) -> Message:
        """Return one message, found by its id alone where no conversation is named.

        Raises:
            NotFound: There is none.
            InvalidInput: `ambiguous`: clients choose ids, and several conversations have this.
        """
        if conversation is None:
            homes = await self._store.homes(self.principal.tenant, MessageId(message))
            if not homes:
                raise NotFound("There is no such message.", at=message)
            if len(homes) > 1:
                raise InvalidInput(
                    "Several conversations have a message of this id: name one, by ?conversation=.",
                    code="ambiguous",
                    at=message,
                )
            return await self._store.message(homes[0], MessageId(message))
        row = await self.conversation(conversation)
        return await self._store.message(row.id, MessageId(message))


def view_of(request: Request) -> View:
    """Return what whoever asks can see."""
    return View(engine_of(request), principal_of(request))
