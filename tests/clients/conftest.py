"""Clients of others leave sockets to the collector. They are collected here, beside their tests.

Elsewhere a socket that nobody has closed is an error, and would be one of whatever test runs when
the collector comes by. Nothing of ours may leave one: the tests beside these hold it to that.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    """Leave nothing of these clients to the tests of other modules."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
