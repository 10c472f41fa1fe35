"""Sessions over HTTP: listed, begun, undone, scheduled."""

from __future__ import annotations

from pathlib import Path

from antiphon.engine.settings import Settings
from tests.client.stage import staged
from tests.server.stage import ROOT, Served, served
from tests.support.provider import ScriptedProvider, says

ON = Settings(retry_base_s=0.0, cancel_grace_s=0.0, scheduling=True)
CONTINUE = '{"decision": "continue"}'


async def said(server: Served, conversation: str, text: str) -> None:
    await server.send(conversation, text)
    await server.idle(conversation)


async def test_a_session_is_begun_listed_and_undone(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("North."), says("A summary."), says("Leeks."))
    async with served(tmp_path / "a.db", provider) as server:
        name = await server.conversation()
        path = f"{ROOT}/conversations/{name}"
        await said(server, name, "Plot a course")
        begun = await server.client.post(f"{path}/sessions", {"goal": "Cook a soup."})
        assert begun.status == 201
        assert (begun.json["goal"], begun.json["cause"]) == ("Cook a soup.", "person")
        await said(server, name, "Soup?")
        old, new = (await server.client.get(f"{path}/sessions")).json["data"]
        assert (old["active"], new["active"]) == (False, True)
        assert old["handover"]["summary"] == "A summary."
        assert new["previous"] == old["id"]
        undone = await server.client.post(f"{path}/sessions/undo", None)
        assert undone.json["id"] == old["id"]
        line = (await server.client.get(f"{path}/line")).json["data"]
        assert [m["blocks"][0]["text"] for m in line] == [
            "Plot a course",
            "North.",
            "Soup?",
            "Leeks.",
        ]
        again = await server.client.post(f"{path}/sessions/undo", None)
        assert (again.status, again.json["error"]["code"]) == (409, "no_switch")
        bad = await server.client.post(f"{path}/sessions", {"goal": "x" * 10_000})
        assert (bad.status, bad.json["error"]["code"]) == (400, "bad_goal")


async def test_scheduling_is_turned_on_and_off_for_one_conversation(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("North."), says(CONTINUE), says("South."))
    async with served(tmp_path / "a.db", provider) as server:
        made = await server.client.post(f"{ROOT}/conversations", {"scheduling": True})
        name = made.json["id"]
        assert made.json["scheduling"] is True
        await said(server, name, "Plot a course")
        assert len(provider.requests) == 2  # the answer, and whether the session has a goal
        off = await server.client.ask(
            "PUT", f"{ROOT}/conversations/{name}/scheduling", {"on": False}
        )
        assert off.json["scheduling"] is False
        await said(server, name, "And back?")
        assert len(provider.requests) == 3


async def test_clients_that_bring_their_own_history_are_never_scheduled(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("North."))
    async with served(tmp_path / "a.db", provider, settings=ON) as server:
        body = {
            "model": "rehearsal",
            "messages": [
                {"role": "user", "content": "Plot a course"},
                {"role": "assistant", "content": "Aye."},
                {"role": "user", "content": "Well?"},
            ],
        }
        answered = await server.client.post("/v1/chat/completions", body)
        assert answered.json["choices"][0]["message"]["content"] == "North."
        assert len(provider.requests) == 1
        assert b"session_switch" not in provider.bodies[0]


async def test_a_client_of_a_server_does_what_the_library_does(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("North."), says("A summary."))
    async with staged(tmp_path / "a.db", provider) as stage:
        chat = await stage.app.create(scheduling=False)
        assert (await chat.row()).scheduling is False
        run = await chat.send("Plot a course")
        await run.result()
        begun = await chat.begin_session("Cook a soup.")
        beside = await stage.library.conversation(chat.id)
        assert await chat.sessions() == await beside.sessions()
        assert (await beside.sessions())[-1] == begun
        back = await chat.undo_switch()
        assert back.id == (await beside.sessions())[0].id
        assert (await chat.schedule(None)).scheduling is None
