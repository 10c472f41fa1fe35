"""Messages between their rows and the records of core."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.core.blocks import Message, Origin, Role, Status, Trust, decode_blocks
from antiphon.core.ids import ConversationId, Digest, MessageId, SessionId
from antiphon.stores.sql.packing import encode_json


class Extra(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What few messages have."""

    name: str | None = None
    copied_from: MessageId | None = None
    beside: Digest | None = None
    metadata: dict[str, str] = {}


MESSAGE_COLUMNS: Final = (
    "place",
    "parent",
    "id",
    "kind",
    "status",
    "session",
    "run",
    "created_ms",
    "blocks",
    "error_code",
    "extra",
)

MESSAGE: Final = f"SELECT {', '.join(f'm.{column}' for column in MESSAGE_COLUMNS)}"

# A lookup is several times faster than calling an enumeration, and a path has thousands.
_KINDS: Final = {
    f"{role} {origin} {trust}": (role, origin, trust)
    for role in Role
    for origin in Origin
    for trust in Trust
}
_STATUSES: Final = {status.value: status for status in Status}
_NOTHING: Final = Extra()
_extra: Final = msgspec.json.Decoder(Extra).decode


def message_kind(message: Message) -> str:
    """Return role, origin and trust of a message as they stand in its row."""
    return f"{message.role} {message.origin} {message.trust}"


def message_extra(message: Message) -> bytes | None:
    """Return what few messages have, or None for the others."""
    extra = Extra(
        name=message.name,
        copied_from=message.copied_from,
        beside=message.beside,
        metadata=message.metadata,
    )
    return None if extra == _NOTHING else encode_json(extra)


def message_record(
    row: tuple[Any, ...],
    conversation: ConversationId,
    parent: MessageId | None,
    sessions: dict[int, SessionId],
) -> Message:
    """Return a message from a row of `MESSAGE`, its parent and sessions by id."""
    _, _, own, kind, status, session, run, created_ms, blocks, error_code, more = row
    role, origin, trust = _KINDS[kind]
    if more is None and error_code is None and blocks is not None:  # as most are
        return Message(
            id=own,
            conversation=conversation,
            parent=parent,
            role=role,
            blocks=decode_blocks(blocks),
            origin=origin,
            trust=trust,
            session=sessions[session],
            run=run,
            created_ms=created_ms,
            status=_STATUSES[status],
        )
    extra = _NOTHING if more is None else _extra(more)
    return Message(
        id=own,
        conversation=conversation,
        parent=parent,
        role=role,
        blocks=() if blocks is None else decode_blocks(blocks),
        origin=origin,
        trust=trust,
        name=extra.name,
        session=sessions[session],
        run=run,
        copied_from=extra.copied_from,
        beside=extra.beside,
        created_ms=created_ms,
        metadata=extra.metadata,
        status=_STATUSES[status],
        error_code=error_code,
        erased=blocks is None,
    )
