"""A fork: a conversation of its own that begins with what was said on one line of another."""

from __future__ import annotations

from msgspec.structs import replace

from antiphon.core.blocks import Origin
from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.records import Conversation
from antiphon.core.tree import last_closed_point
from antiphon.engine.engine import Engine
from antiphon.engine.keeping.looking import line
from antiphon.errors import Erased


async def fork(
    engine: Engine,
    source: Conversation,
    leaf: MessageId | None = None,
    *,
    title: str | None = None,
) -> Conversation:
    """Return a new conversation of the same tenant with the line to `leaf`, the head by default.

    It takes what a model may see, up to the last point under which no call is open. Each message
    is a copy that names its source; what either conversation says from here on is its own.

    Raises:
        NotFound: There is no such message.
        Erased: What was said is gone.
    """
    if source.erased_ms is not None:
        raise Erased("What was said here was erased: there is nothing to begin with.", at=source.id)
    world = engine.world
    seen = await line(world.store, source.id, leaf)
    end = last_closed_point(seen)
    made = await engine.create_conversation(
        title=title, metadata={**source.metadata, "forked_from": source.id}, tenant=source.tenant
    )
    copies = []
    parent: MessageId | None = None
    for message in seen if end is not None else ():
        copy = replace(
            message,
            id=MessageId(world.new_id("msg_")),
            conversation=ConversationId(made.id),
            parent=parent,
            origin=Origin.COPIED,
            copied_from=message.id,
            session=made.session,
            run=None,
        )
        copies.append(copy)
        parent = copy.id
        if message.id == end:
            break
    return await engine.add_messages(made.id, copies, parent) if copies else made
