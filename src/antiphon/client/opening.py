"""Opening a client: one pool of connections, as long as it is used."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from antiphon.client.feed import Feed
from antiphon.client.remote import Remote
from antiphon.client.wire import Lost, Patience, Wire, base_url
from antiphon.core.ids import ConversationId
from antiphon.handles.chat import Conversations


class Client(Conversations):
    """A server's conversations. Made by `open`."""

    def __init__(self, wire: Wire) -> None:
        self._remote = Remote(wire)
        super().__init__(self._remote)

    def feed(self, conversation: ConversationId, after: int = 0) -> Feed:
        """Return a follower of one conversation, whose `state` is there to be shown."""
        return self._remote.feed(conversation, after)


@asynccontextmanager
async def open(
    url: str, *, key: str | None = None, patience: Patience | None = None
) -> AsyncIterator[Client]:
    """Open a client of the server at `url`.

    Args:
        url: Such as `http://127.0.0.1:8000`.
        key: What the server knows you by; none is needed where it has no keys.
        patience: How long to bear what may pass.

    Raises:
        InvalidInput: `bad_url`.
        ServerUnavailable: Nobody answers there.
    """
    wants = patience or Patience()
    async with aiohttp.ClientSession() as session:
        wire = Wire(session, base_url(url), key=key, patience=wants)
        try:
            async with wire.answered("GET", "/healthz"):
                pass
        except Lost as lost:
            unavailable = wire.unavailable(lost)
        else:
            yield Client(wire)
            return
    raise unavailable
