"""G8 and G10 on PostgreSQL: what one more turn costs there at 10 and at 10,000 messages.

The same turn as on the file (`bench.durable`): the whole engine with two model calls and a tool
call. Written is what the server puts into its log of changes; the processor's time is this
process's and that of the server's processes that serve it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import asyncpg

from bench.durable import LONG, SHORT, TURNS_IN_A_ROW, OneTurn, ours
from bench.measure import Figure, figure, note
from tests.support.postgres import Server


@dataclass(slots=True)
class Costs:
    """What the samples of one length took, a turn."""

    cpu_ms: list[float] = field(default_factory=list)
    logged: list[float] = field(default_factory=list)


async def figures(server: Server, *, quick: bool) -> AsyncIterator[Figure]:
    """Yield how much more a turn costs in the long conversation."""
    rounds = 3 if quick else 15
    note(f"PostgreSQL: a durable turn at {SHORT} and at {LONG} messages")
    async with AsyncExitStack() as stack:
        turns: dict[int, OneTurn] = {}
        for length in (SHORT, LONG):
            address = await asyncio.to_thread(server.database)
            turns[length] = await stack.enter_async_context(ours(address, length))
        watch = await asyncpg.connect(server.address())
        stack.push_async_callback(watch.close)
        await watch.execute("CHECKPOINT")
        costs = {length: Costs() for length in turns}
        for number in range(rounds + 2):  # after a checkpoint each page is logged whole, once
            for length, turn in turns.items():
                await _sample(watch, server, turn, costs[length] if number >= 2 else Costs())
    short, long = costs[SHORT], costs[LONG]
    yield figure(
        "PG", "G8: a turn at 10,000 messages, growth", median(long.logged), median(short.logged),
        "ours: a turn at 10 messages", unit="bytes logged a turn", at_most=1.2,
    )  # fmt: skip
    yield figure(
        "PG", "G10: a turn at 10,000 messages, warm, growth", median(long.cpu_ms),
        median(short.cpu_ms), "ours: a turn at 10 messages", unit="CPU ms a turn, both sides",
        at_most=1.5,
    )  # fmt: skip


async def _sample(
    watch: asyncpg.Connection[asyncpg.Record], server: Server, turn: OneTurn, costs: Costs
) -> None:
    at = await watch.fetchval("SELECT pg_current_wal_insert_lsn()")
    theirs, mine = _serving_ms(server), time.process_time()
    for _ in range(TURNS_IN_A_ROW):
        await turn()
    mine_ms = (time.process_time() - mine) * 1000
    costs.cpu_ms.append((mine_ms + _serving_ms(server) - theirs) / TURNS_IN_A_ROW)
    logged = await watch.fetchval(
        "SELECT CAST(pg_current_wal_insert_lsn() - $1::pg_lsn AS BIGINT)", at
    )
    costs.logged.append(logged / TURNS_IN_A_ROW)


def _serving_ms(server: Server) -> float:
    """Return how long the server's processes that serve connections have been on a processor."""
    assert server.process is not None
    total = 0
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            parent = Path(entry.path, "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == server.process.pid and b"127.0.0.1" in (
                Path(entry.path, "cmdline").read_bytes()
            ):
                total += int(Path(entry.path, "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
    return total / 1e6
