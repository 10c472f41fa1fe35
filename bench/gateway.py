"""G1, G2 and G4 to G7: the server in a process of its own, between clients and a provider.

Through `/v1/responses`: every answer is a durable run, recorded before a byte leaves and committed
at its end. Beside it, in the same run, what `contestants` names; where LiteLLM is not installed
(`make rivals`), the figure that was measured of it on a machine like this stands in, and says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Final

import aiohttp

from bench import contestants
from bench.contestants import Contestant, Told, stream, whole
from bench.measure import Figure, figure, note
from bench.throughput import upstream

ELSEWHERE: Final = "LiteLLM, as measured elsewhere"
KEEPS_NOTHING: Final = "a relay that keeps nothing"
MODELS: Final = {
    "plain": "",
    "burst": "200x0/",
    "same": "200x0same/",
    "paced": "200x5/",
    "load": "{load}/",
}
LOAD_STREAMS, LOAD_PAUSE_MS = 200, 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a contestant costs; LiteLLM's of elsewhere, where nobody says otherwise."""

    name: str = ELSEWHERE
    memory_mib: float = 326
    start_s: float = 10
    call_ms: float = 20
    call_alone_ms: float = 20
    rate: float = 40
    p99_ms: float = 1600
    first_ms: float = 47
    delta_ms: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One of the costs, what it is called, and our share of the rival's that is wanted at most."""

    goal: str
    cost: str
    what: str
    unit: str
    of_litellm: float
    of_portkey: float | None = None
    more: bool = False
    """Whether more is better: then the shares are at least."""


PLAIN: Final = "plain answers, concurrency 32, durable"
FIRST: Final = "added time to the first delta, durable before it is sent"
DELTA: Final = "a paced stream, concurrency 16, CPU of a delta"
GOALS: Final = (
    Goal(goal="G7", cost="memory_mib", what="idle memory", unit="MiB", of_litellm=0.25),
    Goal(goal="G7", cost="start_s", what="start to first answer", unit="s", of_litellm=0.2),
    Goal(goal="G1", cost="call_ms", what="a plain call, concurrency 32, durable, CPU", unit="CPU ms", of_litellm=0.1, of_portkey=0.5),
    Goal(goal="G1", cost="call_alone_ms", what="a plain call, one at a time, durable, CPU", unit="CPU ms", of_litellm=0.2, of_portkey=1.0),
    Goal(goal="G2", cost="rate", what=PLAIN, unit="answers/s", of_litellm=10, more=True),
    Goal(goal="G2", cost="p99_ms", what=f"{PLAIN}, p99", unit="ms", of_litellm=0.2),
    Goal(goal="G4", cost="first_ms", what=FIRST, unit="ms", of_litellm=0.2),
    Goal(goal="G5", cost="delta_ms", what=DELTA, unit="CPU ms", of_litellm=1 / 8),
)  # fmt: skip


async def figures(*, quick: bool) -> AsyncIterator[Figure]:
    """Yield what the server costs and that it loses nothing."""
    seconds, rounds, load_s = (1.0, 5, 5) if quick else (4.0, 25, 15)
    async with AsyncExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory(prefix="bench-")))
        provider = await stack.enter_async_context(upstream())
        root = provider.removesuffix("/v1")
        load = f"{load_s * 1000 // LOAD_PAUSE_MS}x{LOAD_PAUSE_MS}"
        upstreams = {
            name: f"{root}/{prefix.format(load=load)}v1" for name, prefix in MODELS.items()
        }
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        )
        direct = contestants.direct(upstreams)
        ours = await stack.enter_async_context(contestants.antiphon(place, upstreams))
        told = await _measured(session, ours, direct, seconds, rounds)
        async with contestants.relay(upstreams, root) as relay:
            bare = await _measured(session, relay, direct, seconds, rounds)
        rivals: list[Costs] = []
        async with contestants.litellm(place, upstreams) as litellm:
            if litellm is not None:
                rivals.append(await _measured(session, litellm, direct, seconds, rounds))
        async with contestants.portkey(upstreams) as portkey:
            if portkey is not None:
                # Its streams fail as it is installed, so it is asked for whole answers alone.
                rivals.append(await _called(session, portkey, seconds))
        for line in _beside(told, bare, rivals):
            yield line
        async for line in _nothing_lost(session, ours, direct):
            yield line


async def _measured(
    session: aiohttp.ClientSession,
    who: Contestant,
    direct: Contestant,
    seconds: float,
    rounds: int,
) -> Costs:
    """Return what `who` costs, one thing after the other."""
    called = await _called(session, who, seconds)
    rate, p99 = await _rate(session, who, seconds)
    firsts: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(rounds + 1):
        for asked in (who, direct):
            firsts[asked is who].append((await stream(session, asked, "burst")).first_ms)
    await stream(session, who, "paced")
    before = who.cpu_s()
    await asyncio.gather(*[stream(session, who, "paced") for _ in range(16)])
    return replace(
        called,
        rate=rate,
        p99_ms=p99,
        first_ms=median(firsts[True][1:]) - median(firsts[False][1:]),
        delta_ms=(who.cpu_s() - before) * 1000 / (16 * 200),
    )


