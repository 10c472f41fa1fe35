"""`antiphon demo`: every claim is measured, and a claim that does not hold fails it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from antiphon.cli import demo
from antiphon.cli.demo.claims import LAST_TURN, LONG_TURN, TOOL_TURN, Claim, Facts, judge
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


GOOD = Facts(
    said={"a": "→", "b": "dice answered"},
    half="Rehearsal model: word1 “word2”",
    stored={"q": TOOL_TURN, "a": "→", "b": "dice answered", "l": LONG_TURN, "h": LAST_TURN},
    tool_starts=[1],
    dispatched=[b"1", b"2", b"3", b"4 hello again"],
    received=[b"1", b"2", b"3", b"4 hello again"],
)


def broken(facts: Facts) -> list[str]:
    return [claim.claim for claim in judge(facts) if not claim.held]


def test_facts_as_they_should_be_break_no_claim() -> None:
    assert broken(GOOD) == []


@pytest.mark.parametrize(
    ("facts", "claims"),
    [
        (replace(GOOD, said={**GOOD.said, "c": "gone"}), ["nothing lost"]),
        (replace(GOOD, said={**GOOD.said, "b": "other words"}), ["nothing lost"]),
        (replace(GOOD, said={}), ["nothing lost"]),
        (
            replace(GOOD, stored={n: t for n, t in GOOD.stored.items() if n != "l"}),
            ["nothing lost"],
        ),
        (replace(GOOD, stored={**GOOD.stored, "l2": LONG_TURN}), ["nothing doubled"]),
        (replace(GOOD, tool_starts=[2]), ["nothing doubled"]),
        (replace(GOOD, tool_starts=[1, 1]), ["nothing doubled"]),
        (replace(GOOD, stored={**GOOD.stored, "x": f"{GOOD.half} word3"}), ["nothing half"]),
        (
            replace(
                GOOD,
                dispatched=[*GOOD.dispatched[:3], f"hello again {GOOD.half}".encode()],
                received=[*GOOD.received[:3], f"hello again {GOOD.half}".encode()],
            ),
            ["nothing half"],
        ),
        (replace(GOOD, half=""), ["nothing half"]),
        (
            replace(GOOD, received=[*GOOD.received, b"3"]),
            ["sent once", "to the byte"],
        ),
        (
            replace(GOOD, received=[*GOOD.received, b"3"], dispatched=[*GOOD.dispatched, b"3"]),
            ["sent once"],
        ),
        (replace(GOOD, received=[b"1", b"2", b"X", b"4 hello again"]), ["to the byte"]),
    ],
)
def test_each_wrong_fact_breaks_its_claim(facts: Facts, claims: list[str]) -> None:
    assert broken(facts) == claims


def test_a_claim_that_does_not_hold_is_said_and_the_exit_code_is_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(stage: object) -> list[Claim]:
        return [
            Claim(claim="one", held=True, measured="1 of 1"),
            Claim(claim="two", held=False, measured="0 of 1"),
        ]

    monkeypatch.setattr(demo._Stage, "play", play)
    place = Place(tmp_path)
    told = place.do("demo")
    assert told.code == 1
    assert "✗ two" in told.out
    as_json = place.do("demo", "--json")
    assert as_json.code == 1
    assert as_json.json["ok"] is False
