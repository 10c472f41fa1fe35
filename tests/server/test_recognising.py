"""A client that sends its whole history again: what is shared, what branches, what stays apart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from antiphon.core.ids import LOCAL_TENANT
from antiphon.engine.settings import Settings, Stateless
from tests.server.stage import Served, served
from tests.support.asgi import WAIT_S
from tests.support.provider import Hold, ScriptedProvider, asks, says

CHAT = "/v1/chat/completions"
HI = {"role": "user", "content": "Hi"}
HELLO = {"role": "assistant", "content": "Hello."}
TOOLS = [{"type": "function", "function": {"name": "look"}}]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def said(server: Served, *messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    body = {"model": "rehearsal", "messages": list(messages), "store": True, **more}
    told = await server.client.post(CHAT, body)
    assert told.status == 200, told.body
    choice: dict[str, Any] = told.json["choices"][0]["message"]
    return choice


async def kept(server: Served) -> list[list[str]]:
    """Return what each conversation holds, one text or call a message."""
    store = server.engine.world.store
    found = []
    for row in await store.conversations(LOCAL_TENANT, limit=50):
        tree = await store.tree(row.id)
        found.append([m.text or m.role.value for m in tree])
    return sorted(found)


async def test_a_history_that_goes_on_adds_only_what_is_new(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("Hello."), says("Fine."), says("Bye."))
    async with served(tmp_path / "a.db", provider) as server:
        await said(server, HI)
        await said(server, HI, HELLO, user("How are you?"))
        fine = {"role": "assistant", "content": "Fine."}
        await said(server, HI, HELLO, user("How are you?"), fine, user("Bye"))
        assert await kept(server) == [["Hi", "Hello.", "How are you?", "Fine.", "Bye", "Bye."]]
        assert [len(provider.messages(n)) for n in range(3)] == [1, 3, 5]


async def test_a_history_that_was_changed_is_a_branch_and_the_same_one_again_another_answer(
    tmp_path: Path,
) -> None:
    provider = ScriptedProvider(says("Hello."), says("A."), says("B."), says("Again."))
    async with served(tmp_path / "a.db", provider) as server:
        await said(server, HI)
        await said(server, HI, HELLO, user("One?"))
        await said(server, HI, HELLO, user("Other?"))
        await said(server, HI)
        (texts,) = await kept(server)
        assert sorted(texts) == sorted(["Hi", "Hello.", "One?", "A.", "Other?", "B.", "Again."])


async def test_calls_come_back_as_the_client_spells_them_with_their_results(
    tmp_path: Path,
) -> None:
    provider = ScriptedProvider(asks(("c1", "look", '{"at": "sky"}')), says("Blue."))
    async with served(tmp_path / "a.db", provider) as server:
        asked = await said(server, HI, tools=TOOLS)
        asked["tool_calls"][0]["function"]["arguments"] = '{"at":"sky"}'
        asked = {k: v for k, v in asked.items() if k in ("role", "content", "tool_calls")}
        result = {"role": "tool", "tool_call_id": "c1", "content": "blue"}
        told = await said(server, HI, asked, result, tools=TOOLS)
        assert told["content"] == "Blue."
        assert len(await kept(server)) == 1
        sent = provider.messages()
        assert [m["role"] for m in sent] == ["user", "assistant", "tool"]
        assert sent[2]["content"] == "blue"


async def test_what_is_at_work_is_left_alone(tmp_path: Path) -> None:
    hold = Hold()
    provider = ScriptedProvider(says("Hello."), [hold, *says("A.")], says("B."))
    async with served(tmp_path / "a.db", provider) as server:
        await said(server, HI)
        first = asyncio.create_task(said(server, HI, HELLO, user("One?")))
        async with asyncio.timeout(WAIT_S):
            await hold.reached.wait()
        assert (await said(server, HI, HELLO, user("Other?")))["content"] == "B."
        hold.go.set()
        assert (await first)["content"] == "A."
        assert len(await kept(server)) == 2


@pytest.mark.parametrize(
    ("setting", "store", "conversations"),
    [
        (Stateless.DROP, None, 0),
        (Stateless.KEEP, None, 1),
        (Stateless.KEEP, False, 0),
        (Stateless.DROP, True, 1),
    ],
)
async def test_what_is_kept_is_a_setting_and_a_request_has_the_last_word(
    tmp_path: Path, setting: Stateless, store: bool | None, conversations: int
) -> None:
    settings = Settings(retry_base_s=0.0, cancel_grace_s=0.0, stateless=setting)
    async with served(
        tmp_path / "a.db", ScriptedProvider(says("Hello.")), settings=settings
    ) as server:
        await said(server, HI, store=store)
        await asyncio.wait_for(server.engine.erasure.idle(), WAIT_S)
        assert len(await kept(server)) == conversations
