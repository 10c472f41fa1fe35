"""`antiphon show`: trees, runs and the exact bytes of what was sent."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from antiphon.engine.edge.rehearsal_model import LABEL
from tests.cli.commands import Place, text, upstream


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def branched(place: Place) -> Place:
    """A conversation with two answers, a failed question, and a stopped answer."""
    told = place.say("hello", "/regenerate", "/fail 400", "/title Zwei 分支")
    assert told.code == 4, told.err
    place.stop_in_mid_answer()
    return place


def test_conversations_are_listed_newest_first(place: Place) -> None:
    place.do("chat", "the first")
    place.do("chat", "the second")
    told = place.do("show")
    assert [line.split("  ")[-1] for line in told.out.splitlines()] == ["the second", "the first"]
    assert told.code == 0


@pytest.mark.req("M125", "M137")
def test_the_tree_shows_every_branch_and_what_came_to_nothing(branched: Place) -> None:
    told = branched.do("show", branched.tree()["conversation"]["id"])
    assert told.code == 0
    head, numbers, _, *rows = told.out.splitlines()
    assert head.endswith("Zwei 分支")
    assert "6 messages · 2 branches" in numbers
    question, first, second, refused, held, stopped, *_ = rows
    assert question.startswith("● you   hello")
    assert first.startswith("├─○ model Rehearsal model: you said “hello”")
    assert "\u2039 1/2 \u203a" in first
    assert second.startswith("└─● model Rehearsal model: you said “hello”")
    assert "\u2039 2/2 \u203a" in second
    assert "✗ you   /fail 400" in refused
    assert "● you   /hold" in held
    assert "◀ head" in held
    assert "◌ model Rehearsal model:" in stopped
    assert "● on the line" in told.out


def test_the_end_of_an_id_is_enough_and_two_that_fit_are_refused(branched: Place) -> None:
    message = branched.messages(role="assistant")[0]["id"]
    told = branched.do("show", message[-8:])
    assert told.code == 0
    assert told.out.startswith(message)
    several = branched.do("show", "")
    assert several.code == 2
    assert "error[ambiguous]" in several.err
    none = branched.do("show", "nothing-like-this")
    assert none.code == 2
    assert "error[not_found]" in none.err


@pytest.mark.req("M134", "M55", "M59", "M60")
def test_a_run_is_told_attempt_by_attempt(place: Place) -> None:
    assert place.do("chat", "/cut").code == 5
    run = place.tree()["runs"][0]["id"]
    told = place.do("show", run)
    lines = [line.split() for line in told.out.splitlines()]
    states = [words[2] for words in lines if len(words) > 2 and words[1] == "s"]
    one = ["PREPARED", "DISPATCHING", "SENT", "STREAMING"]
    assert states == [*one, "FAILED", *one, "CLOSED"]
    assert "outcome_unknown" in told.out
    assert "generation 1" in told.out
    assert "generation 2" in told.out


REFUSED = f"{LABEL}you asked for 400."


def test_a_refused_attempt_is_shown_with_the_words_of_its_provider(place: Place) -> None:
    assert place.do("chat", "/fail 400").code == 4
    run = place.tree()["runs"][0]["id"]
    assert f"it said: {REFUSED}" in place.do("show", run).out
    (operation,) = place.do("show", run, "--json").json["operations"]
    assert operation["attempts"][0]["said"] == {"message": REFUSED, "status": 400}


def test_what_is_said_of_a_broken_connection_is_not_put_into_a_provider_s_mouth(
    place: Place,
) -> None:
    place.do("chat", "cut 3")
    told = place.do("show", place.tree()["runs"][0]["id"]).out
    assert "the reason given: The connection was cut" in told
    assert "it said" not in told


def test_a_tool_turn_shows_the_call_and_its_result(place: Place) -> None:
    assert place.do("chat", "--tools", "demo", 'tool dice {"sides": 6}').code == 0
    told = place.do("show", place.tree()["runs"][0]["id"])
    assert 'dice {"sides": 6}  SUCCESS  ←' in told.out
    explained = place.do("show", place.tree()["runs"][0]["id"], "--json").json
    assert [call["state"] for call in explained["calls"]] == ["SUCCESS"]
    assert len(explained["operations"]) == 2


@pytest.mark.req("M51", "M54")
def test_the_request_is_printed_to_the_byte_that_the_provider_received(place: Place) -> None:
    with upstream(place) as received:
        place.say("hello 中文", "and “again”\t!")
        place.say("/regenerate")
    conversation = place.tree()["conversation"]["id"]
    newest = place.do("show", conversation, "--request")
    assert (newest.code, newest.err) == (0, "")
    received = [one for one in received if b"start_new" not in one.body]  # decisions beside
    assert newest.raw == received[-1].body
    told = place.do("show", place.tree()["runs"][0]["id"], "--json").json
    operation = told["operations"][0]["manifest"]["operation"]
    first = place.do("show", "--dispatch", operation)
    assert first.raw == received[0].body
    answer = place.messages(role="assistant")[1]["id"]
    assert place.do("show", answer, "--request").raw == received[1].body
    as_json = place.do("show", conversation, "--request", "--json").json
    assert as_json["body"].encode() == received[-1].body


def test_an_answer_names_the_request_that_it_answers_and_no_later_one(place: Place) -> None:
    with upstream(place) as received:
        place.do("chat", "--tools", "demo", 'tool dice {"sides": 6}')
    asked, answered = place.messages(role="assistant")
    assert place.do("show", asked["id"], "--request").raw == received[0].body
    assert place.do("show", answered["id"], "--request").raw == received[1].body
    question = place.messages(role="user")[0]["id"]
    assert place.do("show", question, "--request").raw == received[1].body, "its run's newest"


@pytest.mark.req("M51")
@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (
            "UPDATE message SET blocks = CAST(replace(blocks, 'hello', 'hallo') AS BLOB)",
            "digest_mismatch",
        ),
        ("UPDATE manifest SET model_revision = 'another'", "digest_mismatch"),
        ("DELETE FROM content", "content_missing"),
    ],
)
def test_a_request_that_is_not_what_was_recorded_is_not_printed(
    place: Place, damage: str, code: str
) -> None:
    place.do("chat", "hello")
    with closing(sqlite3.connect(place.db)) as db:
        db.execute(damage)
        db.commit()
    told = place.do("show", place.do("show", "--json").json[0]["id"], "--request")
    assert (told.code, told.out) == (1, "")
    assert f"error[{code}]" in told.err


def test_what_was_never_sent_is_not_shown_as_sent(place: Place) -> None:
    place.config = place.folder / "antiphon.toml"
    place.config.write_text('[models.away]\nbase_url = "http://127.0.0.1:9/v1"\n', encoding="utf-8")
    assert place.do("chat", "hello").code == 4
    told = place.do("show", place.tree()["conversation"]["id"], "--request")
    assert told.code == 2
    assert "Nothing was sent" in told.err


def test_the_plan_counts_what_went_in_and_what_stayed_out(branched: Place) -> None:
    branched.say("go on")
    told = branched.do("show", branched.tree()["conversation"]["id"], "--plan", "--json").json
    told = told["trace"]
    (block,) = told["blocks"]
    assert (block["kind"], block["sources"], block["cacheable"]) == ("transcript", 4, True)
    assert told["total_tokens"] == block["tokens"] > 0
    assert (told["window"], told["counted_by"]) == (32768, "estimate")
    page = branched.do("show", branched.tree()["conversation"]["id"], "--plan")
    assert "the talk" in page.out
    assert f"{told['total_tokens']} " in page.out
    assert "% of 32,768" in page.out


def test_the_plan_says_what_still_matches_and_that_a_session_begins_with_nothing_to_match(
    place: Place,
) -> None:
    place.say("hello", "again")
    conversation = place.tree()["conversation"]["id"]
    assert "still match" in place.do("show", conversation, "--plan").out
    place.say("/session new Another task", "go on")
    page = place.do("show", conversation, "--plan").out
    assert "no dispatch before it in its session to compare with" in page
    assert "still match" not in page


def test_deleted_messages_are_counted_among_what_stayed_out(place: Place) -> None:
    place.say("hello", "again")
    gone = place.messages(role="user")[0]["id"]
    place.say(f"/delete {gone}", "go on")
    told = place.do("show", place.tree()["conversation"]["id"], "--plan", "--json").json
    assert told["trace"]["left_out"] == [{"reason": "deletion", "count": 1}]
    page = place.do("show", place.tree()["conversation"]["id"], "--plan")
    assert "left out: 1 message: messages were deleted" in page.out


def test_nothing_is_changed_by_looking(branched: Place) -> None:
    before = branched.files()
    for more in ([], ["--json"], [branched.tree()["conversation"]["id"]]):
        assert branched.do("show", *more).code == 0
    assert branched.files() == before


def test_a_message_cannot_play_with_the_terminal(place: Place) -> None:
    place.do("chat", "-", given="\x1b[2Jgone\x07‮")
    told = place.do("show", place.tree()["conversation"]["id"])
    assert "\\x1b[2Jgone\\x07\\u202e" in told.out
    assert "\x1b" not in told.out
    message = place.messages(role="user")[0]
    assert text(message) == "\x1b[2Jgone\x07‮"
    assert "\x1b" not in place.do("show", message["id"]).out


def test_no_database_is_one_clear_error(place: Place) -> None:
    told = place.do("show")
    assert (told.code, told.out) == (1, "")
    assert "error[no_such_database]" in told.err
    assert list(place.folder.iterdir()) == []
