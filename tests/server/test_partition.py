"""Nodes are cut from each other and from the database, with real processes and real answers.

Where the tests may, each node is in a network namespace and its cables are taken out; everywhere a
proxy that drops what passes is tried too. The name of each test says which.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from antiphon.client import Client
from antiphon.core.blocks import Status
from antiphon.core.ids import LOCAL_TENANT
from antiphon.core.records import RunStatus
from antiphon.core.traffic.keys import USUAL_RIGHTS
from antiphon.engine.assembly import open_world
from antiphon.errors import AntiphonError
from antiphon.handles.chat import Chat
from antiphon.handles.run import RunHandle
from antiphon.server.rights.principals import Keyring
from tests.server.nodes import PATIENCE_S, Nodes, shared, shown, until
from tests.server.stage import ROOT
from tests.support.network import Network, networks

pytestmark = [pytest.mark.needs("postgres")]


@dataclass(slots=True)
class Pair:
    """Two nodes, a client of each, and the network between them."""

    nodes: Nodes
    network: Network
    first: Client
    second: Client
    urls: dict[str, str]
    key: str


@pytest.fixture(params=networks(), ids=lambda kind: kind.__name__.lower())
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    async with shared(tmp_path) as nodes, AsyncExitStack() as stack:
        base = urlsplit(nodes.database)
        assert base.hostname is not None
        assert base.port is not None
        network = request.param(
            stack, (base.hostname, base.port), ("127.0.0.1", nodes.upstream.port)
        )
        key = await _new_key(nodes.database)
        urls: dict[str, str] = {}
        clients: dict[str, Client] = {}
        for name in ("first", "second"):
            server = await nodes.serve(name, await network.machine(name))
            port = urlsplit(server.url).port
            assert port is not None
            urls[name] = network.listens(name, port)
            clients[name] = await nodes.client(urls[name], key)
        yield Pair(nodes, network, clients["first"], clients["second"], urls, key)
        await nodes.stack.aclose()  # servers go before their network does


async def _new_key(database: str) -> str:
    async with open_world(database) as world:
        _, secret = await (await Keyring.load(world)).make(
            tenant=LOCAL_TENANT, name="test", rights=USUAL_RIGHTS, expires_ms=None
        )
        return secret


async def told(pair: Pair, name: str, conversation: str) -> list[tuple[int, Any]]:
    """Return the durable events of a conversation, as one node tells them to whoever comes anew."""
    found: list[tuple[int, Any]] = []
    url = f"{pair.urls[name]}{ROOT}/conversations/{conversation}/events"
    async with (
        aiohttp.ClientSession(headers={"authorization": f"Bearer {pair.key}"}) as http,
        http.get(url) as answer,
    ):
        event = ""
        async for raw in answer.content:
            word, _, value = raw.decode().strip().partition(": ")
            event = value if word == "event" else event
            if word == "data":
                if event == "caught_up":
                    return found
                data = json.loads(value)
                if data["type"] == "durable":
                    found.append((data["seq"], data["event"]))
    raise AssertionError("the stream broke")


@pytest.mark.req("M56", "M61", "M63", "M68", "M76", "M77")
async def test_a_node_that_is_cut_off_commits_nothing_and_another_goes_on(pair: Pair) -> None:
    nodes, network = pair.nodes, pair.network
    nodes.answers(
        "Hello?", {"text": "Hello "}, {"until": "go"}, {"text": "you"}, {"finish": "stop"}
    )
    for question in ("Still there?", "And then?", "Again?"):
        nodes.answers(question, {"text": f"To {question}"}, {"finish": "stop"})
    chat, other = await pair.first.create(), await pair.first.create()
    mine = await chat.send("Hello?")
    theirs = await pair.second.run(mine.id)
    await shown(theirs, "Hello ")

    await network.cut("first", "database", "nodes")
    nodes.allow("go")  # the whole answer comes to the node that is cut off
    late = asyncio.create_task(other.send("Still there?"))
    await until(theirs, lambda run: run.status is RunStatus.UNKNOWN)
    assert len(nodes.upstream.received("asked")) == 1, "nothing is sent without its record"
    assert not late.done() or late.exception() is not None, "acknowledged, and not durable"
    await theirs.cancel()
    there = await pair.second.conversation(chat.id)
    after = await there.send("And then?")
    assert (await until(after, lambda run: not run.open)).status is RunStatus.SUCCESS
    before = await there.tree()

    await network.heal("first")
    acknowledged = None
    with suppress(AntiphonError):
        async with asyncio.timeout(PATIENCE_S):
            acknowledged = await late
    again = await _insist(chat)
    assert (await until(again, lambda run: not run.open)).status is RunStatus.SUCCESS
    tree = await chat.tree()
    assert tree[: len(before)] == before, "what came late has changed something"
    said = [(m.role, m.text, m.status) for m in tree if m.status is not Status.CANCELED]
    assert said == [
        ("user", "Hello?", "success"),
        ("user", "And then?", "success"),
        ("assistant", "To And then?", "success"),
        ("user", "Again?", "success"),
        ("assistant", "To Again?", "success"),
    ]
    assert (await mine.row()).status is RunStatus.CANCELED
    if acknowledged is not None:
        done = await until(acknowledged, lambda run: not run.open)
        assert done.status is RunStatus.SUCCESS
    events = await told(pair, "first", chat.id)
    assert events == await told(pair, "second", chat.id)
    assert [seq for seq, _ in events] == list(range(1, len(events) + 1))
    received = nodes.upstream.received("asked")
    assert len(received) == len(set(received)), "a request was sent twice"
    assert len(received) == 3 + (acknowledged is not None)


async def _insist(chat: Chat) -> RunHandle:
    """Send until it is taken: a node that was cut off has to notice that first."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await chat.send("Again?", message="again")
            except AntiphonError:
                await asyncio.sleep(0.2)


@pytest.mark.req("M66", "M76")
async def test_nodes_that_cannot_reach_each_other_still_tell_one_story(pair: Pair) -> None:
    pair.nodes.answers("Hello?", {"text": "Hello "}, {"hold": True})
    pair.nodes.answers("And then?", {"text": "Then this."}, {"finish": "stop"})
    await pair.network.cut("first", "nodes")
    chat = await pair.first.create()
    mine = await chat.send("Hello?")
    await shown(mine, "Hello ")
    await (await pair.second.run(mine.id)).cancel()
    assert (await until(mine, lambda run: not run.open)).status is RunStatus.CANCELED
    await asyncio.to_thread(pair.nodes.upstream.quiet)  # whoever held the connection has closed it
    then = await (await pair.second.conversation(chat.id)).send("And then?")
    assert (await then.result()).text == "Then this."
    assert await told(pair, "first", chat.id) == await told(pair, "second", chat.id)
