"""The lists of what profiles changed, as they are stored and as they are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from antiphon.core.ids import Digest, TenantId
from antiphon.core.listing import NOTHING, Listed, folded, read_stretch
from antiphon.core.manifest import Mapping
from antiphon.errors import DigestMismatch
from antiphon.stores.base import Store

LOOKS: Final = 64
"""How many lengths of a list are looked up at once: the newest is mostly among the first."""


async def newest_stored(
    store: Store, tenant: TenantId, key: bytes, mappings: Sequence[Mapping]
) -> Listed:
    """Return how far this list is stored already, by whatever process."""
    digests = folded(key, mappings)
    for upto in range(len(digests), 0, -LOOKS):
        near = digests[max(0, upto - LOOKS) : upto]
        stored = await store.stored(tenant, near)
        for count in range(upto, upto - len(near), -1):
            if digests[count - 1] in stored:
                return Listed(count=count, digest=digests[count - 1])
    return NOTHING


async def told_mappings(
    store: Store, tenant: TenantId, newest: Digest | None
) -> tuple[Mapping, ...]:
    """Return every entry of the list of this digest.

    Raises:
        DigestMismatch: What is stored is not what was recorded.
    """
    key = await store.tenant_key(tenant)
    stretches = []
    while newest is not None:
        found = read_stretch(key, newest, await store.content(tenant, newest))
        if found is None:
            raise DigestMismatch("A list of mappings is not what was recorded.", at=newest)
        stretches.append(found.mappings)
        newest = found.after
    return tuple(mapping for part in reversed(stretches) for mapping in part)
