"""Several real nodes while their database is restarted, its disk is full, and clocks are set.

`make soak` does the same for longer: `python -m tests.server.calamities`.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.server.calamities import CALAMITIES, befallen, own_base
from tests.server.cluster import Cluster
from tests.server.nodes import shared

pytestmark = [pytest.mark.needs("postgres")]


@pytest.mark.req("M54", "M63", "M66", "M76", "M77", "M90", "M139")
async def test_whatever_befalls_the_database_or_the_clocks_there_is_one_story(
    tmp_path: Path,
) -> None:
    with own_base() as base:
        async with shared(tmp_path, base.server, skewed=True) as stage:
            cluster = Cluster(stage, random.Random(1))
            await cluster.start(2)
            await cluster.begin(3)
            wrong = {}
            for calamity in CALAMITIES:
                wrong[calamity.__name__] = await befallen(cluster, base, calamity, 16)
            assert not any(wrong.values()), (base.kind, wrong)
            assert cluster.did["clock"] == 2
