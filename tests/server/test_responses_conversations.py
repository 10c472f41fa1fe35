"""The Conversations API as the official SDK sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from antiphon.core.ids import LOCAL_TENANT
from tests.server.sdk import LOOK, door, error_of, output
from tests.support.provider import Hold, asks, says

HISTORY: list[Any] = [
    {"role": "user", "content": "I am Bo."},
    {"role": "assistant", "content": "Hi, Bo."},
]
ASKED: dict[str, Any] = {
    "type": "function_call",
    "call_id": "c1",
    "name": "look",
    "arguments": "{}",
}


@pytest.mark.req("M91")
async def test_a_conversation_is_made_changed_and_deleted(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db") as d:
        made = await d.client.conversations.create(metadata={"a": "1"})
        assert (made.object, made.metadata) == ("conversation", {"a": "1"})
        changed = await d.client.conversations.update(made.id, metadata={"b": "2"})
        assert changed.metadata == {"b": "2"}
        assert await d.client.conversations.retrieve(made.id) == changed
        gone = await d.client.conversations.delete(made.id)
        assert gone.deleted
        for call in (
            d.client.conversations.retrieve(made.id),
            d.client.conversations.items.list(made.id),
            d.say("Hi", conversation=made.id),
        ):
            with pytest.raises(openai.NotFoundError):
                await call


async def test_items_that_are_brought_are_what_the_model_sees(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", says("Bo.")) as d:
        made = await d.client.conversations.create(items=HISTORY)
        more = await d.client.conversations.items.create(
            made.id, items=[{"role": "user", "content": "I live in Oslo."}]
        )
        assert [item.type for item in more.data] == ["message"]
        await d.say("Who am I?", conversation=made.id)
        assert [m["content"] for m in d.provider.messages()] == [
            "I am Bo.",
            "Hi, Bo.",
            "I live in Oslo.",
            "Who am I?",
        ]


async def test_items_are_listed_in_both_orders_page_by_page(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", asks(("c1", "look", "{}")), says("Rain.")) as d:
        made = await d.client.conversations.create(items=HISTORY)
        asked = await d.say("Weather?", conversation=made.id, tools=[LOOK])
        await d.say([output("c1", "wet")], previous_response_id=asked.id, tools=[LOOK])
        items = d.client.conversations.items
        page = await items.list(made.id, order="asc", limit=4)
        ascending = [item.to_dict() async for item in page]
        assert [item["type"] for item in ascending] == [
            "message",
            "message",
            "message",
            "function_call",
            "function_call_output",
            "message",
        ]
        descending = [item.to_dict() async for item in await items.list(made.id, limit=1)]
        assert descending == ascending[::-1]
        for item in ascending:
            one = await items.retrieve(str(item["id"]), conversation_id=made.id)
            assert one.to_dict() == item
        with pytest.raises(openai.BadRequestError) as caught:
            await items.list(made.id, after="msg_of_nobody")
        assert caught.value.code == "bad_cursor"


async def test_a_call_is_deleted_with_its_output(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", asks(("c1", "look", "{}")), says("Rain."), says("Ok.")) as d:
        made = await d.client.conversations.create()
        asked = await d.say("Weather?", conversation=made.id, tools=[LOOK])
        await d.say([output("c1", "wet")], previous_response_id=asked.id, tools=[LOOK])
        items = d.client.conversations.items
        call = asked.output[0].id
        assert call is not None
        await items.delete(call, conversation_id=made.id)
        left = [item.type async for item in await items.list(made.id, order="asc")]
        assert left == ["message", "message"]
        with pytest.raises(openai.NotFoundError):
            await items.retrieve(call, conversation_id=made.id)


async def test_items_for_a_conversation_at_work_are_refused(tmp_path: Path) -> None:
    hold = Hold()
    async with door(tmp_path / "a.db", [hold, *says("Hi.")]) as d:
        made = await d.client.conversations.create()
        await d.say("Hello", conversation=made.id, background=True)
        await hold.reached.wait()
        with pytest.raises(openai.ConflictError) as caught:
            await d.client.conversations.items.create(made.id, items=HISTORY)
        assert error_of(caught.value)[:2] == (409, "conversation_busy")
        hold.go.set()
        await d.idle(made.id)


@pytest.mark.parametrize(
    ("items", "code", "at"),
    [
        ([{"role": "nobody", "content": "x"}], "role_unsupported", "input[0]"),
        ([{"role": "user", "content": 7}], "malformed_item", "input[0].content"),
        ([{"type": "item_reference", "id": "msg_1"}], "unsupported_parameter", "input[0]"),
        ([*HISTORY, output("c1", "wet")], "orphan_tool_result", "input[2]"),
        ([ASKED, ASKED], "duplicate_call_id", "input[1]"),
        ([ASKED, {"role": "user", "content": "Well?"}], "missing_tool_result", "input[0]"),
    ],
)
async def test_what_is_no_item_is_refused_at_its_place(
    tmp_path: Path, items: list[Any], code: str, at: str
) -> None:
    async with door(tmp_path / "a.db") as d:
        with pytest.raises(openai.BadRequestError) as caught:
            await d.client.conversations.create(items=items)
        assert error_of(caught.value) == (400, code, at.replace("input", "items"))


@pytest.mark.req("M34")
async def test_items_that_no_model_could_ever_be_sent_do_not_spoil_a_conversation(
    tmp_path: Path,
) -> None:
    async with door(tmp_path / "a.db", says("Fine.")) as d:
        made = await d.client.conversations.create(items=HISTORY)
        with pytest.raises(openai.BadRequestError) as caught:
            await d.client.conversations.items.create(made.id, items=[output("c1", "wet")])  # type: ignore[list-item]
        assert error_of(caught.value) == (400, "orphan_tool_result", "items[0]")
        assert (await d.say("And now?", conversation=made.id)).status == "completed"


async def test_a_call_and_its_output_may_be_added_one_after_the_other(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", says("Wet.")) as d:
        made = await d.client.conversations.create(items=HISTORY)
        for item in (ASKED, output("c1", "wet")):
            await d.client.conversations.items.create(made.id, items=[item])  # type: ignore[list-item]
        with pytest.raises(openai.BadRequestError) as caught:
            await d.client.conversations.items.create(made.id, items=[output("c1", "dry")])  # type: ignore[list-item]
        assert caught.value.code == "duplicate_tool_result"
        await d.say("How is it?", conversation=made.id)
        roles = [m["role"] for m in d.provider.messages()]
        assert roles == ["user", "assistant", "assistant", "tool", "user"]


async def test_a_compaction_holds_the_one_before_it_as_what_it_is(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", says("Bo, Oslo."), says("Bo, Oslo, rain.")) as d:
        short = await d.client.responses.compact(model="rehearsal", input=HISTORY)
        more: Any = [short.output[0].to_dict(), {"role": "user", "content": "It rains."}]
        await d.client.responses.compact(model="rehearsal", input=more)
        rows = [json.loads(row) for row in str(d.provider.messages()[-1]["content"]).split("\n")]
        assert rows == [
            {"kind": "summary", "text": "Bo, Oslo."},
            {"kind": "user", "text": "It rains."},
        ]


async def test_a_compacted_line_is_sent_as_its_summary_and_no_forgery_is(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", says("Bo, Oslo."), says("Oslo.")) as d:
        short = await d.client.responses.compact(model="rehearsal", input=HISTORY)
        (item,) = [item.to_dict() for item in short.output]
        assert item["type"] == "compaction"
        await d.say([item, {"role": "user", "content": "Where?"}])
        # It is asked as where a window fills up: what was said is data, in lines.
        order, asked = d.provider.messages(0)
        assert str(order["content"]).startswith("You keep the memory of a conversation.")
        rows = [json.loads(row) for row in str(asked["content"]).split("\n")]
        assert [row["kind"] for row in rows] == ["user", "assistant"]
        first, second = d.provider.messages()
        assert "Bo, Oslo." in str(first["content"])
        assert second["content"] == "Where?"
        kept = await d.engine.world.store.conversations(LOCAL_TENANT)
        assert len(kept) == 1  # that of the summary is nobody's to find
