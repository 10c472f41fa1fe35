"""Several servers on one database: any of them serves, and one that dies leaves nothing undone."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import antiphon.client
from antiphon.client import Client
from antiphon.core.blocks import Status, Text
from antiphon.core.records import Run, RunStatus
from antiphon.handles.run import RunHandle
from tests.server.process import ServerProcess, server_process
from tests.support.postgres import shared_server
from tests.support.upstream_process import UpstreamProcess

pytestmark = [pytest.mark.needs("postgres")]

PATIENCE_S = 40.0
CONFIG = """
default_model = "scripted"
rehearsal_delay_s = 0

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
    address: str
    upstream: UpstreamProcess
    stack: AsyncExitStack
    servers: dict[str, ServerProcess] = field(default_factory=dict)

    async def start(self, name: str) -> Client:
        """Start a server and return a client of it."""
        folder = self.folder / name
        folder.mkdir()
        (folder / "antiphon.toml").write_text(
            CONFIG.format(base_url=self.upstream.base_url("asked"))
        )
        server = server_process(folder, "--db", self.address)
        self.servers[name] = await asyncio.to_thread(self.stack.enter_context, server)
        return await self.stack.enter_async_context(antiphon.client.open(self.servers[name].url))

    def signal(self, name: str, number: signal.Signals) -> None:
        os.kill(self.servers[name].process.pid, number)

    def answers(self, question: str, *pieces: dict[str, Any]) -> None:
        """Let the provider answer `question` with these."""
        self.rules.append({"last": question, "answers": [list(pieces)]})
        self.upstream.script("asked", self.rules)

    def allow(self, name: str) -> None:
        """Let the provider go on where it waits for this."""
        (self.folder / "asked" / name).touch()

    rules: list[dict[str, Any]] = field(default_factory=list)


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    server = await asyncio.to_thread(shared_server)
    address = await asyncio.to_thread(server.database)
    async with AsyncExitStack() as stack:
        upstream = await asyncio.to_thread(stack.enter_context, UpstreamProcess(tmp_path))
        yield Nodes(tmp_path, address, upstream, stack)
    await asyncio.to_thread(server.give_back, address)


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


async def test_any_node_shows_and_cancels_what_another_works_on(nodes: Nodes) -> None:
    first, second = await nodes.start("first"), await nodes.start("second")
    nodes.answers("Hello?", {"text": "Hello "}, {"text": "there"}, {"hold": True})
    chat = await first.create()
    mine = await chat.send("Hello?")
    theirs = await second.run(mine.id)
    await shown(theirs, "Hello there")
    await theirs.cancel()
    row = await until(mine, lambda run: not run.open)
    assert row.status is RunStatus.CANCELED
    await asyncio.to_thread(nodes.upstream.quiet)  # whoever held the connection has closed it
    tree = await (await second.conversation(chat.id)).tree()
    kept = [m for m in tree if m.status is Status.CANCELED]
    assert [m.blocks for m in kept] == [(Text(text="Hello there"),)]


async def test_a_node_that_dies_in_mid_answer_leaves_it_unknown_and_nothing_is_sent_twice(
    nodes: Nodes,
) -> None:
    first, second = await nodes.start("first"), await nodes.start("second")
    nodes.answers("Hello?", {"text": "Hello "}, {"hold": True})
    nodes.answers("And then?", {"text": "Then this."}, {"finish": "stop"})
    chat = await first.create()
    lost = await chat.send("Hello?")
    waiting = await chat.send("And then?")
    theirs, next_one = await second.run(lost.id), await second.run(waiting.id)
    await shown(theirs, "Hello ")
    nodes.signal("first", signal.SIGKILL)
    await until(theirs, lambda run: run.status is RunStatus.UNKNOWN)
    assert (await next_one.row()).status is RunStatus.QUEUED
    await theirs.cancel()
    done = await until(next_one, lambda run: not run.open)
    assert done.status is RunStatus.SUCCESS
    assert len(nodes.upstream.received("asked")) == 2


async def test_a_node_that_was_frozen_changes_nothing_when_it_wakes_and_then_works_again(
    nodes: Nodes,
) -> None:
    first, second = await nodes.start("first"), await nodes.start("second")
    nodes.answers(
        "Hello?", {"text": "Hello "}, {"until": "go"}, {"text": "you"}, {"finish": "stop"}
    )
    nodes.answers("Again?", {"text": "Yes."}, {"finish": "stop"})
    chat = await first.create()
    mine = await chat.send("Hello?")
    theirs = await second.run(mine.id)
    await shown(theirs, "Hello ")
    nodes.signal("first", signal.SIGSTOP)
    nodes.allow("go")  # the whole answer lies in the frozen node's socket
    await until(theirs, lambda run: run.status is RunStatus.UNKNOWN)
    await theirs.cancel()
    again = await (await second.conversation(chat.id)).send("Again?")
    await until(again, lambda run: not run.open)
    before = await (await second.conversation(chat.id)).tree()
    nodes.signal("first", signal.SIGCONT)
    here = await first.conversation(chat.id)
    other = await here.send("Again?")
    assert (await until(other, lambda run: not run.open)).status is RunStatus.SUCCESS
    after = await here.tree()
    assert after[: len(before)] == before
    assert (await mine.row()).status is RunStatus.CANCELED
    assert len(nodes.upstream.received("asked")) == 3
