"""A minute of `make fuzz`: nothing that comes from outside raises anything but our own errors."""

from __future__ import annotations

import random
import time

import pytest

from tests.fuzz import CHECKS, Check, faults

SECONDS = 60.0
MOST_TRIES = 4_000


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_what_is_damaged_is_refused_or_read_and_nothing_else(check: Check) -> None:
    chance = random.Random(check.__name__)
    until = time.monotonic() + SECONDS / len(CHECKS)
    for _ in range(MOST_TRIES):
        found = faults(check, chance)
        assert not found, found
        if time.monotonic() > until:
            return
