"""A minute of `make fuzz`: nothing that comes from outside raises anything but our own errors."""

from __future__ import annotations

import random
import time

import pytest

from tests.fuzz import CHECKS, faults

SECONDS = 60.0
MOST_TRIES = 4_000


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_what_is_damaged_is_refused_or_read_and_nothing_else(name: str) -> None:
    chance = random.Random(name)
    until = time.monotonic() + SECONDS / len(CHECKS)
    for _ in range(MOST_TRIES):
        found = faults(name, chance)
        assert not found, found
        if time.monotonic() > until:
            return
