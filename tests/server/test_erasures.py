"""Erasure over HTTP: of one conversation, of a tenant's, of what is old."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.server.stage import ROOT, Served, served
from tests.support.asgi import WAIT_S
from tests.support.provider import Hold, ScriptedProvider, chunk, says

SAID = "the rain in Spain"
FINISHED = says("In Spain it rains.")


async def talked(server: Served) -> str:
    name = await server.conversation()
    await server.send(name, SAID)
    await server.idle(name)
    return name


async def test_a_conversation_loses_what_was_said_and_keeps_its_shape(tmp_path: Path) -> None:
    async with served(tmp_path / "a.db", ScriptedProvider(FINISHED)) as server:
        name = await talked(server)
        told = await server.client.ask("DELETE", f"{ROOT}/conversations/{name}/content")
        assert told.status == 200, told.body
        assert told.json["erased_ms"] > 0
        tree = (await server.client.get(f"{ROOT}/conversations/{name}/tree")).json
        assert [(m["erased"], m["blocks"]) for m in tree["messages"]] == [(True, [])] * 2
        run = tree["runs"][0]["id"]
        request = await server.client.get(f"{ROOT}/runs/{run}/request")
        assert (request.status, request.json["error"]["code"]) == (410, "content_erased")
        more = await server.client.post(
            f"{ROOT}/conversations/{name}/messages", {"content": "hello"}
        )
        assert (more.status, more.json["error"]["code"]) == (410, "conversation_erased")


async def test_an_answer_under_way_is_canceled_and_leaves_nothing(tmp_path: Path) -> None:
    hold = Hold()
    provider = ScriptedProvider([chunk({"content": "In Spain"}), hold])
    async with served(tmp_path / "a.db", provider) as server:
        name = await server.conversation()
        run = await server.send(name, SAID)
        await asyncio.wait_for(hold.reached.wait(), WAIT_S)
        told = await server.client.ask("DELETE", f"{ROOT}/conversations/{name}/content")
        assert told.status == 200, told.body
        await server.idle(name)
        tree = (await server.client.get(f"{ROOT}/conversations/{name}/tree")).json
        assert [m["blocks"] for m in tree["messages"]] == [[]] * len(tree["messages"])
        assert [(r["id"], r["status"], r["error_code"]) for r in tree["runs"]] == [
            (run["id"], "canceled", "erased")
        ]
        assert server.engine.failures == []


async def test_a_deleted_conversation_can_be_erased_too(tmp_path: Path) -> None:
    async with served(tmp_path / "a.db", ScriptedProvider(FINISHED)) as server:
        name = await talked(server)
        assert (await server.client.ask("DELETE", f"{ROOT}/conversations/{name}")).status == 204
        assert (
            await server.client.ask("DELETE", f"{ROOT}/conversations/{name}/content")
        ).status == 200


@pytest.mark.parametrize("dry_run", [True, False])
async def test_what_a_tenant_has_goes_at_once_or_is_named(tmp_path: Path, dry_run: bool) -> None:
    async with served(tmp_path / "a.db", ScriptedProvider(FINISHED, FINISHED)) as server:
        names = [await talked(server), await talked(server)]
        old = await server.client.post(f"{ROOT}/erasures", {"older_than_days": 1})
        assert old.json == {"conversations": [], "dry_run": False}
        told = await server.client.post(f"{ROOT}/erasures", {"dry_run": dry_run})
        assert told.json == {"conversations": names, "dry_run": dry_run}
        rows = (await server.client.get(f"{ROOT}/conversations")).json["data"]
        assert [row["erased_ms"] is None for row in rows] == [dry_run, dry_run]


async def test_a_conversation_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    async with served(tmp_path / "a.db") as server:
        told = await server.client.ask("DELETE", f"{ROOT}/conversations/conv_x/content")
        assert told.status == 404
