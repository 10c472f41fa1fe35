"""What the next process makes of what a dead one left.

A dead process is played by an engine that is dropped without being closed: nothing of it runs
any further, and its store is let go as the system lets go of a dead process's files. Processes
that are really killed are in tests/crash.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from antiphon.core.dispatch import State
from antiphon.core.records import CallState, RunStatus
from antiphon.core.recovery import Resend
from antiphon.engine.settings import Settings
from antiphon.engine.tools.function import Function
from antiphon.errors import OutcomeUnknown
from antiphon.library import Antiphon
from tests.support.engines import app_on, talk
from tests.support.provider import Hold, ScriptedProvider, asks, chunk, says


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "antiphon.db"


@asynccontextmanager
async def dying(
    db: Path, provider: ScriptedProvider, functions: Iterable[Function] = ()
) -> AsyncIterator[Antiphon]:
    """An app whose store takes no more writes from the moment the block is left."""
    async with app_on(db, provider, functions=functions) as app:
        yield app
        store = app.engine.world.store

        async def dead(*_: object) -> object:
            await asyncio.Event().wait()
            raise AssertionError

        def buried(*_: object) -> asyncio.Future[object]:
            return asyncio.get_running_loop().create_future()

        store.do = dead  # type: ignore[method-assign,assignment]
        store.do_all = dead  # type: ignore[method-assign,assignment]
        store.submit = buried  # type: ignore[method-assign,assignment]


@pytest.mark.req("M63", "M65", "M77", "M88")
async def test_what_was_in_flight_is_unknown_first_and_is_not_sent_again(db: Path) -> None:
    hold = Hold()
    provider = ScriptedProvider([chunk({"content": "PARTIAL"}), hold])
    async with dying(db, provider) as app:
        chat = await app.create()
        run = await chat.send("Hello")
        await hold.reached.wait()
    provider = ScriptedProvider()
    async with app_on(db, provider) as app:
        chat = await app.conversation(chat.id)
        again = await chat.run(run.id)
        with pytest.raises(OutcomeUnknown):
            await again.result()
        (operation,) = (await again.explain()).operations
        assert [a.state for a in operation.attempts] == [State.CLOSED]
        assert operation.attempts[0].proof is not None
        provider.scripts.append(says("Hi."))
        await talk(chat, "Are you there?")
        assert [m["content"] for m in provider.messages()] == ["Are you there?"]


@pytest.mark.req("M76")
async def test_where_settings_say_so_it_is_asked_once_more_with_the_same_bytes(db: Path) -> None:
    hold = Hold()
    first = ScriptedProvider([chunk({"content": "PARTIAL"}), hold])
    async with dying(db, first) as app:
        chat = await app.create()
        run = await chat.send("Hello")
        await hold.reached.wait()
    second = ScriptedProvider(says("Whole."))
    always = Settings(resend_after_unknown=Resend.ALWAYS)
    async with app_on(db, second, settings=always) as app:
        chat = await app.conversation(chat.id)
        again = await chat.run(run.id)
        assert (await again.result()).text == "Whole."
        assert second.bodies == first.bodies
        (operation,) = (await again.explain()).operations
        assert [a.generation for a in operation.attempts] == [1, 2]


@pytest.mark.req("M63")
async def test_what_was_queued_goes_on_by_itself(db: Path) -> None:
    hold = Hold()
    async with dying(db, ScriptedProvider([hold])) as app:
        chat = await app.create()
        await chat.send("first")
        second = await chat.send("second")
        await hold.reached.wait()
    provider = ScriptedProvider(says("Two."))
    async with app_on(db, provider) as app:
        chat = await app.conversation(chat.id)
        assert (await (await chat.run(second.id)).result()).text == "Two."
        assert [m["content"] for m in provider.messages()] == ["second"]


@pytest.mark.parametrize(("idempotent", "executions"), [(False, 1), (True, 2)])
async def test_a_tool_that_was_running_runs_again_only_where_that_is_harmless(
    db: Path, idempotent: bool, executions: int
) -> None:
    ran: list[str] = []
    started = asyncio.Event()

    async def post() -> str:
        ran.append("effect")
        started.set()
        if len(ran) == 1:
            await asyncio.Event().wait()
        return "posted"

    tool = Function(name="post", run=post, idempotent=idempotent)
    first = ScriptedProvider(asks(("c1", "post", "{}")))
    async with dying(db, first, [tool]) as app:
        chat = await app.create()
        run = await chat.send("Post the notice.")
        await started.wait()
    second = ScriptedProvider(*([says("Done.")] if idempotent else []))
    async with app_on(db, second, functions=[tool]) as app:
        chat = await app.conversation(chat.id)
        again = await chat.run(run.id)
        await app.engine.idle(chat.id)
        assert len(ran) == executions
        (call,) = (await again.explain()).calls
        row = await again.row()
        if idempotent:
            assert (call.state, row.status) == (CallState.SUCCESS, RunStatus.SUCCESS)
        else:
            assert (call.state, row.status) == (CallState.UNKNOWN, RunStatus.WAITING)
            assert row.end_code == "tool_unknown"
            second.scripts.append(says("Good."))
            resumed = await again.answer({"c1": "It was posted; checked by hand."})
            assert (await resumed.result()).text == "Good."
            assert len(ran) == 1


async def test_results_brought_to_a_waiting_run_survive_a_restart(db: Path) -> None:
    from antiphon.core.asking import Ask
    from antiphon.core.manifest import ToolDeclaration

    ask = Ask(tools=(ToolDeclaration(name="weather"),))
    async with dying(db, ScriptedProvider(asks(("c1", "weather", "{}")))) as app:
        chat = await app.create(ask=ask)
        run = await chat.send("Weather?")
        async for _ in run.events():
            pass
    provider = ScriptedProvider(says("Rain."))
    async with app_on(db, provider) as app:
        chat = await app.conversation(chat.id)
        again = await (await chat.run(run.id)).answer({"c1": "rain"})
        assert (await again.result()).text == "Rain."


async def test_recovery_may_be_repeated_and_changes_nothing_the_second_time(db: Path) -> None:
    hold = Hold()
    async with dying(db, ScriptedProvider([hold])) as app:
        chat = await app.create()
        await chat.send("Hello")
        await hold.reached.wait()
    rows = []
    for _ in range(2):
        async with app_on(db, ScriptedProvider()) as app:
            chat = await app.conversation(chat.id)
            await app.engine.idle(chat.id)
            rows.append(await chat.row())
    assert rows[0] == rows[1]


async def test_a_shutdown_in_mid_answer_is_honest_about_it(db: Path) -> None:
    hold = Hold()
    async with app_on(db, ScriptedProvider([chunk({"content": "Ha"}), hold])) as app:
        chat = await app.create()
        run = await chat.send("Hello")
        await hold.reached.wait()
    async with app_on(db, ScriptedProvider()) as app:
        chat = await app.conversation(chat.id)
        row = await (await chat.run(run.id)).row()
        assert (row.status, row.error_code) == (RunStatus.ERROR, "outcome_unknown")


def planted(db: Path, *statements: str) -> None:
    with closing(sqlite3.connect(db)) as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount > 0
        connection.commit()


@pytest.mark.req("M87")
async def test_what_a_newer_release_has_at_work_is_left_alone_and_said_to_be(
    db: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hold = Hold()
    async with dying(db, ScriptedProvider([chunk({"content": "PARTIAL"}), hold])) as app:
        chat = await app.create()
        run = await chat.send("Hello")
        await hold.reached.wait()
    planted(db, "UPDATE manifest SET adapter_version = 99")
    provider = ScriptedProvider()
    async with app_on(db, provider) as app:
        assert run.id in caplog.text
        assert "newer release" in caplog.text
        chat = await app.conversation(chat.id)
        left = await chat.run(run.id)
        waiting = await chat.send("Are you there?")
        await app.engine.idle(chat.id)
        assert (await left.row()).status is RunStatus.PENDING
        (attempt,) = (await left.explain()).operations[0].attempts
        assert attempt.state not in (State.UNKNOWN, State.FAILED, State.CLOSED)
        assert (await waiting.row()).status is RunStatus.QUEUED
        # Another conversation is none of its business, and a person may still cancel.
        provider.scripts += [says("Hi."), says("Here.")]
        assert await talk(await app.create(), "Hello") == "Hi."
        await left.cancel()
        assert (await waiting.result()).text == "Here."


@pytest.mark.req("M87")
async def test_a_call_that_another_adapter_prepared_is_not_sent_by_this_one(db: Path) -> None:
    hold = Hold()
    async with dying(db, ScriptedProvider([hold])) as app:
        chat = await app.create()
        run = await chat.send("Hello")
        await hold.reached.wait()
    planted(
        db,
        "UPDATE attempt SET state = 'PREPARED', generation = 0, accepted_ms = NULL",
        "UPDATE manifest SET adapter_digest = zeroblob(32)",
        "UPDATE conversation SET active_operation = NULL",
    )
    provider = ScriptedProvider()
    async with app_on(db, provider) as app:
        chat = await app.conversation(chat.id)
        await app.engine.idle(chat.id)
        row = await (await chat.run(run.id)).row()
        assert (row.status, row.error_code) == (RunStatus.ERROR, "adapter_mismatch")
        assert app.engine.failures == []
        provider.scripts.append(says("Hi."))
        assert await talk(chat, "And now?") == "Hi."
