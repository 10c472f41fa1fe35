"""`antiphon erase`: what was said goes, and what is left says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import Place

SAID = "the rain in Spain"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    assert place.say(SAID, f"/title {SAID} again").code == 0
    return place


def conversation(place: Place) -> str:
    name: str = place.do("show", "--json").json[0]["id"]
    return name


def in_files(place: Place) -> bool:
    return any(SAID.encode() in path.read_bytes() for path in place.folder.glob("talk.db*"))


def test_what_was_said_is_gone_from_the_file_and_the_tree_says_so(place: Place) -> None:
    assert in_files(place)
    told = place.do("erase", conversation(place), "--json")
    assert told.code == 0, told.err
    assert told.json == {"conversations": [conversation(place)], "dry_run": False}
    assert not in_files(place)
    tree = place.do("show", conversation(place), "--json").json
    assert tree["conversation"]["erased_ms"] > 0
    assert [(m["erased"], m["blocks"]) for m in tree["messages"]] == [(True, [])] * 2
    page = place.do("show", conversation(place)).out
    assert "what was said is gone" in page
    assert page.count("(erased)") == 2
    assert "(erased)" in place.do("show").out


def test_the_request_of_an_erased_dispatch_is_refused_with_the_digest_that_stays(
    place: Place,
) -> None:
    name = conversation(place)
    digest = place.do("show", name, "--request", "--json").json["request_digest"]
    place.do("erase", name)
    for question in ("--request", "--plan"):
        told = place.do("show", name, question, "--json")
        assert told.code == 2
        assert told.json["error"]["code"] == "content_erased"
        assert digest in told.json["error"]["message"]
    run = place.do("show", name, "--json").json["runs"][0]["id"]
    assert place.do("show", run).code == 0


def test_doctor_finds_nothing_wrong_with_it_and_counts_it(place: Place) -> None:
    place.do("erase", conversation(place))
    told = place.do("doctor", "--json")
    assert told.code == 0, told.out
    assert any(note.startswith("1 conversation erased") for note in told.json["notes"])


def test_nothing_more_can_be_said_in_it(place: Place) -> None:
    place.do("erase", conversation(place))
    told = place.say("hello")
    assert "erased" in told.err + told.out
    assert len(place.do("show", conversation(place), "--json").json["messages"]) == 2


def test_an_export_tells_of_it_and_can_be_read_again(place: Place, tmp_path: Path) -> None:
    name = conversation(place)
    before = place.do("export").out
    place.do("erase", name)
    told = place.do("export")
    assert "2 messages of them erased" in told.err
    head, row, *messages = map(json.loads, told.out.strip().split("\n"))
    assert row["erased_ms"] > 0
    assert [m["erased"] for m in messages] == [True, True]
    (tmp_path / "other").mkdir()
    other = Place(tmp_path / "other")
    assert other.do("import", "-", given=told.out).code == 0
    tree = other.do("show", name, "--json").json
    assert [m["erased"] for m in tree["messages"]] == [True, True]
    assert tree["conversation"]["erased_ms"] == row["erased_ms"]
    assert other.do("doctor").code == 0
    assert json.loads(other.do("export").out.split("\n")[1])["erased_ms"] == row["erased_ms"]
    assert "imported 0 messages" in other.do("import", "-", given=told.out).out
    # An older export brings nothing back.
    again = place.do("import", "-", "--json", given=before)
    assert again.json["conversations"][0]["replayed"] == 2
    assert not in_files(place)
    del head


def test_a_dry_run_says_what_would_go_and_takes_nothing(place: Place) -> None:
    for wanted in ((conversation(place),), ("--tenant", "local")):
        told = place.do("erase", *wanted, "--dry-run", "--json")
        assert told.json == {"conversations": [conversation(place)], "dry_run": True}
    assert place.do("erase", "--older-than", "1", "--json").json["conversations"] == []
    assert place.do("erase", "--tenant", "other", "--json").json["conversations"] == []
    assert in_files(place)


def test_by_tenant_everything_goes_at_once(place: Place) -> None:
    told = place.do("erase", "--tenant", "local", "--json")
    assert told.json["conversations"] == [conversation(place)]
    assert not in_files(place)


@pytest.mark.parametrize("arguments", [(), ("conv_x", "--tenant", "local")])
def test_what_is_to_go_is_named_in_one_way(place: Place, arguments: tuple[str, ...]) -> None:
    told = place.do("erase", *arguments, "--json")
    assert (told.code, told.json["error"]["code"]) == (2, "usage")
    assert in_files(place)
