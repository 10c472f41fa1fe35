"""Conversations and what changes their tree without a run."""

from __future__ import annotations

from antiphon.core.blocks import Message, Origin, Status, default_trust
from antiphon.core.commands import (
    AddMessages,
    CreateConversation,
    DeleteConversation,
    DeleteMessages,
    KeepCanceled,
    MoveHead,
    PutContent,
    Quarantine,
    SetMetadata,
    SetTitle,
)
from antiphon.core.dispatch import Denied
from antiphon.core.events import DurableEvent, Kept, MessagesAdded, MessagesDeleted
from antiphon.core.ids import MessageId
from antiphon.core.records import Conversation
from antiphon.errors import NotFound, Refused
from antiphon.stores.sql.commands.endings import cancel_run
from antiphon.stores.sql.commands.sessions import move_to
from antiphon.stores.sql.messages import insert_message, same_message
from antiphon.stores.sql.packing import encode_json, pack
from antiphon.stores.sql.places import place
from antiphon.stores.sql.rows import ConversationRow
from antiphon.stores.sql.transaction import Transaction


def create(tx: Transaction, command: CreateConversation) -> Conversation | Denied:
    """Create it with one active session, or answer with the one that is there."""
    tx.tenant_key(command.tenant)
    metadata = encode_json(dict(command.metadata)) if command.metadata else None
    scheduling = None if command.scheduling is None else int(command.scheduling)
    born = tx.one(
        """INSERT INTO conversation (id, tenant, session, title, metadata, scheduling, created_ms,
          updated_ms) VALUES (?, ?, 0, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING RETURNING number""",
        (
            command.conversation,
            command.tenant,
            command.title,
            metadata,
            scheduling,
            command.now_ms,
            command.now_ms,
        ),
    )
    if born is None:
        if tx.conversation(command.conversation).tenant != command.tenant:
            return Denied("conversation_id")
        return tx.conversation_record(command.conversation)
    session = place(born[0], 1)
    tx.execute(
        "INSERT INTO session (place, id, active, created_ms) VALUES (?, ?, 1, ?)",
        (session, command.session, command.now_ms),
    )
    row = ConversationRow.created(
        command, born[0], session=session, metadata=metadata, scheduling=scheduling
    )
    tx.add_conversation(row)
    return tx.conversation_record(command.conversation)


def add_messages(tx: Transaction, command: AddMessages) -> Conversation | Denied:
    """Insert what is new of the messages; one revision for all."""
    c = tx.conversation(command.conversation)
    if c.active_operation is not None:
        return Denied("conversation_busy")
    added: list[MessageId] = []
    later = {message.id for message in command.messages}  # what stands here or behind
    for message in command.messages:
        stored = None if tx.is_new(c, message.id) else tx.message(c, message.id)
        if stored is None:
            _no_circle(tx, c, message, later)
            insert_message(tx, c, message)
            added.append(message.id)
        elif not same_message(tx, c, stored, message):
            return Denied("message_id_conflict")
        later.discard(message.id)
    events: list[DurableEvent] = []
    if added:
        _advance(tx, c, command.now_ms)
        events.append(MessagesAdded(messages=tuple(added)))
    if command.head is not None:
        events += move_to(tx, c, command.head, command.now_ms)
    if events:
        tx.tell(command, c.number, *events)
    return tx.conversation_record(command.conversation)


def _no_circle(
    tx: Transaction, c: ConversationRow, message: Message, later: set[MessageId]
) -> None:
    if message.parent in later and tx.node(c.number, message.parent) is None:
        raise Refused("A parent comes before its children.", code="cycle", at=message.id)


def _advance(tx: Transaction, c: ConversationRow, now_ms: int) -> None:
    revision = tx.row(c.number).revision + 1
    tx.change_conversation(c.number, revision=revision, updated_ms=now_ms)


def move_head(tx: Transaction, command: MoveHead) -> Conversation:
    """Look at another line."""
    c = tx.conversation(command.conversation)
    events = move_to(tx, c, command.head, command.now_ms)
    if events:
        tx.tell(command, c.number, *events)
    return tx.conversation_record(command.conversation)


