"""G3: what safety costs in throughput, with 32 conversations at work at once.

Our library over its real HTTP client, against a provider in another process. Durable is the
default: every state is flushed to the disk, many in one commit. Not durable is the same store
as `:memory:`, where nothing is waited for. Beside both stands the least that anybody could do:
post the request with aiohttp, with and without four flushed rows a call in shared commits.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TypeAlias

import aiohttp

from antiphon.engine.assembly import open_world
from antiphon.engine.catalogue.models import Model, Models
from antiphon.engine.engine import Engine
from antiphon.engine.settings import Settings
from antiphon.library import Antiphon
from bench.measure import Figure, figure, note
from bench.talk import words

CONCURRENCY = 32
TABLE = "CREATE TABLE dispatch (id INTEGER PRIMARY KEY, call INTEGER, state TEXT)"
ROW = "INSERT INTO dispatch (call, state) VALUES (?, ?)"

OneCall: TypeAlias = Callable[[int], Awaitable[object]]
"""Makes one call for the caller with this number."""


async def figures(*, quick: bool) -> AsyncIterator[Figure]:
    """Yield calls a second, durable and not, ours and the floor's."""
    note(f"throughput: {CONCURRENCY} conversations at once")
    rounds, seconds = (2, 0.7) if quick else (5, 3.0)
    async with AsyncExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory(prefix="bench-")))
        url = await stack.enter_async_context(upstream())
        contestants = {
            "durable": await stack.enter_async_context(_ours(place / "ours.db", url)),
            "not durable": await stack.enter_async_context(_ours(":memory:", url)),
            "floor": await stack.enter_async_context(_floor(place / "floor.db", url)),
            "bare": await stack.enter_async_context(_floor(None, url)),
        }
        rates: dict[str, list[float]] = {name: [] for name in contestants}
        spent: dict[str, list[float]] = {name: [] for name in contestants}
        for number in range(rounds + 1):
            for name, call in contestants.items():
                a_second, cpu_ms = await _rate(call, seconds)
                if number:  # the first round opens connections and warms up
                    rates[name].append(a_second)
                    spent[name].append(cpu_ms)
    rate = {name: median(taken) for name, taken in rates.items()}
    cpu = {name: median(taken) for name, taken in spent.items()}
    what, unit = f"one model call, concurrency {CONCURRENCY}", "calls/s"
    yield figure(
        "G3", what, rate["durable"], rate["not durable"],
        "ours, not durable: the same engine on :memory:", unit=unit, at_least=0.6,
    )  # fmt: skip
    yield figure(
        "G3 floor",
        f"{what}, what durability leaves of the throughput",
        rate["durable"] / rate["not durable"],
        rate["floor"] / rate["bare"],
        "floor: aiohttp with 4 rows a call in shared commits, and without",
        unit="share",
        at_least=1,
    )
    floor = "floor: aiohttp and 4 rows a call in shared commits"
    yield figure("G3 aim", what, rate["durable"], rate["floor"], floor, unit=unit, at_least=0.5)
    yield figure(
        "G3 aim", what, cpu["durable"], cpu["floor"], floor, unit="CPU ms a call", at_most=2
    )


async def _rate(call: OneCall, seconds: float) -> tuple[float, float]:
    """Return calls a second and CPU milliseconds a call."""
    done = 0
    end = time.perf_counter() + seconds

    async def caller(number: int) -> None:
        nonlocal done
        while time.perf_counter() < end:
            await call(number)
            done += 1

    start, cpu = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as group:
        for number in range(CONCURRENCY):
            group.create_task(caller(number))
    return done / (time.perf_counter() - start), (time.process_time() - cpu) * 1000 / done


@asynccontextmanager
async def upstream() -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("upstream.py")),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        port = int(await process.stdout.readline())
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.stdin.close()
        await process.wait()


@asynccontextmanager
async def _ours(db: Path | str, url: str) -> AsyncIterator[OneCall]:
    model = Model(name="bench", profile="openai-chat", model="bench", base_url=url)
    settings = Settings(models=Models(named={"bench": model}, default="bench"))
    async with open_world(db, settings=settings) as world:
        engine = Engine(world)
        await engine.start()
        app = Antiphon(engine)
        chats = [await app.create() for _ in range(CONCURRENCY)]

        async def call(number: int) -> None:
            run = await chats[number].send(words())
            await run.result()

        yield call
        assert not engine.failures
        await engine.close()


@asynccontextmanager
async def _floor(db: Path | None, url: str) -> AsyncIterator[OneCall]:
    ledger = SharedCommits(db, TABLE) if db is not None else None
    number_of = count()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def call(_: int) -> None:
            number = next(number_of)
            if ledger is not None:
                await ledger.write(ROW, number, "PREPARED")
                await ledger.write(ROW, number, "DISPATCHING")
            body = {"model": "bench", "messages": [{"role": "user", "content": words()}]}
            async with session.post(f"{url}/chat/completions", json=body) as reply:
                if ledger is not None:
                    await ledger.write(ROW, number, "SENT")
                assert await reply.read()
            if ledger is not None:
                await ledger.write(ROW, number, "COMMITTED")

        yield call
    if ledger is not None:
        ledger.close()


class SharedCommits:
    """Rows in SQLite, all that wait in one flushed commit."""

    def __init__(self, db: Path, table: str) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._waiting: list[tuple[str, tuple[object, ...], asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None
        self._connection = self._thread.submit(_connect, db, table).result()

    async def write(self, statement: str, *row: object) -> None:
        """Return once the row is durable."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append((statement, row, done))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._drain())
        await done

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch, self._waiting = self._waiting, []
            rows: dict[str, list[tuple[object, ...]]] = {}
            for statement, row, _ in batch:
                rows.setdefault(statement, []).append(row)
            await loop.run_in_executor(self._thread, self._commit, rows)
            for _, _, done in batch:
                done.set_result(None)

    def _commit(self, rows: dict[str, list[tuple[object, ...]]]) -> None:
        self._connection.execute("BEGIN")
        for statement, alike in rows.items():
            self._connection.executemany(statement, alike)
        self._connection.execute("COMMIT")

    def close(self) -> None:
        """Let go of the file."""
        self._thread.submit(self._connection.close).result()
        self._thread.shutdown()


def _connect(db: Path, table: str) -> sqlite3.Connection:
    connection = sqlite3.connect(db, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(table)
    return connection
