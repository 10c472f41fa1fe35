"""Who is measured as a gateway: ours, a relay that keeps nothing, and what people would use instead.

`make rivals` installs LiteLLM's proxy and Portkey's gateway beside the project, each in a place of
its own. Each runs as its authors start it, with one worker and nothing logged; all of them stand
between the same client and the same provider, in one run.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

TICKS: Final = os.sysconf("SC_CLK_TCK")
PAGE_MIB: Final = os.sysconf("SC_PAGE_SIZE") / 1024 / 1024
RIVALS: Final = Path(__file__).parents[1] / ".rivals"
START_S: Final = 180.0
"""Longest start; the slowest of them was seen to take 35 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A process that answers, and how one asks it.

    Attributes:
        roots: Where each model is asked for, without the path of the call.
        start_s: Seconds from its start to the end of its first answer.
    """

    name: str
    pid: int
    roots: Mapping[str, str]
    headers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    responses: bool = False
    start_s: float = 0.0

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory_mib(self) -> float:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE_MIB

    def request(self, model: str, *, streamed: bool = True) -> tuple[str, dict[str, Any]]:
        root, body = self.roots[model], {"model": model, "stream": streamed}
        if self.responses:
            return f"{root}/responses", {**body, "input": "Go on."}
        messages = [{"role": "user", "content": "Go on."}]
        return f"{root}/chat/completions", {**body, "messages": messages}


@dataclass(frozen=True, slots=True)
class Told:
    """What one stream said, and when its first word came."""

    text: str
    first_ms: float
    whole_ms: float


async def stream(session: aiohttp.ClientSession, who: Contestant, model: str) -> Told:
    """Ask `who` for one streamed answer, and read it to its end."""
    url, body = who.request(model)
    began, first, pieces = time.perf_counter(), 0.0, []
    mark = b'"response.output_text.delta"' if who.responses else b'"content"'
    async with session.post(
        url,
        json=body,
        headers=who.headers.get(model),
        timeout=aiohttp.ClientTimeout(total=300),
    ) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            if not line.startswith(b"data: {") or mark not in line:
                continue
            data = json.loads(line[6:])
            piece = data["delta"] if who.responses else data["choices"][0]["delta"].get("content")
            if piece:
                first = first or time.perf_counter()
                pieces.append(piece)
    end = time.perf_counter()
    return Told("".join(pieces), (first - began) * 1000, (end - began) * 1000)


async def whole(session: aiohttp.ClientSession, who: Contestant, model: str) -> None:
    """Ask `who` for one answer that is not streamed."""
    url, body = who.request(model, streamed=False)
    async with session.post(url, json=body, headers=who.headers.get(model)) as answer:
        answer.raise_for_status()
        said = json.loads(await answer.read())
        assert said.get("output") or said["choices"][0]["message"]["content"], said


def direct(upstreams: Mapping[str, str]) -> Contestant:
    """The provider itself, with nobody between."""
    return Contestant(name="the provider itself", pid=os.getpid(), roots=upstreams)


@asynccontextmanager
async def antiphon(
    place: Path, upstreams: Mapping[str, str], db: str | None = None
) -> AsyncIterator[Contestant]:
    """Our server, as `make run` starts it: every answer is a durable run, in `db` if not a file."""
    tables = [f'[models.{name}]\nbase_url = "{root}"\n' for name, root in upstreams.items()]
    (place / "antiphon.toml").write_text("\n".join(tables), "utf-8")
    began = time.perf_counter()
    command = (sys.executable, "-m", "antiphon", "serve", "--json", "--port", "0")
    base = () if db is None else ("--db", db)
    async with _process(*command, *base, cwd=place, tells=True) as (pid, line):
        root = f"{json.loads(line)['url']}/v1"
        roots = dict.fromkeys(upstreams, root)
        yield await _started(
            Contestant(name="Antiphon", pid=pid, roots=roots, responses=True), began
        )


@asynccontextmanager
async def relay(upstreams: Mapping[str, str], provider: str) -> AsyncIterator[Contestant]:
    """A relay of the parts that we stand on, which passes bytes on and keeps nothing."""
    began = time.perf_counter()
    script = str(Path(__file__).with_name("relay.py"))
    async with _process(sys.executable, script, provider, tells=True) as (pid, line):
        here = f"http://127.0.0.1:{int(line)}"
        roots = {name: root.replace(provider, here) for name, root in upstreams.items()}
        who = Contestant(name="a relay that keeps nothing", pid=pid, roots=roots)
        yield await _started(who, began)


@asynccontextmanager
async def litellm(place: Path, upstreams: Mapping[str, str]) -> AsyncIterator[Contestant | None]:
    """LiteLLM's proxy; None where it is not installed."""
    program = RIVALS / "litellm" / "bin" / "litellm"
    if not program.exists():
        yield None
        return
    models = [
        {
            "model_name": name,
            "litellm_params": {"model": f"openai/{name}", "api_base": root, "api_key": "x"},
        }
        for name, root in upstreams.items()
    ]
    # JSON is YAML too.
    (place / "litellm.yaml").write_text(json.dumps({"model_list": models}), "utf-8")
    began, port = time.perf_counter(), _free_port()
    command = (str(program), "--config", str(place / "litellm.yaml"), "--host", "127.0.0.1")
    environment = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    }
    async with _process(*command, "--port", str(port), cwd=place, env=environment) as (pid, _):
        roots = dict.fromkeys(upstreams, f"http://127.0.0.1:{port}/v1")
        version = _version(RIVALS / "litellm", "litellm")
        yield await _started(Contestant(name=f"LiteLLM {version}", pid=pid, roots=roots), began)


