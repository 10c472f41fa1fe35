"""Bringing exported conversations in: all of a file in one transaction, or nothing of it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from antiphon.core.commands import (
    AddMessages,
    Command,
    CreateConversation,
    DeleteMessages,
    EraseConversation,
)
from antiphon.core.dispatch import Denied
from antiphon.core.ids import ConversationId, MessageId, SessionId, TenantId
from antiphon.core.records import OPEN_RUN, Conversation
from antiphon.core.telling.archive import Archive, Archived, Change, changes
from antiphon.engine.runs.refusals import refusal
from antiphon.engine.world import World
from antiphon.errors import Conflict, InvalidInput, NotFound


class Brought(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one conversation of the file.

    `missing` counts messages of the export that are not in the file.
    """

    id: ConversationId
    imported: int
    replayed: int
    deleted: int
    missing: int


async def bring(
    world: World, archive: Archive, tenant: TenantId, into: ConversationId | None = None
) -> list[Brought]:
    """Create what the file holds, or add its one conversation to `into`.

    Raises:
        Conflict: A message is there with other content, or runs are open where messages would be
            deleted; nothing was brought.
        InvalidInput: Several conversations for one.
    """
    if into is not None and len(archive.conversations) > 1:
        raise InvalidInput(
            "The file holds several conversations; they cannot go into one.", code="usage", at=into
        )
    brought: list[Brought] = []
    commands: list[Command[Any]] = []
    for archived in archive.conversations:
        elsewhere = {
            message.id
            for other in archive.conversations
            if other is not archived
            for message in other.messages
        }
        target = into or archived.id
        change, needed = await _changes(world, archived, target, tenant, elsewhere)
        commands += needed
        brought.append(
            Brought(
                id=target,
                imported=len(change.new),
                replayed=change.replayed,
                deleted=len(change.deleted),
                missing=archived.missing,
            )
        )
    done = await world.store.do_all(*commands)
    if isinstance(done, Denied):
        raise refusal(done)
    return brought


async def _changes(
    world: World,
    archived: Archived,
    target: ConversationId,
    tenant: TenantId,
    elsewhere: set[MessageId],
) -> tuple[Change, list[Command[Any]]]:
    """Return what is to be done for one conversation, and what that comes to."""
    store, now_ms = world.store, world.clock.now_ms()
    row: Conversation | None = None
    with suppress(NotFound):
        row = await store.conversation(target)
    if row is not None and row.tenant != tenant:
        raise Conflict("This id is taken.", code="conversation_id_taken", at=target)
    commands: list[Command[Any]] = []
    if row is None:
        commands.append(
            CreateConversation(
                conversation=target,
                now_ms=archived.created_ms or now_ms,
                tenant=tenant,
                session=SessionId(world.new_id("sess_")),
                title=archived.title,
                metadata=tuple(archived.metadata.items()),
            )
        )
    existing = {m.id: m for m in await store.tree(target)} if row is not None else {}
    change = changes(
        archived,
        target,
        existing,
        now_ms=now_ms,
        deleted=row.deletions if row is not None else (),
        elsewhere=elsewhere,
    )
    head = change.head if row is None or row.head is None else None
    if change.new or head is not None:
        commands.append(
            AddMessages(conversation=target, now_ms=now_ms, messages=change.new, head=head)
        )
    if change.deleted:
        if row is not None and await store.runs(target, OPEN_RUN):
            raise Conflict(
                "Runs are open here, and the import would delete messages under them.",
                code="conversation_busy",
                at=target,
            )
        commands.append(
            DeleteMessages(
                conversation=target, now_ms=now_ms, messages=tuple(sorted(change.deleted))
            )
        )
    if row is None and archived.erased_ms is not None:
        # Last of all, for nothing comes into a conversation that is erased.
        at_ms = min(archived.erased_ms, now_ms)
        commands.append(EraseConversation(conversation=target, now_ms=at_ms, at_once=False))
    return change, commands
