"""What a profile changed on the way to bytes, listed for every dispatch and never listed twice.

The list of a dispatch is that of the line's dispatch before it and a few entries more, so it is
stored in stretches: the newest entries, and the digest of the list that they follow. A list's
digest folds its entries one by one. It says the same whatever the stretches are, and each
stretch can be held against the digest that it is stored under.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from antiphon.core.digests import digest
from antiphon.core.ids import Digest
from antiphon.core.manifest import Mapping


class Stretch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The newest entries of a list, and the digest of those before them, if there are any."""

    after: Digest | None = None
    mappings: tuple[Mapping, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """How far a list is stored: its first `count` entries, under `digest`."""

    count: int = 0
    digest: Digest | None = None


NOTHING: Final = Listed()

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Stretch).decode


def folded(key: bytes, mappings: Sequence[Mapping], after: Listed = NOTHING) -> list[Digest]:
    """Return the digest of the list after each entry of `mappings` behind those of `after`."""
    digests, so_far = [], after.digest
    for mapping in mappings[after.count :]:
        so_far = digest(key, "mappings", (so_far or "").encode(), _encode(mapping))
        digests.append(so_far)
    return digests


def continued(
    key: bytes, mappings: Sequence[Mapping], stored: Listed
) -> tuple[Listed, tuple[tuple[Digest, bytes], ...]]:
    """Return the whole list's name, and what has to be stored beside what of it is already."""
    if len(mappings) == stored.count:
        return stored, ()
    newest = folded(key, mappings, stored)[-1]
    added = Stretch(after=stored.digest, mappings=tuple(mappings[stored.count :]))
    return Listed(count=len(mappings), digest=newest), ((newest, _encode(added)),)


def read_stretch(key: bytes, name: Digest, data: bytes) -> Stretch | None:
    """Return the stretch that is stored as `data`, or None if it is not the one of this name."""
    try:
        found = _decode(data)
    except msgspec.MsgspecError:
        return None
    digests = folded(key, found.mappings, Listed(digest=found.after))
    return found if digests and digests[-1] == name else None
