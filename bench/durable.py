"""G8 to G10: what one more durable turn costs, however long the conversation is.

Ours is the whole engine over the real store: the run and its input, two model calls with every
state of their dispatch, the ledger's row for the tool call, its result, the answer. The
provider answers from memory, so that only our own work is counted. A rival reads its history,
as a run does, and appends the same four messages; a floor only appends.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import islice
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import TypeAlias

from agents import SQLiteSession

from antiphon.core.asking import Ask
from antiphon.engine.assembly import open_world
from antiphon.engine.engine import Engine
from antiphon.engine.settings import Settings
from antiphon.engine.tools.function import Function
from antiphon.library import Antiphon
from bench.measure import Cost, Figure, cpu_ms, figure, interleaved, note, written
from bench.provider import MemoryTransport, roomy_models
from bench.talk import SCHEMA, Turn, Writer, chat_form, item_form, turns, words

SHORT, LONG = 10, 10_000
TURNS_IN_A_ROW = 4

OneTurn: TypeAlias = Callable[[], Awaitable[None]]


async def figures(*, quick: bool) -> AsyncIterator[Figure]:
    """Yield what a turn costs at 10 and at 10,000 messages."""
    rounds = 3 if quick else 20
    short, long = await _measured(SHORT, rounds), await _measured(LONG, rounds)
    ours, session, floor = "ours", "openai-agents SQLiteSession", "floor: 4 commits, 4 rows"
    unit = "bytes a turn"
    yield figure(
        "G8", "a turn at 10,000 messages, growth", written(long[ours]), written(short[ours]),
        "ours: a turn at 10 messages", unit=unit, at_most=1.2,
    )  # fmt: skip
    what = "a turn at 10,000 messages: all states, tool ledger"
    yield figure(
        "G9", what, written(long[ours]), written(long[session]), session, unit=unit, at_most=1.5
    )
    yield figure(
        "G9 aim", what, written(long[ours]), written(long[floor]), floor, unit=unit, at_most=1.5
    )
    yield figure(
        "G9 aim", f"{what}, mean with checkpoints", _mean(long[ours]), _mean(long[floor]), floor,
        unit=unit, at_most=1.5,
    )  # fmt: skip
    unit = "CPU ms a turn"
    what = "a turn at 10,000 messages, warm"
    yield figure(
        "G10", what, cpu_ms(long[ours]), cpu_ms(long[session]), session, unit=unit, at_most=1 / 10
    )
    yield figure(
        "G10", f"{what}, growth", cpu_ms(long[ours]), cpu_ms(short[ours]),
        "ours: a turn at 10 messages", unit=unit, at_most=1.5,
    )  # fmt: skip
    yield figure(
        "G10 aim", what, cpu_ms(long[ours]), cpu_ms(long[floor]), floor, unit=unit, at_most=2
    )
    yield figure("G10 aim", what, cpu_ms(long[ours]), 1.0, "the aim", unit=unit, at_most=1)


def _mean(costs: list[Cost]) -> float:
    return fmean(cost.written for cost in costs)


async def _measured(length: int, rounds: int) -> dict[str, list[Cost]]:
    note(f"a durable turn at {length} messages")
    async with AsyncExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory(prefix="bench-")))
        return await interleaved(
            {
                "ours": await stack.enter_async_context(ours(place / "ours.db", length)),
                "openai-agents SQLiteSession": await stack.enter_async_context(
                    _session(place / "session.db", length)
                ),
                "floor: 4 commits, 4 rows": await stack.enter_async_context(
                    _floor(place / "floor.db", length)
                ),
            },
            rounds,
            warm_up=1,
            times=TURNS_IN_A_ROW,
        )


@asynccontextmanager
async def ours(db: str | Path, length: int) -> AsyncIterator[OneTurn]:
    """The whole engine on a new database, in a conversation of this many messages."""

    async def forecast(city: str, days: int) -> str:
        return words()

    tool = Function(name="forecast", run=forecast, parameters=SCHEMA)
    settings = Settings(models=roomy_models())
    async with open_world(
        db, settings=settings, functions=[tool], transport=MemoryTransport()
    ) as world:
        engine = Engine(world)
        await engine.start()
        row = await engine.create_conversation()
        writer, said = Writer(row.id, row.session), islice(turns(), length // 4)
        await engine.add_messages(
            row.id, [message for turn in said for message in writer.messages(turn)], writer.leaf
        )
        chat = await Antiphon(engine).conversation(row.id, ask=Ask())

        async def turn() -> None:
            run = await chat.send(words())
            await run.result()
            await engine.idle(chat.id)

        yield turn
        assert not engine.failures
        await engine.close()


@asynccontextmanager
async def _session(db: Path, length: int) -> AsyncIterator[OneTurn]:
    session = SQLiteSession("bench", db)
    said = turns()
    for _ in range(0, length // 4, 250):
        batch = islice(said, min(250, length // 4))
        await session.add_items([item for turn in batch for item in item_form(turn)])

    async def turn() -> None:
        await session.get_items()
        items = item_form(next(said))
        await session.add_items(items[:1])
        await session.add_items(items[1:3])
        await session.add_items(items[3:])

    yield turn
    session.close()


@asynccontextmanager
async def _floor(db: Path, length: int) -> AsyncIterator[OneTurn]:
    connection = sqlite3.connect(db, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE message (id INTEGER PRIMARY KEY, parent INTEGER, body TEXT)")
    said = turns()
    head: int | None = None

    def append(turn: Turn) -> None:
        nonlocal head
        for message in chat_form(turn):
            head = connection.execute(
                "INSERT INTO message (parent, body) VALUES (?, ?)", (head, json.dumps(message))
            ).lastrowid

    connection.execute("BEGIN")
    for _ in range(length // 4):
        append(next(said))
    connection.execute("COMMIT")

    async def turn() -> None:
        append(next(said))

    yield turn
    connection.close()
