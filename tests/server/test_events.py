"""The events of a conversation, over HTTP."""

from __future__ import annotations

from pathlib import Path

from antiphon.engine.settings import Settings
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


async def test_several_conversations_are_followed_in_one_stream(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("Heron", "s"), says("Otters"))
    async with served(tmp_path / "a.db", provider) as server:
        birds, mammals = await server.conversation(), await server.conversation()
        await server.send(birds, "Name one")
        await server.idle(birds)
        known = (await server.client.get(f"{ROOT}/conversations/{birds}")).json["last_event"]
        path = f"{ROOT}/events?after={birds}:{known - 1},{mammals}:0,conv_nobody:0,{mammals}:0"
        async with server.client.asked("GET", path) as live:
            begun = [await live.frame() for _ in range(4)]
            told = {(one.event, one.json["type"]) for one in begun if one is not None}
            assert told == {
                ("conv_nobody", "refused"),
                (birds, "durable"),
                (birds, "caught_up"),
                (mammals, "caught_up"),
            }
            refused = next(one.json for one in begun if one and one.event == "conv_nobody")
            alone = await server.client.get(f"{ROOT}/conversations/conv_nobody/events?after=0")
            assert (refused["status"], refused["error"]["code"]) == (alone.status, "not_found")
            await server.send(mammals, "Name another")
            shown = []
            async for one in live.frames():
                assert one.event == mammals
                shown.append(one)
                if one.json.get("event", {}).get("type") == "message.committed":
                    break
            assert "".join(one.json.get("text", "") for one in shown) == "Otters"
            numbers = [one.number for one in shown if one.number is not None]
            assert numbers == list(range(1, len(numbers) + 1))


async def test_a_stream_of_several_conversations_ends_in_good_order_for_each(
    tmp_path: Path,
) -> None:
    settings = Settings(stream_s=0.05)
    async with served(tmp_path / "a.db", ScriptedProvider(), settings=settings) as server:
        names = {await server.conversation() for _ in range(3)}
        path = f"{ROOT}/events?after=" + ",".join(f"{name}:0" for name in names)
        async with server.client.asked("GET", path) as live:
            told = [one async for one in live.frames()]
        ends = [one for one in told if one.json["type"] == "end"]
        assert {one.event for one in ends} == names
        assert ends == told[-3:]
        assert {(one.json["reason"], one.json["seq"]) for one in ends} == {("recycled", 0)}


async def test_one_stream_is_not_asked_for_more_conversations_than_it_can_tell_of(
    tmp_path: Path,
) -> None:
    async with served(tmp_path / "a.db", ScriptedProvider()) as server:
        many = ",".join(f"conv_{n}:0" for n in range(101))
        refused = await server.client.get(f"{ROOT}/events?after={many}")
        assert (refused.status, refused.json["error"]["code"]) == (400, "too_many_conversations")
        odd = await server.client.get(f"{ROOT}/events?after=conv_1:0,conv_2")
        assert (odd.status, odd.json["error"]["at"]) == (400, "after")