def _beside(ours: Costs, bare: Costs, rivals: list[Costs]) -> Iterator[Figure]:
    """Yield our costs beside the relay's, and beside those of each rival that has a goal."""
    yield figure(
        "G2 floor", PLAIN, ours.rate, bare.rate, KEEPS_NOTHING, unit="answers/s", at_least=0.1
    )
    yield figure(
        "G4 floor", FIRST, ours.first_ms, bare.first_ms, KEEPS_NOTHING, unit="ms", at_most=10
    )
    yield figure(
        "G5 floor", DELTA, ours.delta_ms, bare.delta_ms, KEEPS_NOTHING, unit="CPU ms", at_most=4
    )
    litellm = next((rival for rival in rivals if rival.name.startswith("LiteLLM")), Costs())
    for rival in (litellm, *(rival for rival in rivals if rival is not litellm)):
        for goal in GOALS:
            share = goal.of_litellm if rival is litellm else goal.of_portkey
            if share is None:
                continue
            yield figure(
                goal.goal,
                goal.what,
                getattr(ours, goal.cost),
                getattr(rival, goal.cost),
                rival.name,
                unit=goal.unit,
                at_least=share if goal.more else None,
                at_most=None if goal.more else share,
            )


async def _nothing_lost(
    session: aiohttp.ClientSession, ours: Contestant, direct: Contestant
) -> AsyncIterator[Figure]:
    note("gateway: nothing lost, nothing invented")
    wrong = 0
    for model in ("burst", "same", "paced"):
        expected = (await stream(session, direct, model)).text
        told = await asyncio.gather(*[stream(session, ours, model) for _ in range(16)])
        wrong += sum(one.text != expected for one in told)
    what = "streams that were not word for word what the provider said"
    yield figure("G6", what, wrong, 1, "one of 48", unit="streams", at_most=0)

    note(f"gateway: {LOAD_STREAMS} streams at {1000 // LOAD_PAUSE_MS} deltas a second each")
    expected = (await stream(session, direct, "load")).text
    waves = []
    wrong = 0
    for _ in range(3):
        wave = await asyncio.gather(
            *[stream(session, ours, "load") for _ in range(LOAD_STREAMS)],
            return_exceptions=True,
        )
        wrong += sum(not isinstance(t, Told) or t.text != expected for t in wave)
        waves.append(ours.memory_mib())
    what = f"{LOAD_STREAMS} streams at {1000 // LOAD_PAUSE_MS} deltas a second"
    yield figure(
        "load", f"{what}, failed or wrong", wrong, 1, "one of 600", unit="streams", at_most=0
    )
    yield figure(
        "load", f"{what}, memory after the third wave", waves[2], waves[1],
        "after the second", unit="MiB", at_most=1.05,
    )  # fmt: skip


async def _called(session: aiohttp.ClientSession, who: Contestant, seconds: float) -> Costs:
    """Return what `who` costs where nothing is streamed."""
    note(f"gateway: {who.name}")
    return Costs(
        name=who.name,
        memory_mib=who.memory_mib(),
        start_s=who.start_s,
        call_ms=await _call_ms(session, who, seconds, callers=32),
        call_alone_ms=await _call_ms(session, who, seconds, callers=1),
    )


async def _call_ms(
    session: aiohttp.ClientSession, who: Contestant, seconds: float, *, callers: int
) -> float:
    """Return what one answer that is not streamed costs `who` in CPU."""
    made = 0
    await asyncio.gather(*[whole(session, who, "plain") for _ in range(callers)])
    before, end = who.cpu_s(), time.perf_counter() + seconds

    async def caller() -> None:
        nonlocal made
        while time.perf_counter() < end:
            await whole(session, who, "plain")
            made += 1

    await asyncio.gather(*[caller() for _ in range(callers)])
    return (who.cpu_s() - before) * 1000 / made


async def _rate(
    session: aiohttp.ClientSession, who: Contestant, seconds: float
) -> tuple[float, float]:
    """Return answers a second with 32 callers, and the slowest hundredth of them in ms."""
    taken: list[float] = []
    await asyncio.gather(*[stream(session, who, "plain") for _ in range(32)])
    end = time.perf_counter() + seconds

    async def caller() -> None:
        while time.perf_counter() < end:
            taken.append((await stream(session, who, "plain")).whole_ms)

    await asyncio.gather(*[caller() for _ in range(32)])
    return len(taken) / seconds, quantiles(taken, n=100)[98]
