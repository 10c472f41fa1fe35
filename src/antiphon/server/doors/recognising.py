"""A history that a client brings whole, found where it stands already: only what is new is added.

A client of these doors sends everything again with every request. Where what it sent before was
kept, the request goes on in that conversation, below the last message that the two share, and a
history that was changed becomes a branch there. What is at work, or is known no more, is left
alone: then the request has a conversation of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from antiphon.core.blocks import Message, Status
from antiphon.core.ids import Digest, MessageId, TenantId
from antiphon.core.records import OPEN_RUN, Conversation
from antiphon.core.traffic.prefixes import path_digests, said
from antiphon.core.traffic.standing import Prefixes
from antiphon.engine.engine import Engine
from antiphon.errors import NotFound

NEWEST: Final = 64
"""How many of the newest messages may be where an earlier request ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """Where a history stands, and how many of its messages stand there already."""

    row: Conversation
    parent: MessageId
    shared: int


async def name_of(engine: Engine, tenant: TenantId, messages: Sequence[Message]) -> list[Digest]:
    """Return the digests under which the history, up to each message, is known."""
    return path_digests(await engine.world.store.tenant_key(tenant), messages)


async def recognised(
    engine: Engine, tenant: TenantId, messages: Sequence[Message], names: Sequence[Digest]
) -> Recognised | None:
    """Return where the longest part of a history that is known stands, if anything of it does."""
    store = engine.world.store
    newest = tuple(names[-NEWEST:])
    known = await store.answer(Prefixes(tenant=tenant, digests=newest)) if newest else {}
    for count in range(len(names), len(names) - len(newest), -1):
        place = known.get(names[count - 1])
        if place is None:
            continue
        try:
            row = await store.conversation(place[0])
            message = await store.message(row.id, place[1])
        except NotFound:
            continue
        if message.status is not Status.SUCCESS:
            continue  # nothing was answered there, and no model sees it: the client asks anew
        at_work = row.slot is not None or await store.runs(row.id, OPEN_RUN)
        if row.deleted or row.erased_ms is not None or at_work or place[1] in row.deletions:
            continue
        return await _followed(engine, row, place[1], messages, count)
    return None


async def _followed(
    engine: Engine, row: Conversation, at: MessageId, messages: Sequence[Message], shared: int
) -> Recognised:
    """Walk down from a message, as far as what is stored says what the client brings."""
    while shared < len(messages):
        wanted = said(messages[shared])
        below = await engine.world.store.children(row.id, at)
        same = [
            child
            for child in below
            if child.status is Status.SUCCESS
            and child.id not in row.deletions
            and said(child) == wanted
        ]
        if not same:
            break
        at, shared = same[-1].id, shared + 1
    return Recognised(row=row, parent=at, shared=shared)