def set_title(tx: Transaction, command: SetTitle) -> Conversation | Denied:
    """Name the conversation; what names it by itself is no sign of life."""
    c = tx.conversation(command.conversation)
    if command.unless_named:
        if c.title is not None:
            return Denied("title")
        tx.change_conversation(c.number, title=command.title)
    else:
        tx.change_conversation(c.number, title=command.title, updated_ms=command.now_ms)
    return tx.conversation_record(command.conversation)


def set_metadata(tx: Transaction, command: SetMetadata) -> Conversation:
    """Replace the metadata."""
    c = tx.conversation(command.conversation)
    data = encode_json(dict(command.metadata)) if command.metadata else None
    tx.change_conversation(c.number, metadata=data)
    return tx.conversation_record(command.conversation)


def delete(tx: Transaction, command: DeleteConversation) -> Conversation:
    """Stop what works here, and answer for it no longer."""
    c = tx.conversation(command.conversation)
    for run in tx.open_runs(c):
        cancel_run(tx, command, tx.row(c.number), run, command.reason)
    tx.change_conversation(c.number, deleted=True)
    return tx.conversation_record(command.conversation)


def delete_messages(tx: Transaction, command: DeleteMessages) -> Conversation | Denied:
    """Mark messages as skipped; what works below them is canceled first."""
    c = tx.conversation(command.conversation)
    for run_id in command.cancel:
        run = tx.run(c, run_id)
        if run.open:
            cancel_run(tx, command, c, run, command.reason)
            c = tx.conversation(command.conversation)
    if c.active_operation is not None:
        return Denied("conversation_busy")
    deleted = [m for m in command.messages if tx.delete(c, m, c.revision + 1)]
    if deleted:
        _advance(tx, c, command.now_ms)
        tx.tell(command, c.number, MessagesDeleted(messages=tuple(deleted)))
    return tx.conversation_record(command.conversation)


def keep_canceled(tx: Transaction, command: KeepCanceled) -> Conversation | Denied:
    """Make a message of its own out of canceled text, because a person said so."""
    c = tx.conversation(command.conversation)
    source = tx.message(c, command.source)
    if source is None:
        raise NotFound("There is no such message in this conversation.", at=command.source)
    if source.status is not Status.CANCELED:
        return Denied("message_canceled")
    kept = Message(
        id=command.message,
        conversation=c.id,
        parent=source.parent,
        role=source.role,
        blocks=source.blocks,
        origin=Origin.KEPT,
        trust=default_trust(source.role, Origin.KEPT),
        name=source.name,
        session=source.session,
        copied_from=source.id,
        created_ms=command.now_ms,
    )
    stored = tx.message(c, command.message)
    if stored is not None:
        if same_message(tx, c, stored, kept):
            return tx.conversation_record(command.conversation)
        return Denied("message_id_conflict")
    if c.active_operation is not None:
        return Denied("conversation_busy")
    insert_message(tx, c, kept)
    _advance(tx, c, command.now_ms)
    events = move_to(tx, c, kept.id, command.now_ms)
    tx.tell(command, c.number, Kept(message=kept.id, source=source.id), *events)
    return tx.conversation_record(command.conversation)


def put_content(tx: Transaction, command: PutContent) -> None:
    """Store what is not stored yet, and note that this conversation needs it."""
    c = tx.conversation(command.conversation)
    stored = tx.contents(c.number)
    new = [(pack(digest), data) for digest, data in command.items if digest not in stored]
    tx.many(
        "INSERT INTO content (tenant, digest, data) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        [(c.tenant, digest, data) for digest, data in new],
    )
    if not command.structure:
        tx.many(
            "INSERT INTO content_use (conversation, tenant, digest) VALUES (?, ?, ?) "
            "ON CONFLICT DO NOTHING",
            [(c.number, c.tenant, digest) for digest, _ in new],
        )
        stored.update(digest for digest, _ in command.items)


def quarantine(tx: Transaction, command: Quarantine) -> None:
    """Note what came late."""
    tx.put_aside(command)
