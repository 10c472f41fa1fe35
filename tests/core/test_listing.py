"""Lists of mappings: one digest for one list, stored in whatever stretches."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.ids import Digest
from antiphon.core.listing import NOTHING, Stretch, continued, read_stretch
from antiphon.core.manifest import Mapping

KEY = b"k" * 32
ENTRIES = [Mapping(rule="reasoning_dropped", block=f"m{n}.0") for n in range(12)]


@given(st.sets(st.integers(1, len(ENTRIES))))
def test_a_list_has_one_digest_however_it_was_stored(stops: set[int]) -> None:
    whole, _ = continued(KEY, ENTRIES, NOTHING)
    listed = NOTHING
    content: dict[Digest, bytes] = {}
    for upto in sorted({*stops, len(ENTRIES)}):
        listed, added = continued(KEY, ENTRIES[:upto], listed)
        content |= dict(added)
    assert listed == whole
    found: list[Mapping] = []
    newest = listed.digest
    while newest is not None:
        part = read_stretch(KEY, newest, content[newest])
        assert part is not None
        found[:0] = part.mappings
        newest = part.after
    assert found == ENTRIES


def test_nothing_new_stores_nothing() -> None:
    whole, _ = continued(KEY, ENTRIES, NOTHING)
    assert continued(KEY, ENTRIES, whole) == (whole, ())
    assert continued(KEY, [], NOTHING) == (NOTHING, ())


def test_every_entry_its_place_and_the_key_count() -> None:
    whole, _ = continued(KEY, ENTRIES, NOTHING)
    others = [
        continued(b"other", ENTRIES, NOTHING),
        continued(KEY, ENTRIES[1:], NOTHING),
        continued(KEY, [ENTRIES[1], ENTRIES[0], *ENTRIES[2:]], NOTHING),
        continued(KEY, [*ENTRIES[:-1], Mapping(rule="other", block="m11.0")], NOTHING),
    ]
    assert len({whole.digest, *(listed.digest for listed, _ in others)}) == 5


def test_a_stretch_is_held_against_the_digest_it_is_stored_under() -> None:
    ((name, data),) = continued(KEY, ENTRIES, NOTHING)[1]
    part = read_stretch(KEY, name, data)
    assert part is not None
    assert part.mappings == tuple(ENTRIES)
    assert read_stretch(b"other", name, data) is None
    for changed in (Stretch(after=name, mappings=part.mappings), Stretch(mappings=())):
        assert read_stretch(KEY, name, msgspec.json.encode(changed)) is None
    assert read_stretch(KEY, name, data[:-1]) is None
