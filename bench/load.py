"""Many streams at once, on each store: nothing fails, memory is flat, and how late a delta is.

Each word that the provider says is the time at which it left, so that the client knows of every single
one how long it was on its way: through the exchange, the assembler, the preview and the stream of the
reader. Server, provider, client and database share the machine.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Final

import aiohttp

from bench import contestants
from bench.contestants import Contestant
from bench.measure import Figure, figure, note
from bench.throughput import upstream
from tests.support.parts import postgres
from tests.support.postgres import new_server

SHAPES: Final = ((200, 20), (500, 5))
"""How many streams, and how many deltas a second each of them has."""

WAVES: Final = 3
DONE: Final = b'"response.completed"'
DELTA: Final = b'"response.output_text.delta"'
SETTINGS: Final = {"fsync": "on", "max_connections": "60", "shared_buffers": "64MB"}


@dataclass(slots=True)
class Lived:
    """What came of some waves of streams.

    Attributes:
        wrong: What was not as it should be, of any stream.
        late_ms: How late each word was.
        memory_mib: The server's memory after each wave.
        cpu_ms: The server's CPU for one delta.
    """

    wrong: list[str] = field(default_factory=list)
    late_ms: list[float] = field(default_factory=list)
    memory_mib: list[float] = field(default_factory=list)
    cpu_ms: float = 0.0

    def late(self, hundredth: int) -> float:
        return quantiles(self.late_ms, n=100)[hundredth - 1]


async def figures(*, quick: bool) -> AsyncIterator[Figure]:
    """Yield what fails, how late deltas are, and whether memory is flat."""
    seconds = 3 if quick else 15
    stores = {"SQLite": None, "PostgreSQL": "postgresql"}
    if postgres("initdb") is None:
        note("PostgreSQL is not installed: its lines are left out")
        del stores["PostgreSQL"]
    for store, kind in stores.items():
        db = None
        if kind is not None:
            server = await asyncio.to_thread(new_server, tuple(SETTINGS.items()))
            db = await asyncio.to_thread(server.database)
        for streams, rate in SHAPES:
            what = f"{store}, {streams} streams at {rate} deltas a second"
            note(f"load: {what}")
            lived = await waves(streams, rate, seconds, WAVES, db)
            for problem in lived.wrong[:3]:
                note(f"  {problem}")
            pause_ms = 1000 / rate
            yield figure(
                "load", f"{what}, failed or wrong", len(lived.wrong), 1,
                f"one of {WAVES * streams}", unit="streams", at_most=0,
            )  # fmt: skip
            yield figure(
                "load", f"{what}, memory after the last wave", lived.memory_mib[-1],
                lived.memory_mib[-2], "after the one before", unit="MiB", at_most=1.05,
            )  # fmt: skip
            for name, late_ms in (("median", lived.late(50)), ("p99", lived.late(99))):
                yield figure(
                    "load", f"{what}, a delta's way through the server, {name}", late_ms,
                    pause_ms, "the pause between two", unit="ms", at_most=1,
                )  # fmt: skip
            yield figure(
                "load", f"{what}, CPU of a delta", lived.cpu_ms, 1000 / (streams * rate),
                "what one core has for it", unit="CPU ms", at_most=1,
            )  # fmt: skip


async def waves(streams: int, rate: int, seconds: float, times: int, db: str | None) -> Lived:
    """Open so many streams at once, so many times, and return what came of them."""
    words = int(seconds * rate)
    lived = Lived()
    async with AsyncExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory(prefix="bench-")))
        provider = await stack.enter_async_context(upstream())
        root = provider.removesuffix("/v1")
        upstreams = {"timed": f"{root}/{words}x{1000 // rate}time/v1", "plain": provider}
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        )
        ours = await stack.enter_async_context(contestants.antiphon(place, upstreams, db))
        before = ours.cpu_s()
        for _ in range(times):
            told = await asyncio.gather(
                *[_stream(session, ours, lived.late_ms) for _ in range(streams)],
                return_exceptions=True,
            )
            lived.wrong += [repr(one) for one in told if isinstance(one, BaseException)]
            lived.wrong += [
                f"{len(one.split())} words" for one in told
                if isinstance(one, str) and len(one.split()) != words
            ]  # fmt: skip
            lived.memory_mib.append(ours.memory_mib())
        lived.cpu_ms = (ours.cpu_s() - before) * 1000 / (times * streams * words)
    return lived


async def _stream(session: aiohttp.ClientSession, who: Contestant, late_ms: list[float]) -> str:
    """Read a stream to its end; return its text, which is what was committed in the end.

    Raises:
        AssertionError: What was streamed is not what was committed, or there was no end.
    """
    url, body = who.request("timed")
    pieces: list[str] = []
    async with session.post(
        url, json=body, timeout=aiohttp.ClientTimeout(total=300), read_bufsize=2**20
    ) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            if line.startswith(b"data: {") and DELTA in line[:60]:
                now_ns = time.monotonic_ns()
                piece = json.loads(line[6:])["delta"]
                pieces.append(piece)
                late_ms += [(now_ns - int(word)) / 1e6 for word in piece.split() if word.isdigit()]
            elif line.startswith(b"data: {") and DONE in line[:60]:
                done = json.loads(line[6:])["response"]
                text = str(done["output"][0]["content"][0]["text"])
                assert text == "".join(pieces), "streamed is not what was committed"
                return text
    raise AssertionError("the stream had no end")
