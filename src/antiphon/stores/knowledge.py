"""What a store keeps for tenants beside their conversations: files, memories, instructions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from antiphon.core.ids import ConversationId, TenantId
from antiphon.core.knowledge.kept import File, Instructions, NewFile, Remembered, RememberedKind
from antiphon.core.knowledge.passages import Piece
from antiphon.core.knowledge.ranking import Index


class KnowledgeStore(Protocol):
    """Changes, each durable when it returns, and questions. Every method may raise `StoreError`.

    What names a conversation raises `NotFound` for one of another tenant, and `Conflict` for one
    that was erased.
    """

    async def add_file(self, new: NewFile, given_to: ConversationId | None) -> File:
        """Keep a file with its passages and their index, and give it to a conversation."""

    async def give_file(
        self, tenant: TenantId, file: str, conversation: ConversationId, now_ms: int
    ) -> File:
        """Let a conversation's questions be looked up in a file; again changes nothing."""

    async def take_file(self, tenant: TenantId, file: str, conversation: ConversationId) -> File:
        """Look nothing more up in a file for a conversation; the file stays."""

    async def delete_file(self, tenant: TenantId, file: str) -> File:
        """Take a file away for good, and every use of it. Raises `NotFound`."""

    async def delete_all(self, tenant: TenantId) -> int:
        """Take away all that a tenant keeps here, and return how many files that was."""

    async def file(self, tenant: TenantId, file: str) -> File:
        """Return what is known of a file. Raises `NotFound`."""

    async def file_data(self, tenant: TenantId, file: str) -> bytes:
        """Return a file's bytes as they came. Raises `NotFound`."""

    async def files(
        self, tenant: TenantId, *, after: str | None, limit: int, newest_first: bool
    ) -> list[File]:
        """Return a tenant's files in the order they came, or the other way round."""

    async def files_of(self, conversation: ConversationId) -> list[File]:
        """Return the files that a conversation's questions are looked up in, as they were given."""

    async def index(self, files: Sequence[str], terms: Sequence[str]) -> dict[str, Index]:
        """Return the part of each file's index that these terms need."""

    async def passages(self, wanted: Iterable[tuple[str, int]]) -> list[Piece | None]:
        """Return passages by file and number, in this order; None for those that are gone."""

    async def remember(self, tenant: TenantId, one: Remembered) -> Remembered:
        """Keep a text under its key, in place of what was there."""

    async def forget(
        self,
        tenant: TenantId,
        kind: RememberedKind,
        key: str,
        conversation: ConversationId | None,
    ) -> None:
        """Take a text away. Raises `NotFound`."""

    async def remembered(
        self, tenant: TenantId, conversation: ConversationId | None, *, only: bool = False
    ) -> list[Remembered]:
        """Return what is kept for a tenant and one of its conversations, or for the one `only`."""

    async def write_instructions(
        self, tenant: TenantId, name: str, text: str, owner: str, now_ms: int
    ) -> Instructions:
        """Write the next version; the same text as the newest one's is that version again.

        Raises:
            Conflict: `not_the_owner`: somebody else's are called that.
        """

    async def instructions(
        self, tenant: TenantId, name: str, version: int | None = None
    ) -> Instructions:
        """Return a version of instructions, by default the newest. Raises `NotFound`."""

    async def all_instructions(
        self, tenant: TenantId, name: str | None = None
    ) -> list[Instructions]:
        """Return the newest version of each, or every version of those of one name."""
