"""The events of a conversation, over HTTP."""

from __future__ import annotations

from pathlib import Path

from tests.server.stage import ROOT, served
from tests.support.provider import ScriptedProvider, says


async def test_a_turn_is_told_as_it_happens_and_again_from_any_number(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("Fine", ".", " And you?"))
    async with served(tmp_path / "a.db", provider) as server:
        name = await server.conversation()
        path = f"{ROOT}/conversations/{name}/events"
        async with server.client.asked("GET", path) as live:
            assert live.headers["content-type"].startswith("text/event-stream")
            caught_up = await live.frame()
            assert caught_up is not None
            assert (caught_up.event, caught_up.json["seq"]) == ("caught_up", 0)
            await server.send(name, "How are you?")
            told = await live.until("message.committed")
        shown = "".join(t.json["text"] for t in told if t.event == "preview.delta")
        assert shown == "Fine. And you?"
        await server.idle(name)
        async with server.client.asked("GET", path) as later:
            whole = [t for t in await later.until("caught_up") if t.number is not None]
        assert [t.number for t in whole] == list(range(1, len(whole) + 1))
        for after in range(len(whole) + 1):
            async with server.client.asked(
                "GET", path, headers={"last-event-id": str(after)}
            ) as rest:
                again = [t for t in await rest.until("caught_up") if t.number is not None]
            assert again == whole[after:]


async def test_what_happened_to_one_run_is_told_from_its_start_to_its_end_and_nothing_else(
    tmp_path: Path,
) -> None:
    async with served(tmp_path / "db", ScriptedProvider(says("A"), says("B"))) as server:
        name = await server.conversation()
        first = await server.send(name, "a")
        await server.idle(name)
        await server.send(name, "b")
        await server.idle(name)
        told = (await server.client.get(f"{ROOT}/runs/{first['id']}/events")).json["data"]
        assert [
            one["event"]["type"] for one in told if one["event"]["type"] != "dispatch.changed"
        ] == [
            "run.changed",
            "message.placed",
            "run.changed",
            "message.committed",
            "run.changed",
        ]
        assert [one["event"].get("status") for one in told if "status" in one["event"]] == [
            "queued",
            "pending",
            "success",
        ]
        assert {one["event"]["run"] for one in told} == {first["id"]}
        assert [one["seq"] for one in told] == sorted(one["seq"] for one in told)
