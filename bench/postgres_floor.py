"""The floors of a durable turn on PostgreSQL: what would be left if nothing but bytes had to be kept.

*Bare transactions*: two inserts of as many bytes as the two commits of a turn, each its own
journey, over as many connections as wait. *A batched function*: one commit a turn, in which one
function of the database inserts a manifest, a message, an event and a ledger row and compares and
moves the conversation; four writers take up to 64 turns in one statement. No protocol of ours has
so little to do: nothing is accepted before it is sent, and no state lies between the two.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

import asyncpg

Turn: TypeAlias = Callable[[int, int], Awaitable[None]]
"""Does the turn of this number in the conversation of that number."""

CONNECTIONS = 32
ROWS_BYTES = (2_600, 1_900)
"""What the two commits of a turn write into rows, at 600 bytes of text a message."""

WRITERS, BATCH = 4, 64
MESSAGE_BYTES, EVENT_BYTES, CALL_BYTES = 2_000, 500, 400

FUNCTION = """
CREATE TABLE conv (id BIGINT PRIMARY KEY, revision BIGINT NOT NULL);
CREATE TABLE manifest (operation TEXT PRIMARY KEY, conv BIGINT, revision BIGINT, digest BYTEA);
CREATE TABLE message (conv BIGINT, revision BIGINT, body BYTEA, PRIMARY KEY (conv, revision));
CREATE TABLE event (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, conv BIGINT, body BYTEA);
CREATE TABLE call (conv BIGINT, id TEXT, body BYTEA, PRIMARY KEY (conv, id));
CREATE FUNCTION turn(c BIGINT, r BIGINT, digest BYTEA, said BYTEA, told BYTEA, called BYTEA)
RETURNS BOOLEAN LANGUAGE plpgsql AS $$
BEGIN
  UPDATE conv SET revision = revision + 1 WHERE id = c AND revision = r;
  IF NOT FOUND THEN RETURN FALSE; END IF;
  INSERT INTO manifest VALUES (c || '-' || r, c, r, digest);
  INSERT INTO message VALUES (c, r, said);
  INSERT INTO event (conv, body) VALUES (c, told);
  INSERT INTO call VALUES (c, 'call_' || r, called);
  RETURN TRUE;
END $$;
"""

BATCHED = """
SELECT turn(c, r, $3, said, told, called)
FROM unnest($1::BIGINT[], $2::BIGINT[], $4::BYTEA[], $5::BYTEA[], $6::BYTEA[])
  AS u (c, r, said, told, called)
"""


@asynccontextmanager
async def bare(address: str, count: int) -> AsyncIterator[Turn]:
    """Two inserts a turn, each a transaction of its own."""
    pool = asyncpg.create_pool(address, min_size=1, max_size=min(count, CONNECTIONS))
    async with pool:
        await pool.execute("CREATE TABLE bare (id BIGSERIAL PRIMARY KEY, data BYTEA)")

        async def turn(conversation: int, number: int) -> None:
            for size in ROWS_BYTES:
                await pool.execute("INSERT INTO bare (data) VALUES ($1)", os.urandom(size))

        yield turn


@dataclass(frozen=True, slots=True)
class _Waiting:
    conversation: int
    revision: int
    done: asyncio.Future[bool]


@asynccontextmanager
async def batched_function(address: str, count: int) -> AsyncIterator[Turn]:
    """One function call a turn; what waits goes in one statement, by its conversation's number."""
    waiting: asyncio.Queue[_Waiting] = asyncio.Queue()

    async def write(connection: asyncpg.Connection[asyncpg.Record]) -> None:
        while True:
            batch = [await waiting.get()]
            while len(batch) < BATCH and not waiting.empty():
                batch.append(waiting.get_nowait())
            batch.sort(key=lambda one: one.conversation)
            rows = await connection.fetch(
                BATCHED,
                [one.conversation for one in batch],
                [one.revision for one in batch],
                os.urandom(32),
                *(
                    [os.urandom(size) for _ in batch]
                    for size in (MESSAGE_BYTES, EVENT_BYTES, CALL_BYTES)
                ),
            )
            for one, (moved,) in zip(batch, rows, strict=True):
                one.done.set_result(moved)

    revisions = [0] * count  # a round leaves each conversation at a number of its own

    async def turn(conversation: int, number: int) -> None:
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiting.put_nowait(_Waiting(conversation, revisions[conversation], done))
        assert await done
        revisions[conversation] += 1

    connections = [await asyncpg.connect(address) for _ in range(WRITERS)]
    await connections[0].execute(FUNCTION)
    await connections[0].execute(
        "INSERT INTO conv SELECT number, 0 FROM generate_series(0, $1::INTEGER) AS number", count
    )
    writers = [asyncio.create_task(write(connection)) for connection in connections]
    yield turn
    for writer in writers:
        writer.cancel()
    await asyncio.gather(*writers, return_exceptions=True)
    for connection in connections:
        await connection.close()
