"""What a tenant keeps beside its conversations: files, what is remembered, and instructions.

They belong to a tenant and may be given to a conversation. None of them is a node of a tree; what
of them a model was shown stands in the policy of a run, or beside the message that it was found
for, and stays there whatever becomes of the original.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from antiphon.core.blocks import Trust
from antiphon.core.ids import ConversationId, Digest, TenantId
from antiphon.core.inputs import InputBlock, Memory, Stable
from antiphon.core.knowledge.passages import Piece
from antiphon.core.knowledge.ranking import Index

LONGEST_NAME: Final = 200
NO_NAME: Final = "file"


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A text that somebody gave us to look things up in; its bytes and passages stand apart.

    Attributes:
        id: `file_` and 26 characters.
        name: A label for people and models; never a path.
        bytes: How many it has.
        encoding: In which its bytes are read as text.
        evidence: Why in that one: `bom`, `declared`, `utf-8`, `escapes` or `guessed`.
        passages: How many it was cut into.
        digest: Of its bytes, under the tenant's key.
    """

    id: str
    tenant: TenantId
    name: str
    bytes: int
    encoding: str
    evidence: str
    passages: int
    digest: Digest
    created_ms: int
    media_type: str = "text/plain"
    purpose: str = "user_data"


class NewFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it is stored: with its bytes, its passages and their index."""

    file: File
    data: bytes
    pieces: tuple[Piece, ...]
    index: Index


class RememberedKind(StrEnum):
    """What a remembered text is for the model."""

    MEMORY = "memory"
    STABLE = "stable"


class Remembered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A text under a key that stands before the talk: of one conversation, or of all of a tenant's.

    Attributes:
        key: Its name; the same key again replaces the text.
        text: What the model is told.
        kind: A fact that was remembered, or context that an application gives.
        conversation: Whose it is; None is for every conversation of the tenant.
        trust: Who vouches for it.
        priority: The higher is kept first where not all fits.
        required: Whether a request is refused rather than made without it.
    """

    key: str
    text: str
    kind: RememberedKind = RememberedKind.MEMORY
    conversation: ConversationId | None = None
    trust: Trust = Trust.USER
    priority: int = 0
    required: bool = False
    updated_ms: int = 0


class Instructions(msgspec.Struct, frozen=True, kw_only=True):
    """One version of instructions that have a name and an owner.

    A version never changes: to write again makes the next one, and what a run was told is told by
    its policy, whose digest is in every manifest.
    """

    name: str
    version: int
    text: str
    owner: str
    created_ms: int


def label(name: str) -> str:
    """Return `name` as a harmless label: what stands behind the last slash, on one line.

    Example:
        >>> label("../../etc/passwd")
        'passwd'
        >>> label("..")
        'file'
    """
    last = name.replace("\\", "/").rstrip("/ ").rpartition("/")[2]
    shown = "".join(char for char in last if char.isprintable()).strip()
    return shown[:LONGEST_NAME] if shown.strip(". ") else NO_NAME


def as_inputs(remembered: list[Remembered], tenant: TenantId) -> tuple[InputBlock, ...]:
    """Return what is remembered as it stands before the talk; a conversation's own text wins.

    The order does not depend on when each was written, so that to write one anew moves no other.
    """
    chosen: dict[tuple[RememberedKind, str], Remembered] = {}
    for one in sorted(remembered, key=lambda r: r.conversation is not None):
        chosen[one.kind, one.key] = one
    return tuple(_as_input(chosen[at], tenant) for at in sorted(chosen))


def _as_input(one: Remembered, tenant: TenantId) -> InputBlock:
    made = Memory if one.kind is RememberedKind.MEMORY else Stable
    return made(
        id=f"{one.kind}:{one.key}",
        key=one.key,
        text=one.text,
        scope=one.conversation or tenant,
        trust=one.trust,
        priority=one.priority,
        required=one.required,
    )
