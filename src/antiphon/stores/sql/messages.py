"""Messages into the tree: the one place that inserts a node, with its digests.

The path digest folds the parent's with the node's own, so a line of any length is
fingerprinted by one step per message.
"""

from __future__ import annotations

import msgspec

from antiphon.core.blocks import Message, Status, encode_blocks, message_digest
from antiphon.core.digests import fold
from antiphon.core.ids import MessageId
from antiphon.errors import Refused
from antiphon.stores.sql.known import Node
from antiphon.stores.sql.message_rows import message_extra, message_kind
from antiphon.stores.sql.packing import pack
from antiphon.stores.sql.rows import ConversationRow
from antiphon.stores.sql.transaction import Settled, Transaction


def insert_message(
    tx: Transaction, c: ConversationRow, message: Message, *, base_revision: int | None = None
) -> int:
    """Insert `message` under its parent and return its place.

    It belongs to its parent's session. `base_revision` makes it the canonical assistant message of
    that revision.

    Raises:
        Refused: `missing_parent` or `foreign_parent`.
    """
    found, parent, depth, path = None, None, 1, None
    if message.conversation != c.id:
        raise Refused(
            "The message belongs to another conversation.", code="foreign_parent", at=message.id
        )
    if message.parent is not None:
        found = tx.node(c.number, message.parent)
        if found is None:
            raise Refused(
                "The parent is not in this conversation.", code="missing_parent", at=message.parent
            )
        parent, depth, path = found.place, found.depth + 1, found.path_digest
    key = tx.tenant_key(c.tenant)
    own = message_digest(key, message)
    so_far = fold(key, path, own)
    at = tx.next_place("message", c.number)
    session = found.session if found is not None else tx.session(c, message.session)
    if session is None:
        raise Refused("There is no such session here.", code="missing_session", at=message.session)
    tx.add_message(
        c.number,
        message.id,
        Node(at, depth, so_far, session),
        {
            "place": at,
            "parent": parent,
            "depth": depth,
            "id": message.id,
            "kind": message_kind(message),
            "status": message.status,
            "session": session,
            "run": message.run,
            "created_ms": message.created_ms,
            "blocks": None if message.erased else encode_blocks(message.blocks),
            "error_code": message.error_code,
            "extra": message_extra(message),
            "digest": pack(own),
            "path_digest": pack(so_far),
            "base_revision": base_revision,
        },
    )
    if message.beside is not None:
        # A copy in another conversation needs what stands beside it as much as the first one does.
        tx.execute(
            "INSERT INTO content_use (conversation, tenant, digest) VALUES (?, ?, ?) "
            "ON CONFLICT DO NOTHING",
            (c.number, c.tenant, pack(message.beside)),
        )
    name = tx.session_id(c, session)
    if message.session != name:
        message = msgspec.structs.replace(message, session=name)
    tx.messages.append(message)
    return at


def same_message(tx: Transaction, c: ConversationRow, stored: Message, brought: Message) -> bool:
    """Whether `brought` is a replay of `stored`: the same node with the same content."""
    key = tx.tenant_key(c.tenant)
    said = tx.message_digest(c, stored.id) if stored.erased else message_digest(key, stored)
    return said == message_digest(key, brought)


def same_input(tx: Transaction, c: ConversationRow, stored: Message, brought: Message) -> bool:
    """The same, wherever the two were to stand: an input learns its parent at placement."""
    return same_message(tx, c, stored, msgspec.structs.replace(brought, parent=stored.parent))


def settle(
    tx: Transaction,
    c: ConversationRow,
    message: MessageId | None,
    status: Status,
    error_code: str | None = None,
) -> None:
    """Give a pending message its status; one that has left pending stays as it is."""
    if message is None:
        return
    tx.messages.append(Settled(c.id, message, status, error_code))
    tx.many(
        """UPDATE message SET status = ?, error_code = ?
        WHERE place >> 32 = ? AND id = ? AND status = 'pending'""",
        [(status, error_code, c.number, message)],
    )
