"""The stateless doors, by the official SDKs unchanged, over scripted providers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from antiphon.core.ids import LOCAL_TENANT, RunId
from antiphon.core.records import Run, RunStatus
from antiphon.engine.dispatch.listing import told_mappings
from antiphon.engine.keeping.erasure import KEPT_S
from antiphon.engine.keeping.explain import exact_request
from antiphon.engine.ports import Cut
from antiphon.handles.events import Ended
from antiphon.handles.run import RunHandle
from antiphon.library import Local
from antiphon.server.doors import turn
from tests.server.sdk import WAIT_S, Door, door
from tests.support.clock import SimulatedClock, settle
from tests.support.provider import Hold, ScriptedProvider, Status, Step, asks, chunk, says

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
HI: list[Any] = [{"role": "user", "content": "Hi"}]


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Door]:
    async with door(tmp_path / "a.db", ScriptedProvider()) as opened:
        yield opened


@pytest.fixture
async def claude(at: Door) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(
        base_url=at.url, api_key="any", max_retries=0, timeout=WAIT_S
    ) as client:
        yield client


async def ended(at: Door) -> None:
    """Wait until the one run there is has ended."""
    (run,) = await runs(at)
    async with asyncio.timeout(WAIT_S):
        async for event in RunHandle(Local(at.engine), run).events():
            if isinstance(event, Ended):
                return


async def runs(at: Door) -> list[Run]:
    store = at.engine.world.store
    found: list[Run] = []
    for row in await store.conversations(LOCAL_TENANT, limit=100):
        found += await store.runs(row.id)
    return found


# Chat Completions.


async def test_a_chat_is_answered_in_one_piece(at: Door) -> None:
    at.provider.scripts = [says("Hello ", "there.")]
    told = await at.client.chat.completions.create(
        model="rehearsal", messages=[{"role": "system", "content": "Be kind."}, *HI]
    )
    assert told.choices[0].message.content == "Hello there."
    assert told.choices[0].finish_reason == "stop"
    assert told.usage is not None
    assert (told.usage.prompt_tokens, told.usage.completion_tokens) == (10, 5)
    assert [m["role"] for m in at.provider.messages()] == ["system", "user"]


async def test_a_chat_is_streamed_and_ends_with_its_usage_where_that_was_asked_for(
    at: Door,
) -> None:
    at.provider.scripts = [says("Hello ", "there.")]
    text, finish, usage = "", None, None
    stream = await at.client.chat.completions.create(
        model="rehearsal", messages=HI, stream=True, stream_options={"include_usage": True}
    )
    async for piece in stream:
        usage = piece.usage or usage
        for choice in piece.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    assert (text, finish) == ("Hello there.", "stop")
    assert usage is not None
    assert usage.completion_tokens == 5


async def test_calls_are_handed_to_the_client_which_brings_them_back_with_its_history(
    at: Door,
) -> None:
    at.provider.scripts = [
        asks(("c1", "weather", '{"city":"Oslo"}'), ("c2", "weather", '{"city":"Rome"}')),
        says("Cold and warm."),
    ]
    async with at.client.chat.completions.stream(
        model="rehearsal",
        messages=HI,
        tools=[WEATHER],  # type: ignore[list-item]  # a plain dict
    ) as stream:
        told = await stream.get_final_completion()
    choice = told.choices[0]
    assert choice.finish_reason == "tool_calls"
    calls = choice.message.tool_calls or []
    assert [(c.id, c.function.arguments) for c in calls] == [
        ("c1", '{"city":"Oslo"}'),
        ("c2", '{"city":"Rome"}'),
    ]
    history = [
        *HI,
        {
            "role": "assistant",
            "tool_calls": [
                {
                    "id": c.id,
                    "type": "function",
                    "function": {"name": c.function.name, "arguments": c.function.arguments},
                }
                for c in calls
            ],
        },
        *({"role": "tool", "tool_call_id": c.id, "content": "fine"} for c in calls),
    ]
    again = await at.client.chat.completions.create(
        model="rehearsal",
        messages=history,
        tools=[WEATHER],  # type: ignore[list-item]
    )
    assert again.choices[0].message.content == "Cold and warm."
    assert not await at.engine.world.store.open_runs()


@pytest.mark.req("M12", "M34")
async def test_an_illegal_history_is_refused_with_its_place_and_nothing_is_sent(at: Door) -> None:
    broken: list[Any] = [*HI, {"role": "tool", "tool_call_id": "c9", "content": "fine"}]
    with pytest.raises(openai.BadRequestError) as caught:
        await at.client.chat.completions.create(model="rehearsal", messages=broken)
    assert caught.value.code == "orphan_tool_result"
    assert caught.value.param == "messages[1]"
    assert not at.provider.requests
    assert not await runs(at)


HALF: list[Any] = [
    *HI,
    {
        "role": "assistant",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
        ],
    },
    {"role": "user", "content": "Well?"},
]
"""A turn that was broken off between a call and its result."""


@pytest.mark.req("M12", "M34")
async def test_a_broken_history_is_answered_where_that_was_asked_for_and_the_manifest_says_how(
    at: Door,
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await at.client.chat.completions.create(model="rehearsal", messages=HALF)
    body: Any = caught.value.body
    assert body["repairs"] == [
        {
            "change": "result_added",
            "reason": "missing_tool_result",
            "at": "messages[1].tool_calls[0]",
            "call_id": "c1",
        }
    ]
    assert "Antiphon-Repair: on" in str(caught.value)

    at.provider.scripts = [says("So be it.")]
    told = await at.client.chat.completions.with_raw_response.create(
        model="rehearsal", messages=HALF, store=True, extra_headers={"Antiphon-Repair": "on"}
    )
    assert told.headers["antiphon-repairs"] == "result_added messages[1].tool_calls[0]"
    answer = told.parse()
    assert answer.choices[0].message.content == "So be it."
    sent = at.provider.messages()
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "user"]
    assert "may have taken effect" in str(sent[2]["content"])

    run = await at.engine.world.store.find_run(RunId(answer.id.removeprefix("chatcmpl-")))
    (operation,) = await at.engine.world.store.operations(run.conversation, run.id)
    manifest, _ = await at.engine.world.store.manifest(operation)
    listed = await told_mappings(at.engine.world.store, LOCAL_TENANT, manifest.mappings_digest)
    assert (listed[0].rule, listed[0].detail) == (
        "repair_result_added",
        "missing_tool_result: c1",
    )
    assert (await exact_request(at.engine.world, run.id)).body == at.provider.bodies[0]


async def test_a_response_over_a_broken_history_is_repaired_alike(at: Door) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    items = [*HI, call, {"role": "user", "content": "Well?"}]
    with pytest.raises(openai.BadRequestError) as caught:
        await at.say(items)
    assert caught.value.code == "missing_tool_result"
    at.provider.scripts = [says("So be it."), says("Still.")]
    told = await at.say(items, extra_headers={"Antiphon-Repair": "on"})
    assert told.output_text == "So be it."
    again = await at.say("And now?", previous_response_id=told.id)
    assert again.output_text == "Still."


@pytest.mark.parametrize(
    ("more", "at_field"),
    [
        ({"n": 2}, "n"),
        ({"messages": "hi"}, "messages"),
        ({"tools": "x"}, "tools"),
        ({"max_tokens": "x"}, "max_tokens"),
        ({"max_completion_tokens": 2.5}, "max_completion_tokens"),
        ({"max_tokens": 10**25}, "max_tokens"),
        ({"logprobs": True}, "logprobs"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"functions": [{"name": "x"}]}, "functions"),
    ],
)
async def test_what_cannot_be_honoured_is_refused_by_its_name(
    at: Door, more: dict[str, Any], at_field: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await at.client.chat.completions.create(**{"model": "rehearsal", "messages": HI, **more})
    assert caught.value.param == at_field
    assert not at.provider.requests


async def test_an_unknown_model_is_404_with_the_names_there_are(at: Door) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await at.client.chat.completions.create(model="nothing", messages=HI)
    assert caught.value.code == "model_not_found"
    assert "rehearsal" in str(caught.value)


async def test_a_provider_that_says_no_is_an_error_in_the_clients_shape(at: Door) -> None:
    at.provider.scripts = [[Status(400), b'{"error":{"message":"no","code":"bad_thing"}}']]
    with pytest.raises(openai.APIStatusError) as caught:
        await at.client.chat.completions.create(model="rehearsal", messages=HI)
    assert caught.value.status_code == 502
    assert caught.value.code == "bad_thing"
    assert "bad_thing" in str(caught.value)
    assert caught.value.response.headers["x-should-retry"] == "false"


@pytest.mark.req("M67", "M77")
async def test_a_stream_that_breaks_after_text_was_shown_ends_with_an_error_and_no_second_text(
    at: Door,
) -> None:
    cut: list[Step] = [chunk({"content": "Half"}), Cut("connection_lost", "It broke.")]
    at.provider.scripts = [cut, says("Whole.")]
    text = ""
    stream = await at.client.chat.completions.create(
        model="rehearsal", messages=HI, stream=True, store=True
    )
    pieces = aiter(stream)
    error: openai.APIError | None = None
    while error is None:
        try:
            text += (await anext(pieces)).choices[0].delta.content or ""
        except openai.APIError as told:
            error = told
    assert text == "Half"
    assert error.code == "stream_incomplete"
    await ended(at)


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_that_is_asked_for_again_is_waited_for_however_long_it_takes_to_begin(
    at: Door, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    monkeypatch.setattr(turn, "UNKNOWN_GRACE_S", 0.0)
    hold, row = Hold(), RunHandle.row

    async def seen_late(handle: RunHandle) -> Run:
        await hold.reached.wait()  # the second attempt is on its way
        found = await row(handle)
        hold.go.set()
        return found

    monkeypatch.setattr(RunHandle, "row", seen_late)
    at.provider.scripts = [[Cut("connection_lost", "It broke.")], [hold, *says("Whole.")]]
    asked = at.client.chat.completions
    if streamed:
        pieces = await asked.create(model="rehearsal", messages=HI, stream=True)
        text = "".join([p.choices[0].delta.content or "" async for p in pieces if p.choices])
    else:
        told = await asked.create(model="rehearsal", messages=HI)
        text = told.choices[0].message.content or ""
    assert (text, len(at.provider.requests)) == ("Whole.", 2)


async def test_a_client_that_leaves_ends_its_run(at: Door) -> None:
    hold = Hold()
    at.provider.scripts = [[chunk({"content": "One"}), hold, *says("two")]]
    stream = await at.client.chat.completions.create(
        model="rehearsal", messages=HI, stream=True, store=True
    )
    async for piece in stream:
        if piece.choices[0].delta.content:
            break
    await stream.close()
    await ended(at)
    (run,) = await runs(at)
    assert (run.status, run.error_code) == (RunStatus.CANCELED, "client_left")


@pytest.mark.req("M27")
async def test_the_same_key_is_one_call_and_gives_the_answer_again(at: Door) -> None:
    at.provider.scripts = [says("Once.")]
    headers = {"Idempotency-Key": "k1"}
    for _ in range(2):
        told = await at.client.chat.completions.create(
            model="rehearsal", messages=HI, extra_headers=headers
        )
        assert told.choices[0].message.content == "Once."
    assert len(at.provider.requests) == 1
    with pytest.raises(openai.ConflictError) as caught:
        await at.client.chat.completions.create(
            model="rehearsal", messages=[*HI, *HI], extra_headers=headers
        )
    assert caught.value.code == "idempotency_conflict"


async def forgotten(at: Door) -> None:
    """Wait until everything that was not to be stored is dropped."""
    await asyncio.wait_for(at.engine.erasure.idle(), WAIT_S)
    assert await at.engine.world.store.unstored() == []


@pytest.mark.parametrize("streamed", [False, True])
async def test_what_was_said_here_is_dropped_once_it_has_been_had(
    at: Door, tmp_path: Path, streamed: bool
) -> None:
    at.provider.scripts = [says("Hush, ", "hush."), asks(("c1", "weather", '{"city":"Hushtown"}'))]
    for _ in range(2):
        told = await at.client.chat.completions.create(
            model="rehearsal",
            messages=[{"role": "system", "content": "Hush now."}, *HI],
            tools=[WEATHER],  # type: ignore[list-item]
            stream=streamed,
        )
        if isinstance(told, openai.AsyncStream):
            async for _ in told:
                pass
    await forgotten(at)
    assert await at.engine.world.store.conversations(LOCAL_TENANT) == []  # nobody is to find it
    await at.engine.close()
    await at.engine.world.store.close()
    files = [part async for part in _files(tmp_path)]
    assert files
    assert not any(b"hush" in data.lower() for data in files)


async def _files(folder: Path) -> AsyncIterator[bytes]:
    for part in await asyncio.to_thread(lambda: [*folder.glob("a.db*")]):
        yield await asyncio.to_thread(part.read_bytes)


async def test_a_client_with_a_key_of_its_own_may_have_it_again_for_a_while(at: Door) -> None:
    at.provider.scripts = [says("Hush.")]
    headers = {"Idempotency-Key": "k1"}

    async def again() -> str | None:
        told = await at.client.chat.completions.create(
            model="rehearsal", messages=HI, extra_headers=headers
        )
        return told.choices[0].message.content

    assert (await again(), await again()) == ("Hush.", "Hush.")
    clock = at.engine.world.clock
    assert isinstance(clock, SimulatedClock)
    async with asyncio.timeout(WAIT_S):
        while clock.sleeping < 2:  # each time that it was had
            await settle()
    await clock.advance(KEPT_S)
    await forgotten(at)
    with pytest.raises(openai.APIStatusError) as caught:
        await again()
    assert (caught.value.status_code, caught.value.code) == (410, "content_erased")
    assert len(at.provider.requests) == 1


# Anthropic Messages.


async def test_a_message_is_answered_in_one_piece(
    at: Door, claude: anthropic.AsyncAnthropic
) -> None:
    at.provider.scripts = [says("Hello ", "there.")]
    told = await claude.messages.create(
        model="rehearsal", max_tokens=100, system="Be kind.", messages=HI
    )
    assert [block.text for block in told.content if block.type == "text"] == ["Hello there."]
    assert (told.stop_reason, told.usage.input_tokens, told.usage.output_tokens) == (
        "end_turn",
        10,
        5,
    )


async def test_the_tokens_of_a_message_are_counted_and_nothing_is_sent(
    at: Door, claude: anthropic.AsyncAnthropic
) -> None:
    short = await claude.messages.count_tokens(model="rehearsal", messages=HI)
    long = await claude.messages.count_tokens(
        model="rehearsal", system="Be kind. " * 50, messages=HI
    )
    assert 0 < short.input_tokens < 50 < long.input_tokens < 500
    with pytest.raises(anthropic.BadRequestError):
        await claude.messages.count_tokens(model="rehearsal", messages=[])
    assert not at.provider.requests
    assert not await runs(at)


async def test_a_message_is_streamed_with_its_calls(
    at: Door, claude: anthropic.AsyncAnthropic
) -> None:
    at.provider.scripts = [
        [chunk({"content": "Look: "}), *asks(("c1", "weather", '{"city":"Oslo"}'))]
    ]
    tool: Any = {"name": "weather", "input_schema": {"type": "object"}}
    async with claude.messages.stream(
        model="rehearsal", max_tokens=100, messages=HI, tools=[tool]
    ) as stream:
        told = await stream.get_final_message()
    assert told.stop_reason == "tool_use"
    text, call = told.content
    assert text.type == "text"
    assert text.text == "Look: "
    assert call.type == "tool_use"
    assert (call.id, call.name, call.input) == ("c1", "weather", {"city": "Oslo"})


async def test_options_are_said_in_the_words_of_the_models_own_dialect(
    at: Door, claude: anthropic.AsyncAnthropic
) -> None:
    at.provider.scripts = [says("Fine.")]
    await claude.messages.create(
        model="rehearsal",
        max_tokens=100,
        messages=HI,
        stop_sequences=["END"],
        extra_body={"top_p": 0.5},
        thinking={"type": "disabled"},
        metadata={"user_id": "u1"},
    )
    sent = json.loads(at.provider.bodies[0])
    assert (sent["stop"], sent["top_p"]) == (["END"], 0.5)
    assert not sent.keys() & {"stop_sequences", "thinking", "metadata"}


@pytest.mark.parametrize(
    ("more", "at_field"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking"),
        ({"top_k": 3}, "top_k"),
        ({"max_tokens": "x"}, "max_tokens"),
    ],
)
async def test_an_option_that_the_models_dialect_has_no_word_for_is_refused_not_sent(
    at: Door, claude: anthropic.AsyncAnthropic, more: dict[str, Any], at_field: str
) -> None:
    with pytest.raises(anthropic.BadRequestError) as caught:
        await claude.messages.create(
            model="rehearsal", max_tokens=2000, messages=HI, extra_body=more
        )
    body: Any = caught.value.body
    assert body["error"]["at"] == at_field
    assert not at.provider.requests


async def test_an_illegal_message_is_refused_in_anthropics_shape(
    at: Door, claude: anthropic.AsyncAnthropic
) -> None:
    broken: list[Any] = [
        *HI,
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c1", "name": "x", "input": {}}],
        },
        *HI,
    ]
    with pytest.raises(anthropic.BadRequestError) as caught:
        await claude.messages.create(model="rehearsal", max_tokens=100, messages=broken)
    body: Any = caught.value.body
    assert body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error"
    assert body["error"]["message"].startswith("missing_tool_result: ")
    assert not at.provider.requests


async def test_what_the_provider_was_sent_can_be_had_again_to_the_byte(at: Door) -> None:
    at.provider.scripts = [says("Fine.")]
    told = await at.client.chat.completions.create(model="rehearsal", messages=HI, store=True)
    run = RunId(told.id.removeprefix("chatcmpl-"))
    assert (await exact_request(at.engine.world, run)).body == at.provider.bodies[0]
    assert json.loads(at.provider.bodies[0])["messages"][0]["content"] == "Hi"


# Repetitions.


@pytest.mark.req("M27")
@pytest.mark.parametrize("headers", [{"Idempotency-Key": "k1"}, {"x-stainless-retry-count": "1"}])
async def test_a_repetition_attaches_to_what_is_under_way_and_there_is_one_call(
    at: Door, headers: dict[str, str]
) -> None:
    hold = Hold()
    at.provider.scripts = [[chunk({"content": "On"}), hold, *says("ce.")]]

    async def asked(**more: str) -> str | None:
        told = await at.client.chat.completions.create(
            model="rehearsal", messages=HI, store=True, extra_headers=more
        )
        return told.choices[0].message.content

    first = asyncio.create_task(asked(**({} if "x-stainless-retry-count" in headers else headers)))
    async with asyncio.timeout(WAIT_S):
        await hold.reached.wait()
    second = asyncio.create_task(asked(**headers))
    await settle()
    hold.go.set()
    assert await first == await second == "Once."
    assert len(at.provider.requests) == 1
    assert len(await runs(at)) == 1


async def test_the_same_request_again_is_a_new_one_where_nobody_said_that_it_is_a_repetition(
    at: Door,
) -> None:
    at.provider.scripts = [says("One."), says("Two.")]
    for text in ("One.", "Two."):
        told = await at.client.chat.completions.create(model="rehearsal", messages=HI)
        assert told.choices[0].message.content == text


async def test_an_unknown_outcome_is_told_as_such_and_no_sdk_tries_again(
    at: Door, claude: anthropic.AsyncAnthropic
) -> None:
    cut: list[Step] = [chunk({"content": "Half"}), Cut("connection_lost", "It broke.")]
    at.provider.scripts = [cut, cut, cut, cut]
    async with openai.AsyncOpenAI(base_url=f"{at.url}/v1", api_key="any", timeout=WAIT_S) as sdk:
        with pytest.raises(openai.APIStatusError) as caught:
            await sdk.chat.completions.create(model="rehearsal", messages=HI)
    error = caught.value
    assert error.response.headers["x-should-retry"] == "false"
    told = len(at.provider.requests)
    with pytest.raises(anthropic.APIStatusError) as refused:
        await claude.messages.create(model="rehearsal", max_tokens=9, messages=HI)
    assert refused.value.response.headers["x-should-retry"] == "false"
    assert told <= 2  # once, and once more by the process that saw it break
