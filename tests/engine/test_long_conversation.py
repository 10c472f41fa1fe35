"""A conversation of thousands of messages, through many switches: a turn costs what it costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from antiphon.core.blocks import Message, Origin, Role, Text, default_trust
from antiphon.core.ids import MessageId
from antiphon.core.manifest import WireRequest
from antiphon.engine.settings import Settings
from antiphon.handles.chat import Chat
from antiphon.library import Antiphon
from tests.support.clock import SimulatedClock
from tests.support.engines import app_on, talk
from tests.support.provider import ScriptedProvider, says

BROUGHT = 3_000
SWITCHES = 6
TURNS = 4
"""Between two switches."""


class Decider(ScriptedProvider):
    """Wants a new session wherever a message says so, and else goes on."""

    async def send(self, request: WireRequest, **how: Any) -> Any:
        messages = json.loads(request.body)["messages"]
        order = str(messages[0]["content"]) if messages[0]["role"] == "system" else ""
        if order.startswith("You decide"):
            new = json.loads(str(messages[-1]["content"])).get("new_message", "")
            decision = "start_new" if new.startswith("Something else") else "continue"
            self.scripts = [says(json.dumps({"decision": decision, "goal": "Another task."}))]
        elif order.startswith("You "):
            self.scripts = [says("A summary.")]
        else:
            self.scripts = [says("So it is.")]
        return await super().send(request, **how)


async def brought(app: Antiphon, chat: Chat) -> None:
    nodes: list[Message] = []
    for number in range(BROUGHT):
        role = Role.ASSISTANT if number % 2 else Role.USER
        nodes.append(
            Message(
                id=MessageId(f"m{number}"),
                conversation=chat.id,
                parent=nodes[-1].id if nodes else None,
                role=role,
                blocks=(Text(text=f"Word {number}."),),
                origin=Origin.IMPORTED,
                trust=default_trust(role, Origin.IMPORTED),
            )
        )
    await app.engine.add_messages(chat.id, nodes, nodes[-1].id)


@pytest.mark.req("M159", "M160")
async def test_a_turn_reads_and_sends_as_little_after_six_switches_as_after_one(
    tmp_path: Path,
) -> None:
    clock, provider = SimulatedClock(), Decider()
    settings = Settings(retry_base_s=0.0, scheduling=True)
    async with app_on(tmp_path / "a.db", provider, clock=clock, settings=settings) as app:
        chat = await app.create()
        await brought(app, chat)
        store, read = app.engine.world.store, 0
        path = store.path

        async def counted(*where: Any, **how: Any) -> list[Message]:
            nonlocal read
            found = await path(*where, **how)
            read += len(found)
            return found

        store.path = counted  # type: ignore[method-assign]
        costs: list[tuple[int, int]] = []
        for number in range(SWITCHES):
            await clock.advance(3_601)
            assert await talk(chat, f"Something else: {number}") == "So it is."
            for turn in range(TURNS):
                await app.engine.idle(chat.id)
                read, sent = 0, len(provider.requests)
                assert await talk(chat, f"And {turn}?") == "So it is."
                await app.engine.idle(chat.id)
                bytes_sent = sum(len(request.body) for request in provider.requests[sent:])
                if turn == TURNS - 1:
                    costs.append((read, bytes_sent))
        sessions = await chat.sessions()
        assert len(sessions) == SWITCHES + 1
        assert len(await store.tree(chat.id)) > BROUGHT
        reads = [one for one, _ in costs]
        assert max(reads) <= 60, costs
        assert max(reads) == min(reads[1:]), costs
        sizes = [one for _, one in costs]
        assert max(sizes[1:]) <= 1.2 * min(sizes[1:]), costs
        assert max(sizes) < 30_000, costs
