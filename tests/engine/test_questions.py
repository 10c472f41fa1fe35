"""Questions beside the turn: recorded first, sent once, bounded, and without a trace in the talk."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from antiphon.core.dispatch import State
from antiphon.core.manifest import Purpose, ToolDeclaration
from antiphon.core.questions import Question, Reply, Said, Unsaid
from antiphon.core.records import Run
from antiphon.engine.dispatch.questions import Questions
from antiphon.engine.keeping.explain import exact_request, told
from antiphon.engine.ports import Cut, NotSent
from antiphon.engine.runs.control import Control
from antiphon.engine.settings import Settings
from antiphon.handles.chat import Chat
from antiphon.library import Antiphon
from tests.engine.test_startup import dying
from tests.support.clock import SimulatedClock
from tests.support.engines import app_on, talk
from tests.support.provider import Hold, ScriptedProvider, Status, Step, asks, chunk, says


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "antiphon.db"


async def ask(
    app: Antiphon,
    chat: Chat,
    *,
    timeout_s: float = 4.0,
    tool: ToolDeclaration | None = None,
    control: Control | None = None,
) -> Reply:
    """Ask something about the conversation's last message."""
    world = app.engine.world
    row = await world.store.conversation(chat.id)
    assert row.head is not None
    question = Question(
        purpose=Purpose.DECISION,
        run=await newest_run(app, chat),
        about=row.head,
        instructions="Answer in one word.",
        text="Is this about boats?",
        timeout_s=timeout_s,
        max_output_tokens=200,
        tool=tool,
    )
    return await Questions(world).ask(question, row, control or Control(world.clock))


async def newest_run(app: Antiphon, chat: Chat) -> Run:
    return (await app.engine.world.store.runs(chat.id))[-1]


async def state_of(app: Antiphon, reply: Reply) -> State:
    assert reply.operation is not None
    (attempt,) = await app.engine.world.store.attempts(reply.operation)
    return attempt.state


@pytest.mark.req("M51", "M52", "M149")
async def test_the_record_of_a_question_stands_before_its_first_byte_leaves(db: Path) -> None:
    hold = Hold()
    provider = ScriptedProvider(says("Ahoy."), [hold, *says("Yes", ".")])
    async with app_on(db, provider) as app:
        chat = await app.create()
        await talk(chat, "A tale of the sea")
        before = await app.engine.world.store.conversation(chat.id)
        asking = asyncio.create_task(ask(app, chat))
        await hold.reached.wait()
        run = await newest_run(app, chat)
        (operation,) = await app.engine.world.store.questions(chat.id, run.id)
        manifest, _ = await app.engine.world.store.manifest(operation)
        assert (manifest.purpose, manifest.max_output_tokens) == (Purpose.DECISION, 200)
        (attempt,) = await app.engine.world.store.attempts(operation)
        assert attempt.state in (State.DISPATCHING, State.SENT)
        hold.go.set()
        reply = await asking
        assert isinstance(reply, Said)
        assert (reply.text, reply.usage.input, reply.usage.output) == ("Yes.", 10, 5)
        # The conversation stands as it stood, but for the generation that was given.
        after = await app.engine.world.store.conversation(chat.id)
        assert (after.revision, after.head, after.slot, after.active_operation) == (
            before.revision,
            before.head,
            None,
            None,
        )
        assert len(await app.engine.world.store.tree(chat.id)) == 2
        assert (await newest_run(app, chat)).input_tokens == 20
        shown = await told(app.engine.world, operation)
        assert shown.answer == "Yes."
        assert (await exact_request(app.engine.world, run.id, operation)).body == provider.bodies[1]
        # What a turn looks like to whoever asks for it is not disturbed.
        assert (await exact_request(app.engine.world, run.id)).body == provider.bodies[0]
        assert provider.messages(1)[-1]["content"] == "Is this about boats?"


@pytest.mark.req("M154")
@pytest.mark.parametrize(
    ("script", "reason", "state"),
    [
        ([Status(429)], "rate_limit_exceeded", State.CLOSED),
        ([Status(500)], "http_500", State.CANCELED),
        ([NotSent("dns", "no such name")], "dns", State.CLOSED),
        ([chunk({"content": "Ye"}), Cut("reset", "gone")], "stream_incomplete", State.CANCELED),
        (says("Yes, and on and on", finish="length"), "truncated_by_length", None),
        (says(""), "empty_answer", State.CLOSED),
    ],
)
async def test_where_there_is_no_whole_answer_there_is_a_reason_and_nothing_is_sent_again(
    db: Path, script: list[Step], reason: str, state: State | None
) -> None:
    provider = ScriptedProvider(says("Ahoy."), script)
    async with app_on(db, provider) as app:
        chat = await app.create()
        await talk(chat, "A tale of the sea")
        reply = await ask(app, chat)
        assert isinstance(reply, Unsaid)
        assert reply.reason == reason
        stands = await state_of(app, reply)
        assert stands is state if state else stands in (State.CLOSED, State.CANCELED)
        assert len(provider.requests) <= 2
        assert await app.engine.world.store.attempts_in({State.UNKNOWN, State.PREPARED}) == []


