"""Three real nodes, clients that go to any of them, and one that is killed in mid-stream.

`make soak` does the same for longer: `python -m tests.server.cluster`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.cluster import lived

pytestmark = [pytest.mark.needs("postgres")]


@pytest.mark.req("M63", "M66", "M76", "M77", "M90", "M139")
async def test_whichever_node_is_asked_and_whichever_dies_there_is_one_story(
    tmp_path: Path,
) -> None:
    made = await lived(tmp_path, nodes=3, operations=40, clients=6, seed=1, kills=1)
    assert made.wrong == []
    assert made.did["kill"] == 1
    assert made.did["sent"] >= 10
