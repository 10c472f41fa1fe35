"""Stretches of a line as they are stored: checked and rendered once, by whatever process.

Where a line rests and much has come since it was last told of, what it tells (`Rested`) is stored
with the next dispatch on it, and the dispatch's trace names it. A process that has just started
reads the stretches as bytes, and only what came behind them as messages.

Why that may be trusted: a stretch lies under its digest by the tenant's key, so it is what a
process of ours wrote; it is bound to the release whose rules it passed, to adapter, policy and
tools, and to what of the path was to be seen; and a line that goes on from it is used only if it
comes to the digest of the request that was sent last (`antiphon.engine.dispatch.lines`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from antiphon.adapters.base import Rested
from antiphon.core.digests import digest
from antiphon.core.ids import Digest, MessageId, TenantId
from antiphon.core.planning.trace import Reason
from antiphon.errors import NotFound
from antiphon.stores.base import Store

STRETCH_BYTES: Final = 64 * 1024
"""Of what is rendered: a stretch is no shorter, so a turn seldom stores one."""


class Before(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What stands on a path before the part that is sent: `antiphon.engine.dispatch.warm.Earlier`."""

    at: MessageId | None = None
    told: tuple[MessageId, ...] = ()
    gone: int = 0
    first: MessageId | None = None
    last: MessageId | None = None
    skipped: dict[Reason, int] = {}


class LineStretch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a line has come by since the stretch before it, and what is known of it all.

    Attributes:
        after: The stretches before it, the eldest first.
        bound: What its line was made by: `Warm.bound_to`.
        at: The message that it ends in.
        rested: What the line told there.
        said: How many messages the line has.
        told: How many of them instruct.
        skipped: What of its path no model may see.
        sources: How many blocks stand beside its messages.
        beside_tokens: What those cost.
        before: What is not sent of the path.
    """

    after: tuple[Digest, ...] = ()
    bound: Digest
    at: MessageId
    rested: Rested
    said: int
    told: int = 0
    skipped: dict[Reason, int] = {}
    sources: int = 0
    beside_tokens: int = 0
    before: Before = Before()

    def stored(self, key: bytes) -> tuple[Digest, bytes]:
        """Return the name that it goes by in a tenant's content, and its stored form."""
        data = _encode(self)
        return digest(key, "stretch", data), data


_encode: Final = msgspec.msgpack.Encoder(order="deterministic").encode
_decode: Final = msgspec.msgpack.Decoder(LineStretch).decode


async def read_stretches(
    store: Store, tenant: TenantId, key: bytes, newest: Digest, bound: Digest
) -> tuple[Sequence[Digest], Sequence[LineStretch]]:
    """Return the stretches up to `newest` with their names, the eldest first; none if of no use here.

    That is where one is gone, is not what was stored, or was made by anything else.
    """
    try:
        last = _read(key, newest, await store.content(tenant, newest))
    except NotFound:
        return (), ()
    if last is None or last.bound != bound:
        return (), ()
    stored = await store.contents(tenant, last.after)
    found = [_read(key, name, stored.get(name, b"")) for name in last.after]
    whole = [stretch for stretch in (*found, last) if stretch is not None]
    return ((*last.after, newest), whole) if len(whole) == len(found) + 1 else ((), ())


def _read(key: bytes, name: Digest, data: bytes) -> LineStretch | None:
    return _decode(data) if digest(key, "stretch", data) == name else None
