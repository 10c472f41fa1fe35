"""What a profile changed is listed for every dispatch, and costs what is new on its line."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from antiphon.core.blocks import Message, Origin, Reasoning, Role, Text, default_trust
from antiphon.core.ids import ConversationId, MessageId, SessionId
from antiphon.engine.keeping.explain import explain
from antiphon.errors import DigestMismatch, NotFound
from antiphon.handles.chat import Chat
from antiphon.handles.run import RunHandle
from antiphon.library import Antiphon
from antiphon.stores.sqlite.examine import examine
from tests.support.engines import app_on, talk
from tests.support.provider import ScriptedProvider, Step, chunk, says

HISTORIES = (50, 500)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "antiphon.db"


def a_message(chat: ConversationId, session: SessionId, number: int) -> Message:
    """Message `number` of a line; the model's have reasoning that this dialect leaves behind."""
    asked = number % 2 == 0
    role, origin = (Role.USER, Origin.CLIENT) if asked else (Role.ASSISTANT, Origin.MODEL)
    said = Text(text=f"word {number:06}")
    return Message(
        id=MessageId(f"m{number:06}"),
        conversation=chat,
        parent=MessageId(f"m{number - 1:06}") if number else None,
        role=role,
        blocks=(said,) if asked else (Reasoning(text=f"thought {number:06}"), said),
        origin=origin,
        trust=default_trust(role, origin),
        session=session,
        run=None,
        created_ms=1_700_000_000_000,
    )


async def with_history(app: Antiphon, messages: int) -> Chat:
    chat = await app.create()
    row = await app.engine.world.store.conversation(chat.id)
    made = [a_message(chat.id, row.session, number) for number in range(messages)]
    await app.engine.add_messages(chat.id, made, made[-1].id)
    return chat


def thinks() -> list[Step]:
    """An answer of which the next request leaves something behind."""
    return [chunk({"reasoning_content": "Hm."}), *says("Yes.")]


def stored_bytes(db: Path) -> int:
    """The bytes of every value of every row, whatever pages they lie on."""
    with sqlite3.connect(db) as file:
        tables = [
            name for (name,) in file.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        ]
        total = 0
        for table in tables:
            columns = [row[1] for row in file.execute(f"PRAGMA table_info({table})")]
            lengths = " + ".join(
                f"coalesce(length(CAST({column} AS BLOB)), 0)" for column in columns
            )
            total += file.execute(f"SELECT coalesce(sum({lengths}), 0) FROM {table}").fetchone()[0]
    return total


async def bytes_of_turns(db: Path, history: int) -> list[int]:
    """What each of four turns stores, once the whole line has been dispatched; the last is cold."""
    grown = []
    async with app_on(db, ScriptedProvider(*[thinks()] * 4)) as app:
        chat = await with_history(app, history)
        await talk(chat, "Hello?")
        for _ in range(3):
            before = await asyncio.to_thread(stored_bytes, db)
            await talk(chat, "Still?")
            grown.append(await asyncio.to_thread(stored_bytes, db) - before)
    async with app_on(db, ScriptedProvider(thinks())) as app:
        before = await asyncio.to_thread(stored_bytes, db)
        await talk(await app.conversation(chat.id), "Still?")
        grown.append(await asyncio.to_thread(stored_bytes, db) - before)
    return grown


async def test_the_bytes_that_a_turn_stores_do_not_grow_with_the_history(tmp_path: Path) -> None:
    short, long = [await bytes_of_turns(tmp_path / f"{n}.db", n) for n in HISTORIES]
    assert max(short) > 1000, "a turn stores something"
    assert max(long) < max(short) * 1.1


@pytest.mark.req("M50")
async def test_every_mapping_of_a_dispatch_is_told(db: Path) -> None:
    wanted = [f"m{number:06}.0" for number in range(1, 50, 2)]
    async with app_on(db, ScriptedProvider(says("One."), says("Two."))) as app:
        chat = await with_history(app, 50)
        for _ in range(2):
            run = await chat.send("Go on")
            await run.result()
            (told,) = (await run.explain()).operations
            assert [m.block for m in told.mappings] == wanted
            assert {m.rule for m in told.mappings} == {"reasoning_dropped"}


async def one_dispatch(db: Path) -> RunHandle:
    async with app_on(db, ScriptedProvider(says("One."))) as app:
        run = await (await with_history(app, 10)).send("Go on")
        await run.result()
        return run


def damage(db: Path, statement: str) -> list[str]:
    """Change the file behind our back, and say what an examination finds."""
    with sqlite3.connect(db) as file:
        assert file.execute(statement).rowcount == 1
    return [problem.code for check in examine(db) for problem in check.problems]


LIST = "CAST(data AS TEXT) LIKE '%reasoning_dropped%'"


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        (
            "UPDATE content SET data = "
            f"CAST(replace(CAST(data AS TEXT), 'm000003', 'm000005') AS BLOB) WHERE {LIST}",
            "content_digest",
        ),
        (f"UPDATE content SET data = x'ff' WHERE {LIST}", "content_digest"),
        (f"DELETE FROM content WHERE {LIST}", "content_missing"),
    ],
)
async def test_a_list_that_is_not_what_was_recorded_is_found_and_not_told(
    db: Path, statement: str, code: str
) -> None:
    run = await one_dispatch(db)
    assert await asyncio.to_thread(damage, db, statement) == [code]
    async with app_on(db, ScriptedProvider()) as app:
        with pytest.raises((DigestMismatch, NotFound)):
            await explain(app.engine.world, run.id)
