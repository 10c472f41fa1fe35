"""What enters the tree together with the acceptance of the call about it, and when it may not."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from antiphon.core.blocks import Refusal, Role, Status
from antiphon.core.commands import (
    AddMessages,
    Command,
    CommitAnswer,
    FinishCall,
    PlaceRun,
    StartRun,
)
from antiphon.core.dispatch import Denied
from antiphon.core.knowledge.retrieval import Passage, Question
from antiphon.core.records import CallState, RunStatus
from antiphon.engine.catalogue.models import REHEARSAL, REHEARSAL_MODEL, Models, Routing
from antiphon.engine.keeping.explain import exact_request
from antiphon.engine.settings import Settings
from antiphon.engine.tools.function import Function
from antiphon.errors import NotDurable, StoreError
from antiphon.handles.chat import Chat
from antiphon.library import Antiphon
from tests.support.engines import app_on, talk
from tests.support.lines import user
from tests.support.provider import ScriptedProvider, asks, says

CLOCK = Function(name="clock", run=lambda: "noon")


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "antiphon.db"


def transactions(app: Antiphon) -> list[tuple[str, ...]]:
    """The commands of each transaction that is asked for from now on, in their order."""
    store, seen = app.engine.world.store, list[tuple[str, ...]]()
    do, do_all = store.do, store.do_all

    async def one(command: Command[Any]) -> Any:
        seen.append((type(command).__name__,))
        return await do(command)

    async def several(*commands: Command[Any]) -> Any:
        seen.append(tuple(type(command).__name__ for command in commands))
        return await do_all(*commands)

    store.do, store.do_all = one, several  # type: ignore[method-assign]
    return seen


async def test_a_turn_with_a_tool_waits_for_the_disk_four_times(db: Path) -> None:
    provider = ScriptedProvider(asks(("c1", "clock", "{}")), says("It is noon."))
    async with app_on(db, provider, functions=[CLOCK]) as app:
        chat = await app.create()
        seen = transactions(app)
        assert await talk(chat, "What time is it?") == "It is noon."
        assert seen == [
            ("PutContent", "StartRun", "PlaceRun", "PutContent", "Prepare", "Accept"),
            ("CommitAnswer", "StartCall"),
            ("FinishCall", "PlaceResults", "PutContent", "Prepare", "Accept"),
            ("CommitAnswer",),
        ]


ALONE = ("PutContent", "StartRun")
TOGETHER = (*ALONE, "PlaceRun", "PutContent", "Prepare", "Accept")


@pytest.mark.req("M130")
async def test_a_run_begins_in_the_transaction_that_starts_it_in_a_talk_that_goes_on(
    db: Path,
) -> None:
    provider = ScriptedProvider(says("Hello."), says("Well."))
    async with app_on(db, provider) as app:
        chat = await app.create()
        seen = transactions(app)
        assert await talk(chat, "Hi") == "Hello."
        assert await talk(chat, "How are you?") == "Well."
        assert seen == [TOGETHER, ("CommitAnswer",)] * 2
        assert [m["content"] for m in provider.messages()] == ["Hi", "Hello.", "How are you?"]


class Finds:
    """A retriever that has nothing to say."""

    name = "shelf"

    async def retrieve(self, question: Question) -> list[Passage]:
        return []


LIMITED = Settings(
    retry_base_s=0.0,
    models=Models(
        named={REHEARSAL: replace(REHEARSAL_MODEL, routing=Routing(max_concurrent=1))},
    ),
)


@pytest.mark.req("M130")
@pytest.mark.parametrize(
    "what",
    [
        {"settings": Settings(scheduling=True)},
        {"retrievers": [Finds()]},
        {"settings": LIMITED},
    ],
    ids=["a decision about its session", "a search", "a gate"],
)
async def test_a_run_is_acknowledged_before_anybody_is_asked(
    db: Path, what: dict[str, Any]
) -> None:
    async with app_on(db, ScriptedProvider(says("Hello.")), **what) as app:
        chat = await app.create()
        seen = transactions(app)
        await chat.send("Hi")
        assert seen == [ALONE]


@pytest.mark.req("M130")
async def test_runs_that_are_started_at_the_same_moment_are_all_started_and_answered(
    db: Path,
) -> None:
    provider = ScriptedProvider(says("One."), says("Two."), says("Three."))
    async with app_on(db, provider) as app:
        chat = await app.create()
        store = app.engine.world.store
        runs = store.runs

        async def slowly(*args: Any) -> Any:
            await asyncio.sleep(0)
            return await runs(*args)

        store.runs = slowly  # type: ignore[assignment, method-assign]
        started = await asyncio.gather(*[chat.send(text) for text in "abc"])
        assert len({run.id for run in started}) == 3
        told = [(await run.result()).text for run in started]
        assert sorted(told) == ["One.", "Three.", "Two."]
        assert not app.engine.failures


async def test_a_run_that_cannot_begin_with_its_start_is_started_all_the_same(db: Path) -> None:
    provider = ScriptedProvider(says("Hello."))
    async with app_on(db, provider) as app:
        chat = await app.create()
        store, seen = app.engine.world.store, transactions(app)
        do_all = store.do_all

        async def never_together(*commands: Command[Any]) -> Any:
            if {StartRun, PlaceRun} <= {type(command) for command in commands}:
                return Denied("revision")
            return await do_all(*commands)

        store.do_all = never_together  # type: ignore[method-assign]
        assert await talk(chat, "Hi") == "Hello."
        assert seen == [ALONE, TOGETHER[2:], ("CommitAnswer",)]
        assert not app.engine.failures


@pytest.mark.req("M130")
async def test_who_starts_a_run_on_a_full_disk_hears_of_it_at_once_and_nothing_is_begun(
    db: Path,
) -> None:
    provider = ScriptedProvider(says("Hello."))
    async with app_on(db, provider) as app:
        chat = await app.create()
        store = app.engine.world.store
        do_all = store.do_all

        async def full(*commands: Command[Any]) -> Any:
            raise NotDurable("The disk is full.")

        store.do_all = full  # type: ignore[method-assign]
        with pytest.raises(NotDurable):
            await chat.send("Hi")
        store.do_all = do_all  # type: ignore[method-assign]
        await app.engine.idle(chat.id)
        assert await store.runs(chat.id) == []
        assert provider.requests == []
        assert await talk(chat, "Hi") == "Hello."


async def test_who_waits_for_a_start_hears_that_the_engine_closes(db: Path) -> None:
    async with app_on(db, ScriptedProvider()) as app:
        chat = await app.create()
        store = app.engine.world.store
        asked = asyncio.Event()

        async def never(*commands: Command[Any]) -> Any:
            asked.set()
            await asyncio.Event().wait()

        store.do_all = never  # type: ignore[method-assign]
        sending = asyncio.ensure_future(chat.send("Hi"))
        await asked.wait()
        await app.engine.close()
        with pytest.raises(StoreError):
            await sending


@pytest.mark.req("M68", "M98")
async def test_what_was_foreseen_is_what_was_stored_and_sent(db: Path) -> None:
    provider = ScriptedProvider(asks(("c1", "clock", "{}")), says("Noon."), says("Still noon."))
    async with app_on(db, provider, functions=[CLOCK]) as app:
        chat = await app.create()
        first = await chat.send("What time is it?")
        await first.result()
        await (await chat.send("And now?")).result()
        world, sent = app.engine.world, iter(provider.bodies)
        for run in await world.store.runs(chat.id):
            for operation in await world.store.operations(chat.id, run.id):
                assert (await exact_request(world, run.id, operation)).body == next(sent)
        assert next(sent, None) is None


def beforehand(app: Antiphon, kind: type[Command[Any]], *first: Command[Any]) -> None:
    """Let the world move once, just before a transaction with a `kind`."""
    store = app.engine.world.store
    do_all, left = store.do_all, list(first)

    async def after_them(*commands: Command[Any]) -> Any:
        while left and any(isinstance(command, kind) for command in commands):
            assert not isinstance(await store.do(left.pop()), Denied)
        return await do_all(*commands)

    store.do_all = after_them  # type: ignore[method-assign]


async def added(chat: Chat, text: str) -> AddMessages:
    row = await chat.row()
    message = user(text, conversation=chat.id, id="msg_added")
    return AddMessages(
        conversation=chat.id, now_ms=row.updated_ms, messages=(message,), head=message.id
    )


async def test_an_input_goes_where_it_belongs_when_the_head_moved_at_the_last_moment(
    db: Path,
) -> None:
    provider = ScriptedProvider(says("Yes."))
    async with app_on(db, provider) as app:
        chat = await app.create()
        beforehand(app, PlaceRun, await added(chat, "I am Ann."))
        assert await talk(chat, "Do you know me?") == "Yes."
        assert [m["content"] for m in provider.messages()] == ["I am Ann.", "Do you know me?"]
        assert [m.text for m in await chat.line()] == ["I am Ann.", "Do you know me?", "Yes."]


async def test_a_run_canceled_at_the_last_moment_sends_nothing_more(db: Path) -> None:
    provider = ScriptedProvider(asks(("c1", "clock", "{}")))
    async with app_on(db, provider, functions=[CLOCK]) as app:
        chat = await app.create()
        run = await chat.send("What time is it?")
        store, engine = app.engine.world.store, app.engine
        do_all = store.do_all

        async def after_the_cancel(*commands: Command[Any]) -> Any:
            if isinstance(commands[0], FinishCall):
                store.do_all = do_all  # type: ignore[method-assign]
                await engine.cancel(chat.id, run.id)
            return await do_all(*commands)

        store.do_all = after_the_cancel  # type: ignore[method-assign]
        await engine.idle(chat.id)
        assert len(provider.requests) == 1
        assert (await run.row()).status is RunStatus.CANCELED
        assert [m.role for m in await chat.line()] == [Role.USER, Role.ASSISTANT, Role.TOOL]
        assert not engine.failures


async def test_an_answer_lands_though_its_calls_cannot_be_claimed_with_it(db: Path) -> None:
    provider = ScriptedProvider(asks(("c1", "clock", "{}")), says("Noon."))
    async with app_on(db, provider, functions=[CLOCK]) as app:
        chat = await app.create()
        store = app.engine.world.store
        do_all = store.do_all

        async def never_together(*commands: Command[Any]) -> Any:
            if isinstance(commands[0], CommitAnswer) and len(commands) > 1:
                return Denied("caller_current")
            return await do_all(*commands)

        store.do_all = never_together  # type: ignore[method-assign]
        run = await chat.send("What time is it?")
        assert (await run.result()).text == "Noon."
        (call,) = (await run.explain()).calls
        assert (call.state, call.attempt) == (CallState.SUCCESS, 1)


async def test_a_result_is_stored_once_though_nothing_may_go_with_it(db: Path) -> None:
    ran: list[str] = []

    def now() -> str:
        ran.append("noon")
        return "noon"

    clock = Function(name="clock", run=now)
    provider = ScriptedProvider(asks(("c1", "clock", "{}")), says("Noon."))
    async with app_on(db, provider, functions=[clock]) as app:
        chat = await app.create()
        store = app.engine.world.store
        do_all = store.do_all

        async def never_together(*commands: Command[Any]) -> Any:
            if isinstance(commands[0], FinishCall) and len(commands) > 1:
                return Denied("revision")
            return await do_all(*commands)

        store.do_all = never_together  # type: ignore[method-assign]
        run = await chat.send("What time is it?")
        assert (await run.result()).text == "Noon."
        assert ran == ["noon"]
        assert await store.quarantine(chat.id) == []


async def test_a_result_outlives_a_fault_in_what_follows(db: Path) -> None:
    provider = ScriptedProvider(asks(("c1", "clock", "{}")))
    async with app_on(db, provider, functions=[CLOCK]) as app:
        chat = await app.create()
        lines = app.engine.world.lines
        line, made = lines.line, list[str]()

        async def once(*args: Any, **named: Any) -> Any:
            made.append("line")
            if len(made) > 1:
                raise ZeroDivisionError
            return await line(*args, **named)

        lines.line = once  # type: ignore[method-assign]
        run = await chat.send("What time is it?")
        await app.engine.idle(chat.id)
        assert [type(failure) for failure in app.engine.failures] == [ZeroDivisionError]
        app.engine.failures.clear()
        await chat.rename("so that the writer has been here")
        (call,) = (await run.explain()).calls
        assert call.state is CallState.SUCCESS


async def test_a_request_that_is_refused_leaves_its_input_in_the_tree(db: Path) -> None:
    provider = ScriptedProvider()
    async with app_on(db, provider) as app:
        chat = await app.create()
        seen = transactions(app)
        run = await chat.send([Refusal(text="no")])
        await app.engine.idle(chat.id)
        assert provider.requests == []
        (message,) = await chat.tree()
        assert message.status is Status.ERROR
        assert (await run.row()).status is RunStatus.ERROR
        assert ("PlaceRun",) in seen
