"""A fork goes its own way from where it left; an export is the file that an import reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from antiphon.core.telling.archive import read
from tests.server.stage import ROOT, Served, served
from tests.support.provider import ScriptedProvider, asks, says

TOOL = {"name": "look", "parameters": {"type": "object", "properties": {}}}


async def talked(server: Served, *questions: str) -> str:
    name = await server.conversation()
    for question in questions:
        await server.send(name, question)
        await server.idle(name)
    return name


async def line(server: Served, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        await server.client.get(f"{ROOT}/conversations/{name}/line")
    ).json["data"]
    return found


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return [block["text"] for message in messages for block in message["blocks"]]


@pytest.mark.req("M125", "M126")
async def test_a_fork_holds_the_line_to_its_leaf_and_goes_its_own_way(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("A"), says("B"), says("C"))
    async with served(tmp_path / "db", provider) as server:
        name = await talked(server, "a", "b")
        said = await line(server, name)
        made = await server.client.post(
            f"{ROOT}/conversations/{name}/fork", {"leaf": said[1]["id"], "title": "Other"}
        )
        assert made.status == 201
        fork = made.json["id"]
        assert made.headers["location"] == f"{ROOT}/conversations/{fork}"
        assert (made.json["title"], made.json["metadata"]["forked_from"]) == ("Other", name)
        copies = await line(server, fork)
        assert texts(copies) == ["a", "A"]
        assert [copy["copied_from"] for copy in copies] == [said[0]["id"], said[1]["id"]]
        assert {copy["id"] for copy in copies}.isdisjoint(message["id"] for message in said)

        await server.send(fork, "c")
        await server.idle(fork)
        assert texts(await line(server, fork)) == ["a", "A", "c", "C"]
        assert texts(await line(server, name)) == ["a", "A", "b", "B"]


async def test_a_fork_leaves_where_no_call_is_open(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("A"), asks(("call_1", "look", "{}")))
    async with served(tmp_path / "db", provider) as server:
        name = await talked(server, "a")
        await server.send(name, "look", tools=[TOOL])
        await server.idle(name)
        made = await server.client.post(f"{ROOT}/conversations/{name}/fork", {})
        assert texts(await line(server, made.json["id"])) == ["a", "A", "look"]


async def test_of_an_empty_conversation_there_is_an_empty_fork_and_of_an_erased_one_none(
    tmp_path: Path,
) -> None:
    async with served(tmp_path / "db", ScriptedProvider(says("A"))) as server:
        empty = await server.conversation()
        made = await server.client.post(f"{ROOT}/conversations/{empty}/fork", {})
        assert (made.status, made.json["head"]) == (201, None)
        name = await talked(server, "a")
        await server.client.ask("DELETE", f"{ROOT}/conversations/{name}/content")
        gone = await server.client.post(f"{ROOT}/conversations/{name}/fork", {})
        assert (gone.status, gone.json["error"]["code"]) == (410, "content_erased")


@pytest.mark.req("M124")
async def test_an_export_is_what_an_import_reads(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("A"), says("A again"))
    async with served(tmp_path / "db", provider) as server:
        name = await talked(server, "a 中文")
        answer = (await line(server, name))[1]["id"]
        await server.client.post(f"{ROOT}/messages/{answer}/regenerate", {})
        await server.idle(name)
        told = await server.client.get(f"{ROOT}/conversations/{name}/export")
        assert told.headers["content-type"].startswith("application/jsonl")
        found = read(told.body.splitlines(keepends=True))
        (conversation,) = found.conversations
        assert conversation.id == name
        assert [message.text for message in conversation.messages] == ["a 中文", "A", "A again"]