@asynccontextmanager
async def portkey(upstreams: Mapping[str, str]) -> AsyncIterator[Contestant | None]:
    """Portkey's gateway; None where it, or Node, is not installed."""
    package = RIVALS / "portkey" / "node_modules" / "@portkey-ai" / "gateway"
    node = shutil.which("node")
    if node is None or not package.exists():
        yield None
        return
    began, port = time.perf_counter(), _free_port()
    program = str(package / "build" / "start-server.js")
    async with _process(node, program, f"--port={port}", "--headless") as (pid, _):
        version = json.loads((package / "package.json").read_text("utf-8"))["version"]
        who = Contestant(
            name=f"Portkey {version}",
            pid=pid,
            roots=dict.fromkeys(upstreams, f"http://127.0.0.1:{port}/v1"),
            headers={
                name: {
                    "authorization": "Bearer x",
                    "x-portkey-provider": "openai",
                    "x-portkey-custom-host": root,
                }
                for name, root in upstreams.items()
            },
        )
        yield await _started(who, began)


async def _started(who: Contestant, began: float) -> Contestant:
    """Return `who` once it has answered for the first time."""
    model = next(iter(who.roots))
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                await whole(session, who, model)
                break
            except aiohttp.ClientError:
                if not who.memory_mib() or time.perf_counter() - began > START_S:
                    raise
                await asyncio.sleep(0.05)
    return Contestant(
        name=who.name,
        pid=who.pid,
        roots=who.roots,
        headers=who.headers,
        responses=who.responses,
        start_s=time.perf_counter() - began,
    )


@asynccontextmanager
async def _process(
    *command: str,
    cwd: Path | None = None,
    tells: bool = False,
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[tuple[int, bytes]]:
    """A process that is gone afterwards; with `tells` its first line is waited for."""
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdout=asyncio.subprocess.PIPE if tells else quiet,
        stderr=quiet,
    )
    try:
        line = await process.stdout.readline() if process.stdout is not None else b""
        yield process.pid, line
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _version(environment: Path, package: str) -> str:
    found = sorted(environment.glob(f"lib/python*/site-packages/{package}-*.dist-info"))
    return found[0].name.removesuffix(".dist-info").partition("-")[2] if found else "?"
