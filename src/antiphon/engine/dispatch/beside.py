"""What stands beside messages of the tree, read back as it was stored with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from antiphon.core.blocks import Message
from antiphon.core.ids import ConversationId, MessageId, TenantId
from antiphon.core.inputs import InputBlock
from antiphon.core.knowledge.retrieval import read_beside
from antiphon.core.planning.compaction import decode_checkpoint
from antiphon.core.planning.trace import Selection
from antiphon.errors import NotFound
from antiphon.stores.base import Store


async def checkpoint_beside(
    store: Store, tenant: TenantId, conversation: ConversationId, selection: Selection
) -> Mapping[MessageId, tuple[InputBlock, ...]]:
    """Return the checkpoint of a selection, beside the first message that stays.

    Raises:
        NotFound: It is not stored any more.
    """
    if selection.checkpoint is None or selection.start is None:
        return {}
    found = decode_checkpoint(await store.content(tenant, selection.checkpoint))
    return {selection.start: (found.beside(selection.checkpoint, conversation),)}


async def inputs_beside(
    store: Store, tenant: TenantId, messages: Iterable[Message]
) -> Mapping[MessageId, tuple[InputBlock, ...]]:
    """Return the input blocks of those of `messages` that have any.

    Raises:
        NotFound: Something is not stored that a message names: what it was asked with cannot be
            told any more, so nothing may be sent as if it had been nothing.
    """
    named = {message.id: message.beside for message in messages if message.beside is not None}
    if not named:
        return {}
    stored = await store.contents(tenant, sorted(set(named.values())))
    for message, digest in named.items():
        if digest not in stored:
            raise NotFound("What stood beside this message is gone.", at=message)
    return {message: read_beside(stored[digest]).inputs for message, digest in named.items()}
