"""Real servers that share a database and a provider, as a test starts, signals and cuts them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import antiphon.client
from antiphon.client import Client, Patience
from antiphon.core.records import Run
from antiphon.handles.run import RunHandle
from tests.server.process import ServerProcess, server_process
from tests.support.network import Machine
from tests.support.postgres import Server, shared_server
from tests.support.upstream_process import ROOT, UpstreamProcess

PATIENCE_S = 60.0
CONFIG = """
default_model = "scripted"
rehearsal_delay_s = 0
retry_base_s = 0
cancel_grace_s = 0

[models.scripted]
profile = "openai-chat"
model = "scripted-1"
base_url = "{base_url}"
context_window = 32768
max_output_tokens = 1024
"""


@dataclass(slots=True)
class Nodes:
    """Servers that share a database, and the provider that all of them ask."""

    folder: Path
    database: str
    upstream: UpstreamProcess
    stack: AsyncExitStack
    skewed: bool = False
    """Whether their clocks can be set."""
    servers: dict[str, ServerProcess] = field(default_factory=dict)
    rules: list[dict[str, Any]] = field(default_factory=list)

    async def serve(self, name: str, machine: Machine | None = None) -> ServerProcess:
        """Start a server, on a machine of its own where one is given."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        url, address = self.upstream.base_url("asked"), urlsplit(self.database)
        arguments = ["--db", self.database]
        env: dict[str, str] = {}
        if machine is not None:
            here = f"127.0.0.1:{self.upstream.port}"
            url = url.replace(here, "{}:{}".format(*machine.provider))
            there = f"{address.hostname}:{address.port}"
            host, port = machine.listen
            arguments = ["--db", self.database.replace(there, "{}:{}".format(*machine.database))]
            arguments += ["--host", host, "--port", str(port)]
            env["ANTIPHON_ADDRESS"] = machine.address
        (folder / "antiphon.toml").write_text(CONFIG.format(base_url=url))
        command = () if machine is None else machine.command
        if self.skewed:
            self.set_clock(name, 0)
            env["PYTHONPATH"] = str(ROOT)
            command = (*command, sys.executable, "-m", "tests.server.skewed", str(_clock(folder)))
        server = server_process(folder, *arguments, env=env, command=command)
        self.servers[name] = await asyncio.to_thread(self.stack.enter_context, server)
        return self.servers[name]

    async def start(self, name: str) -> Client:
        """Start a server and return a client of it."""
        return await self.client((await self.serve(name)).url)

    async def client(
        self, url: str, key: str | None = None, patience: Patience | None = None
    ) -> Client:
        """Return a client of the server at `url`."""
        opened = antiphon.client.open(url, key=key, patience=patience)
        return await self.stack.enter_async_context(opened)

    def set_clock(self, name: str, off_s: float) -> None:
        """Let a node's clock be off by so much from now on."""
        new = self.folder / name / "clock.new"
        new.write_text(str(off_s))
        new.rename(_clock(self.folder / name))

    def signal(self, name: str, number: signal.Signals) -> None:
        os.kill(self.servers[name].process.pid, number)

    def answers(self, question: str, *pieces: dict[str, Any]) -> None:
        """Let the provider answer `question` with these."""
        self.rules.append({"last": question, "answers": [list(pieces)]})
        self.upstream.script("asked", self.rules)

    def allow(self, name: str) -> None:
        """Let the provider go on where it waits for this."""
        (self.folder / "asked" / name).touch()


def _clock(folder: Path) -> Path:
    return folder / "clock"


@asynccontextmanager
async def shared(
    folder: Path, server: Server | None = None, *, skewed: bool = False
) -> AsyncIterator[Nodes]:
    """Give what servers share; they are started by the test, and dead afterwards.

    `server` is one of the caller's own, which it may stop and start.
    """
    if server is None:
        server = await asyncio.to_thread(shared_server)
    database = await asyncio.to_thread(server.database)
    async with AsyncExitStack() as stack:
        upstream = await asyncio.to_thread(stack.enter_context, UpstreamProcess(folder))
        yield Nodes(folder, database, upstream, stack, skewed)
    await asyncio.to_thread(server.give_back, database)


async def until(handle: RunHandle, right: Callable[[Run], bool]) -> Run:
    """Return the run's row once it is as it should be."""
    async with asyncio.timeout(PATIENCE_S):
        while not right(row := await handle.row()):  # noqa: ASYNC110 - in another process
            await asyncio.sleep(0.05)
    return row


async def shown(handle: RunHandle, text: str) -> None:
    """Wait until a follower has been shown `text`."""
    so_far = ""
    async with asyncio.timeout(PATIENCE_S):
        async for event in handle.events():
            so_far += getattr(event, "text", "")
            if text in so_far:
                return
    raise AssertionError(so_far)
