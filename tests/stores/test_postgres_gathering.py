"""What a batch says alike of several conversations goes as one statement, in an order that is true."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from asyncpg.exceptions import DivisionByZeroError, InFailedSQLTransactionError
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import InvalidInput
from antiphon.stores.postgres import open_postgres, writer
from antiphon.stores.postgres.connections import close_connection, open_connection
from antiphon.stores.postgres.gathering import Kind, Step, gathered
from antiphon.stores.postgres.statements import PostgresStatements
from tests.stores.talk import Talk, done
from tests.stores.test_postgres_literals import INTEGERS, TEXTS
from tests.support.postgres import shared_server


def said(kind: Kind, text: str, *about: str, row: int = 0) -> Step:
    return Step(kind, text, [(row,)], about)


def order(*steps: Step) -> list[tuple[str, int]]:
    return [(group.text, len(group.rows)) for group in gathered(steps)]


def test_what_is_said_alike_of_two_conversations_goes_together() -> None:
    assert order(
        said(Kind.EACH, "run", "a"),
        said(Kind.TOOK, "move", "a"),
        said(Kind.EACH, "run", "b"),
        said(Kind.TOOK, "move", "b"),
    ) == [("run", 2), ("move", 2)]


def test_nothing_goes_before_what_was_said_of_its_conversation_before() -> None:
    assert order(
        said(Kind.EACH, "run", "a"),
        said(Kind.TOOK, "move", "a"),
        said(Kind.TOOK, "move", "b"),
        said(Kind.EACH, "run", "b"),
        said(Kind.EACH, "run", "a"),
    ) == [("run", 1), ("move", 2), ("run", 2)]


def test_what_several_conversations_share_keeps_its_place_and_nothing_crosses_a_savepoint() -> None:
    assert order(
        said(Kind.EACH, "run", "a"),
        said(Kind.APART, "content", "a"),
        said(Kind.APART, "content", "b"),
        said(Kind.WHOLE, "SAVEPOINT request"),
        said(Kind.EACH, "run", "b"),
        said(Kind.EACH, "node"),
        said(Kind.EACH, "run", "c"),
    ) == [
        ("run", 1),
        ("content", 1),
        ("content", 1),
        ("SAVEPOINT request", 1),
        ("run", 1),
        ("node", 1),
        ("run", 1),
    ]


@pytest.fixture(scope="module")
def db() -> Iterator[PostgresStatements]:
    opened = open_connection(shared_server().database())
    opened.script("CREATE TEMPORARY TABLE kept (n bigint, said text, data bytea)")
    yield opened
    close_connection(opened)


@pytest.mark.needs("postgres")
@settings(deadline=None, max_examples=100)
@given(
    rows=st.lists(
        st.tuples(
            st.none() | INTEGERS,
            st.none() | st.sampled_from(["NULL", "", "{}", ",", '"']) | TEXTS,
            st.none() | st.binary(max_size=20),
        ),
        min_size=2,
        max_size=5,
    )
)
def test_rows_that_are_given_as_arrays_arrive_as_they_were(
    db: PostgresStatements, rows: list[tuple[Any, ...]]
) -> None:
    for _ in range(2):  # written out, then prepared
        db.script("DELETE FROM kept")
        db.insert("kept", ("n", "said", "data"), rows)
        assert db.all("SELECT n, said, data FROM kept ORDER BY ctid") == rows


@pytest.mark.needs("postgres")
@pytest.mark.req("M90")
def test_a_statement_that_could_not_be_prepared_is_prepared_when_it_comes_again(
    db: PostgresStatements,
) -> None:
    db.script("DELETE FROM kept")
    for number in range(2):  # the second time it is prepared, for one row
        db.insert("kept", ("said", "n"), [("one", number)])
        db.settle()
    db.script("BEGIN")
    with pytest.raises(DivisionByZeroError):
        db.script("SELECT 1 / 0")
    db.insert("kept", ("said", "n"), [("two", 2), ("three", 3)])
    with pytest.raises(InFailedSQLTransactionError):
        db.settle()
    db.script("ROLLBACK")
    db.insert("kept", ("said", "n"), [("two", 2), ("three", 3)])
    assert db.all("SELECT n FROM kept ORDER BY n") == [(0,), (1,), (2,), (3,)]


@pytest.mark.needs("postgres")
def test_a_text_that_no_column_holds_is_refused_before_it_waits_with_others(
    db: PostgresStatements,
) -> None:
    with pytest.raises(InvalidInput):
        db.insert("kept", ("n", "said"), [(1, "well"), (2, "a\0b")])
    assert db.one("SELECT 1") == (1,)


@pytest.mark.needs("postgres")
@pytest.mark.req("M90")
async def test_conversations_that_do_the_same_at_once_are_one_statement_a_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = await asyncio.to_thread(shared_server)
    address = await asyncio.to_thread(server.database)
    sent: list[str] = []
    written = PostgresStatements._written

    def heard(db: PostgresStatements, step: Any) -> Iterator[str]:
        texts = list(written(db, step))
        sent.extend([step.text] * len(texts))
        return iter(texts)

    monkeypatch.setattr(PostgresStatements, "_written", heard)
    monkeypatch.setattr(writer, "left_by", lambda tx: None)
    store = await open_postgres(address, count=1)
    talks = [await Talk.begin(store, f"conv_{number}") for number in range(5)]
    for talk in talks:
        talk.fence = talks[-1].fence

    async def turn(talk: Talk, number: int) -> None:
        parent = f"a{number - 1}" if number else None
        run, operation = f"run_{talk.conversation}_{number}", f"op_{talk.conversation}_{number}"
        asked, answer = f"m{number}", f"a{number}"
        revision = 2 * number
        *_, attempt = done(
            await store.do_all(
                talk.start(run, asked),
                talk.place(run, parent=parent, revision=revision),
                talk.prepare(run, operation, base=asked, revision=revision + 1, answer=answer),
                talk.accept(operation),
            )
        )
        store.submit(talk.written(operation, attempt.generation))
        store.submit(talk.opened(operation, attempt.generation))
        done(await store.do(talk.commit(operation, attempt.generation, talk.answer(answer))))

    for number in range(4):
        sent.clear()
        await asyncio.gather(*(turn(talk, number) for talk in talks))
    # Each statement once for the five that begin together and once for the five that commit.
    inserted = [text.split()[2] for text in sent if text.split()[0] == "INSERT"]
    assert sorted(inserted) == [
        "attempt",
        "event",
        "event",
        "manifest",
        "message",
        "message",
        "run",
    ]
    for talk in talks:
        assert [message.id for message in await store.tree(talk.conversation)] == [
            name for number in range(4) for name in (f"m{number}", f"a{number}")
        ]
    await store.close()
    await asyncio.to_thread(server.give_back, address)
