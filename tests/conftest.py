"""What every test gets."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from blockbuster import blockbuster_ctx
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest_plugins = ["pytester", "tests.plugins.requirements", "tests.plugins.parts"]

# No deadline: the time that an example takes says more about the machine than about the code. On CI the same examples
# are drawn every time, so that a change is judged and not its luck.
settings.register_profile("antiphon", deadline=None, print_blob=True)
settings.register_profile(
    "ci", parent=settings.get_profile("antiphon"), derandomize=True, database=None
)
settings.load_profile("ci" if os.environ.get("CI") else "antiphon")


@pytest.fixture(autouse=True, scope="session")
def no_blocking_calls() -> Iterator[None]:
    """Raise where our own code blocks a running event loop: a file, a lock, a socket, a sleep, a database."""
    with blockbuster_ctx("antiphon") as found:
        for function in found.functions.values():
            # The loop of a thread that talks to PostgreSQL is nobody else's: it may look for a password file.
            function.can_block_in("asyncpg/connect_utils.py", {"_parse_connect_arguments"})
        yield
