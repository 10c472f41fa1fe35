"""Several servers on one database: any of them serves, and one that dies leaves nothing undone."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.core.blocks import Status, Text
from antiphon.core.records import RunStatus
from tests.server.nodes import Nodes, shared, shown, until

pytestmark = [pytest.mark.needs("postgres")]


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    async with shared(tmp_path) as nodes:
        yield nodes


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
