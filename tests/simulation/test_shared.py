"""Simulated histories on PostgreSQL: the same as in a file, line by line; and with a failing driver.

`python -m tests.simulation --shared` lives through as many as is asked.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.simulation.history import History, simulate, simulate_shared
from tests.support.postgres import shared_server

pytestmark = [pytest.mark.needs("postgres")]

ALIKE = range(2, 5)
FAILING = range(20, 27)


@pytest.fixture(autouse=True)
def no_news_of_bad_weather() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def shared(seed: int, *, faults: bool) -> History:
    server = shared_server()
    address = server.database()
    try:
        return simulate_shared(seed, address, faults=faults)
    finally:
        server.give_back(address)


@pytest.mark.req("M52", "M54", "M90")
def test_both_stores_live_the_same_history_line_by_line() -> None:
    for seed in ALIKE:
        filed, here = simulate(seed), shared(seed, faults=False)
        assert here.lines == filed.lines, seed
        assert here.broken == filed.broken == [], seed


@pytest.mark.req("M54", "M63", "M76", "M77", "M90", "M139")
def test_whatever_the_driver_does_every_promise_is_kept() -> None:
    broken = {}
    seen: Counter[str] = Counter()
    for seed in FAILING:
        history = shared(seed, faults=True)
        seen += history.counts
        if history.broken:
            broken[f"python -m tests.simulation --shared --seed {seed} --trace"] = history.broken
    assert broken == {}
    assert seen["driver"] > 5


def test_what_the_driver_does_follows_from_the_seed_too() -> None:
    once, again = shared(22, faults=True), shared(22, faults=True)
    assert once.counts["driver"] > 0
    assert once.lines == again.lines
