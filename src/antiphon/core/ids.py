"""Identifiers, as types that cannot be swapped, and the one rule for ids brought by clients."""

from __future__ import annotations

import re
from typing import Final, NewType

from antiphon.errors import InvalidInput

TenantId = NewType("TenantId", str)
ConversationId = NewType("ConversationId", str)
SessionId = NewType("SessionId", str)
MessageId = NewType("MessageId", str)
RunId = NewType("RunId", str)
ResponseId = NewType("ResponseId", str)
OperationId = NewType("OperationId", str)
CallId = NewType("CallId", str)
NodeId = NewType("NodeId", str)
Digest = NewType("Digest", str)

LOCAL_TENANT: Final = TenantId("local")
"""The tenant of a process that has no keys defined."""

MESSAGE_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
CROCKFORD: Final = "0123456789abcdefghjkmnpqrstvwxyz"
SUFFIX_LENGTH: Final = 26
# Two characters at a time: every message, run, operation and call draws one.
_PAIRS: Final = tuple(first + second for first in CROCKFORD for second in CROCKFORD)
_SHIFTS: Final = tuple(range(5 * (SUFFIX_LENGTH - 2), -1, -10))


def sortable(prefix: str, now_ms: int, randomness: int) -> str:
    """Return `prefix` and 26 characters that sort by time, then by `randomness` (80 bits).

    Example:
        >>> sortable("msg_", 0, 1) < sortable("msg_", 1, 0)
        True
        >>> len(sortable("op_", 1_700_000_000_000, 2**80 - 1))
        29
    """
    number = (now_ms << 80) | (randomness & ((1 << 80) - 1))
    return prefix + "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])


def message_id(value: str) -> MessageId:
    """Return `value` as a message id that a client may bring.

    Raises:
        InvalidInput: It is not 1 to 64 characters of `[A-Za-z0-9_-]`.
    """
    if MESSAGE_ID.match(value) is None:
        raise InvalidInput(
            "A message id is 1 to 64 characters of A-Z, a-z, 0-9, _ and -.",
            code="bad_message_id",
            at=value[:80],
        )
    return MessageId(value)
