"""Tools: what the ledger adds to a call, what the loop around it adds, and a hundred at once.

The ledger alone is measured from where the calls of a step stand PENDING to where all that they
came to is durable and bounded: their arguments checked and digested, each claimed before it
begins, run, its result stored. It is the engine's own executor over the real store, on calls that
were committed before. The floor begins with the same rows, runs the same function between two
writes of its own to each, and flushes in commits that all who wait share.

The whole is a turn of many calls less a turn of one. That is what any agent loop pays besides: the
calls are read from the model's stream, their rows are born, and the results enter the tree, are
judged once more and rendered into the next request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TypeAlias

from antiphon.core.answers.deltas import Usage
from antiphon.core.answers.schemas import compile_schema
from antiphon.core.asking import Ask
from antiphon.core.blocks import Origin, Role, ToolCall, ToolResult
from antiphon.core.commands import CommitAnswer, CreateConversation, NewCall, Then
from antiphon.core.ids import LOCAL_TENANT, CallId, ConversationId, OperationId, RunId, SessionId
from antiphon.core.records import Call, CallState, Runner
from antiphon.core.tools.ledger import arguments_digest, result_of
from antiphon.engine.assembly import open_world
from antiphon.engine.engine import Engine
from antiphon.engine.runs.control import Control
from antiphon.engine.settings import Settings
from antiphon.engine.tools.executor import Executor
from antiphon.engine.tools.function import Function
from antiphon.engine.world import World
from antiphon.library import Antiphon
from bench.measure import Cost, Figure, cpu_ms, figure, interleaved, note
from bench.provider import MemoryTransport, roomy_models
from bench.talk import SCHEMA, arguments, words
from bench.throughput import SharedCommits
from tests.stores.talk import Talk

CALLS = 100
PAUSE_S = 0.05
ALLOWED_MS = 300
# Below its limit: at it, the last question offers no tools, and its line is made anew.
SETTINGS = Settings(max_tool_calls=2 * CALLS, max_parallel_tools=CALLS, models=roomy_models())

Sample: TypeAlias = Callable[[], Awaitable[None]]
Forecast: TypeAlias = Callable[[str, int], Awaitable[str]]


async def figures(*, quick: bool) -> AsyncIterator[Figure]:
    """Yield the cost of a call, and how long a hundred take."""
    rounds = 4 if quick else 20
    at_once = await _measured(0.0, rounds)
    floor = f"floor: the same function and 2 writes in shared commits, {CALLS} at once"
    alone = f"one tool call of {CALLS} at once, from PENDING to its durable result"
    for unit, of in (("CPU ms a call", cpu_ms), ("ms a call", _wall_ms)):
        rival = of(at_once["floor"]) / CALLS
        ours = of(at_once["ledger"]) / CALLS
        yield figure("tools", alone, ours, rival, floor, unit=unit, at_most=2)
        whole = (of(at_once["many"]) - of(at_once["one"])) / (CALLS - 1)
        what = f"{alone}, read from the model's stream and put into its next request"
        yield figure("tools aim", what, whole, rival, floor, unit=unit, at_most=2)
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
            "many": _turns(place / "many.db", forecast, MemoryTransport(calls=CALLS, turns=turns)),
            "one": _turns(place / "one.db", forecast, MemoryTransport(turns=turns)),
        }
        if not pause_s:
            opened["ledger"] = _ledger(place / "ledger.db", forecast, turns)
            opened["floor"] = _floor(place / "floor.db", forecast, turns)
        samples = {name: await stack.enter_async_context(one) for name, one in opened.items()}
        return await interleaved(samples, rounds, warm_up=1)


def _tool(forecast: Forecast) -> Function:
    return Function(name="forecast", run=forecast, parameters=SCHEMA)


# The whole: turns of the engine.


@asynccontextmanager
async def _turns(db: Path, forecast: Forecast, transport: MemoryTransport) -> AsyncIterator[Sample]:
    tools = [_tool(forecast)]
    async with open_world(db, settings=SETTINGS, functions=tools, transport=transport) as world:
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


# The ledger alone: calls that stand PENDING, one conversation of them for each sample.


@asynccontextmanager
async def _ledger(db: Path, forecast: Forecast, samples: int) -> AsyncIterator[Sample]:
    async with open_world(db, settings=SETTINGS, functions=[_tool(forecast)]) as world:
        asked = [await _pending(world, number) for number in range(samples)]
        key = await world.store.tenant_key(LOCAL_TENANT)
        check, steps = compile_schema(SCHEMA, key), iter(asked)
        shown = list[ToolResult]()

        async def step() -> None:
            calls = next(steps)
            for call in calls:
                assert check.problem(call.arguments) is None
                assert arguments_digest(key, call.name, call.arguments) == call.arguments_digest
            executor = Executor(world)
            await executor.store(await executor.carry_out(calls, Control(world.clock)))
            closed = await world.store.calls(calls[0].conversation, calls[0].run)
            shown.extend(result_of(call) for call in closed)

        yield step
        assert len(shown) == samples * CALLS
        for calls in asked:
            ended = await world.store.calls(calls[0].conversation, calls[0].run)
            assert all(call.state is CallState.SUCCESS for call in ended)


async def _pending(world: World, number: int) -> list[Call]:
    """Commit an answer that asks for many calls, and return them as they stand then."""
    talk = Talk(
        world.store, world.fence, ConversationId(f"conv_{number}"), SessionId(f"sess_{number}")
    )
    await talk.do(CreateConversation(**talk.head(), tenant=LOCAL_TENANT, session=talk.session))
    run, operation, answer = f"run_{number}", f"op_{number}", f"a{number}"
    attempt = await talk.streaming(run, operation, name=f"m{number}", answer=answer)
    key = await world.store.tenant_key(LOCAL_TENANT)
    blocks = tuple(
        ToolCall(call_id=CallId(f"call_{n}"), name="forecast", arguments=arguments(n))
        for n in range(CALLS)
    )
    await talk.do(
        CommitAnswer(
            **talk.head(),
            operation=OperationId(operation),
            generation=attempt.generation,
            message=talk.message(answer, role=Role.ASSISTANT, origin=Origin.MODEL, blocks=blocks),
            calls=tuple(
                NewCall(
                    call_id=call.call_id,
                    name=call.name,
                    arguments=call.arguments,
                    arguments_digest=arguments_digest(key, call.name, call.arguments),
                    runner=Runner.FUNCTION,
                    read_only=False,
                    idempotency_key=world.new_id("idem_"),
                )
                for call in blocks
            ),
            usage=Usage(),
            finish="tool_calls",
            then=Then.CONTINUE,
        )
    )
    # A call is digested once in its life, so what was remembered of it does not count.
    arguments_digest.cache_clear()
    return await world.store.calls(talk.conversation, RunId(run))


# The floor.

BORN = "INSERT INTO call (id, name, arguments, state) VALUES (?, ?, ?, 'PENDING')"
CLAIMED = "UPDATE call SET state = 'EXECUTING' WHERE id = ?"
ENDED = "UPDATE call SET state = 'SUCCESS', result = ? WHERE id = ?"


@asynccontextmanager
async def _floor(db: Path, forecast: Forecast, samples: int) -> AsyncIterator[Sample]:
    table = "id INTEGER PRIMARY KEY, name TEXT, arguments TEXT, state TEXT, result TEXT"
    ledger, numbers = (
        SharedCommits(db, f"CREATE TABLE call ({table})"),
        iter(range(samples * CALLS)),
    )
    async with asyncio.TaskGroup() as group:
        for number in range(samples * CALLS):
            group.create_task(ledger.write(BORN, number, "forecast", arguments(number)))

    async def call(number: int) -> None:
        await ledger.write(CLAIMED, number)
        result = await forecast("Oslo", 3)
        await ledger.write(ENDED, result, number)

    async def step() -> None:
        async with asyncio.TaskGroup() as group:
            for number in islice(numbers, CALLS):
                group.create_task(call(number))

    yield step
    ledger.close()
