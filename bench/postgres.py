"""PostgreSQL: durable turns a second, and how long the runs of a node that died wait for another.

A turn here is what the store does for one: run and input placed, dispatch prepared and accepted
(one commit), written and opened (in passing), the answer committed (another). Nothing is asked and
nothing is rendered. Beside it stand the floors of `bench.postgres_floor`. What one more turn of the
whole engine costs in a long conversation is measured in `bench.postgres_long`. Takeover is between
real servers.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import antiphon.client
from antiphon.core.records import RunStatus
from antiphon.stores.base import Store
from antiphon.stores.postgres import open_postgres
from antiphon.stores.sqlite import open_sqlite
from bench import postgres_long
from bench.measure import Figure, figure, note
from bench.postgres_floor import Turn, bare, batched_function
from tests.server.process import server_process
from tests.stores.talk import Talk, done
from tests.support.parts import postgres
from tests.support.postgres import new_server
from tests.support.upstream_process import UpstreamProcess

AT_ONCE = (1, 16, 128)
TEXT = "word " * 120

SETTINGS = {"fsync": "on", "max_connections": "200", "shared_buffers": "256MB"}


async def figures(*, quick: bool) -> AsyncIterator[Figure]:
    """Yield turns a second, and the time of a takeover."""
    if postgres("initdb") is None:
        note("PostgreSQL is not installed: its lines are left out")
        return
    server = await asyncio.to_thread(new_server, tuple(SETTINGS.items()))
    seconds, rounds = (0.7, 1) if quick else (3.0, 3)
    note("PostgreSQL: durable turns")
    for count in AT_ONCE:
        async with AsyncExitStack() as stack:
            place = Path(stack.enter_context(TemporaryDirectory(prefix="bench-")))
            ours = await open_postgres(await asyncio.to_thread(server.database))
            stack.push_async_callback(ours.close)
            file = await open_sqlite(place / "ours.db")
            stack.push_async_callback(file.close)
            turns = {"ours": await _turns(ours, count), "file": await _turns(file, count)}
            for name, floor in (("bare", bare), ("function", batched_function)):
                address = await asyncio.to_thread(server.database)
                turns[name] = await stack.enter_async_context(floor(address, count))
            rates: dict[str, list[float]] = {name: [] for name in turns}
            numbers = dict.fromkeys(turns, 0)
            for number in range(rounds + 1):
                for name, turn in turns.items():
                    rate, numbers[name] = await _rate(turn, count, numbers[name], seconds)
                    if number:
                        rates[name].append(rate)
        what = f"durable turns, {count} at once"
        yield figure(
            "PG", what, median(rates["ours"]), median(rates["bare"]),
            "two bare transactions of the same bytes", unit="turns/s", at_least=0.5,
        )  # fmt: skip
        yield figure(
            "PG", what, median(rates["ours"]), median(rates["function"]),
            "one batched function a turn", unit="turns/s", at_least=0.5,
        )  # fmt: skip
        yield figure(
            "PG", what, median(rates["ours"]), median(rates["file"]),
            "ours: the SQLite file", unit="turns/s", at_least=0.5,
        )  # fmt: skip
    async for growth in postgres_long.figures(server, quick=quick):
        yield growth
    note("PostgreSQL: takeover")
    taken = [await _takeover(await asyncio.to_thread(server.database)) for _ in range(rounds)]
    yield figure(
        "PG", "takeover after a kill, default settings", max(taken), 5.0, "what is allowed",
        unit="s", at_most=1,
    )  # fmt: skip


async def _rate(turn: Turn, count: int, first: int, seconds: float) -> tuple[float, int]:
    """Return turns a second, and the number of the next turn of each conversation."""
    made, newest = 0, first
    end = time.perf_counter() + seconds

    async def work(conversation: int) -> None:
        nonlocal made, newest
        number = first
        while time.perf_counter() < end:
            await turn(conversation, number)
            number += 1
            made += 1
        newest = max(newest, number)

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for conversation in range(count):
            group.create_task(work(conversation))
    return made / (time.perf_counter() - start), newest


async def _turns(store: Store, count: int) -> Turn:
    talks = [await Talk.begin(store, f"conv_{number}") for number in range(count)]
    fence = talks[-1].fence
    at: list[tuple[int, str | None]] = [(0, None)] * count
    for talk in talks:
        talk.fence = fence

    async def turn(conversation: int, number: int) -> None:
        talk, (revision, parent) = talks[conversation], at[conversation]
        run, operation = f"run_{conversation}_{number}", f"op_{conversation}_{number}"
        asked, said = f"m{revision}", f"a{revision}"
        answers = done(
            await store.do_all(
                talk.start(run, asked, text=TEXT),
                talk.place(run, parent=parent, revision=revision),
                talk.prepare(run, operation, base=asked, revision=revision + 1, answer=said),
                talk.accept(operation),
            )
        )
        generation = answers[-1].generation
        store.submit(talk.written(operation, generation))
        store.submit(talk.opened(operation, generation))
        done(await store.do(talk.commit(operation, generation, talk.answer(said, text=TEXT))))
        at[conversation] = (revision + 2, said)

    return turn


CONFIG = """
default_model = "scripted"

[models.scripted]
profile = "openai-chat"
model = "scripted-1"
base_url = "{base_url}"
context_window = 32768
max_output_tokens = 1024
"""


async def _takeover(address: str) -> float:
    """Return how long after a kill another node says what became of the run that was under way."""
    async with AsyncExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory(prefix="bench-")))
        upstream = await asyncio.to_thread(stack.enter_context, UpstreamProcess(place))
        upstream.script(
            "asked", [{"last": "Hello?", "answers": [[{"text": "He"}, {"hold": True}]]}]
        )
        clients = []
        for name in ("first", "second"):
            (place / name).mkdir()
            config = CONFIG.format(base_url=upstream.base_url("asked"))
            (place / name / "antiphon.toml").write_text(config)
            server = server_process(place / name, "--db", address)
            process = await asyncio.to_thread(stack.enter_context, server)
            client = antiphon.client.open(process.url)
            clients.append((process, await stack.enter_async_context(client)))
        chat = await clients[0][1].create()
        run = await chat.send("Hello?")
        theirs = await clients[1][1].run(run.id)
        async for event in theirs.events():
            if getattr(event, "text", ""):
                break
        start = time.perf_counter()
        os.kill(clients[0][0].process.pid, signal.SIGKILL)
        while (await theirs.row()).status is not RunStatus.UNKNOWN:  # noqa: ASYNC110 - see there
            await asyncio.sleep(0.02)
        return time.perf_counter() - start
