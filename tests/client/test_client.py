"""The client of a real server does what the library does, and tells what it tells."""

from __future__ import annotations

from pathlib import Path

import pytest

import antiphon
from antiphon import client
from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.knowledge.kept import RememberedKind
from antiphon.core.manifest import ToolDeclaration
from antiphon.core.records import RunStatus
from antiphon.errors import Conflict, InvalidInput, NotFound, Refused, ServerUnavailable
from tests.client.stage import QUICK, staged
from tests.support.provider import Hold, ScriptedProvider, asks, chunk, says


async def told(run: antiphon.RunHandle) -> list[object]:
    return [event async for event in run.events()]


async def test_an_answer_is_told_as_by_the_library(tmp_path: Path) -> None:
    async with staged(tmp_path / "a.db", ScriptedProvider(says("Fine", ".", " You?"))) as stage:
        chat = await stage.app.create(title="Ships")
        run = await chat.send("How are you?")
        events = await told(run)
        shown = "".join(e.text for e in events if isinstance(e, antiphon.Preview))
        answer = await run.result()
        assert (shown, answer.text) == ("Fine. You?", "Fine. You?")
        assert [type(e) for e in events[-2:]] == [antiphon.Committed, antiphon.Ended]

        beside = await stage.library.conversation(chat.id)
        again = await told(await beside.run(run.id))
        committed = [e for e in events if isinstance(e, antiphon.Committed | antiphon.Ended)]
        assert committed == [e for e in again if not isinstance(e, antiphon.Preview)]
        assert await chat.row() == await beside.row()
        assert await chat.tree() == await beside.tree()
        assert await chat.line() == await beside.line()
        assert await chat.runs() == await beside.runs()
        assert await run.explain() == await (await beside.run(run.id)).explain()
        assert await run.request() == await (await beside.run(run.id)).request()
        assert await stage.app.newest() == await stage.library.newest()
        assert await stage.app.models() == await stage.library.models()


async def test_branches_grow_and_nothing_is_lost(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("one"), says("two"), says("three"), says("four"))
    async with staged(tmp_path / "a.db", provider) as stage:
        chat = await stage.app.create()
        await (await chat.send("Name a ship.")).result()
        question, answer = await chat.line()
        await (await chat.regenerate(answer.id)).result()
        await (await chat.edit(question.id, "Name a boat.")).result()
        await (await chat.send("And a captain?", parent=answer.id)).result()
        assert len(await chat.tree()) == 7
        assert answer.id in await chat.siblings(answer.id)
        assert len(await chat.siblings(answer.id)) == 2
        assert [m.text for m in await chat.roots()] == ["Name a ship.", "Name a boat."]
        assert (await chat.look_at(answer.id)).head == answer.id
        assert (await chat.line(limit=1)) == [answer]
        assert answer.id in (await chat.delete([answer.id])).deletions
        assert (await chat.rename("Boats")).title == "Boats"
        assert (await chat.message(question.id)) == question


async def test_the_results_of_calls_are_brought_once(tmp_path: Path) -> None:
    provider = ScriptedProvider(asks(("call_1", "weather", "{}")), says("Cold."))
    async with staged(tmp_path / "a.db", provider) as stage:
        ask = antiphon.Ask(tools=(ToolDeclaration(name="weather"),))
        chat = await stage.app.create(ask=ask)
        run = await chat.send("Weather?")
        waiting = (await told(run))[-1]
        assert isinstance(waiting, antiphon.CallsWaiting)
        assert [call.call_id for call in waiting.calls] == ["call_1"]
        with pytest.raises(Conflict) as refused:
            await run.answer({"call_9": "?"})
        assert (refused.value.code, refused.value.at) == ("orphan_tool_result", "call_9")
        again = await run.answer({"call_1": "4 °C"})
        assert (await again.result()).text == "Cold."
        with pytest.raises(Conflict) as twice:
            await run.answer({"call_1": "40 °C"})
        assert twice.value.code == "duplicate_tool_result"


async def test_stop_is_a_call_and_what_was_said_can_be_kept(tmp_path: Path) -> None:
    hold = Hold()
    provider = ScriptedProvider([chunk({"content": "Half"}), hold])
    async with staged(tmp_path / "a.db", provider) as stage:
        chat = await stage.app.create()
        run = await chat.send("Talk.")
        seen = []
        async for event in run.events():
            seen.append(event)
            if isinstance(event, antiphon.Preview):
                await run.cancel()
        assert isinstance(seen[-1], antiphon.Ended)
        assert seen[-1].status is RunStatus.CANCELED
        assert any(isinstance(event, antiphon.Withdrawn) for event in seen)
        half = next(m for m in await chat.tree() if m.text == "Half")
        row = await chat.keep(half.id)
        assert row.head is not None
        assert (await chat.message(row.head)).text == "Half"


async def test_errors_are_those_of_the_library(tmp_path: Path) -> None:
    async with staged(tmp_path / "a.db") as stage:
        with pytest.raises(NotFound):
            await stage.app.conversation("conv_nothing")
        with pytest.raises(NotFound):
            await stage.app.run("run_nothing")
        chat = await stage.app.create()
        with pytest.raises(NotFound) as foreign:
            await chat.send("Hi", parent=MessageId("msg_nothing"))
        assert foreign.value.code == "missing_parent"
        with pytest.raises(NotFound) as unknown:
            await chat.send("Hi", ask=antiphon.Ask(model="nobody"))
        assert unknown.value.code == "model_not_found"
        with pytest.raises(NotFound):
            await stage.app.model("nobody")
        with pytest.raises(NotFound):
            async for _ in stage.app.feed(ConversationId("conv_nothing")).items():
                pass


@pytest.mark.parametrize(
    "url", ["", "localhost:8000", "ftp://a", "http://", "http://a?b", "http://[x"]
)
async def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        async with client.open(url):
            pass
    assert refused.value.code == "bad_url"


async def test_where_nobody_answers_it_says_so_at_once() -> None:
    with pytest.raises(ServerUnavailable):
        async with client.open("http://127.0.0.1:9", patience=QUICK):
            pass


async def test_files_and_memories_are_told_as_by_the_library(tmp_path: Path) -> None:
    async with staged(tmp_path / "a.db", ScriptedProvider(says("Nine."))) as stage:
        chat = await stage.app.create()
        beside = await stage.library.conversation(chat.id)
        file = await chat.attach(b"A berth costs nine crowns.", name="../fees.md")
        assert await chat.files() == await beside.files() == [file]
        await stage.app.remember("language", "English")
        await chat.remember("a b", "中文")
        await chat.remember("plot", "A lighthouse.", kind=RememberedKind.STABLE)
        assert await chat.remembered() == await beside.remembered()
        assert await stage.app.remembered() == await stage.library.remembered()
        await (await chat.send("What does a berth cost?")).result()
        question = (await chat.line())[0]
        assert await chat.beside(question.id) == await beside.beside(question.id)
        assert (await chat.beside(question.id)).searched[0].status == "hit"
        await chat.forget("a b")
        await chat.forget("plot", kind=RememberedKind.STABLE)
        await stage.app.forget("language")
        with pytest.raises(NotFound):
            await chat.forget("a b")
        assert await chat.remembered() == []
        assert await chat.detach(file.id) == file
        assert await beside.files() == []
        with pytest.raises(Refused) as caught:
            await chat.attach(b"", name="a.txt")
        assert (caught.value.code, caught.value.at) == ("empty_file", "a.txt")
