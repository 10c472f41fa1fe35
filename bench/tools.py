"""Tools: what the ledger adds to a call, and a hundred of them at once.

Ours is the whole engine over the real store: a turn of many calls less a turn of one, so that the
two model calls around them do not count; each call is committed before it begins, validated, run,
and its result stored, rendered and told. The floor runs the same function between two rows of its
own, flushed in commits that all who wait share.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TypeAlias

from antiphon.core.asking import Ask
from antiphon.engine.assembly import open_world
from antiphon.engine.engine import Engine
from antiphon.engine.settings import Settings
from antiphon.engine.tools.function import Function
from antiphon.library import Antiphon
from bench.measure import Cost, Figure, cpu_ms, figure, interleaved, note
from bench.provider import MemoryTransport, roomy_models
from bench.talk import SCHEMA, words
from bench.throughput import SharedCommits

CALLS = 100
PAUSE_S = 0.05
ALLOWED_MS = 300

OneTurn: TypeAlias = Callable[[], Awaitable[None]]


async def figures(*, quick: bool) -> AsyncIterator[Figure]:
    """Yield the cost of a call, and how long a hundred take."""
    rounds = 4 if quick else 20
    at_once = await _measured(0.0, rounds)
    floor = f"floor: the same function and 2 rows in shared commits, {CALLS} at once"
    what = f"one tool call of {CALLS} at once, ledger and result"
    for unit, of in (("CPU ms a call", cpu_ms), ("ms a call", _wall_ms)):
        ours = (of(at_once["many"]) - of(at_once["one"])) / (CALLS - 1)
        rival = of(at_once["floor"]) / CALLS
        yield figure("tools", what, ours, rival, floor, unit=unit, at_most=2)
    pausing = await _measured(PAUSE_S, rounds)
    yield figure(
        "tools",
        f"{CALLS} tools of {PAUSE_S * 1000:g} ms at once, beyond one of them",
        _wall_ms(pausing["many"]) - _wall_ms(pausing["one"]),
        ALLOWED_MS,
        "what is allowed",
        unit="ms",
        at_most=1,
    )


def _wall_ms(costs: list[Cost]) -> float:
    return median(taken.wall_ms for taken in costs)


async def _measured(pause_s: float, rounds: int) -> dict[str, list[Cost]]:
    note(f"{CALLS} tools of {pause_s * 1000:g} ms")
    turns = rounds + 1

    async def forecast(city: str, days: int) -> str:
        if pause_s:
            await asyncio.sleep(pause_s)
        return words()

    async with AsyncExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory(prefix="bench-")))
        opened = {
            "many": _ours(place / "many.db", forecast, MemoryTransport(calls=CALLS, turns=turns)),
            "one": _ours(place / "one.db", forecast, MemoryTransport(turns=turns)),
            "floor": _floor(place / "floor.db", forecast),
        }
        turn = {name: await stack.enter_async_context(one) for name, one in opened.items()}
        return await interleaved(turn, rounds, warm_up=1)


@asynccontextmanager
async def _ours(
    db: Path, forecast: Callable[..., Awaitable[str]], transport: MemoryTransport
) -> AsyncIterator[OneTurn]:
    # Below its limit: at it, the last question offers no tools, and its line is made anew.
    settings = Settings(max_tool_calls=2 * CALLS, max_parallel_tools=CALLS, models=roomy_models())
    tool = Function(name="forecast", run=forecast, parameters=SCHEMA)
    async with open_world(db, settings=settings, functions=[tool], transport=transport) as world:
        engine = Engine(world)
        await engine.start()
        chat = await Antiphon(engine).create(ask=Ask())

        async def turn() -> None:
            run = await chat.send(words())
            await run.result()
            await engine.idle(chat.id)

        yield turn
        assert not engine.failures
        await engine.close()


@asynccontextmanager
async def _floor(db: Path, forecast: Callable[..., Awaitable[str]]) -> AsyncIterator[OneTurn]:
    ledger, numbers = SharedCommits(db), count()

    async def call(number: int) -> None:
        await ledger.write(number, "EXECUTING")
        await forecast(city="Oslo", days=3)
        await ledger.write(number, "SUCCESS")

    async def turn() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(CALLS):
                group.create_task(call(next(numbers)))

    yield turn
    ledger.close()
