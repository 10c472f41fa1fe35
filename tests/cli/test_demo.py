"""`antiphon demo`: every claim is measured, and a claim that does not hold fails it."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.cli import demo
from tests.cli.commands import PATIENCE_S, Place


@pytest.mark.req("M77", "M73", "M88", "M89")
def test_every_claim_holds_and_the_killed_process_was_really_killed(tmp_path: Path) -> None:
    place = Place(tmp_path)
    show = place.start("demo")
    out, err = (text.decode() for text in show.communicate(timeout=3 * PATIENCE_S))
    assert (show.returncode, err) == (0, ""), out
    assert "exit -9" in out
    assert out.count("✓") == 5
    assert "✗" not in out
    for claim in ("nothing lost", "nothing doubled", "nothing half", "sent once", "to the byte"):
        assert f"✓ {claim}" in out
    assert "the model received 4 requests for 4 dispatches, 4 of them different" in out
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"


def test_a_claim_that_does_not_hold_is_said_and_the_exit_code_is_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(stage: object) -> list[demo.Claim]:
        return [
            demo.Claim(claim="one", held=True, measured="1 of 1"),
            demo.Claim(claim="two", held=False, measured="0 of 1"),
        ]

    monkeypatch.setattr(demo._Stage, "play", play)
    place = Place(tmp_path)
    told = place.do("demo")
    assert told.code == 1
    assert "✗ two" in told.out
    as_json = place.do("demo", "--json")
    assert as_json.code == 1
    assert as_json.json["ok"] is False
