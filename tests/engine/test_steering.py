"""Steering: a message joins the run that works, at its next step boundary."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from antiphon.core.asking import Ask
from antiphon.core.blocks import Role
from antiphon.core.events import RunChanged, decode_event
from antiphon.core.ids import ConversationId
from antiphon.core.records import RunStatus
from antiphon.engine.tools.function import Function
from antiphon.errors import InvalidInput
from tests.server.stage import served
from tests.support.engines import app_on
from tests.support.provider import Hold, ScriptedProvider, asks, chunk, says

STEER = Ask(steer=True)


class Door:
    """A tool that is inside until it is let out."""

    def __init__(self) -> None:
        self.inside, self.out = asyncio.Event(), asyncio.Event()

    async def run(self) -> str:
        self.inside.set()
        await self.out.wait()
        return "seen"

    def function(self) -> Function:
        return Function(name="look", run=self.run)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "antiphon.db"


async def test_what_is_said_while_a_tool_works_is_heard_before_the_next_answer(db: Path) -> None:
    door = Door()
    provider = ScriptedProvider(asks(("c1", "look", "{}")), says("In short: seen."))
    async with app_on(db, provider, functions=[door.function()]) as app, asyncio.timeout(20):
        chat = await app.create()
        working = await chat.send("Look around")
        await door.inside.wait()
        steering = await chat.send("Be short", ask=STEER)
        also = await chat.send("And kind", ask=STEER)
        door.out.set()
        answer = await working.result()
        assert answer.text == "In short: seen."
        assert await steering.result() == answer == await also.result()
        line = await chat.line()
        assert [(m.role, m.text) for m in line if m.role is not Role.TOOL] == [
            (Role.USER, "Look around"),
            (Role.ASSISTANT, ""),
            (Role.USER, "Be short"),
            (Role.USER, "And kind"),
            (Role.ASSISTANT, "In short: seen."),
        ]
        assert [m["role"] for m in provider.messages()] == [
            "user",
            "assistant",
            "tool",
            "user",
            "user",
        ]
        assert len(provider.requests) == 2
        row = await steering.row()
        assert (row.status, row.end_code) == (RunStatus.SUCCESS, "joined")


async def test_without_a_step_boundary_it_waits_for_its_turn(db: Path) -> None:
    hold = Hold()
    provider = ScriptedProvider([chunk({"content": "One."}), hold, *says("")[1:]], says("Two."))
    async with app_on(db, provider) as app, asyncio.timeout(20):
        chat = await app.create()
        working = await chat.send("First")
        await hold.reached.wait()
        steering = await chat.send("Second", ask=STEER)
        hold.go.set()
        assert (await working.result()).text == "One."
        assert (await steering.result()).text == "Two."
        assert (await steering.row()).end_code is None


async def test_what_did_not_ask_to_steer_waits_for_its_turn(db: Path) -> None:
    door = Door()
    provider = ScriptedProvider(asks(("c1", "look", "{}")), says("Seen."), says("Second."))
    async with app_on(db, provider, functions=[door.function()]) as app, asyncio.timeout(20):
        chat = await app.create()
        working = await chat.send("Look")
        await door.inside.wait()
        later = await chat.send("Later")
        door.out.set()
        assert (await working.result()).text == "Seen."
        assert (await later.result()).text == "Second."


async def test_one_that_was_withdrawn_does_not_join(db: Path) -> None:
    door = Door()
    provider = ScriptedProvider(asks(("c1", "look", "{}")), says("Seen."))
    async with app_on(db, provider, functions=[door.function()]) as app, asyncio.timeout(20):
        chat = await app.create()
        working = await chat.send("Look")
        await door.inside.wait()
        steering = await chat.send("No, wait", ask=STEER)
        await steering.cancel()
        door.out.set()
        await working.result()
        assert "No, wait" not in [m.text for m in await chat.line()]


async def test_a_message_with_a_parent_of_its_own_steers_nothing(db: Path) -> None:
    provider = ScriptedProvider(says("One."))
    async with app_on(db, provider) as app:
        chat = await app.create()
        answer = await (await chat.send("First")).result()
        with pytest.raises(InvalidInput) as caught:
            await chat.send("There", parent=answer.id, ask=STEER)
        assert (caught.value.code, caught.value.at) == ("bad_option", "steer")


async def test_over_http_it_is_said_with_the_message_and_the_events_name_the_other_run(
    db: Path,
) -> None:
    door = Door()
    provider = ScriptedProvider(asks(("c1", "look", "{}")), says("Seen."))
    async with served(db, provider, functions=[door.function()]) as server, asyncio.timeout(20):
        name = await server.conversation()
        working = await server.send(name, "Look")
        await door.inside.wait()
        steering = await server.send(name, "Be short", steer=True)
        door.out.set()
        await server.idle(name)
        told = await server.engine.world.store.events(ConversationId(name), 0)
        (joined,) = [
            event
            for stored in told
            if isinstance(event := decode_event(stored.data), RunChanged) and event.into
        ]
        assert (joined.run, joined.into) == (steering["id"], working["id"])
