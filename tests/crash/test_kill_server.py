"""The real server is killed at every transition while a client streams from it, and comes back.

On a file the next process comes back to it; on PostgreSQL another node takes over what the dead one
held. Here each kind of point is tried once, on PostgreSQL those behind a transition; `make soak` goes
through every occurrence of all of them, on both.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.places import Databases, Files
from tests.crash.visits import Servers, killed_at, points_of

PLACES = [
    pytest.param(Files, id="sqlite"),
    pytest.param(Databases, id="postgres", marks=pytest.mark.needs("postgres")),
]


@pytest.fixture(scope="module", params=PLACES)
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Servers]:
    with Servers(tmp_path_factory.mktemp("servers"), request.param()) as running:
        yield running


@pytest.fixture(scope="module")
def tried(servers: Servers) -> set[str]:
    """Return the kinds of points at which a server was killed already."""
    return set()


@pytest.mark.req("M63", "M75", "M77", "M78")
@pytest.mark.parametrize("tools", [False, True], ids=["text", "client's tool"])
async def test_killed_at_any_transition_the_server_comes_back_to_a_client_that_misses_nothing(
    servers: Servers, tried: set[str], tools: bool
) -> None:
    passed = await points_of(servers, tools=tools)
    points = {point.rsplit(" #", 1)[0]: point for point in reversed(passed)}
    assert len(points) > 15
    kinds = {kind for kind in points if not (servers.place.shared and kind.startswith("before "))}
    promises = {}
    for kind in sorted(kinds - tried):
        tried.add(kind)
        if broken := await killed_at(servers, points[kind], tools=tools):
            promises[points[kind]] = broken
    assert promises == {}
