"""Conversations: made, filled, named, moved, deleted and erased."""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.core.blocks import Message
from antiphon.core.commands.base import Command
from antiphon.core.ids import MessageId, RunId, SessionId, TenantId
from antiphon.core.records import Conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateConversation(Command[Conversation]):
    """Create a conversation with one active session. Replays when the id exists."""

    tenant: TenantId
    session: SessionId
    title: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    scheduling: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddMessages(Command[Conversation]):
    """Create or import messages without a run; parents before children. Revision + 1.

    A message whose id exists with the same content is a replay and is left as it stands;
    with other content the whole command is Denied `message_id_conflict`. Denied
    `conversation_busy` while an operation is active. `head` becomes the head unless None.
    """

    messages: tuple[Message, ...]
    head: MessageId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveFile(Command[None]):
    """Let the conversation's questions be looked up in a file of its tenant's; again changes nothing.

    A file that is only `lent` outlives the conversation, which is to be dropped; any other goes
    with the last conversation that it was given to. Raises `NotFound` where there is none.
    """

    file: str
    lent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveHead(Command[Conversation]):
    """Look at another line. Does not move the revision."""

    head: MessageId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTitle(Command[Conversation]):
    """Name the conversation; None takes the name away.

    Where it is done `unless_named`, a conversation with a title is left alone: Denied `title`.
    """

    title: str | None
    unless_named: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMetadata(Command[Conversation]):
    """Put these pairs in place of the conversation's metadata."""

    metadata: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteConversation(Command[Conversation]):
    """Answer for this conversation no longer; its open runs are canceled with `reason`.

    What was said stays stored until it is erased.
    """

    reason: str = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseConversation(Command[Conversation]):
    """Take away all that was said here, for good; its open runs are canceled with `reason`.

    One transaction: the blocks, names and metadata of every message, what runs were asked and
    still wait to be told, arguments and results of the ledger, what was quarantined, title,
    metadata and goals, and stored content that no other conversation needs. Structure, statuses,
    manifests and keyed digests stay. From then on every command that would bring content is
    Denied `conversation_erased`. A no-op for one that is erased.
    """

    reason: str = "erased"
    at_once: bool = True
    """Whether the file's log, too, holds nothing of it when this is answered, and not soon after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteMessages(Command[Conversation]):
    """Append a deletion marker: these are skipped on every line. Revision + 1.

    A call and its results go together: the caller passes both. Runs in `cancel` (those at
    work below the deleted ones) are canceled in the same transaction with `reason`.
    """

    messages: tuple[MessageId, ...]
    cancel: tuple[RunId, ...] = ()
    reason: str = "deleted"
