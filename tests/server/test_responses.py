"""The Responses API as the official SDK sees it: every call, and every state to go on from."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import BaseModel, OpenAI

from antiphon.core.commands import Command
from antiphon.core.ids import ConversationId
from antiphon.core.records import RunStatus
from antiphon.engine.ports import Cut
from antiphon.stores.sqlite.examine import examine
from tests.server.sdk import LOOK, conversation_of, door, error_of, kinds, output, within
from tests.support.provider import Hold, Status, asks, chunk, says


def texts_of(item: BaseModel) -> str:
    content: Any = item.to_dict()["content"]
    return "".join(part["text"] for part in content)


# Creating.


@pytest.mark.req("M91")
async def test_a_response_is_stored_with_its_text_and_its_cost(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", says("Hello", " you.")) as d:
        told = await d.say("Hi", metadata={"a": "b"}, instructions="Be brief.")
        assert (told.status, told.output_text) == ("completed", "Hello you.")
        assert told.usage is not None
        assert (told.usage.input_tokens, told.usage.output_tokens) == (10, 5)
        assert (told.metadata, told.instructions) == ({"a": "b"}, "Be brief.")
        again = await d.client.responses.retrieve(told.id)
        assert again.to_dict() == told.to_dict()
        assert d.provider.messages()[0]["content"] == "Be brief."


@pytest.mark.req("M130")
@pytest.mark.parametrize(
    ("asked", "brought"),
    [
        pytest.param("Hi", (), id="a word"),
        pytest.param(
            [
                {"role": "user", "content": "I am Ann."},
                {"role": "assistant", "content": "Hello, Ann."},
                {"role": "user", "content": "Hi"},
            ],
            ("AddMessages",),
            id="a history",
        ),
    ],
)
async def test_one_flush_stands_before_a_byte_leaves_and_one_behind_the_answer(
    tmp_path: Path, asked: Any, brought: tuple[str, ...]
) -> None:
    async with door(tmp_path / "a.db", says("Hello.")) as d:
        store, seen = d.engine.world.store, list[tuple[str, ...]]()
        do_all = store.do_all

        async def several(*commands: Command[Any]) -> Any:
            seen.append(tuple(type(command).__name__ for command in commands))
            return await do_all(*commands)

        store.do_all = several  # type: ignore[method-assign]
        assert (await d.say(asked)).output_text == "Hello."
        started = ("CreateConversation", "OpenResponse", "PutContent", *brought, "StartRun")
        begun = ("PlaceRun", "PutContent", "Prepare", "Accept")
        assert seen == [(*started, *begun), ("CommitAnswer",)]


@pytest.mark.req("M103")
async def test_an_item_is_brought_back_under_the_id_that_it_had_from_us(tmp_path: Path) -> None:
    def history(name: str) -> list[dict[str, Any]]:
        said = [{"type": "output_text", "text": "Hello, Ann.", "annotations": []}]
        answered = {"type": "message", "id": name, "role": "assistant", "content": said}
        return [
            {"role": "user", "content": "I am Ann."},
            answered,
            {"role": "user", "content": "Hi"},
        ]

    async with door(tmp_path / "a.db", says("Hello.")) as d:
        # What is not the first item of its message has a number of ours behind a point.
        assert (await d.say(history("msg_1.1"))).output_text == "Hello."
        with pytest.raises(openai.BadRequestError) as caught:
            await d.say(history("msg 1"))
        assert error_of(caught.value) == (400, "malformed_item", "input[1].id")


REQUIRED = [
    "id",
    "object",
    "created_at",
    "completed_at",
    "status",
    "incomplete_details",
    "model",
    "previous_response_id",
    "instructions",
    "output",
    "error",
    "tools",
    "tool_choice",
    "truncation",
    "parallel_tool_calls",
    "text",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "temperature",
    "reasoning",
    "usage",
    "max_output_tokens",
    "max_tool_calls",
    "store",
    "background",
    "service_tier",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
]


async def test_the_object_has_every_field_of_open_responses(tmp_path: Path) -> None:
    assert len(REQUIRED) == 31
    async with door(tmp_path / "a.db", says("Yes.")) as d:
        told = (await d.say("Hi", tools=[LOOK])).to_dict()
        assert set(REQUIRED) <= set(told)


async def test_the_sync_client_gets_the_same(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", says("One."), says("Two.")) as d:

        def use() -> tuple[str, list[str]]:
            with OpenAI(base_url=f"{d.url}/v1", api_key="any", max_retries=0) as client:
                first = client.responses.create(model="rehearsal", input="Hi")
                stream = client.responses.create(
                    model="rehearsal", input="More", previous_response_id=first.id, stream=True
                )
                return first.output_text, [event.type for event in stream]

        text, told = await asyncio.to_thread(use)
        assert (text, told[0], told[-1]) == ("One.", "response.created", "response.completed")


async def test_a_streamed_response_ends_with_the_object_that_is_retrieved(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", says("Hello", " you.")) as d:
        stream = await d.stream("Hi")
        events = [event async for event in stream]
        numbers = [event.sequence_number for event in events]
        assert numbers == sorted(set(numbers))
        final = events[-1]
        assert final.type == "response.completed"
        stored = await d.client.responses.retrieve(within(final).id)
        assert stored.to_dict() == within(final).to_dict()


async def test_the_stream_helper_assembles_the_same_response(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", says("Hello", " you.")) as d:
        async with d.client.responses.stream(model="rehearsal", input="Hi") as stream:
            seen = [event async for event in stream]
            final = await stream.get_final_response()
        assert final.output_text == "Hello you."
        half = seen[len(seen) // 2].sequence_number
        async with d.client.responses.stream(response_id=final.id, starting_after=half) as rest:
            deltas = [e.delta async for e in rest if e.type == "response.output_text.delta"]
            assert (await rest.get_final_response()).output_text == "Hello you."
        had = [
            e.delta
            for e in seen
            if e.type == "response.output_text.delta" and e.sequence_number <= half
        ]
        assert "".join(had + deltas) == "Hello you."


@pytest.mark.req("M130")
async def test_created_is_told_before_the_provider_answers(tmp_path: Path) -> None:
    hold = Hold()
    async with door(tmp_path / "a.db", [hold, *says("Late.")]) as d:
        stream = aiter(await d.stream("Hi"))
        first = await anext(stream)
        assert first.type == "response.created"
        await hold.reached.wait()
        assert (await d.client.responses.retrieve(within(first).id)).status == "in_progress"
        hold.go.set()
        assert [e.type async for e in stream][-1] == "response.completed"


async def test_in_the_background_it_is_answered_at_once(tmp_path: Path) -> None:
    hold = Hold()
    async with door(tmp_path / "a.db", [hold, *says("Done.")]) as d:
        told = await d.say("Hi", background=True)
        assert (told.status, told.background) == ("in_progress", True)
        hold.go.set()
        followed = await d.client.responses.retrieve(told.id, stream=True)
        assert (await kinds(followed))[-1] == "response.completed"
        assert (await d.client.responses.retrieve(told.id)).output_text == "Done."


@pytest.mark.req("M78")
async def test_a_client_that_leaves_does_not_cancel(tmp_path: Path) -> None:
    hold = Hold()
    script = [chunk({"content": "He"}), hold, *says("llo.")]
    async with door(tmp_path / "a.db", script) as d:
        stream = await d.stream("Hi")
        numbers: list[int] = []
        response = ""
        async for event in stream:
            numbers.append(event.sequence_number)
            if event.type == "response.created":
                response = event.response.id
            if event.type == "response.output_text.delta":
                break
        await stream.close()
        hold.go.set()
        rest = await d.client.responses.retrieve(response, stream=True, starting_after=numbers[-1])
        events = [event async for event in rest]
        text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
        assert text == "llo."
        assert events[-1].type == "response.completed"
        assert len(d.provider.requests) == 1


@pytest.mark.req("M75")
async def test_every_cut_of_the_stream_is_resumed_whole(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", says("Hello", " world", "!")) as d:
        stream = await d.stream("Hi")
        events = [event async for event in stream]
        response = within(events[-1]).id
        for cut, last in enumerate(events):
            rest = await d.client.responses.retrieve(
                response, stream=True, starting_after=last.sequence_number
            )
            told = [event async for event in rest]
            deltas = [
                e.delta
                for e in (*events[: cut + 1], *told)
                if e.type == "response.output_text.delta"
            ]
            assert "".join(deltas) == "Hello world!"
            expected = [e.type for e in events[cut + 1 :] if "delta" not in e.type]
            assert [e.type for e in told if "delta" not in e.type] == expected
        beyond = events[-1].sequence_number + 1
        with pytest.raises(openai.BadRequestError) as caught:
            await d.client.responses.retrieve(response, stream=True, starting_after=beyond)
        assert error_of(caught.value) == (400, "bad_cursor", "starting_after")


async def test_a_retried_attempt_is_not_told_into_a_stream_that_cannot_take_back(
    tmp_path: Path,
) -> None:
    broken = [chunk({"content": "Wro"}), Cut("connection_lost", "cut")]
    async with door(tmp_path / "a.db", broken, says("Right.")) as d:
        events = [event async for event in await d.stream("Hi")]
        deltas = [e.delta for e in events if e.type == "response.output_text.delta"]
        assert "Right." not in "".join(deltas)
        assert events[-1].type == "response.completed"
        assert within(events[-1]).output_text == "Right."
    async with door(tmp_path / "b.db", broken, says("Right.")) as d:
        client = d.client.with_options(default_headers={"Antiphon-Withdraw": "1"})
        stream = await client.responses.create(model="rehearsal", input="Hi", stream=True)
        events = [event async for event in stream]
        at = [str(e.type) for e in events].index("antiphon:preview.withdrawn")
        deltas = [e.delta for e in events[at:] if e.type == "response.output_text.delta"]
        assert "".join(deltas) == "Right."


# Going on.


@pytest.mark.req("M91", "M92")
async def test_two_responses_from_one_are_siblings_and_do_not_see_each_other(
    tmp_path: Path,
) -> None:
    async with door(tmp_path / "a.db", says("Hi."), says("A."), says("B.")) as d:
        first = await d.say("Hello")
        await d.say("Left", previous_response_id=first.id)
        right = await d.say("Right", previous_response_id=first.id)
        assert [m["content"] for m in d.provider.messages()] == ["Hello", "Hi.", "Right"]
        assert conversation_of(right) == conversation_of(first)
        # A branch made so becomes the head.
        items = await d.client.conversations.items.list(conversation_of(first), order="asc")
        texts = [texts_of(item) for item in items.data]
        assert texts == ["Hello", "Hi.", "Right", "B."]


async def test_a_conversation_goes_on_from_its_head(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", says("Hi."), says("Bo.")) as d:
        made = await d.client.conversations.create()
        await d.say("I am Bo", conversation=made.id)
        await d.say("Who am I?", conversation={"id": made.id})
        assert [m["content"] for m in d.provider.messages()] == ["I am Bo", "Hi.", "Who am I?"]


async def test_several_items_become_the_line_of_a_new_conversation(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", says("Bo.")) as d:
        told = await d.say(
            [
                {"role": "user", "content": "I am Bo"},
                {"role": "assistant", "content": "Hi."},
                {"role": "user", "content": "Who am I?"},
            ]
        )
        roles = [m["role"] for m in d.provider.messages()]
        assert roles == ["user", "assistant", "user"]
        brought = await d.client.responses.input_items.list(told.id, order="asc")
        assert [item.to_dict()["role"] for item in brought.data] == roles
        page = await d.client.responses.input_items.list(told.id, limit=1)
        assert page.has_more
        rest = await d.client.responses.input_items.list(told.id, after=page.data[0].id or "")
        assert len(rest.data) == 2


@pytest.mark.parametrize(
    ("word", "status"),
    [("queued", "queued"), ("in_progress", "in_progress")],
)
async def test_a_response_at_work_cannot_be_gone_on_from(
    tmp_path: Path, word: str, status: str
) -> None:
    hold = Hold()
    async with door(tmp_path / "a.db", says("Hi."), [hold, *says("One.")], says("Two.")) as d:
        first = await d.say("Hello")
        busy = await d.say("Work", previous_response_id=first.id, background=True)
        await hold.reached.wait()
        waits = await d.say("Wait", previous_response_id=first.id, background=True)
        asked = busy if word == "in_progress" else waits
        assert (await d.client.responses.retrieve(asked.id)).status == status
        with pytest.raises(openai.ConflictError) as caught:
            await d.say("Now?", previous_response_id=asked.id)
        assert error_of(caught.value)[:2] == (409, "response_not_finished")
        assert caught.value.response.headers["x-should-retry"] == "false"
        hold.go.set()
        await kinds(await d.client.responses.retrieve(waits.id, stream=True))


async def test_after_a_failure_one_goes_on_from_the_last_closed_point(tmp_path: Path) -> None:
    refused = [Status(400), b'{"error": {"message": "no", "code": "bad"}}']
    async with door(tmp_path / "a.db", says("Hi."), refused, says("Yes.")) as d:
        first = await d.say("Hello")
        failed = await d.say("Bad", previous_response_id=first.id)
        assert (failed.status, failed.error is not None) == ("failed", True)
        await d.say("Good", previous_response_id=failed.id)
        assert [m["content"] for m in d.provider.messages()] == ["Hello", "Hi.", "Good"]


async def test_a_cut_answer_is_incomplete_and_can_be_gone_on_from(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", says("Once upon", finish="length"), says("on.")) as d:
        told = await d.say("Tell")
        assert told.status == "incomplete"
        assert told.incomplete_details is not None
        assert told.incomplete_details.reason == "max_output_tokens"
        await d.say("Go on", previous_response_id=told.id)
        assert [m["content"] for m in d.provider.messages()] == ["Tell", "Once upon", "Go on"]


async def test_a_filtered_answer_is_incomplete_and_nothing_of_it_stays(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", says("Bad", finish="content_filter"), says("Ok.")) as d:
        told = await d.say("Tell")
        assert told.incomplete_details is not None
        assert (told.status, told.incomplete_details.reason) == ("incomplete", "content_filter")
        assert told.output == []
        await d.say("Else", previous_response_id=told.id)
        assert [m["content"] for m in d.provider.messages()] == ["Else"]


@pytest.mark.req("M41")
async def test_a_cancel_stops_the_run_and_says_so(tmp_path: Path) -> None:
    hold = Hold()
    async with door(tmp_path / "a.db", [chunk({"content": "Hal"}), hold], says("New.")) as d:
        stream = aiter(await d.stream("Hi"))
        first = await anext(stream)
        await hold.reached.wait()
        told = await d.client.responses.cancel(within(first).id)
        assert told.status == "cancelled"
        last = [event async for event in stream][-1]
        assert (last.type, within(last).status) == ("response.failed", "cancelled")
        again = await d.client.responses.cancel(told.id)
        assert again.status == "cancelled"
        hold.go.set()
        await d.idle(conversation_of(told))
        await d.say("Else", previous_response_id=told.id)
        assert [m["content"] for m in d.provider.messages()] == ["Hi", "Else"]


async def test_a_cancel_of_what_has_ended_changes_nothing(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", says("Hi.")) as d:
        told = await d.say("Hello")
        assert (await d.client.responses.cancel(told.id)).to_dict() == told.to_dict()


async def test_a_deleted_response_is_not_found_and_its_words_stay(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", says("Hi."), says("Yes.")) as d:
        told = await d.say("Hello")
        await d.client.responses.delete(told.id)
        for call in (
            d.client.responses.retrieve(told.id),
            d.client.responses.delete(told.id),
            d.client.responses.cancel(told.id),
        ):
            with pytest.raises(openai.NotFoundError):
                await call
        with pytest.raises(openai.NotFoundError) as caught:
            await d.say("More", previous_response_id=told.id)
        assert error_of(caught.value) == (
            404,
            "previous_response_not_found",
            "previous_response_id",
        )
        await d.say("More", conversation=conversation_of(told))
        assert [m["content"] for m in d.provider.messages()] == ["Hello", "Hi.", "More"]


# Tools of the client.


@pytest.mark.req("M33")
async def test_outputs_go_on_with_the_run_that_waits(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", asks(("c1", "look", "{}")), says("Rain.")) as d:
        asked = await d.say("Weather?", tools=[LOOK])
        assert (asked.status, asked.output[0].type) == ("completed", "function_call")
        told = await d.say([output("c1", "wet")], previous_response_id=asked.id, tools=[LOOK])
        assert told.output_text == "Rain."
        assert told.usage is not None
        assert told.usage.input_tokens == 10  # of this response alone
        runs = await d.engine.world.store.runs(ConversationId(conversation_of(told)))
        assert [run.status for run in runs] == [RunStatus.SUCCESS]
        brought = await d.client.responses.input_items.list(told.id)
        assert [item.type for item in brought.data] == ["function_call_output"]


async def test_in_a_conversation_the_outputs_find_the_run_that_waits(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", asks(("c1", "look", "{}")), says("Rain.")) as d:
        made = await d.client.conversations.create()
        await d.say("Weather?", tools=[LOOK], conversation=made.id)
        told = await d.say([output("c1", "wet")], conversation=made.id, tools=[LOOK])
        assert told.output_text == "Rain."
        items = await d.client.conversations.items.list(made.id, order="asc")
        assert [item.type for item in items.data] == [
            "message",
            "function_call",
            "function_call_output",
            "message",
        ]


async def test_outputs_with_new_text_or_other_terms_end_one_run_and_begin_another(
    tmp_path: Path,
) -> None:
    async with door(
        tmp_path / "a.db", asks(("c1", "look", "{}")), says("Rain."), says("Short.")
    ) as d:
        asked = await d.say("Weather?", tools=[LOOK])
        told = await d.say(
            [output("c1", "wet"), {"role": "user", "content": "In French"}],
            previous_response_id=asked.id,
            tools=[LOOK],
        )
        assert told.output_text == "Rain."
        roles = [m["role"] for m in d.provider.messages()]
        assert roles == ["user", "assistant", "tool", "user"]
        runs = await d.engine.world.store.runs(ConversationId(conversation_of(told)))
        assert [run.status for run in runs] == [RunStatus.SUCCESS] * 2
        # The same outputs again make a sibling, on other terms even.
        other = await d.say(
            [output("c1", "wet")], previous_response_id=asked.id, instructions="Be brief."
        )
        assert other.output_text == "Short."
        assert [m["role"] for m in d.provider.messages()] == [
            "system",
            "user",
            "assistant",
            "tool",
        ]


BAD_OUTPUTS: dict[str, tuple[list[dict[str, Any]], str, str]] = {
    "orphan": (
        [output("c1", "x"), output("c2", "x"), output("c9", "y")],
        "orphan_tool_result",
        "input[2]",
    ),
    "missing": ([output("c1", "x")], "missing_tool_result", "input"),
    "twice": (
        [output("c1", "x"), output("c1", "x"), output("c2", "x")],
        "duplicate_tool_result",
        "input[1]",
    ),
    "text": ([{"role": "user", "content": "Well?"}], "missing_tool_result", "input"),
}


@pytest.mark.req("M23", "M24")
@pytest.mark.parametrize("case", BAD_OUTPUTS)
@pytest.mark.parametrize("by", ["response", "conversation"])
async def test_wrong_outputs_are_refused_at_their_place_and_nothing_is_sent(
    tmp_path: Path, case: str, by: str
) -> None:
    bad, code, at = BAD_OUTPUTS[case]
    calls = asks(("c1", "look", "{}"), ("c2", "look", "{}"))
    async with door(tmp_path / "a.db", calls, says("Rain.")) as d:
        made = await d.client.conversations.create()
        asked = await d.say("Weather?", tools=[LOOK], conversation=made.id)
        where: dict[str, Any] = {"conversation": made.id}
        if by == "response":
            where = {"previous_response_id": asked.id}
        with pytest.raises(openai.BadRequestError) as caught:
            await d.say(bad, **where, tools=[LOOK])
        assert error_of(caught.value) == (400, code, at)
        assert len(d.provider.requests) == 1
        assert (await d.client.responses.retrieve(asked.id)).status == "completed"
        good = await d.say([output("c1", "a"), output("c2", "b")], **where, tools=[LOOK])
        assert good.output_text == "Rain."
        with pytest.raises(openai.BadRequestError) as caught:
            await d.say([output("c1", "other"), output("c2", "b")], previous_response_id=asked.id)
        assert error_of(caught.value) == (400, "duplicate_tool_result", "input[0]")


async def test_a_waiting_response_that_was_canceled_is_gone_on_from_with_text(
    tmp_path: Path,
) -> None:
    async with door(tmp_path / "a.db", asks(("c1", "look", "{}")), says("Fine.")) as d:
        asked = await d.say("Weather?", tools=[LOOK])
        assert (await d.client.responses.cancel(asked.id)).status == "cancelled"
        told = await d.say("Never mind", previous_response_id=asked.id)
        assert told.output_text == "Fine."
        roles = [m["role"] for m in d.provider.messages()]
        assert roles == ["user", "assistant", "tool", "user"]


@pytest.mark.req("M22")
async def test_a_brought_history_is_judged_at_its_own_places(tmp_path: Path) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    async with door(tmp_path / "a.db") as d:
        with pytest.raises(openai.BadRequestError) as caught:
            await d.say([{"role": "user", "content": "x"}, call, {"role": "user", "content": "y"}])
        assert error_of(caught.value) == (400, "missing_tool_result", "input[1]")
        with pytest.raises(openai.BadRequestError) as caught:
            await d.say([{"role": "user", "content": "x"}, output("c9", "y")])
        assert error_of(caught.value) == (400, "orphan_tool_result", "input[1]")
        assert d.provider.requests == []


# Repeating.


@pytest.mark.req("M136")
async def test_the_same_key_is_the_same_response_streamed_or_plain(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", says("Once.")) as d:
        client = d.client.with_options(default_headers={"Idempotency-Key": "k1"})
        first = await client.responses.create(model="rehearsal", input="Hi")
        again = await client.responses.create(model="rehearsal", input="Hi")
        assert again.to_dict() == first.to_dict()
        with pytest.raises(openai.ConflictError) as caught:
            await client.responses.create(model="rehearsal", input="Else")
        assert error_of(caught.value)[:2] == (409, "idempotency_conflict")
        assert len(d.provider.requests) == 1


async def test_a_refused_request_records_nothing_under_its_key(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", says("Yes.")) as d:
        client = d.client.with_options(default_headers={"Idempotency-Key": "k1"})
        with pytest.raises(openai.NotFoundError):
            await client.responses.create(model="nobody", input="Hi")
        told = await client.responses.create(model="rehearsal", input="Hi")
        assert told.output_text == "Yes."


@pytest.mark.req("M136")
async def test_what_the_sdk_sends_again_by_itself_attaches(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", says("One."), says("Two.")) as d:
        first = await d.say("Hi")
        retry = await d.say("Hi", extra_headers={"x-stainless-retry-count": "1"})
        assert retry.id == first.id
        fresh = await d.say("Hi")
        assert fresh.id != first.id
        assert len(d.provider.requests) == 2


# Unknown outcomes and refusals.


@pytest.mark.req("M60", "M97")
async def test_an_unknown_outcome_is_424_and_not_to_be_retried(tmp_path: Path) -> None:
    cut = [chunk({"content": "He"}), Cut("connection_lost", "cut")]
    async with door(tmp_path / "a.db", cut, cut) as d:
        with pytest.raises(openai.APIStatusError) as caught:
            await d.say("Hi")
        assert error_of(caught.value)[:2] == (424, "outcome_unknown")
        assert caught.value.response.headers["x-should-retry"] == "false"
        run = json.loads(caught.value.response.content)["error"]["param"]
        assert run.startswith("run_")


async def test_an_unknown_outcome_in_an_open_stream_is_its_last_event(tmp_path: Path) -> None:
    cut = [chunk({"content": "He"}), Cut("connection_lost", "cut")]
    async with door(tmp_path / "a.db", cut, cut) as d:
        last = [event async for event in await d.stream("Hi")][-1]
        assert last.type == "response.failed"
        assert within(last).to_dict()["error"]["code"] == "outcome_unknown"  # type: ignore[index]  # ours


REFUSED: dict[str, tuple[dict[str, Any], int, str, str | None]] = {
    "both": (
        {"previous_response_id": "resp_x", "conversation": "conv_x"},
        400,
        "conflicting_parameters",
        "conversation",
    ),
    "prompt": ({"prompt": {"id": "pmpt_1"}}, 404, "no_such_instructions", "pmpt_1"),
    "variables": (
        {"prompt": {"id": "pmpt_1", "variables": {"name": "Ann"}}},
        400,
        "unsupported_parameter",
        "prompt.variables",
    ),
    "tool": ({"tools": [{"type": "web_search"}]}, 400, "unsupported_parameter", "tools[0]"),
    "logprobs": ({"top_logprobs": 3}, 400, "unsupported_parameter", "top_logprobs"),
    "field": ({"extra_body": {"nonsense": 1}}, 400, "unknown_field", "nonsense"),
    "model": ({"model": "nobody"}, 404, "model_not_found", None),
    "previous": (
        {"previous_response_id": "resp_x"},
        404,
        "previous_response_not_found",
        "previous_response_id",
    ),
    "conversation": ({"conversation": "conv_x"}, 404, "not_found", "conv_x"),
    "background": (
        {"background": True, "store": False},
        400,
        "conflicting_parameters",
        "background",
    ),
    "empty": ({"input": []}, 400, "empty_sequence", "input"),
}


@pytest.mark.req("M96")
@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_be_honoured_is_refused_by_name(tmp_path: Path, case: str) -> None:
    more, status, code, at = REFUSED[case]
    async with door(tmp_path / "a.db") as d:
        with pytest.raises(openai.APIStatusError) as caught:
            await d.client.responses.create(**{"model": "rehearsal", "input": "Hi", **more})
        assert error_of(caught.value)[:2] == (status, code)
        assert at is None or caught.value.param == at
        assert d.provider.requests == []
        assert await d.engine.world.store.open_runs() == []


@pytest.mark.req("M93")
async def test_a_busy_conversation_queues_or_refuses_as_asked(tmp_path: Path) -> None:
    hold = Hold()
    async with door(tmp_path / "a.db", says("Hi."), [hold, *says("A.")], says("B.")) as d:
        first = await d.say("Hello")
        await d.say("Work", previous_response_id=first.id, background=True)
        await hold.reached.wait()
        queued = await d.say("Wait", conversation=conversation_of(first), background=True)
        assert queued.status == "queued"
        with pytest.raises(openai.ConflictError) as caught:
            await d.say(
                "Now",
                conversation=conversation_of(first),
                extra_headers={"Antiphon-When-Busy": "refuse"},
            )
        assert error_of(caught.value)[:2] == (409, "conversation_busy")
        hold.go.set()
        await kinds(await d.client.responses.retrieve(queued.id, stream=True))
        assert (await d.client.responses.retrieve(queued.id)).output_text == "B."


@pytest.mark.parametrize("streamed", [False, True])
async def test_what_is_not_to_be_stored_is_dropped_once_it_has_been_had(
    tmp_path: Path, streamed: bool
) -> None:
    async with door(tmp_path / "a.db", says("Hi."), says("Hush."), says("Then.")) as d:
        first = await d.say("Hello")
        more: dict[str, Any] = {"store": False, "previous_response_id": first.id}
        if streamed:
            events = [event async for event in await d.stream("Secret", **more)]
            told = within(events[-1])
        else:
            told = await d.say("Secret", **more)
        assert told.output_text == "Hush."
        assert [m["content"] for m in d.provider.messages()] == ["Hello", "Hi.", "Secret"]
        store, row = d.engine.world.store, ConversationId(conversation_of(told))
        for task in asyncio.all_tasks():
            if task.get_name() == f"forget {told.id}":
                await task
        assert [m.blocks for m in await store.tree(row)] == [(), (), (), ()]
        for call in (
            d.client.responses.retrieve(told.id),
            d.say("More", previous_response_id=told.id),
        ):
            with pytest.raises(openai.NotFoundError):
                await call
        # The line that it came from is as it was.
        await d.say("And?", previous_response_id=first.id)
        assert [m["content"] for m in d.provider.messages()] == ["Hello", "Hi.", "And?"]
    checks = await asyncio.to_thread(examine, tmp_path / "a.db")
    assert [check.problems for check in checks if check.problems] == []


async def test_tokens_are_counted_without_a_run(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db") as d:
        count = d.client.responses.input_tokens.count
        short = (await count(model="rehearsal", input="Hi")).input_tokens
        long = (await count(model="rehearsal", input="Hi " * 100)).input_tokens
        assert 0 < short < long
        assert await d.engine.world.store.open_runs() == []
