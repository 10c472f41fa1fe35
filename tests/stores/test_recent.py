"""What the store answers from memory is what stands in the file, whatever was done last.

Beside the writing store a second one is open on the same file for reading only: it remembers
nothing, so it is the witness.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from antiphon.core.blocks import Text
from antiphon.core.commands import (
    AddMessages,
    CancelRun,
    DeleteMessages,
    EndRun,
    KeepCanceled,
    MoveHead,
    SetTitle,
    Then,
)
from antiphon.core.ids import MessageId, RunId
from antiphon.core.records import OPEN_RUN, RunStatus
from antiphon.errors import NotFound
from antiphon.stores.base import Store
from antiphon.stores.sql.recent import NEWEST
from antiphon.stores.sql.store import SqlStore
from antiphon.stores.sqlite import open_sqlite
from tests.stores.talk import Talk


@asynccontextmanager
async def two_views(path: Path) -> AsyncIterator[tuple[Talk, Store]]:
    store = await open_sqlite(path / "two.db")
    talk = await Talk.begin(store)
    witness = await open_sqlite(path / "two.db", read_only=True)
    try:
        yield talk, witness
    finally:
        await witness.close()
        await store.close()


async def agree(talk: Talk, witness: Store) -> None:
    """Both views answer every question that memory may answer in the same way."""
    store, conversation = talk.store, talk.conversation
    assert await store.conversation(conversation) == await witness.conversation(conversation)
    runs = await witness.runs(conversation)
    assert await store.runs(conversation) == runs
    assert await store.runs(conversation, OPEN_RUN) == [run for run in runs if run.open]
    for status in RunStatus:
        expected = [run for run in runs if run.status is status]
        assert await store.runs(conversation, {status}) == expected
    for run in runs:
        assert await store.run(conversation, run.id) == run
        expected_input = await witness.run_input(conversation, run.id)
        assert await store.run_input(conversation, run.id) == expected_input
        for of in {run.leaf, run.input, None}:
            calls = await witness.calls(conversation, run.id, of)
            assert await store.calls(conversation, run.id, of) == calls
    told = await witness.events(conversation, 0)
    for after in range(len(told) + 1):
        assert await store.events(conversation, after) == told[after:]
    messages = await witness.tree(conversation)
    for message in messages:
        assert await store.message(conversation, message.id) == message
        for limit in (None, 0, 1, 2):
            line = await witness.path(conversation, message.id, limit=limit)
            assert await store.path(conversation, message.id, limit=limit) == line
        for above in messages:
            line = await witness.path(conversation, message.id, until=above.id)
            assert await store.path(conversation, message.id, until=above.id) == line


def a_turn_with_a_tool(talk: Talk) -> list[Callable[[], Awaitable[object]]]:
    do = talk.do
    return [
        lambda: do(talk.start("run_1", "m1")),
        lambda: do(talk.place("run_1", parent=None, revision=0)),
        lambda: do(talk.prepare("run_1", "op_1", base="m1", revision=1, answer="a1")),
        lambda: do(talk.accept("op_1")),
        lambda: do(talk.written("op_1", 1)),
        lambda: do(talk.opened("op_1", 1)),
        lambda: do(talk.commit("op_1", 1, talk.answer("a1", "c1", "c2"), then=Then.CONTINUE)),
        lambda: do(talk.start_call("run_1", "c1")),
        lambda: do(talk.finish_call("run_1", "c1")),
        lambda: do(talk.finish_call("run_1", "c2", outside=True)),
        lambda: do(talk.place_results("run_1", "r1")),
        lambda: do(talk.start("run_2", "m2")),
    ]


async def test_memory_and_file_agree_after_every_step_of_a_turn(tmp_path: Path) -> None:
    async with two_views(tmp_path) as (talk, witness):
        await agree(talk, witness)
        for step in a_turn_with_a_tool(talk):
            await step()
            await agree(talk, witness)


async def test_memory_and_file_agree_after_what_people_do(tmp_path: Path) -> None:
    async with two_views(tmp_path) as (talk, witness):
        await talk.streaming("run_1", "op_1")
        partial = (Text(text="half"),)
        cancel = CancelRun(
            **talk.head(),
            run=RunId("run_1"),
            reason="canceled",
            partial=partial,
            partial_id=MessageId("p1"),
        )
        added = (talk.message("n1"), talk.message("n2", parent="n1"))
        for command in (
            cancel,
            KeepCanceled(**talk.head(), source=MessageId("p1"), message=MessageId("k1")),
            AddMessages(**talk.head(), messages=added, head=MessageId("n2")),
            MoveHead(**talk.head(), head=MessageId("m1")),
            SetTitle(**talk.head(), title="Weather"),
            DeleteMessages(**talk.head(), messages=(MessageId("n2"),)),
        ):
            await talk.do(command)
            await agree(talk, witness)


async def test_memory_and_file_agree_about_a_run_that_failed(tmp_path: Path) -> None:
    async with two_views(tmp_path) as (talk, witness):
        await talk.placed("run_1", "m1")
        failed = EndRun(
            **talk.head(),
            run=RunId("run_1"),
            status=RunStatus.ERROR,
            fence=talk.fence,
            error_code="refused",
        )
        await talk.do(failed)
        await agree(talk, witness)


async def test_what_was_denied_or_undone_is_not_remembered(tmp_path: Path) -> None:
    async with two_views(tmp_path) as (talk, witness):
        await talk.placed("run_1", "m1")
        before = await talk.row()
        denied = await talk.store.do_all(
            AddMessages(**talk.head(), messages=(talk.message("n1"),), head=None),
            talk.place("run_1", parent=None, revision=0),
        )
        assert not isinstance(denied, tuple)
        with pytest.raises(NotFound):
            await talk.store.message(talk.conversation, MessageId("n1"))
        assert await talk.row() == before
        await agree(talk, witness)


async def test_a_turn_asks_the_file_for_nothing_that_memory_holds(tmp_path: Path) -> None:
    async with two_views(tmp_path) as (talk, _):
        await talk.answered("run_1", "op_1", calls=("c1",), then=Then.CONTINUE)
        store = talk.store
        assert isinstance(store, SqlStore)
        asked: list[object] = []

        async def read(question: Callable[..., object]) -> object:
            asked.append(question)
            raise AssertionError("the file was asked")

        store._readers.read = read  # type: ignore[method-assign,assignment] # a spy
        await store.conversation(talk.conversation)
        await store.runs(talk.conversation, OPEN_RUN)
        assert (await store.events(talk.conversation, 3))[0].seq == 4
        run = await store.run(talk.conversation, RunId("run_1"))
        assert [c.call_id for c in await store.calls(talk.conversation, run.id, run.leaf)] == ["c1"]
        line = await store.path(talk.conversation, MessageId("a1"), until=MessageId("m1"))
        assert [message.id for message in line] == ["a1"]
        assert asked == []


async def test_memory_that_does_not_reach_back_far_enough_is_no_answer(tmp_path: Path) -> None:
    async with two_views(tmp_path) as (talk, witness):
        names = [f"n{number}" for number in range(2 * NEWEST)]
        parents = [None, *names]
        messages = tuple(
            talk.message(name, parent=parent) for name, parent in zip(names, parents, strict=False)
        )
        await talk.do(AddMessages(**talk.head(), messages=messages, head=None))
        for name in names:
            await talk.do(MoveHead(**talk.head(), head=MessageId(name)))
        conversation, leaf = talk.conversation, MessageId(names[-1])
        told = await witness.events(conversation, 0)
        for after in range(len(told)):
            assert await talk.store.events(conversation, after) == told[after:]
        for limit in (NEWEST - 1, NEWEST, NEWEST + 1, None):
            line = await witness.path(conversation, leaf, limit=limit)
            assert await talk.store.path(conversation, leaf, limit=limit) == line
