"""`antiphon recover`: what a killed process leaves behind, and what may safely be done about it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import PATIENCE_S, Place, killed_in_mid_answer
from tests.server.process import server_process


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def left_behind(place: Place) -> Iterator[Place]:
    """A database whose process was killed while an answer streamed."""
    place.do("chat", "hello")
    with killed_in_mid_answer(place, "/hold") as shown:
        assert shown
        yield place


def test_nothing_is_left_unknown_after_an_ordinary_talk(place: Place) -> None:
    place.say("hello", "/cut")
    told = place.do("recover")
    assert (told.code, told.out) == (0, "")
    assert "Nothing is in flight, and nothing is left to settle." in told.err


@pytest.mark.req("M60", "M63", "M93")
def test_a_dispatch_in_flight_is_listed_with_its_age_and_the_next_safe_step(
    left_behind: Place,
) -> None:
    told = left_behind.do("recover")
    assert told.code == 5
    (dispatch,) = left_behind.do("recover", "--json").json["dispatches"]
    assert dispatch["operation"] in told.out
    assert "settle it" in told.out
    assert dispatch["state"] in ("DISPATCHING", "SENT", "STREAMING")
    assert dispatch["age_ms"] >= 0
    assert dispatch["generation"] == 2
    assert dispatch["policy"] == ["connection", "deadline"]
    assert dispatch["actions"] == ["settle", "cancel"]
    assert dispatch["next"] == (
        "settle it (antiphon recover --settle, or any start): the connection that carried it is "
        "closed, and closing ends the call"
    )
    run = left_behind.do("show", dispatch["run"], "--json").json["run"]
    assert run["status"] == "pending", "looking must not settle anything"


@pytest.mark.req("M63", "M65")
def test_settling_ends_the_run_honestly_and_sends_nothing(left_behind: Place) -> None:
    (before,) = left_behind.do("recover", "--json").json["dispatches"]
    told = left_behind.do("recover", "--settle")
    assert told.code == 0
    assert f"{before['operation']}  settled" in told.out
    assert "outcome_unknown" in told.out
    explained = left_behind.do("show", before["run"], "--json").json
    assert (explained["run"]["status"], explained["run"]["error_code"]) == (
        "error",
        "outcome_unknown",
    )
    (operation,) = explained["operations"]
    (attempt,) = operation["attempts"]
    assert attempt["proof"]
    assert attempt["generation"] == before["generation"], "nothing was sent again"
    assert left_behind.do("recover", "--settle", "--json").json == {
        "held_by": None,
        "dispatches": [],
        "calls": [],
        "settled": [],
    }


def test_a_dispatch_of_a_living_process_is_its_own_business(place: Place) -> None:
    chat = place.start("chat", "--json", "/hold")
    try:
        assert chat.stdout is not None
        for line in chat.stdout:
            if json.loads(line)["event"] == "preview":
                break
        told = place.do("recover")
        assert told.code == 0
        assert "wait: a process is at work on it" in told.out
        assert f"Process {chat.pid} has this database open." in told.err
        refused = place.do("recover", "--settle")
        assert refused.code == 1
        assert "error[store_locked]" in refused.err
    finally:
        chat.kill()
        chat.communicate(timeout=PATIENCE_S)


def test_while_a_server_has_the_database_what_is_safe_is_done_through_it(place: Place) -> None:
    place.say("hello")
    with server_process(place.folder, "--db", str(place.db)) as server:
        told = place.do("recover", "--settle", "--json")
        assert told.code == 0
        assert told.json == {
            "held_by": str(server.process.pid),
            "dispatches": [],
            "calls": [],
            "settled": [],
        }