@pytest.mark.req("M154")
async def test_an_answer_that_comes_too_late_is_none(db: Path) -> None:
    clock, hold = SimulatedClock(), Hold()
    provider = ScriptedProvider(says("Ahoy."), [chunk({"content": "Ye"}), hold])
    async with app_on(db, provider, clock=clock) as app:
        chat = await app.create()
        await talk(chat, "A tale of the sea")
        asking = asyncio.create_task(ask(app, chat, timeout_s=4.0))
        await hold.reached.wait()
        await clock.advance(3.9)
        assert not asking.done()
        await clock.advance(0.2)
        reply = await asyncio.wait_for(asking, 20)
        assert isinstance(reply, Unsaid)
        assert reply.reason == "timeout"
        assert await state_of(app, reply) is State.CANCELED


@pytest.mark.req("M154")
async def test_an_answer_about_what_has_moved_meanwhile_is_none(db: Path) -> None:
    hold = Hold()
    provider = ScriptedProvider(says("Ahoy."), [hold, *says("Yes")], says("And more."))
    async with app_on(db, provider) as app:
        chat = await app.create()
        await talk(chat, "A tale of the sea")
        asking = asyncio.create_task(ask(app, chat))
        await hold.reached.wait()
        assert await talk(chat, "Go on") == "And more."  # a turn is not held up by a question
        hold.go.set()
        reply = await asking
        assert isinstance(reply, Unsaid)
        assert reply.reason == "moved"
        assert await state_of(app, reply) is State.CANCELED


@pytest.mark.req("M154")
async def test_a_cancel_hangs_up_at_once(db: Path) -> None:
    hold = Hold()
    provider = ScriptedProvider(says("Ahoy."), [chunk({"content": "Ye"}), hold])
    async with app_on(db, provider, settings=Settings(cancel_grace_s=60.0)) as app:
        chat = await app.create()
        await talk(chat, "A tale of the sea")
        control = Control(app.engine.world.clock)
        asking = asyncio.create_task(ask(app, chat, control=control))
        await hold.reached.wait()
        control.cancel(60.0)
        reply = await asyncio.wait_for(asking, 5)
        assert isinstance(reply, Unsaid)
        assert reply.reason == "canceled"
        assert await state_of(app, reply) is State.CANCELED
        assert provider.closed == 2


@pytest.mark.req("M63", "M154")
async def test_what_a_dead_process_asked_is_dropped_at_the_next_start_and_never_sent_again(
    db: Path,
) -> None:
    hold = Hold()
    provider = ScriptedProvider(says("Ahoy."), [chunk({"content": "Ye"}), hold])
    async with dying(db, provider) as app:
        chat = await app.create()
        await talk(chat, "A tale of the sea")
        asking = asyncio.create_task(ask(app, chat))
        await hold.reached.wait()
        run = await newest_run(app, chat)
        (operation,) = await app.engine.world.store.questions(chat.id, run.id)
    asking.cancel()
    await asyncio.wait({asking})
    silent = ScriptedProvider()
    async with app_on(db, silent) as app:
        (attempt,) = await app.engine.world.store.attempts(operation)
        assert (attempt.state, attempt.error_code) == (State.CANCELED, "crash")
        assert silent.requests == []
        assert (await newest_run(app, chat)).status == run.status


@pytest.mark.req("M155")
async def test_one_tool_may_be_offered_and_its_call_is_part_of_the_answer(db: Path) -> None:
    tool = ToolDeclaration(name="note")
    provider = ScriptedProvider(says("Ahoy."), asks(("c1", "note", "{}")))
    async with app_on(db, provider) as app:
        chat = await app.create()
        await talk(chat, "A tale of the sea")
        reply = await ask(app, chat, tool=tool)
        assert isinstance(reply, Said)
        assert [call.name for call in reply.calls] == ["note"]
        run = await newest_run(app, chat)
        assert await app.engine.world.store.calls(chat.id, run.id) == []
        assert len(await app.engine.world.store.tree(chat.id)) == 2
