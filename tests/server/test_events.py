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
