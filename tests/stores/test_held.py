"""What a transaction holds back is written once, as it stands in the end, and before anybody looks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from antiphon.core.commands import EraseConversation, PutContent, Then
from antiphon.core.ids import RunId
from antiphon.core.records import CallState
from antiphon.stores.sql.held import Held
from antiphon.stores.sql.statements import Parameters, Row, insertion
from antiphon.stores.sql.transaction import Transaction
from antiphon.stores.sqlite import open_sqlite
from antiphon.stores.sqlite.statements import SqliteStatements
from tests.stores.talk import Talk, a_digest, done


class Heard(SqliteStatements):
    """Notes what is written, and asks no database."""

    def __init__(self) -> None:
        self.written: list[tuple[str, list[Row]]] = []

    def many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        self.written.append((sql, [tuple(row) for row in rows]))

    def insert(self, table: str, columns: tuple[str, ...], rows: Sequence[Row]) -> None:
        self.written.append((insertion(table, columns), list(rows)))

    def one(self, sql: str, parameters: Parameters = ()) -> Row | None:
        self.written.append((sql, []))
        return None


def test_a_row_that_changes_again_and_again_is_written_once_as_it_stands_in_the_end() -> None:
    held, db = Held(), Heard()
    held.change("run", 7, {"leaf": "a", "status": "pending"})
    held.change("run", 7, {"leaf": "b"})
    assert held
    held.write(db)
    assert db.written == [
        ("UPDATE run SET leaf = ?, status = ? WHERE place = ?", [("b", "pending", 7)])
    ]
    assert not held
    held.write(db)
    assert len(db.written) == 1


def test_a_new_row_that_changes_is_inserted_as_it_stands_then() -> None:
    held, db = Held(), Heard()
    held.insert("call", 1, {"place": 1, "state": "PENDING"})
    held.insert("call", 2, {"place": 2, "state": "PENDING"})
    held.change("call", 2, {"state": "EXECUTING"})
    held.write(db)
    assert db.written == [
        ("INSERT INTO call (place, state) VALUES (?, ?)", [(1, "PENDING"), (2, "EXECUTING")])
    ]


def test_what_changes_alike_goes_together_and_nothing_is_inserted_before_what_it_names() -> None:
    held, db = Held(), Heard()
    held.change("call", 1, {"state": "SUCCESS"})
    held.change("call", 2, {"state": "ERROR", "code": "no"})
    held.change("call", 3, {"state": "ERROR"})
    held.insert("call", 4, {"place": 4})
    held.insert("message", 5, {"place": 5})
    held.insert("run", 6, {"place": 6})
    held.write(db)
    assert db.written == [
        ("INSERT INTO run (place) VALUES (?)", [(6,)]),
        ("INSERT INTO message (place) VALUES (?)", [(5,)]),
        ("INSERT INTO call (place) VALUES (?)", [(4,)]),
        ("UPDATE call SET state = ? WHERE place = ?", [("SUCCESS", 1), ("ERROR", 3)]),
        ("UPDATE call SET state = ?, code = ? WHERE place = ?", [("ERROR", "no", 2)]),
    ]


def test_no_statement_sees_a_row_as_it_was() -> None:
    db = Heard()
    tx = Transaction(db, lambda: b"key")
    tx._held.change("run", 7, {"leaf": "a"})
    tx.one("SELECT leaf FROM run")
    assert [sql.split()[0] for sql, _ in db.written] == ["UPDATE", "SELECT"]


async def test_calls_that_begin_as_their_message_is_committed_are_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    many = SqliteStatements.many

    def heard(self: SqliteStatements, sql: str, rows: Sequence[Sequence[object]]) -> None:
        written.append(sql)
        many(self, sql, rows)

    monkeypatch.setattr(SqliteStatements, "many", heard)
    store = await open_sqlite(tmp_path / "held.db")
    talk = await Talk.begin(store)
    ids = ("call_1", "call_2", "call_3")
    generation = (await talk.streaming()).generation
    commit = talk.commit("op_1", generation, talk.answer("a1", *ids), then=Then.CONTINUE)
    done(await store.do_all(commit, *(talk.start_call("run_1", one) for one in ids)))
    await store.close()
    assert not [sql for sql in written if sql.startswith("UPDATE call")]
    # Asked of another store, for the first one answers from memory.
    witness = await open_sqlite(tmp_path / "held.db", read_only=True)
    calls = await witness.calls(talk.conversation, RunId("run_1"))
    await witness.close()
    assert [(call.call_id, call.state) for call in calls] == [
        (one, CallState.EXECUTING) for one in ids
    ]


async def test_content_that_a_conversation_has_had_stored_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    many = SqliteStatements.many

    def heard(self: SqliteStatements, sql: str, rows: Sequence[Sequence[object]]) -> None:
        written.append(sql)
        many(self, sql, rows)

    monkeypatch.setattr(SqliteStatements, "many", heard)
    store = await open_sqlite(tmp_path / "held.db")
    talk, other = await Talk.begin(store), await Talk.begin(store, "conv_2")
    item = (a_digest("rules"), b"rules")
    for _ in range(3):
        await talk.do(PutContent(**talk.head(), items=(item,)))
    await other.do(PutContent(**other.head(), items=(item,)))
    assert [sql.split()[2] for sql in written if "INTO content" in sql] == [
        "content", "content_use",
        "content", "content_use",
    ]  # fmt: skip
    await talk.do(EraseConversation(**talk.head()))
    assert await store.content(talk.tenant(), item[0]) == b"rules"
    await store.close()
