"""G2 and G4 to G7: the server in a process of its own, between clients and a provider.

Through `/v1/responses`: every answer is a durable run, recorded before a byte leaves and committed
at its end. Beside it a relay that passes bytes on (`relay.py`), in the same run; and where the goal
names LiteLLM, which does not install here, what was measured of it on a machine like this.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

from bench.measure import Figure, figure, note
from bench.throughput import upstream

TICKS = os.sysconf("SC_CLK_TCK")
PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 1024 / 1024
LITELLM = "LiteLLM, as measured elsewhere"
MODELS = {
    "plain": "",
    "burst": "200x0/",
    "same": "200x0same/",
    "paced": "200x5/",
    "load": "{load}/",
}
LOAD_STREAMS, LOAD_PAUSE_MS = 200, 50


@dataclass(frozen=True, slots=True)
class Contestant:
    """A process that answers, and how one asks it."""

    pid: int
    url: str
    ours: bool

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory_mib(self) -> float:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE_MIB

    def request(self, model: str, prefix: str) -> tuple[str, dict[str, Any]]:
        if self.ours:
            return f"{self.url}/v1/responses", {"model": model, "input": "Go on.", "stream": True}
        messages = [{"role": "user", "content": "Go on."}]
        body = {"model": model, "messages": messages, "stream": True}
        return f"{self.url}/{prefix}v1/chat/completions", body


@dataclass(frozen=True, slots=True)
class Told:
    """What one stream said, and when its first word came."""

    text: str
    first_ms: float
    whole_ms: float


async def figures(*, quick: bool) -> AsyncIterator[Figure]:
    """Yield what the server costs and that it loses nothing."""
    seconds, rounds, load_s = (1.0, 5, 5) if quick else (4.0, 25, 15)
    async with AsyncExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory(prefix="bench-")))
        provider = await stack.enter_async_context(upstream())
        root = provider.removesuffix("/v1")
        load = f"{load_s * 1000 // LOAD_PAUSE_MS}x{LOAD_PAUSE_MS}"
        prefixes = {name: prefix.format(load=load) for name, prefix in MODELS.items()}
        _write_config(place, root, prefixes)
        started = time.perf_counter()
        server = await stack.enter_async_context(_server(place))
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        )
        await _stream(session, server, "plain", prefixes)
        first_s = time.perf_counter() - started
        idle = server.memory_mib()
        relay = await stack.enter_async_context(_relay(root))
        direct = Contestant(pid=os.getpid(), url=root, ours=False)

        note("gateway: start and idle memory")
        yield figure("G7", "idle memory", idle, 326, LITELLM, unit="MiB", at_most=0.25)
        yield figure("G7", "start to first answer", first_s, 10, LITELLM, unit="s", at_most=0.2)

        note("gateway: 32 at once")
        rate, p99 = await _rate(session, server, prefixes, seconds)
        bare, _ = await _rate(session, relay, prefixes, seconds)
        what = "plain answers, concurrency 32, durable"
        yield figure("G2", what, rate, 40, LITELLM, unit="answers/s", at_least=10)
        yield figure("G2", f"{what}, p99", p99, 1600, LITELLM, unit="ms", at_most=0.2)
        yield figure(
            "G2 floor",
            what,
            rate,
            bare,
            "a relay that keeps nothing",
            unit="answers/s",
            at_least=0.1,
        )

        note("gateway: first word, one at a time")
        firsts: dict[str, list[float]] = {"ours": [], "relay": [], "direct": []}
        for _ in range(rounds + 1):
            for name, who in (("ours", server), ("relay", relay), ("direct", direct)):
                told = await _stream(session, who, "burst", prefixes)
                firsts[name].append(told.first_ms)
        first = {name: median(taken[1:]) for name, taken in firsts.items()}
        added = first["ours"] - first["direct"]
        what = "added time to the first delta, durable before it is sent"
        yield figure("G4", what, added, 47, LITELLM, unit="ms", at_most=0.2)
        yield figure(
            "G4 floor", what, added, first["relay"] - first["direct"], "a relay that keeps nothing",
            unit="ms", at_most=10,
        )  # fmt: skip

        note("gateway: CPU of a delta")
        costs = {}
        for name, who in (("ours", server), ("relay", relay)):
            await _stream(session, who, "paced", prefixes)
            before = who.cpu_s()
            await asyncio.gather(*[_stream(session, who, "paced", prefixes) for _ in range(16)])
            costs[name] = (who.cpu_s() - before) * 1000 / (16 * 200)
        what, unit = "a paced stream, concurrency 16, CPU of a delta", "CPU ms"
        yield figure("G5", what, costs["ours"], 1.0, LITELLM, unit=unit, at_most=1 / 8)
        yield figure(
            "G5 floor", what, costs["ours"], costs["relay"], "a relay that keeps nothing",
            unit=unit, at_most=4,
        )  # fmt: skip

        note("gateway: nothing lost, nothing invented")
        wrong = 0
        for model in ("burst", "same", "paced"):
            expected = (await _stream(session, direct, model, prefixes)).text
            told_all = await asyncio.gather(
                *[_stream(session, server, model, prefixes) for _ in range(16)]
            )
            wrong += sum(told.text != expected for told in told_all)
        what = "streams that were not word for word what the provider said"
        yield figure("G6", what, wrong, 1, "one of 48", unit="streams", at_most=0)

        note(f"gateway: {LOAD_STREAMS} streams at {1000 // LOAD_PAUSE_MS} deltas a second each")
        expected = (await _stream(session, direct, "load", prefixes)).text
        waves = []
        wrong = 0
        for _ in range(3):
            wave = await asyncio.gather(
                *[_stream(session, server, "load", prefixes) for _ in range(LOAD_STREAMS)],
                return_exceptions=True,
            )
            wrong += sum(not isinstance(t, Told) or t.text != expected for t in wave)
            waves.append(server.memory_mib())
        what = f"{LOAD_STREAMS} streams at {1000 // LOAD_PAUSE_MS} deltas a second"
        yield figure(
            "load", f"{what}, failed or wrong", wrong, 1, "one of 600", unit="streams", at_most=0
        )
        yield figure(
            "load", f"{what}, memory after the third wave", waves[2], waves[1],
            "after the second", unit="MiB", at_most=1.05,
        )  # fmt: skip


def _write_config(place: Path, root: str, prefixes: dict[str, str]) -> None:
    tables = [
        f'[models.{name}]\nbase_url = "{root}/{prefix}v1"\n' for name, prefix in prefixes.items()
    ]
    (place / "antiphon.toml").write_text("\n".join(tables), "utf-8")


@asynccontextmanager
async def _server(place: Path) -> AsyncIterator[Contestant]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "antiphon", "serve", "--json", "--port", "0",
        cwd=place, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield Contestant(
            pid=process.pid, url=json.loads(await process.stdout.readline())["url"], ours=True
        )
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def _relay(root: str) -> AsyncIterator[Contestant]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(Path(__file__).with_name("relay.py")), root,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        yield Contestant(pid=process.pid, url=f"http://127.0.0.1:{port}", ours=False)
    finally:
        process.terminate()
        await process.wait()


async def _stream(
    session: aiohttp.ClientSession, who: Contestant, model: str, prefixes: dict[str, str]
) -> Told:
    url, body = who.request(model, prefixes[model])
    began, first, pieces = time.perf_counter(), 0.0, []
    mark = b'"response.output_text.delta"' if who.ours else b'"content"'
    async with session.post(url, json=body, timeout=aiohttp.ClientTimeout(total=300)) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            if not line.startswith(b"data: {") or mark not in line:
                continue
            first = first or time.perf_counter()
            data = json.loads(line[6:])
            pieces.append(data["delta"] if who.ours else data["choices"][0]["delta"]["content"])
    end = time.perf_counter()
    return Told("".join(pieces), (first - began) * 1000, (end - began) * 1000)


async def _rate(
    session: aiohttp.ClientSession, who: Contestant, prefixes: dict[str, str], seconds: float
) -> tuple[float, float]:
    """Return answers a second with 32 callers, and the slowest hundredth of them in ms."""
    taken: list[float] = []
    await asyncio.gather(*[_stream(session, who, "plain", prefixes) for _ in range(32)])
    end = time.perf_counter() + seconds

    async def caller() -> None:
        while time.perf_counter() < end:
            taken.append((await _stream(session, who, "plain", prefixes)).whole_ms)

    await asyncio.gather(*[caller() for _ in range(32)])
    return len(taken) / seconds, quantiles(taken, n=100)[98]
