"""Where a request goes on, in a conversation of any length: what is read to find it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import openai
import pytest

from antiphon.core.blocks import Message
from antiphon.core.ids import LOCAL_TENANT, ConversationId
from antiphon.core.tree import last_closed_point
from antiphon.core.tree import line as visible
from antiphon.server.responses.ground import of_response
from tests.server.sdk import LOOK, Door, door, output
from tests.support.asgi import WAIT_S
from tests.support.lines import line, model, user
from tests.support.provider import Hold, asks, says

BROUGHT = 600


async def long_one(d: Door) -> str:
    """Make a conversation that is long before anything is asked."""
    made = await d.client.conversations.create()
    here = ConversationId(made.id)
    session = (await d.engine.world.store.conversation(here)).session
    more = {"conversation": here, "session": session}
    said = line(*[(user if n % 2 else model)(f"{n}", **more) for n in range(1, BROUGHT + 1)])
    await d.engine.add_messages(here, said, said[-1].id)
    return made.id


def counted(d: Door) -> list[int]:
    """Return what grows by the length of each path that is read from now on."""
    store, read = d.engine.world.store, []
    path = store.path

    async def counting(*where: Any, **how: Any) -> list[Message]:
        found = await path(*where, **how)
        read.append(len(found))
        return found

    store.path = counting  # type: ignore[method-assign]
    return read


@pytest.mark.req("M33")
async def test_outputs_find_their_calls_without_a_look_at_all_that_was_said(tmp_path: Path) -> None:
    scripts = [asks(("c1", "look", "{}")), says("Rain."), says("More rain."), says("Snow.")]
    async with door(tmp_path / "a.db", *scripts) as d:
        where = await long_one(d)
        asked = await d.say("Weather?", conversation=where, tools=[LOOK])
        read = counted(d)
        told = await d.say([output("c1", "wet")], conversation=where, tools=[LOOK])
        assert told.output_text == "Rain."
        again = await d.say([output("c1", "wet")], conversation=where, tools=[LOOK])
        other = await d.say([output("c1", "wet")], previous_response_id=asked.id, tools=[LOOK])
        assert (again.output_text, other.output_text) == ("More rain.", "Snow.")
        assert max(read) < BROUGHT / 4


async def test_new_text_is_refused_while_outputs_are_due_without_a_look_at_all_that_was_said(
    tmp_path: Path,
) -> None:
    async with door(tmp_path / "a.db", asks(("c1", "look", "{}"))) as d:
        where = await long_one(d)
        await d.say("Weather?", conversation=where, tools=[LOOK])
        read = counted(d)
        with pytest.raises(openai.BadRequestError) as caught:
            await d.say("And?", conversation=where, tools=[LOOK])
        assert caught.value.code == "missing_tool_result"
        assert max(read) < BROUGHT / 4


async def test_what_failed_is_gone_on_from_its_last_closed_point(tmp_path: Path) -> None:
    """The newest answer asks for a tool that nobody answered: what is before it is closed."""
    async with door(tmp_path / "a.db", asks(("c1", "look", "{}")), says("Fine.")) as d:
        where = await long_one(d)
        asked = await d.say("Weather?", conversation=where, tools=[LOOK])
        await d.client.responses.cancel(asked.id)
        read = counted(d)
        ground = await of_response(d.engine, LOCAL_TENANT, asked.id)
        assert max(read) < BROUGHT / 4
        [run] = await d.engine.world.store.runs(ConversationId(where))
        assert run.leaf is not None
        whole = await d.engine.world.store.path(run.conversation, run.leaf)
        assert len(whole) > BROUGHT
        assert ground.parent == last_closed_point(visible(whole, ()))
        assert ground.parent not in (None, whole[0].id)
        told = await d.say("Never mind.", previous_response_id=asked.id)
        assert told.output_text == "Fine."


async def test_what_was_canceled_while_another_was_at_work_is_gone_on_from_before_its_open_calls(
    tmp_path: Path,
) -> None:
    """The results of its calls could not be placed then, so its line ends in calls for ever."""
    hold = Hold()
    scripts = [says("One."), asks(("c1", "look", "{}")), [hold, *says("Later.")], says("Fine.")]
    async with door(tmp_path / "a.db", *scripts) as d:
        first = await d.say("Begin.")
        asked = await d.say("Weather?", previous_response_id=first.id, tools=[LOOK])
        await d.say("Another way.", previous_response_id=first.id, background=True)
        await asyncio.wait_for(hold.reached.wait(), WAIT_S)
        await d.client.responses.cancel(asked.id)
        hold.go.set()
        told = await d.say("Never mind.", previous_response_id=asked.id)
        assert told.output_text == "Fine."
        said = [m["content"] for m in d.provider.messages()]
        assert said == ["Begin.", "One.", "Weather?", "Never mind."]
