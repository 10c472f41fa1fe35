"""Values as they stand in columns: digests in half their bytes, JSON with its keys in order."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from antiphon.core.ids import Digest

DIGEST_CHARACTERS: Final = 64

Stored: TypeAlias = bytes | str
"""A digest in a column: 32 bytes, or longer where it is no digest of ours (`str` in old files)."""

_NO_UTF8: Final = b"\xff"
"""Stands before the text of what is no digest of ours; no text in UTF-8 holds it."""

encode_json: Final = msgspec.json.Encoder(order="deterministic").encode
"""JSON that is equal, byte for byte, wherever its value is."""


def pack(digest: Digest) -> bytes:
    """Return `digest` in half the bytes; `unpack` is its inverse for any text.

    Example:
        >>> unpack(pack(Digest("ab" * 32))) == "ab" * 32, unpack(pack(Digest("ab" * 16)))
        (True, 'abababababababababababababababab')
    """
    if len(digest) == DIGEST_CHARACTERS:
        try:
            data = bytes.fromhex(digest)
        except ValueError:
            pass
        else:
            if data.hex() == digest:
                return data
    text = digest.encode()
    return _NO_UTF8 * (2 if len(text) == DIGEST_CHARACTERS // 2 - 1 else 1) + text


def unpack(stored: Stored) -> Digest:
    """Return the digest that `pack` stored."""
    if isinstance(stored, str):
        return Digest(stored)
    if stored.startswith(_NO_UTF8) and len(stored) != DIGEST_CHARACTERS // 2:
        return Digest(stored.lstrip(_NO_UTF8).decode())
    return Digest(stored.hex())
