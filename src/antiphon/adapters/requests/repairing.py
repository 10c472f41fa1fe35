"""A request whose history was broken, made whole, with every change at its place in the request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from msgspec import structs

from antiphon.adapters.base import Parsed
from antiphon.core.blocks import block_id
from antiphon.core.rules.findings import Repair
from antiphon.core.rules.repair import Repaired, repair


def repaired(parsed: Parsed) -> tuple[Parsed, tuple[Repair, ...]]:
    """Return the request with a history that its graph allows, and what that took.

    What could not be read as a message stays a finding: nobody knows what it said.
    """
    made = repair(parsed.messages)
    if not made.repairs:
        return parsed, ()
    places = parsed.places
    told = tuple(structs.replace(r, at=places.get(r.at, r.at)) for r in made.repairs)
    whole = replace(parsed, messages=made.messages, places=_places(places, made))
    return whole, told


def _places(places: Mapping[str, str], made: Repaired) -> dict[str, str]:
    """Return where in the request the messages and blocks of the repaired line come from."""
    found = dict(places)
    for message in made.messages:
        for name in (message.id, *(block_id(message.id, n) for n in range(len(message.blocks)))):
            before = made.came_from.get(name)
            if before is not None:
                found[name] = places.get(before, before)
    return found
