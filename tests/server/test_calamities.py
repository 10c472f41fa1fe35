"""Several real nodes while their database is restarted, its disk is full, and clocks are set.

`make soak` does the same for longer: `python -m tests.server.calamities`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.calamities import CALAMITIES, lived

pytestmark = [pytest.mark.needs("postgres")]


@pytest.mark.req("M54", "M63", "M66", "M76", "M77", "M90", "M139")
async def test_whatever_befalls_the_database_or_the_clocks_there_is_one_story(
    tmp_path: Path,
) -> None:
    did, wrong = await lived(tmp_path, seed=1, operations=16)
    assert wrong == {}
    assert all(did[calamity.__name__] for calamity in CALAMITIES)
    assert did["clock"] == 2
    assert did["store: database_unreachable"] > 0
