"""Values that are written into statements come back as they were, whatever they are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import InvalidInput
from antiphon.stores.postgres.connections import close_connection, open_connection
from antiphon.stores.postgres.literals import literal
from antiphon.stores.postgres.statements import PostgresStatements
from tests.support.postgres import shared_server

pytestmark = pytest.mark.needs("postgres")

HOSTILE = [
    "\\",
    "\\'",
    "'",
    "''",
    "$1",
    "$2",
    "?",
    ":name",
    "--",
    "/*",
    "*/",
    "$$",
    "E'",
    "; ROLLBACK",
]
TEXTS = st.lists(
    st.sampled_from(HOSTILE)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
    max_size=6,
).map("".join)
INTEGERS = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture(scope="module")
def db() -> Iterator[PostgresStatements]:
    opened = open_connection(shared_server().database())
    opened.script("CREATE TEMPORARY TABLE kept (n bigint, said text, data bytea)")
    yield opened
    close_connection(opened)


@settings(deadline=None, max_examples=150)
@given(number=INTEGERS, said=TEXTS, data=st.binary(max_size=20))
def test_what_is_held_back_arrives_as_it_was(
    db: PostgresStatements, number: int, said: str, data: bytes
) -> None:
    db.script("DELETE FROM kept")
    db.execute("INSERT INTO kept (n, said, data) VALUES (?, ?, ?)", (number, said, data))
    db.execute(
        "UPDATE kept SET n = n WHERE said = :said AND data = :data", {"said": said, "data": data}
    )
    assert db.all("SELECT n, said, data FROM kept") == [(number, said, data)]


@pytest.mark.parametrize("number", [-1, 0, 1])
def test_a_sign_before_a_mark_makes_no_comment(db: PostgresStatements, number: int) -> None:
    assert db.one(f"SELECT 5 -{literal(number)}") == (5 - number,)


def test_a_text_that_no_column_holds_is_refused_before_it_is_sent(db: PostgresStatements) -> None:
    with pytest.raises(InvalidInput) as caught:
        db.execute("INSERT INTO kept (said) VALUES (?)", ("a\0b",))
    assert caught.value.code == "nul_character"
    assert db.one("SELECT 1") == (1,)
