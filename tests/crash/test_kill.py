"""A real process is killed at every transition, and comes back.

Each scenario is first played undisturbed, which tells the points that it passes. Then it is
played again for each point that no scenario before it was killed at, with SIGKILL there. What
the upstream received, what the database holds and what the client remembers are compared by
`tests.crash.proof`. On a file the same process comes back; on PostgreSQL another node stands by and
takes over. `make soak` kills at every occurrence of every point, and recoveries too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.places import Databases, Files
from tests.crash.program import SCENARIOS
from tests.crash.proof import Lives, broken, evidences, several_lives

PLACES = [
    pytest.param(Files, id="sqlite"),
    pytest.param(Databases, id="postgres", marks=pytest.mark.needs("postgres")),
]
LEDGER = ("StartCall", "FinishCall", "ApproveCall", "PlaceResults", "WaitRun", "ResumeRun")
RECOVERY = ("before Lose #1", "after Lose #1", "before End #1", "after End #1", "before EndRun #1")


@pytest.fixture(scope="module", params=PLACES)
def several(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Lives]]:
    with several_lives(tmp_path_factory.mktemp("lives"), request.param) as running:
        yield running


@pytest.fixture
def lives(several: list[Lives]) -> Lives:
    return several[0]


@pytest.fixture(scope="module")
def killed_at(several: list[Lives]) -> dict[str, tuple[str, str]]:
    """Return the names of points, and the scenario that was killed there, at which of them."""
    return {}


def name_of(point: str) -> str:
    return point.rsplit(" #", 1)[0]


@pytest.mark.req("M54", "M55", "M56", "M57", "M58", "M59", "M60", "M63", "M68", "M76", "M77")
@pytest.mark.req("M88", "M89", "M90", "M139")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_anywhere_it_comes_back_with_nothing_lost_doubled_or_half(
    several: list[Lives], killed_at: dict[str, tuple[str, str]], scenario: str
) -> None:
    points = {name_of(point): point for point in reversed(several[0].points(scenario))}
    assert points, "the scenario passes no point at all"
    names = points.keys() - killed_at.keys()
    killed_at |= {name: (scenario, points[name]) for name in names}
    assert kept(several, scenario, [points[name] for name in names]) == {}


def kept(several: list[Lives], scenario: str, points: list[str]) -> dict[str, list[str]]:
    """Kill a scenario at each of these points; return the promises that were broken, and where."""
    promises: dict[str, list[str]] = {}
    for (_, point), evidence in evidences(several, [(scenario, point) for point in points]):
        assert evidence.killed, f"{point} was not reached: {evidence.log[-2000:]}"
        if found := broken(evidence):
            promises[point] = found
    return promises


@pytest.mark.req("M34", "M68", "M69", "M89", "M92")
def test_killed_between_any_two_effects_of_a_tool_turn_nothing_is_done_twice_or_lost_unsaid(
    several: list[Lives], killed_at: dict[str, tuple[str, str]]
) -> None:
    passed = several[0].points("tools")
    effects = [point for point in passed if " effect of " in point]
    assert len(effects) == 8, effects
    ledger = [point for point in passed if any(word in point for word in LEDGER)]
    left = {*effects, *ledger} - {at for by, at in killed_at.values() if by == "tools"}
    assert kept(several, "tools", sorted(left)) == {}


@pytest.mark.req("M63", "M65")
def test_a_recovery_that_is_killed_itself_is_recovered_from(several: list[Lives]) -> None:
    plans = [("text", "text shown #1", point) for point in RECOVERY]
    for (*_, point), evidence in evidences(several, plans):
        assert evidence.exits[1] < 0, f"recovery does not pass {point}"
        assert broken(evidence) == [], point


@pytest.mark.req("M54", "M56")
def test_killed_before_the_first_byte_leaves_nothing_was_sent(lives: Lives) -> None:
    evidence = lives.evidence("text", "before first byte #1")
    assert evidence.received_before == []
    assert broken(evidence) == []


@pytest.mark.req("M76", "M77")
def test_killed_in_mid_answer_it_was_sent_once_and_stays_so(lives: Lives) -> None:
    evidence = lives.evidence("text", "text shown #1")
    assert len(evidence.received_before) == 1
    assert evidence.received.count(evidence.received_before[0]) == 1
    assert broken(evidence) == []


@pytest.mark.req("M68")
def test_the_judge_sees_a_request_that_nobody_recorded(lives: Lives) -> None:
    evidence = lives.evidence("text", None)
    assert broken(evidence) == []
    evidence.received.append(evidence.received[0].replace(b"tree", b"tray"))
    assert any("recorded nowhere" in found for found in broken(evidence))


@pytest.mark.req("M68", "M69")
def test_the_judge_sees_an_effect_that_came_twice_and_one_that_never_came(lives: Lives) -> None:
    evidence = lives.evidence("tools", None)
    assert broken(evidence) == []
    done = list(evidence.effects)
    by_tool = {effect["tool"]: effect for effect in done}
    assert sorted(by_tool) == ["charge", "count", "light", "pay"]
    for tool in by_tool:
        evidence.effects = [effect for effect in done if effect["tool"] != tool]
        assert any("was run 0 times" in found for found in broken(evidence)), tool
    evidence.effects = [*done, by_tool["light"]]
    assert broken(evidence) == []
    for tool in ("charge", "pay"):
        evidence.effects = [*done, by_tool[tool]]
        assert f"{tool} was done 2 times" in broken(evidence)
    evidence.effects = [*done, {**by_tool["light"], "key": "another"}]
    assert any("a key of no such call" in found for found in broken(evidence))


def test_the_upstream_and_the_program_leave_nothing_running(tmp_path: Path) -> None:
    with Lives(tmp_path) as running:
        assert running.points("text")
        zygote, upstream = running._zygote, running._upstream._process
    assert zygote is not None
    assert upstream is not None
    assert (zygote.poll(), upstream.poll()) == (0, 0)
