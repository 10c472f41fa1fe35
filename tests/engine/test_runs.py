"""Runs: the queue, the slot, tools, branches, deletion."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from antiphon.core.asking import Ask, Output
from antiphon.core.blocks import Role, Status, Text, ToolResult
from antiphon.core.commands import StartKey
from antiphon.core.events import Preview
from antiphon.core.ids import Digest, MessageId
from antiphon.core.manifest import ToolDeclaration
from antiphon.core.records import CallState, RunStatus
from antiphon.engine.ports import NotSent
from antiphon.engine.settings import Settings
from antiphon.engine.tools.function import Function
from antiphon.errors import Conflict, InvalidInput, NotFound, ProviderFailed, Refused
from antiphon.handles.chat import Chat
from antiphon.handles.events import CallsWaiting, Committed, Ended
from tests.support.engines import app_on, talk
from tests.support.provider import Hold, ScriptedProvider, asks, chunk, says

WEATHER = Ask(tools=(ToolDeclaration(name="weather"),))


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "antiphon.db"


@pytest.mark.req("M34", "M42", "M68", "M37")
async def test_functions_run_once_each_after_the_commit_and_their_results_follow(
    db: Path,
) -> None:
    ran: list[str] = []

    async def clock(zone: str) -> str:
        ran.append(zone)
        return f"noon in {zone}"

    provider = ScriptedProvider(
        asks(("c1", "clock", '{"zone":"Oslo"}'), ("c2", "clock", '{"zone":"Rome"}')),
        says("Noon in both."),
    )
    async with app_on(db, provider, functions=[Function(name="clock", run=clock)]) as app:
        chat = await app.create()
        assert await talk(chat, "What time is it?") == "Noon in both."
        assert sorted(ran) == ["Oslo", "Rome"]
        line = await chat.line()
        assert [m.role for m in line] == ["user", "assistant", "tool", "assistant"]
        assert [call.generation for call in line[1].calls] == [1, 1]
        assert [result.generation for result in line[2].results] == [1, 1]
        wire = provider.messages()
        assert [m.get("tool_call_id") for m in wire if m["role"] == "tool"] == ["c1", "c2"]


@pytest.mark.req("M34")
async def test_what_a_function_raises_is_a_result_that_the_model_can_read(db: Path) -> None:
    def pay(amount: int) -> str:
        raise ValueError("no such account")

    schema = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    provider = ScriptedProvider(asks(("c1", "pay", '{"amount":1}')), says("It failed."))
    pays = Function(name="pay", run=pay, parameters=schema)
    async with app_on(db, provider, functions=[pays]) as app:
        chat = await app.create()
        run = await chat.send("Pay")
        assert (await run.result()).text == "It failed."
        (call,) = (await run.explain()).calls
        assert (call.state, call.code) == (CallState.ERROR, "exception")
        assert "no such account" in str(provider.messages()[-1]["content"])


async def test_a_function_that_does_not_answer_is_closed_with_its_fate_unknown(db: Path) -> None:
    async def stuck() -> str:
        await asyncio.Event().wait()
        return "never"

    provider = ScriptedProvider(asks(("c1", "stuck", "{}")), says("It hangs."))
    function = Function(name="stuck", run=stuck, read_only=True, timeout_s=0.01)
    async with app_on(db, provider, functions=[function]) as app:
        chat = await app.create()
        run = await chat.send("Go")
        assert (await run.result()).text == "It hangs."
        (call,) = (await run.explain()).calls
        assert (call.state, call.code, call.attempt) == (CallState.ERROR, "timeout_unknown", 1)


@pytest.mark.req("M36", "M72")
@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [("nope", "{}", "unknown_tool"), ("pay", '{"amount":"one"}', "invalid_arguments")],
)
async def test_a_call_that_must_not_run_is_answered_with_an_error(
    db: Path, name: str, arguments: str, code: str
) -> None:
    ran: list[object] = []
    schema = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    pays = Function(name="pay", run=lambda **given: ran.append(given), parameters=schema)
    provider = ScriptedProvider(asks(("c1", name, arguments)), says("Sorry."))
    async with app_on(db, provider, functions=[pays]) as app:
        chat = await app.create()
        run = await chat.send("Pay")
        assert (await run.result()).text == "Sorry."
        assert ran == []
        (call,) = (await run.explain()).calls
        assert (call.state, call.code) == (CallState.ERROR, code)


@pytest.mark.req("M35")
async def test_a_run_waits_for_results_that_the_client_brings(db: Path) -> None:
    provider = ScriptedProvider(asks(("c1", "weather", "{}")), says("Rain."))
    async with app_on(db, provider) as app:
        chat = await app.create(ask=WEATHER)
        run = await chat.send("Weather?")
        events = [event async for event in run.events()]
        assert isinstance(events[-1], CallsWaiting)
        assert len(provider.requests) == 1
        assert (await chat.row()).slot is None
        with pytest.raises(Conflict) as caught:
            await chat.send("Hurry up")
        assert caught.value.code == "missing_tool_result"
        run = await run.answer({"c1": "4 degrees, rain"})
        assert (await run.result()).text == "Rain."
        assert provider.messages()[-1] == {
            "role": "tool", "tool_call_id": "c1", "content": "4 degrees, rain",
        }  # fmt: skip


async def test_only_open_calls_are_asked_for_and_answered_ones_are_not_asked_for_again(
    db: Path,
) -> None:
    clock = Function(name="clock", run=lambda: "noon")
    ask = Ask(tools=(clock.declaration, *WEATHER.tools))
    provider = ScriptedProvider(
        asks(("c1", "clock", "{}"), ("c2", "weather", "{}")), says("Rain at noon.")
    )
    async with app_on(db, provider, functions=[clock]) as app:
        run = await (await app.create(ask=ask)).send("Weather?")
        events = [event async for event in run.events()]
        assert isinstance(events[-1], CallsWaiting)
        assert [call.call_id for call in events[-1].calls] == ["c2"]
        await run.answer({"c2": "rain"})
        assert (await run.result()).text == "Rain at noon."  # the handle from before


@pytest.mark.req("M72")
async def test_a_call_that_no_request_can_carry_does_not_end_the_conversation(db: Path) -> None:
    provider = ScriptedProvider(*[asks(("c1", "no.such", "{}"))] * 3, says("Here."))
    async with app_on(db, provider) as app:
        chat = await app.create(ask=WEATHER)
        with pytest.raises(ProviderFailed) as caught:
            await (await chat.send("Weather?")).result()
        assert caught.value.code == "malformed_function_call"
        assert await talk(chat, "Are you there?") == "Here."


async def test_text_that_follows_the_last_result_at_once_waits_its_turn(db: Path) -> None:
    provider = ScriptedProvider(asks(("c1", "weather", "{}")), says("Rain."), says("Yes."))
    async with app_on(db, provider) as app:
        chat = await app.create(ask=WEATHER)
        run = await chat.send("Weather?")
        async for _ in run.events():
            pass
        await run.answer({"c1": "rain"})
        assert await talk(chat, "Sure?") == "Yes."
        assert [m["role"] for m in provider.messages()] == [
            "user", "assistant", "tool", "assistant", "user",
        ]  # fmt: skip


@pytest.mark.req("M39", "M40", "M34")
@pytest.mark.parametrize(
    ("outputs", "code"),
    [
        ({"c1": "1"}, "missing_tool_result"),
        ({}, "missing_tool_result"),
        ({"c1": "1", "c2": "2", "c9": "9"}, "orphan_tool_result"),
    ],
)
async def test_results_are_taken_all_at_once_or_not_at_all(
    db: Path, outputs: dict[str, str], code: str
) -> None:
    provider = ScriptedProvider(asks(("c1", "weather", "{}"), ("c2", "weather", "{}")))
    async with app_on(db, provider) as app:
        chat = await app.create(ask=WEATHER)
        run = await chat.send("Weather?")
        assert isinstance([e async for e in run.events()][-1], CallsWaiting)
        with pytest.raises(Conflict) as caught:
            await run.answer(outputs)
        assert caught.value.code == code
        states = [call.state for call in (await run.explain()).calls]
        assert states == [CallState.PENDING, CallState.PENDING]


@pytest.mark.req("M40")
async def test_the_same_result_again_changes_nothing_and_another_one_is_refused(
    db: Path,
) -> None:
    provider = ScriptedProvider(asks(("c1", "weather", "{}")), says("Rain."))
    async with app_on(db, provider) as app:
        chat = await app.create(ask=WEATHER)
        run = await chat.send("Weather?")
        async for _ in run.events():
            pass
        after = await run.answer({"c1": "rain"})
        await after.result()
        await run.answer({"c1": "rain"})
        with pytest.raises(Conflict) as caught:
            await run.answer({"c1": Output(text="sun")})
        assert caught.value.code == "duplicate_tool_result"
        assert [len(m.results) for m in await chat.line()] == [0, 0, 1, 0]


@pytest.mark.req("M139", "M128")
async def test_runs_take_turns_and_each_sees_the_one_before(db: Path) -> None:
    hold = Hold()
    provider = ScriptedProvider([hold, *says("One.")], says("Two."), says("Three."))
    async with app_on(db, provider) as app:
        chat = await app.create()
        runs = [await chat.send(text) for text in ("first", "second", "third")]
        await hold.reached.wait()
        statuses = [(await run.row()).status for run in runs]
        assert statuses == [RunStatus.PENDING, RunStatus.QUEUED, RunStatus.QUEUED]
        hold.go.set()
        assert [(await run.result()).text for run in runs] == ["One.", "Two.", "Three."]
        assert [m["content"] for m in provider.messages()] == [
            "first", "One.", "second", "Two.", "third",
        ]  # fmt: skip


@pytest.mark.req("M134", "M135", "M136")
async def test_run_input_and_answer_are_rows_that_say_where_each_stands(db: Path) -> None:
    hold = Hold()
    provider = ScriptedProvider([hold, *says("Hi.")])
    async with app_on(db, provider) as app:
        chat = await app.create()
        run = await chat.send("Hello")
        await hold.reached.wait()
        (asked,) = await chat.tree()
        before = await run.row()
        assert (asked.run, asked.status, asked.error_code) == (run.id, "pending", None)
        assert (before.status, before.ended_ms, before.answer) == ("pending", None, before.answer)
        assert before.answer is not None
        hold.go.set()
        answer = await run.result()
        asked, said = await chat.tree()
        after = await run.row()
        assert (asked.status, said.status) == ("success", "success")
        assert (said.id, said.parent, said.run) == (before.answer, asked.id, run.id)
        assert (said.conversation, said.role, said.text) == (chat.id, "assistant", answer.text)
        assert (after.status, after.input_tokens, after.output_tokens) == ("success", 10, 5)
        assert after.started_ms is not None
        assert after.ended_ms is not None


async def test_a_queued_run_can_be_withdrawn(db: Path) -> None:
    hold = Hold()
    provider = ScriptedProvider([hold, *says("One.")])
    async with app_on(db, provider) as app:
        chat = await app.create()
        first, second = await chat.send("first"), await chat.send("second")
        await hold.reached.wait()
        assert (await second.cancel()).status is RunStatus.CANCELED
        hold.go.set()
        await first.result()
        await app.engine.idle(chat.id)
        assert len(provider.requests) == 1


async def test_a_full_queue_is_refused_and_nothing_is_lost(db: Path) -> None:
    hold = Hold()
    provider = ScriptedProvider([hold, *says("One.")], says("Two."))
    async with app_on(db, provider, settings=Settings(max_queued=1)) as app:
        chat = await app.create()
        await chat.send("first")
        await hold.reached.wait()
        second = await chat.send("second")
        with pytest.raises(Conflict) as caught:
            await chat.send("third")
        assert caught.value.code == "queue_full"
        hold.go.set()
        assert (await second.result()).text == "Two."


@pytest.mark.req("M125", "M126", "M10")
async def test_an_edit_is_a_sibling_that_does_not_see_the_old_future(db: Path) -> None:
    provider = ScriptedProvider(says("Good."), says("Wren."), says("That it is blue."))
    async with app_on(db, provider) as app:
        chat = await app.create()
        await talk(chat, "My boat is blue.")
        await talk(chat, "List birds.")
        old = (await chat.line())[2]
        run = await chat.edit(old.id, "What do you know about me?")
        await run.result()
        assert [m["content"] for m in provider.messages()] == [
            "My boat is blue.", "Good.", "What do you know about me?",
        ]  # fmt: skip
        new = (await chat.line())[2]
        assert await chat.siblings(new.id) == (old.id, new.id)
        assert len(await chat.tree()) == 6


@pytest.mark.req("M125")
async def test_an_edit_counts_as_a_sibling_before_it_is_answered(db: Path) -> None:
    hold = Hold()
    provider = ScriptedProvider(says("Hi."), [hold, *says("Hello.")])
    async with app_on(db, provider) as app:
        chat = await app.create()
        await talk(chat, "Hey")
        first = (await chat.line())[0]
        run = await chat.edit(first.id, "Hello")
        await hold.reached.wait()
        edited = next(m for m in await chat.tree() if m.run == run.id)
        assert edited.status is Status.PENDING
        assert await chat.siblings(first.id) == (first.id, edited.id)
        hold.go.set()
        await run.result()
        assert await chat.siblings(edited.id) == (first.id, edited.id)


@pytest.mark.req("M125")
async def test_the_first_message_can_be_edited_too(db: Path) -> None:
    provider = ScriptedProvider(says("Hi."), says("Hello."))
    async with app_on(db, provider) as app:
        chat = await app.create()
        await talk(chat, "Hey")
        first = (await chat.line())[0]
        await (await chat.edit(first.id, "Hello")).result()
        assert [m["content"] for m in provider.messages()] == ["Hello"]
        assert len(await chat.siblings(first.id)) == 2


@pytest.mark.req("M125", "M139")
async def test_regenerate_asks_the_same_bytes_and_adds_a_sibling(db: Path) -> None:
    provider = ScriptedProvider(says("Heron."), says("Egret."))
    async with app_on(db, provider) as app:
        chat = await app.create()
        await talk(chat, "Name a ship.")
        first = (await chat.line())[-1]
        run = await chat.regenerate(first.id)
        second = await run.result()
        assert provider.bodies[0] == provider.bodies[1]
        assert await chat.siblings(first.id) == (first.id, second.id)
        assert (await chat.line())[-1].id == second.id


async def test_a_failed_regenerate_leaves_the_good_answer_where_it_is(db: Path) -> None:
    provider = ScriptedProvider(says("Heron."), [NotSent("dns", "no")], says("Ahab."))
    async with app_on(db, provider, settings=Settings(retries=0)) as app:
        chat = await app.create()
        await talk(chat, "Name a ship.")
        good = (await chat.line())[-1]
        with pytest.raises(ProviderFailed):
            await (await chat.regenerate(good.id)).result()
        assert (await chat.line())[-1].id == good.id
        await talk(chat, "And a captain?")
        assert [m["content"] for m in provider.messages()] == [
            "Name a ship.", "Heron.", "And a captain?",
        ]  # fmt: skip


@pytest.mark.req("M139")
async def test_asking_again_after_a_failure_copies_the_input(db: Path) -> None:
    provider = ScriptedProvider([NotSent("dns", "no")], says("Hi."))
    async with app_on(db, provider, settings=Settings(retries=0)) as app:
        chat = await app.create()
        with pytest.raises(ProviderFailed):
            await talk(chat, "Hello")
        (failed,) = await chat.tree()
        await (await chat.regenerate(failed.id)).result()
        copy, _ = await chat.line()
        assert (copy.text, copy.copied_from, copy.parent) == ("Hello", failed.id, None)
        assert [m["content"] for m in provider.messages()] == ["Hello"]


async def test_the_head_stays_with_a_reader_who_looks_elsewhere(db: Path) -> None:
    hold = Hold()
    provider = ScriptedProvider(says("One."), [hold, *says("Two.")])
    async with app_on(db, provider) as app:
        chat = await app.create()
        await talk(chat, "first")
        line = await chat.line()
        run = await chat.send("second")
        await hold.reached.wait()
        await chat.look_at(line[0].id)
        hold.go.set()
        await run.result()
        assert [m.text for m in await chat.line()] == ["first"]


async def test_a_deletion_skips_and_keeps_and_takes_a_call_with_its_result(db: Path) -> None:
    provider = ScriptedProvider(
        asks(("c1", "clock", "{}")), says("Noon."), says("Fine."), says("Ok.")
    )
    clock = Function(name="clock", run=lambda: "12:00")
    async with app_on(db, provider, functions=[clock]) as app:
        chat = await app.create()
        await talk(chat, "Time?")
        await talk(chat, "How are you?")
        line = await chat.line()
        await chat.delete([line[1].id])
        await talk(chat, "Go on")
        sent = provider.messages()
        assert [m["role"] for m in sent] == ["user", "assistant", "user", "assistant", "user"]
        assert not any("tool_calls" in m for m in sent)
        assert len(await chat.tree()) == 8


async def test_a_run_below_a_deleted_message_is_canceled(db: Path) -> None:
    hold = Hold()
    provider = ScriptedProvider(says("One."), [chunk({"content": "Tw"}), hold])
    async with app_on(db, provider) as app:
        chat = await app.create()
        await talk(chat, "first")
        first = (await chat.line())[0]
        run = await chat.send("second")
        await hold.reached.wait()
        await chat.delete([first.id])
        row = await run.row()
        assert (row.status, row.error_code) == (RunStatus.CANCELED, "deleted")


async def test_kept_text_is_a_message_of_its_own(db: Path) -> None:
    hold = Hold()
    provider = ScriptedProvider([chunk({"content": "Half an answer"}), hold], says("Yes."))
    async with app_on(db, provider) as app:
        chat = await app.create()
        run = await chat.send("Hello")
        await hold.reached.wait()
        await run.cancel()
        canceled = next(m for m in await chat.tree() if m.status == "canceled")
        await chat.keep(canceled.id)
        await talk(chat, "Go on")
        assert [m["content"] for m in provider.messages()] == ["Hello", "Half an answer", "Go on"]
        kept = (await chat.line())[1]
        assert (kept.origin, kept.role) == ("kept", Role.ASSISTANT)


@pytest.mark.req("M27")
async def test_the_same_message_again_is_the_same_run(db: Path) -> None:
    provider = ScriptedProvider(says("Hi."))
    async with app_on(db, provider) as app:
        chat = await app.create()
        one = await chat.send("Hello", message="mine-1")
        two = await chat.send("Hello", message="mine-1")
        assert one.id == two.id
        await one.result()
        three = await chat.send("Hello", message="mine-1")
        assert three.id == one.id
        assert (await three.result()).text == "Hi."
        with pytest.raises(Conflict) as caught:
            await chat.send("Something else", message="mine-1")
        assert caught.value.code == "message_id_conflict"


async def test_a_key_starts_one_run_and_refuses_another_body(db: Path) -> None:
    def key(body: str) -> StartKey:
        return StartKey(scope="s", key="k", body_digest=Digest(body * 32), expires_ms=2**60)

    provider = ScriptedProvider(says("Hi."))
    async with app_on(db, provider) as app:
        chat = await app.create()
        runs = await asyncio.gather(*(chat.send("Hello", key=key("aa")) for _ in range(5)))
        assert len({run.id for run in runs}) == 1
        await runs[0].result()
        with pytest.raises(Conflict) as caught:
            await chat.send("Other", key=key("bb"))
        assert caught.value.code == "idempotency_conflict"
        assert len(provider.requests) == 1


async def test_bad_input_is_refused_with_a_code_and_changes_nothing(db: Path) -> None:
    async with app_on(db, ScriptedProvider()) as app:
        chat, other = await app.create(), await app.create()
        foreign = await app.engine.world.store.conversation(other.id)
        with pytest.raises(InvalidInput) as empty:
            await chat.send("")
        with pytest.raises(InvalidInput) as long_id:
            await chat.send("Hello", message="x" * 65)
        with pytest.raises(Refused) as parent:
            await chat.send("Hello", parent=MessageId("msg_nowhere"))
        with pytest.raises(NotFound) as model:
            await chat.send("Hello", ask=Ask(model="gpt-unheard-of"))
        assert empty.value.code == "empty_content"
        assert long_id.value.code == "bad_message_id"
        assert model.value.code == "model_not_found"
        assert parent.value.code == "missing_parent"
        assert foreign.revision == (await chat.row()).revision == 0


HALF = "\ud800"


@pytest.mark.parametrize(
    "attempt",
    [
        lambda chat: chat.send(HALF),
        lambda chat: chat.send("Hello", ask=Ask(instructions=HALF)),
        lambda chat: chat.rename(HALF),
    ],
    ids=["text", "instructions", "title"],
)
async def test_half_a_character_is_refused_before_anything_is_stored(
    db: Path, attempt: Callable[[Chat], Awaitable[object]]
) -> None:
    provider = ScriptedProvider(says("Hi."))
    async with app_on(db, provider) as app:
        chat = await app.create()
        before = await chat.row()
        with pytest.raises(InvalidInput) as caught:
            await attempt(chat)
        assert caught.value.code == "invalid_unicode"
        assert await chat.row() == before
        assert await talk(chat, "Hello") == "Hi."


async def test_a_result_with_half_a_character_leaves_the_call_open(db: Path) -> None:
    provider = ScriptedProvider(asks(("c1", "weather", "{}")), says("Rain."))
    async with app_on(db, provider) as app:
        chat = await app.create(ask=WEATHER)
        run = await chat.send("Weather?")
        async for _ in run.events():
            pass
        with pytest.raises(InvalidInput) as caught:
            await run.answer({"c1": HALF})
        assert caught.value.code == "invalid_unicode"
        run = await run.answer({"c1": "rain"})
        assert (await run.result()).text == "Rain."


async def test_only_a_user_message_can_be_edited(db: Path) -> None:
    provider = ScriptedProvider(says("Hi."))
    async with app_on(db, provider) as app:
        chat = await app.create()
        await talk(chat, "Hello")
        answer = (await chat.line())[-1]
        with pytest.raises(Refused) as caught:
            await chat.edit(answer.id, "Bye")
        assert caught.value.code == "not_editable"


@pytest.mark.req("M140", "M142")
async def test_the_last_model_call_allowed_offers_no_tools(db: Path) -> None:
    provider = ScriptedProvider(asks(("c1", "look", "{}")), says("Fog."))
    look = Function(name="look", run=lambda: "fog")
    async with app_on(db, provider, functions=[look], settings=Settings(max_model_calls=2)) as app:
        chat = await app.create()
        assert await talk(chat, "Look") == "Fog."
        assert b'"tool_choice":"none"' in provider.bodies[1]
        assert b'"tool_choice":"none"' not in provider.bodies[0]


@pytest.mark.req("M141", "M142", "M146")
async def test_at_the_limit_of_tool_calls_the_model_is_asked_once_more_without_tools(
    db: Path,
) -> None:
    ran: list[int] = []
    provider = ScriptedProvider(
        asks(("c1", "look", "{}")),
        asks(("c2", "look", "{}"), ("c3", "look", "{}")),
        says("Fog and a buoy."),
    )

    def look() -> str:
        ran.append(1)
        return "fog"

    tool = Function(name="look", run=look, repeatable=True)
    async with app_on(db, provider, functions=[tool], settings=Settings(max_tool_calls=2)) as app:
        chat = await app.create()
        run = await chat.send("Look")
        assert (await run.result()).text == "Fog and a buoy."
        assert [call.code for call in (await run.explain()).calls] == [None, None, "tool_limit"]
        assert len(ran) == 2
        assert [b'"tool_choice":"none"' in body for body in provider.bodies] == [False, False, True]
        assert (await run.row()).end_code == "tool_limit"
        assert [len(m.results) for m in await chat.line()] == [0, 0, 1, 0, 2, 0]


async def test_events_tell_the_whole_answer_to_one_who_comes_late(db: Path) -> None:
    provider = ScriptedProvider(says("Once ", "upon."))
    async with app_on(db, provider) as app:
        chat = await app.create()
        run = await chat.send("Tale")
        await run.result()
        events = [event async for event in run.events()]
        assert [type(e) for e in events] == [Preview, Committed, Ended]
        assert "".join(e.text for e in events if isinstance(e, Preview)) == "Once upon."


_ = (Text, ToolResult)
