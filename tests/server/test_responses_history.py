"""Many at once: nothing is lost, doubled, crossed or forked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.history import history


@pytest.mark.req("M53", "M75", "M78", "M92", "M93", "M134")
async def test_what_many_do_at_once_is_as_each_was_told(tmp_path: Path) -> None:
    made = await history(tmp_path, operations=400, clients=12, seed=1)
    assert len(made.told) > 100
    assert {"200", "409 response_not_finished"} <= set(made.codes)
