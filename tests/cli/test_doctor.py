"""`antiphon doctor`: it finds what was damaged, and damages nothing."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from antiphon.stores.sqlite.lock import FileLock
from tests.cli.commands import Place, killed_in_mid_answer


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.say("hello", "/regenerate", 'tool dice {"sides": 6}', more=("--tools", "demo"))
    return place


def damage(place: Place, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(place.db)) as db:
        assert db.execute(statement, values).rowcount > 0
        db.commit()


def test_a_sound_database_is_found_sound(place: Place) -> None:
    told = place.do("doctor")
    assert told.code == 0
    assert "✓ messages    7 hashed again" in told.out
    assert "✓ manifests   4 hashed again" in told.out
    assert "✓ requests    1 rendered again, to the same bytes" in told.out
    assert told.out.rstrip().endswith("Nothing is wrong.")
    report = place.do("doctor", "--json").json
    assert report["ok"] is True
    assert report["problems"] == []
    assert report["facts"]["sqlite"] == sqlite3.sqlite_version


@pytest.mark.req("M28")
@pytest.mark.parametrize(
    ("statement", "code"),
    [
        (
            "UPDATE message SET blocks = CAST(replace(blocks, 'hello', 'hallo') AS BLOB) "
            "WHERE rowid = (SELECT min(place) FROM message)",
            "message_digest",
        ),
        (
            "UPDATE message SET digest = zeroblob(32) "
            "WHERE rowid = (SELECT max(place) FROM message)",
            "message_digest",
        ),
        (
            "UPDATE message SET path_digest = zeroblob(32) "
            "WHERE rowid = (SELECT min(place) FROM message)",
            "path_digest",
        ),
        (
            "UPDATE message SET blocks = x'ff' WHERE rowid = (SELECT max(place) FROM message)",
            "unreadable",
        ),
        ("UPDATE manifest SET model_revision = 'another'", "manifest_digest"),
        ("UPDATE content SET data = CAST(data || ' ' AS BLOB)", "content_digest"),
        ("DELETE FROM content", "content_missing"),
        ("UPDATE conversation SET head = 'msg_nowhere'", "dangling_head"),
        ("UPDATE conversation SET slot = 'run_nowhere'", "dangling_slot"),
        ("UPDATE conversation SET active_operation = 'op_nowhere'", "dangling_operation"),
        ("DELETE FROM event WHERE place = (SELECT max(place) - 1 FROM event)", "event_gap"),
        ("UPDATE run SET session = 'x', place = place + 1000 WHERE 1", "dangling_row"),
    ],
)
def test_whatever_was_changed_behind_our_back_is_found(
    place: Place, statement: str, code: str
) -> None:
    damage(place, statement)
    told = place.do("doctor")
    assert told.code == 1, told.out
    assert code in {problem["code"] for problem in place.do("doctor", "--json").json["problems"]}
    assert f"✗ {code}" in told.out


NEWEST = "(SELECT max(place) FROM run)"
CALL = (
    "INSERT INTO call (place, run, message, call_id, position, name, arguments, arguments_digest, "
    "generation, runner, read_only, idempotent, state, attempt, idempotency_key) SELECT "
    "place + {row}, {run}, place, 'c{row}', 0, 'ring', '{{}}', zeroblob(32), 1, 'function', 0, 0, "
    "'{state}', {attempt}, 'k{row}' FROM message WHERE base_revision IS NOT NULL LIMIT 1"
)


def a_call(state: str, attempt: int) -> str:
    """A call in the ledger that no message asks for, of a run that has ended."""
    return CALL.format(row=1, run=NEWEST, state=state, attempt=attempt)


MENDED = [
    ("UPDATE conversation SET head = 'msg_nowhere'", "dangling_head"),
    ("UPDATE conversation SET slot = 'run_nowhere'", "dangling_slot"),
    ("UPDATE conversation SET active_operation = 'op_nowhere'", "dangling_operation"),
    (
        "UPDATE attempt SET state = 'STREAMING' WHERE manifest = (SELECT max(place) FROM manifest)",
        "active_after_end",
    ),
    ("UPDATE conversation SET attempt_generation = 1", "generation_behind"),
    ("UPDATE conversation SET last_event = last_event - 2", "event_behind"),
    (
        "UPDATE message SET status = 'pending' WHERE kind LIKE 'user%' AND place = "
        "(SELECT max(place) FROM message WHERE kind LIKE 'user%')",
        "pending_after_end",
    ),
]


@pytest.mark.parametrize(("statement", "code"), MENDED, ids=[code for _, code in MENDED])
def test_what_the_other_rows_leave_no_doubt_about_is_mended_and_said_in_an_event(
    place: Place, statement: str, code: str
) -> None:
    damage(place, statement)
    before = place.do("doctor", "--json").json
    assert [p["code"] for p in before["problems"] if p["code"] == code]
    told = place.do("doctor", "--repair", "--json").json
    assert [p["code"] for p in told["repaired"]] == [code]
    if code != "active_after_end":  # whose answer is in the tree and says otherwise
        assert told["problems"] == []
    with closing(sqlite3.connect(place.db)) as db:
        (event,) = db.execute("SELECT data FROM event ORDER BY place DESC LIMIT 1").fetchone()
    assert json.loads(event) == {
        "type": "conversation.repaired",
        "code": code,
        "at": told["repaired"][0]["at"],
        "why": told["repaired"][0]["message"],
    }
    assert place.do("doctor", "--repair", "--json").json["repaired"] == []
    if code != "active_after_end":
        assert place.say("and on").code == 0


@pytest.mark.parametrize(
    ("state", "attempt", "becomes", "says"),
    [
        ("PENDING", 0, "CANCELED", "Not run"),
        ("EXECUTING", 1, "ERROR", "Nobody knows"),
        ("UNKNOWN", 1, "ERROR", "Nobody knows"),
    ],
)
def test_a_call_that_nobody_can_close_any_more_gets_a_result_that_says_what_is_known(
    place: Place, state: str, attempt: int, becomes: str, says: str
) -> None:
    damage(place, a_call(state, attempt))
    codes = {p["code"] for p in place.do("doctor", "--json").json["problems"]}
    assert codes == {"call_after_end", "call_unasked"}
    told = place.do("doctor", "--repair", "--json").json
    assert [p["code"] for p in told["repaired"]] == ["call_after_end"]
    # That nobody asked for the call is not mended: what the message said is not ours to change.
    assert [p["code"] for p in told["problems"]] == ["call_unasked"]
    with closing(sqlite3.connect(place.db)) as db:
        row = db.execute("SELECT state, code, content FROM call WHERE call_id = 'c1'").fetchone()
    assert row[:2] == (becomes, "repaired")
    assert says in row[2].decode()


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("UPDATE message SET base_revision = base_revision + 100", "answer_missing"),
        ("UPDATE message SET base_revision = base_revision + 100", "answer_unproven"),
        ("UPDATE run SET committed = committed + 1", "answers_miscounted"),
        ("UPDATE run SET committed = 0", "success_without_answer"),
        ("UPDATE session SET active = 0", "session_missing"),
        ("UPDATE run SET input = 'm_nowhere'", "input_missing"),
        ("DELETE FROM event WHERE place = (SELECT max(place) - 1 FROM event)", "event_gap"),
    ],
)
def test_what_is_lost_is_told_and_not_made_up(place: Place, statement: str, code: str) -> None:
    damage(place, statement)
    before = place.files()
    told = place.do("doctor", "--repair", "--json")
    assert told.code == 1
    assert code in {problem["code"] for problem in told.json["problems"]}
    assert told.json["repaired"] == []
    assert place.files() == before


def test_a_database_that_is_at_work_is_not_mended(place: Place) -> None:
    damage(place, "UPDATE conversation SET slot = 'run_nowhere'")
    lock = FileLock(place.db)
    lock.acquire()
    try:
        told = place.do("doctor", "--repair")
        assert told.code == 1
        assert "store_locked" in told.out
    finally:
        lock.release()
    assert "mended dangling_slot" in place.do("doctor", "--repair").out


def test_every_request_is_rendered_again_where_that_is_asked(place: Place) -> None:
    assert "✓ requests    1 rendered again" in place.do("doctor").out
    assert "✓ requests    4 rendered again" in place.do("doctor", "--thorough").out


def test_a_damaged_file_is_one_clear_problem(place: Place) -> None:
    with closing(sqlite3.connect(place.db)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(place.db.read_bytes())
    for at in range(4096, len(data) - 512, 1024):
        data[at : at + 512] = b"\xa5" * 512
    place.db.write_bytes(data)
    told = place.do("doctor", "--json")
    assert told.code == 1
    assert {problem["code"] for problem in told.json["problems"]} <= {"file_damaged", "corrupt"}
    place.db.write_bytes(b"this is no database at all" * 1000)
    told = place.do("doctor", "--json")
    assert told.code == 1
    assert [problem["code"] for problem in told.json["problems"]] == ["not_a_database"]


def test_what_a_dead_process_left_is_worth_knowing_and_not_wrong(place: Place) -> None:
    with killed_in_mid_answer(place, "/hold"):
        told = place.do("doctor", "--json")
    assert told.code == 0
    assert any("1 dispatch left by a process that died" in note for note in told.json["notes"])


def test_settings_that_cannot_be_read_are_a_problem(place: Place) -> None:
    place.config = place.folder / "antiphon.toml"
    place.config.write_text("colour = 1\n", encoding="utf-8")
    told = place.do("doctor")
    assert told.code == 1
    assert "✗ unknown_setting" in told.out
    place.config.write_text(
        '[models.fast]\napi_key_env = "NO_SUCH_KEY"\nmodel = "m"\n', encoding="utf-8"
    )
    told = place.do("doctor")
    assert told.code == 1
    assert "✗ key_missing" in told.out


def test_no_database_yet_is_nothing_wrong(tmp_path: Path) -> None:
    place = Place(tmp_path)
    told = place.do("doctor")
    assert told.code == 0
    assert "There is no database yet" in told.out
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_nothing_was_written_to_is_no_damaged_database(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.db.touch()
    told = place.do("doctor")
    assert told.code == 0
    assert "There is no database yet" in told.out


def test_a_folder_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    told = Place(tmp_path).do("doctor", "--db", str(tmp_path / "nowhere" / "talk.db"))
    assert told.code == 1
    assert "✗ no_such_directory" in told.out


def test_it_changes_nothing(place: Place) -> None:
    before = place.files()
    place.do("doctor")
    assert place.files() == before
