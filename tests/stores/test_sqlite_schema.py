"""The invariants as constraints: the database itself refuses what no command would ever write."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.core.commands import OpenResponse, Then
from antiphon.core.ids import OperationId, ResponseId, RunId
from antiphon.stores.base import Store
from antiphon.stores.sql.transaction import Transaction
from antiphon.stores.sqlite import open_sqlite
from antiphon.stores.sqlite.connections import constraint, open_writer
from antiphon.stores.sqlite.statements import SqliteStatements
from tests.stores.talk import Talk


@pytest.fixture
async def database(tmp_path: Path) -> Path:
    """A conversation with a closed turn that had a tool, and one more in flight."""
    store = await open_sqlite(tmp_path / "a.db", synchronous="OFF")
    await furnish(store)
    await store.close()
    return tmp_path / "a.db"


async def furnish(store: Store) -> None:
    """Write a conversation with a closed turn that had a tool, and one more in flight."""
    talk = await Talk.begin(store)
    await talk.answered(calls=("call_1",), then=Then.CONTINUE)
    await talk.do(talk.finish_call("run_1", "call_1", outside=True))
    await talk.do(talk.place_results("run_1", "r1"))
    await talk.do(talk.prepare("run_1", "op_2", base="r1", revision=3, answer="a2"))
    await talk.do(talk.accept("op_2"))
    await talk.do(OpenResponse(**talk.head(), response=ResponseId("resp_1"), run=RunId("run_1")))


@pytest.fixture
def writer(database: Path) -> Iterator[sqlite3.Connection]:
    connection = open_writer(database)
    yield connection
    connection.close()


COPY = {
    "message": """INSERT INTO message SELECT place + 100, {parent}, depth, 'x', kind, status, session, run,
        created_ms, blocks, error_code, extra, digest, path_digest, {base} FROM message WHERE id = 'a1'""",
    "attempt": """INSERT INTO attempt SELECT manifest, 9, purpose, {generation}, '{state}', handle, node, epoch,
        deadline_ms, sent_again, proof, error_code, prepared_ms, accepted_ms, written_ms, opened_ms,
        ended_ms, answer, used, said FROM attempt WHERE generation = 1""",
}

ATTACKS = {
    "message_one_canonical": COPY["message"].format(parent="parent", base="base_revision"),
    "message_id": "UPDATE message SET id = 'm1' WHERE id = 'a1'",
    "message_parent_before": COPY["message"].format(parent="place + 200", base="NULL"),
    "message_parent_here": COPY["message"].format(parent="1", base="NULL"),
    "foreign_key": COPY["message"].format(parent="place + 50", base="NULL"),
    "attempt_one_active": COPY["attempt"].format(generation=0, state="SENT"),
    "attempt_generation": COPY["attempt"].format(generation=1, state="PREPARED"),
    "attempt_number": "UPDATE attempt SET manifest = (SELECT min(manifest) FROM attempt)",
    "run_id": """INSERT INTO run (place, id, kind, status, options, at_root, seq, created_ms)
        SELECT place + 1, id, kind, status, options, at_root, seq, created_ms FROM run""",
    "run_ended": "UPDATE run SET status = 'success'",
    "manifest_operation": "UPDATE manifest SET operation = 'op_1'",
    "conversation_id": """INSERT INTO conversation (id, tenant, session, created_ms, updated_ms)
        SELECT id, tenant, session, 0, 0 FROM conversation""",
    "call_id": """INSERT INTO call SELECT place + 1, run, message, call_id, 1, name, arguments,
        arguments_digest, generation, runner, read_only, idempotent, state, attempt, node, epoch,
        deadline_ms, idempotency_key, code, content, ended_ms, repeatable, approval,
        changed_arguments, max_result_chars, reused_from, erased FROM call""",
    "call_ended": "UPDATE call SET state = 'PENDING'",
    "response_id": """INSERT INTO response SELECT place + 1, id, run, previous, since, request,
        input, stored, created_ms, deleted FROM response""",
    "session_one_active": """INSERT INTO session (place, id, active, created_ms)
        SELECT place + 1, 'sess_x', 1, 0 FROM session""",
}


@pytest.mark.req("M53", "M90", "M127")
@pytest.mark.parametrize("name", ATTACKS)
def test_what_no_command_would_write_is_refused_by_a_constraint_with_a_name(
    name: str, writer: sqlite3.Connection
) -> None:
    with pytest.raises(sqlite3.IntegrityError) as caught:
        writer.execute(ATTACKS[name])
    assert constraint(caught.value) == name


def test_the_same_writes_pass_where_they_break_nothing(writer: sqlite3.Connection) -> None:
    # Or else the attacks above would prove only that they are misspelled.
    for statement in (
        COPY["message"].format(parent="parent", base="NULL"),
        COPY["attempt"].format(generation=0, state="FAILED"),
        "UPDATE message SET id = 'other' WHERE id = 'a1'",
        "UPDATE run SET status = 'success', ended_ms = 1",
        "UPDATE call SET state = 'PENDING', ended_ms = NULL",
        "INSERT INTO session (place, id, active, created_ms) SELECT place + 1, 'sess_x', 0, 0 FROM session",
    ):
        assert writer.execute(statement).rowcount == 1


def test_only_canonical_answers_carry_their_base_revision(writer: sqlite3.Connection) -> None:
    rows = writer.execute("SELECT id, base_revision FROM message ORDER BY place").fetchall()
    assert rows == [("m1", None), ("a1", 1), ("r1", None)]


@pytest.mark.req("M54")
def test_the_writer_waits_for_the_disk(writer: sqlite3.Connection) -> None:
    settings = {
        name: writer.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "foreign_keys", "page_size")
    }
    assert settings == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "page_size": 512,
    }


def test_every_lookup_of_a_command_uses_an_index(writer: sqlite3.Connection) -> None:
    # A turn in a conversation of 100,000 messages costs what one in 10 does.
    seen: set[str] = set()
    writer.set_trace_callback(seen.add)
    tx = Transaction(SqliteStatements(writer), lambda: b"key")
    c = tx.conversation(Talk.conversation_id())
    run = tx.run(c, tx.run_at((1 << 32) + 1).id)
    tx.calls_of_run(c, run)
    tx.newest_attempt(run.operation)
    tx.attempt(c.id, OperationId("op_1"))
    for message in ("a1", "nothing"):
        tx.node(c.number, message)  # type: ignore[arg-type]  # an id
        tx.message(c, message)  # type: ignore[arg-type]  # an id
    tx.deletions(c.number)
    for table in ("message", "run", "manifest", "call", "response", "quarantine"):
        tx.next_place(table, c.number)
    writer.set_trace_callback(None)
    assert len(seen) > 10
    for statement in seen:
        plan = [row[3] for row in writer.execute(f"EXPLAIN QUERY PLAN {statement}")]
        assert not [step for step in plan if step.startswith("SCAN")], (statement, plan)
