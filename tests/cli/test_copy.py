"""`antiphon copy`: all of a database or nothing, bit for bit, into an empty one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from antiphon.stores.sql import copying
from antiphon.stores.sql.statements import Statements
from antiphon.stores.sqlite.lock import FileLock
from tests.cli.commands import Place
from tests.support.postgres import shared_server


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.say("hello", "/regenerate", 'tool dice {"sides": 6}', more=("--tools", "demo"))
    place.say("and on")
    return place


def rows(db: Path) -> dict[str, list[tuple[object, ...]]]:
    with closing(sqlite3.connect(db)) as connection:
        tables = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            if name != "migration"
        ]
        return {
            table: sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr)
            for table in tables
        }


def test_everything_arrives_and_the_talk_goes_on_there(place: Place) -> None:
    there = place.folder / "there.db"
    before = place.files()["talk.db"]
    told = place.do("copy", str(place.db), f"sqlite:///{there}", "--json")
    assert told.code == 0, told.err
    assert told.json["rows"]["conversation"] == len(rows(place.db)["conversation"])
    assert rows(there) == rows(place.db)
    assert place.files()["talk.db"] == before
    assert place.do("doctor", "--thorough", "--db", str(there)).code == 0
    shown = place.do("show", "--json").json
    assert place.do("show", "--json", "--db", str(there)).json == shown
    assert place.do("chat", "-c", "--db", str(there), "and there").code == 0


def test_a_target_that_holds_anything_is_refused_and_stays_as_it_is(place: Place) -> None:
    there = place.folder / "there.db"
    assert place.do("copy", str(place.db), str(there)).code == 0
    before = rows(there)
    told = place.do("copy", str(place.db), str(there))
    assert told.code == 3
    assert "error[not_empty]" in told.err
    assert rows(there) == before


def test_what_a_server_has_open_is_refused(place: Place) -> None:
    there = place.folder / "there.db"
    lock = FileLock(place.db)
    lock.acquire()
    try:
        told = place.do("copy", str(place.db), str(there))
        assert told.code == 1
        assert "error[store_locked]" in told.err
        assert not there.exists()
    finally:
        lock.release()


def test_a_source_that_is_not_there_and_one_that_is_the_target_are_refused(place: Place) -> None:
    told = place.do("copy", str(place.folder / "nowhere.db"), str(place.folder / "there.db"))
    assert "error[no_such_database]" in told.err
    assert sorted(path.name for path in place.folder.glob("*.db")) == ["talk.db"]
    assert "error[usage]" in place.do("copy", str(place.db), f"sqlite:///{place.db}").err


def test_a_row_that_would_arrive_otherwise_stops_all_of_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = place.folder / "there.db"
    insert = copying._insert

    def loses_one(db: Statements, table: copying.Table, batch: object) -> None:
        some = list(batch)  # type: ignore[call-overload]
        insert(db, table, some[:-1] if table.name == "event" else some)

    monkeypatch.setattr(copying, "_insert", loses_one)
    told = place.do("copy", str(place.db), str(there))
    assert told.code == 1
    assert "error[digest_mismatch]" in told.err
    assert not there.exists()


def test_damage_is_copied_as_it_is_and_no_more_is_made_of_it(place: Place) -> None:
    there = place.folder / "there.db"
    with closing(sqlite3.connect(place.db)) as db:
        db.execute("UPDATE conversation SET head = 'msg_nowhere'")
        db.commit()
    assert place.do("copy", str(place.db), str(there)).code == 0
    (problem,) = {
        p["code"] for p in place.do("doctor", "--json", "--db", str(there)).json["problems"]
    }
    assert problem == "dangling_head"


@pytest.mark.needs("postgres")
def test_from_a_file_to_postgresql_and_back_not_a_bit_is_lost(place: Place) -> None:
    server, back = shared_server(), place.folder / "back.db"
    address = server.database()
    try:
        assert place.do("copy", str(place.db), address).code == 0
        report = place.do("doctor", "--thorough", "--json", "--db", address).json
        assert report["problems"] == []
        assert "error[not_empty]" in place.do("copy", str(place.db), address).err
        assert place.do("copy", address, str(back)).code == 0
        assert rows(back) == rows(place.db)
        assert place.do("chat", "--db", address, "and a new one there").code == 0
    finally:
        server.give_back(address)
