"""Conversations over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import quote

from antiphon.core.ids import RunId
from antiphon.core.records import RunStatus
from tests.server.stage import ROOT, served
from tests.support.asgi import WAIT_S
from tests.support.provider import Hold, ScriptedProvider, asks, says


async def test_a_conversation_is_made_found_named_and_listed(tmp_path: Path) -> None:
    async with served(tmp_path / "a.db") as server:
        made = await server.client.post(
            f"{ROOT}/conversations", {"title": "Ships", "metadata": {"team": "blue"}}
        )
        assert made.status == 201
        row = made.json
        assert made.headers["location"] == f"{ROOT}/conversations/{row['id']}"
        assert (row["title"], row["metadata"], row["revision"]) == ("Ships", {"team": "blue"}, 0)
        found = await server.client.get(f"{ROOT}/conversations/{row['id']}")
        assert found.json == row
        named = await server.client.ask(
            "PATCH", f"{ROOT}/conversations/{row['id']}", {"title": "Boats"}
        )
        assert named.json["title"] == "Boats"
        told = await server.client.ask(
            "PATCH", f"{ROOT}/conversations/{row['id']}", {"metadata": {"team": "red"}}
        )
        assert (told.json["title"], told.json["metadata"]) == ("Boats", {"team": "red"})
        listed = await server.client.get(f"{ROOT}/conversations")
        assert [one["title"] for one in listed.json["data"]] == ["Boats"]
        assert listed.json["cursor"] is None
        assert listed.json["open"] == {}


async def test_a_long_list_comes_in_pages(tmp_path: Path) -> None:
    async with served(tmp_path / "a.db") as server:
        made = [await server.conversation() for _ in range(5)]
        seen: list[str] = []
        cursor = ""
        while True:
            page = (await server.client.get(f"{ROOT}/conversations?limit=2{cursor}")).json
            seen += [one["id"] for one in page["data"]]
            if page["cursor"] is None:
                break
            cursor = f"&cursor={page['cursor']}"
        assert sorted(seen) == sorted(made)
        assert len(seen) == len(set(seen))


async def test_the_tree_holds_what_was_said_and_the_head_goes_where_it_is_put(
    tmp_path: Path,
) -> None:
    provider = ScriptedProvider(says("Fine."), says("Well."))
    async with served(tmp_path / "a.db", provider) as server:
        name = await server.conversation()
        run = await server.send(name, "How are you?", id="mine")
        await server.idle(name)
        tree = (await server.client.get(f"{ROOT}/conversations/{name}/tree")).json
        asked, answered = tree["messages"]
        assert (asked["id"], asked["role"], answered["parent"]) == ("mine", "user", "mine")
        assert answered["blocks"] == [{"kind": "text", "text": "Fine."}]
        assert tree["conversation"]["head"] == answered["id"]
        assert [one["id"] for one in tree["runs"]] == [run["id"]]

        moved = await server.client.ask(
            "PUT", f"{ROOT}/conversations/{name}/head", {"head": "mine"}
        )
        assert moved.json["head"] == "mine"
        beside = await server.client.get(
            f"{ROOT}/conversations/{name}/siblings?message={answered['id']}"
        )
        assert beside.json["siblings"] == [answered["id"]]
        sessions = (await server.client.get(f"{ROOT}/conversations/{name}/sessions")).json
        assert [(s["id"], s["active"]) for s in sessions["data"]] == [
            (tree["conversation"]["session"], True)
        ]


async def test_who_opens_a_long_conversation_is_told_its_end_first(tmp_path: Path) -> None:
    provider = ScriptedProvider(*[says(f"Answer {n}.") for n in range(4)])
    async with served(tmp_path / "a.db", provider) as server:
        name = await server.conversation()
        runs = []
        for n in range(3):
            runs.append((await server.send(name, f"Question {n}"))["id"])
            await server.idle(name)
        tree = (await server.client.get(f"{ROOT}/conversations/{name}/tree")).json
        last = tree["messages"][-1]["id"]
        await server.client.post(f"{ROOT}/messages/{last}/regenerate", {})
        await server.idle(name)

        end = (await server.client.get(f"{ROOT}/conversations/{name}/tree?newest=2")).json
        texts = [message["blocks"][0]["text"] for message in end["messages"]]
        assert (texts, end["whole"]) == (["Question 2", "Answer 2.", "Answer 3."], False)
        assert end["runs"][0]["id"] == runs[-1]
        assert len(end["runs"]) == 2
        assert end["conversation"]["head"] == end["messages"][-1]["id"]
        all_of_it = (await server.client.get(f"{ROOT}/conversations/{name}/tree?newest=7")).json
        assert (len(all_of_it["messages"]), len(all_of_it["runs"])) == (7, 4)
        assert all_of_it["whole"]


async def test_the_same_message_again_is_the_same_run(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("Once."))
    async with served(tmp_path / "a.db", provider) as server:
        name = await server.conversation()
        first = await server.send(name, "Hello", id="mine")
        again = await server.send(name, "Hello", id="mine")
        assert again["id"] == first["id"]
        await server.idle(name)
        other = await server.client.post(
            f"{ROOT}/conversations/{name}/messages", {"content": "Bye", "id": "mine"}
        )
        assert (other.status, other.json["error"]["code"]) == (409, "message_id_conflict")
        assert other.headers["x-should-retry"] == "false"
    assert len(provider.requests) == 1


async def test_a_deleted_conversation_is_found_by_nothing_and_what_worked_in_it_is_canceled(
    tmp_path: Path,
) -> None:
    hold = Hold()
    async with served(tmp_path / "a.db", ScriptedProvider([hold, *says("Late.")])) as server:
        name = await server.conversation()
        run = await server.send(name, "Wait.")
        await asyncio.wait_for(hold.reached.wait(), WAIT_S)
        gone = await server.client.ask("DELETE", f"{ROOT}/conversations/{name}")
        assert (gone.status, gone.body) == (204, b"")
        hold.go.set()
        await server.idle(name)
        for path in (f"conversations/{name}", f"conversations/{name}/tree", f"runs/{run['id']}"):
            assert (await server.client.get(f"{ROOT}/{path}")).status == 404
        assert (await server.client.get(f"{ROOT}/conversations")).json["data"] == []
        row = await server.engine.world.store.find_run(RunId(run["id"]))
        assert (row.status, row.error_code) == (RunStatus.CANCELED, "deleted")


async def test_words_are_found_in_titles_and_texts_and_mean_only_themselves(
    tmp_path: Path,
) -> None:
    provider = ScriptedProvider(says("Das Boot ist voll."), says("船在哪里?"))
    async with served(tmp_path / "a.db", provider) as server:
        names = [await server.conversation() for _ in range(3)]
        for name, text in zip(names, ('100 % "sure"', "in\nlines"), strict=False):
            await server.send(name, text)
            await server.idle(name)
        await server.client.ask("PATCH", f"{ROOT}/conversations/{names[2]}", {"title": "A_b"})

        async def found(words: str) -> list[int]:
            told = await server.client.get(f"{ROOT}/conversations?q={quote(words)}")
            return sorted(names.index(one["id"]) for one in told.json["data"])

        for words, expected in (
            ("boot", [0]),
            ("船在", [1]),
            ('% "s', [0]),
            ("a_B", [2]),
            ("a%b", []),
            ("axb", []),
            ("n\nl", [1]),
            ("\\", []),
            ("text", []),
        ):
            assert await found(words) == expected, words
        tree = (await server.client.get(f"{ROOT}/conversations/{names[0]}/tree")).json
        await server.client.ask("DELETE", f"{ROOT}/messages/{tree['messages'][1]['id']}")
        assert await found("boot") == []


async def test_the_list_says_what_is_most_urgent_where_a_run_is_open(tmp_path: Path) -> None:
    provider = ScriptedProvider(asks(("call_1", "look", "{}")), says("A"))
    async with served(tmp_path / "db", provider) as server:
        waits, rests = await server.conversation(), await server.conversation()
        await server.send(waits, "Look", tools=[{"name": "look", "parameters": {"type": "object"}}])
        await server.idle(waits)
        await server.send(rests, "a")
        await server.idle(rests)
        page = (await server.client.get(f"{ROOT}/conversations")).json
        assert {row["id"] for row in page["data"]} == {waits, rests}
        assert page["open"] == {waits: "waiting"}
