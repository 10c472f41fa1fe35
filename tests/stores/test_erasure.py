"""Contract: what is erased is gone for good, and everything else stands as it stood."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from antiphon.core.blocks import Text
from antiphon.core.commands import (
    AddMessages,
    CancelRun,
    EraseConversation,
    FinishCall,
    KeepPartial,
    PutContent,
    Quarantine,
    SetMetadata,
    SetTitle,
    Then,
)
from antiphon.core.dispatch import Denied
from antiphon.core.events import ConversationErased, decode_event
from antiphon.core.ids import (
    LOCAL_TENANT,
    MessageId,
    OperationId,
    RunId,
    TenantId,
)
from antiphon.core.knowledge.kept import Remembered, RememberedKind
from antiphon.core.records import RunStatus
from antiphon.errors import NotFound
from antiphon.stores.base import Store
from antiphon.stores.sqlite import open_sqlite
from antiphon.stores.sqlite.examine import examine
from tests.stores.talk import Talk, a_digest
from tests.stores.test_knowledge import new_file

SECRET = "the rain in Spain"
"""Stands in everything that anybody says in these tests."""


def erase(talk: Talk) -> EraseConversation:
    return EraseConversation(**talk.head())


async def much_said(talk: Talk) -> None:
    """A conversation with the secret in every place that a store has for it."""
    start = talk.start("run_1", "m1", text=f"{SECRET} asked")
    assert start.input is not None
    about = {"about": SECRET}
    said = structs.replace(start.input, name=SECRET, metadata=about)
    options = structs.replace(start.options, metadata=about)
    content = ((a_digest("policy"), f"{SECRET} policy".encode()),)
    await talk.do(PutContent(**talk.head(), items=content))
    await talk.do(replace(start, options=options, input=said))
    await talk.do(talk.place("run_1", parent=None, revision=0))
    await talk.do(talk.prepare("run_1", "op_1", base="m1", revision=1, answer="a1"))
    attempt = await talk.do(talk.accept("op_1"))
    await talk.do(talk.written("op_1", attempt.generation))
    await talk.do(talk.opened("op_1", attempt.generation))
    answer = talk.answer("a1", "call_1", text=f"{SECRET} answered " * 40)
    commit = talk.commit("op_1", attempt.generation, answer, then=Then.CONTINUE)
    calls = tuple(replace(call, arguments=json.dumps({"at": SECRET})) for call in commit.calls)
    await talk.do(replace(commit, calls=calls))
    await talk.do(talk.finish_call("run_1", "call_1", f"{SECRET} rained", outside=True))
    await talk.do(talk.place_results("run_1", "r1"))
    await talk.do(
        Quarantine(
            **talk.head(),
            operation=OperationId("op_1"),
            generation=1,
            reason="late",
            data=f"{SECRET} late",
        )
    )
    await talk.do(SetTitle(**talk.head(), title=f"{SECRET} title"))
    await talk.do(SetMetadata(**talk.head(), metadata=(("about", SECRET),)))
    await talk.do(talk.start("run_2", "m2", text=f"{SECRET} queued " * 60))


async def test_nothing_that_was_said_can_be_read_any_more_and_the_structure_can(
    talk: Talk,
) -> None:
    await much_said(talk)
    before = {m.id: m for m in await talk.store.tree(talk.conversation)}
    row = await talk.do(erase(talk))
    assert row.erased_ms == talk.now_ms
    assert row == await talk.row()
    assert (row.title, row.metadata, row.slot, row.active_operation) == (None, {}, None, None)
    store = talk.store
    for message in await store.tree(talk.conversation):
        old = before[message.id]
        assert message.erased
        assert (message.blocks, message.name, message.metadata) == ((), None, {})
        assert (message.parent, message.role, message.origin) == (old.parent, old.role, old.origin)
    line = await store.path(talk.conversation, MessageId("r1"))
    assert [(m.id, m.erased) for m in line] == [("m1", True), ("a1", True), ("r1", True)]
    assert (await store.message(talk.conversation, MessageId("a1"))).erased
    runs = await store.runs(talk.conversation)
    assert [run.status for run in runs] == [RunStatus.CANCELED, RunStatus.CANCELED]
    assert {run.error_code for run in runs} == {"erased"}
    assert await store.run_input(talk.conversation, RunId("run_2")) is None
    (call,) = await store.calls(talk.conversation, RunId("run_1"))
    assert (call.erased, call.arguments, call.content) == (True, "", ())
    assert (call.name, call.state) == ("weather", "SUCCESS")
    assert [one.data for one in await store.quarantine(talk.conversation)] == [""]
    with pytest.raises(NotFound):
        await store.content(LOCAL_TENANT, a_digest("policy"))
    everything = repr(
        [
            await store.tree(talk.conversation),
            runs,
            call,
            row,
            await store.events(talk.conversation, 0),
        ]
    )
    assert SECRET not in everything


async def test_whoever_follows_is_told_and_digests_stay(talk: Talk) -> None:
    await much_said(talk)
    manifest = await talk.store.manifest(OperationId("op_1"))
    told = (await talk.row()).last_event
    await talk.do(erase(talk))
    events = [decode_event(e.data) for e in await talk.store.events(talk.conversation, told)]
    assert events[-1] == ConversationErased()
    assert await talk.store.manifest(OperationId("op_1")) == manifest


async def test_erasing_again_changes_nothing(talk: Talk) -> None:
    await much_said(talk)
    once = await talk.do(erase(talk))
    assert await talk.do(erase(talk)) == once


async def test_what_is_erased_takes_nothing_more(talk: Talk) -> None:
    await talk.streaming()
    await talk.do(CancelRun(**talk.head(), run=RunId("run_1"), reason="canceled"))
    await talk.do(erase(talk))
    partial = KeepPartial(
        **talk.head(),
        run=RunId("run_1"),
        partial=(Text(text=SECRET),),
        partial_id=MessageId("p1"),
    )
    late = Quarantine(**talk.head(), operation=None, generation=1, reason="late", data=SECRET)
    added = AddMessages(**talk.head(), messages=(talk.message("m9", SECRET),), head=None)
    content = PutContent(**talk.head(), items=((a_digest("x"), SECRET.encode()),))
    title = SetTitle(**talk.head(), title=SECRET)
    for command in (partial, late, added, content, title, talk.start("run_9", "m9", text=SECRET)):
        assert await talk.denied(command) == "conversation_erased"
    assert len(await talk.store.tree(talk.conversation)) == 1
    assert await talk.store.quarantine(talk.conversation) == []


async def test_a_late_result_of_an_erased_call_is_kept_nowhere(talk: Talk) -> None:
    await talk.answered(calls=("call_1",), then=Then.CONTINUE)
    await talk.do(talk.start_call("run_1", "call_1"))
    await talk.do(erase(talk))
    late = talk.finish_call("run_1", "call_1", SECRET)
    assert isinstance(late, FinishCall)
    assert await talk.denied(late) == "conversation_erased"
    assert await talk.store.quarantine(talk.conversation) == []


async def test_an_answer_under_way_is_canceled_and_commits_no_more(talk: Talk) -> None:
    attempt = await talk.streaming()
    before = await talk.row()
    await talk.do(erase(talk))
    row = await talk.row()
    assert (row.slot, row.active_operation) == (None, None)
    assert row.cancel_generation == before.cancel_generation + 1
    commit = talk.commit("op_1", attempt.generation, talk.answer("a1", text=SECRET))
    assert await talk.denied(commit) == "conversation_erased"


async def test_content_that_another_conversation_needs_stays_until_that_one_goes(
    store: Store,
) -> None:
    one, two = await Talk.begin(store), await Talk.begin(store, "conv_2")
    shared, own = a_digest("shared"), a_digest("own")
    await one.do(PutContent(**one.head(), items=((shared, b"shared"), (own, b"own"))))
    await two.do(PutContent(**two.head(), items=((shared, b"shared"),)))
    rules = a_digest("rules")
    await one.do(PutContent(**one.head(), items=((rules, b"rules"),), structure=True))
    await one.do(erase(one))
    assert await store.content(LOCAL_TENANT, shared) == b"shared"
    assert await store.stored(LOCAL_TENANT, [shared, own, rules]) == {shared, rules}
    await two.do(erase(two))
    assert await store.stored(LOCAL_TENANT, [shared, own, rules]) == {rules}


async def test_what_a_tenant_has_and_what_of_it_is_old_is_found(store: Store) -> None:
    old, new = await Talk.begin(store), await Talk.begin(store, "conv_2")
    new.now_ms += 1_000_000
    await new.do(SetTitle(**new.head(), title="later"))
    last = (await old.row()).updated_ms
    assert await store.unerased(LOCAL_TENANT, last) == ["conv_1"]
    assert await store.unerased(LOCAL_TENANT, last - 1) == []
    assert await store.unerased(TenantId("other"), 1 << 60) == []
    assert await store.unerased(LOCAL_TENANT, 1 << 60) == ["conv_1", "conv_2"]
    await old.do(erase(old))
    assert await store.unerased(LOCAL_TENANT, 1 << 60) == ["conv_2"]


# The file itself.


async def bytes_of(path: Path) -> bytes:
    """Everything that lies in the database's files, its log among them."""

    def read() -> bytes:
        return b"".join(
            part.read_bytes() for part in path.parent.iterdir() if part.name.startswith(path.name)
        )

    return await asyncio.to_thread(read)


def as_a_kill_leaves_it(path: Path, copy: Path) -> None:
    """Copy the database and its log while they are in use."""
    copy.parent.mkdir()
    for part in path.parent.glob(f"{path.name}*"):
        if not part.name.endswith("-shm"):
            (copy.parent / part.name).write_bytes(part.read_bytes())


async def test_no_byte_of_it_is_left_in_the_files_while_the_store_is_open(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = await open_sqlite(path)
    talk = await Talk.begin(store)
    await much_said(talk)
    assert (await bytes_of(path)).count(SECRET.encode()) > 10
    await talk.do(erase(talk))
    assert SECRET.encode() not in await bytes_of(path)
    await store.close()
    assert SECRET.encode() not in await bytes_of(path)
    checks = await asyncio.to_thread(examine, path)
    assert [check.problems for check in checks] == [()] * 5


@pytest.mark.parametrize("all_of_it", [False, True], ids=["one_by_one", "all"])
async def test_no_byte_of_a_file_or_a_text_is_left_soon_after_it_was_taken_away(
    tmp_path: Path, all_of_it: bool
) -> None:
    path = tmp_path / "a.db"
    store = await open_sqlite(path)
    marks = [f"SECRET-{kept}" for kept in ("file", "text")]
    await store.knowledge.add_file(new_file("a", marks[0], tenant=LOCAL_TENANT), None)
    await store.knowledge.remember(LOCAL_TENANT, Remembered(key="k", text=marks[1]))
    held = await bytes_of(path)
    assert all(mark.encode() in held for mark in marks)
    if all_of_it:
        await store.knowledge.delete_all(LOCAL_TENANT)
    else:
        await store.knowledge.delete_file(LOCAL_TENANT, "file_a")
        await store.knowledge.forget(LOCAL_TENANT, RememberedKind.MEMORY, "k", None)
    async with asyncio.timeout(30):
        while b"SECRET-" in await bytes_of(path):  # noqa: ASYNC110 - a file sets no event
            await asyncio.sleep(0.05)
    await store.close()


async def test_no_byte_of_it_is_left_after_much_else_has_come_and_gone(tmp_path: Path) -> None:
    """Rows grow, move and split pages in an order that a seed draws; two of three conversations go."""
    path, draw = tmp_path / "a.db", random.Random(7)
    store = await open_sqlite(path, synchronous="OFF", linger_s=0.0)
    talks = [await Talk.begin(store, f"conv_{n}") for n in range(9)]
    marks = {talk.conversation: f"SECRET-{n:04}-" for n, talk in enumerate(talks)}
    for turn in range(5):
        for talk in draw.sample(talks, len(talks)):
            mark, run = marks[talk.conversation], f"{talk.conversation}_{turn}"
            text = mark * draw.choice((1, 3, 20, 90, 400))
            revision = (await talk.row()).revision
            done = await store.do_all(
                talk.start(run, f"m_{run}", text=text),
                talk.place(run, parent=None, revision=revision),
                CancelRun(**talk.head(), run=RunId(run), reason="x"),
                KeepPartial(
                    **talk.head(),
                    run=RunId(run),
                    partial=(Text(text=text),),
                    partial_id=MessageId(f"p_{run}"),
                ),
                SetTitle(**talk.head(), title=mark * draw.choice((1, 8, 40))),
                Quarantine(**talk.head(), operation=None, generation=1, reason="late", data=text),
            )
            assert not isinstance(done, Denied)
    gone = draw.sample(talks, 6)
    for talk in gone:
        await talk.do(erase(talk))
    left = await bytes_of(path)
    for talk in talks:
        found = marks[talk.conversation].encode() in left
        assert found == (talk not in gone), talk.conversation
    await store.close()


async def test_a_reader_that_holds_the_log_delays_its_end_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = await open_sqlite(path)
    talk = await Talk.begin(store)
    await talk.do(SetTitle(**talk.head(), title=SECRET))
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM conversation").fetchone()
        await talk.do(erase(talk))
        assert (await talk.row()).erased_ms is not None
    await store.close()
    assert SECRET.encode() not in await bytes_of(path)


async def test_what_a_process_had_erased_before_it_died_is_out_of_its_log_at_the_next_start(
    tmp_path: Path,
) -> None:
    path, copy = tmp_path / "a.db", tmp_path / "copy" / "a.db"
    store = await open_sqlite(path)
    talk = await Talk.begin(store)
    await talk.do(SetTitle(**talk.head(), title=SECRET))
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM conversation").fetchone()
        await talk.do(erase(talk))
        await asyncio.to_thread(as_a_kill_leaves_it, path, copy)
    await store.close()
    assert SECRET.encode() in await bytes_of(copy)
    again = await open_sqlite(copy)
    assert (await again.conversation(talk.conversation)).erased_ms is not None
    assert SECRET.encode() not in await bytes_of(copy)
    await again.close()


class Copied(sqlite3.Connection):
    """Before each of its statements, keeps the files as a kill at that moment would leave them."""

    path: Path | None = None
    copies = 0

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if Copied.path is not None:
            folder = Copied.path.parent / f"killed_{Copied.copies:03}"
            as_a_kill_leaves_it(Copied.path, folder / Copied.path.name)
            Copied.copies += 1
        return super().execute(sql, parameters)


async def test_killed_at_any_statement_it_has_not_begun_or_the_next_start_has_it_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    real = sqlite3.connect
    writer = partial(real, factory=Copied)
    monkeypatch.setattr(sqlite3, "connect", writer)
    store = await open_sqlite(path)
    monkeypatch.setattr(sqlite3, "connect", real)
    talk = await Talk.begin(store)
    await much_said(talk)
    before = await talk.row()
    await store.tree(talk.conversation)
    Copied.copies, Copied.path = 0, path
    await talk.do(erase(talk))
    Copied.path = None
    await store.close()
    assert Copied.copies > 20
    outcomes = []
    for number in range(Copied.copies):
        folder = tmp_path / f"killed_{number:03}"
        again = await open_sqlite(folder / "a.db", synchronous="OFF")
        row = await again.conversation(talk.conversation)
        outcomes.append(row.erased_ms is not None)
        if outcomes[-1]:
            assert SECRET.encode() not in await bytes_of(folder / "a.db")
        else:
            assert row == before
            assert len([m for m in await again.tree(talk.conversation) if m.blocks]) == 3
        await again.close()
        problems = [check.problems for check in await asyncio.to_thread(examine, folder / "a.db")]
        if outcomes[-1]:
            assert problems == [()] * 5
    assert (outcomes[0], outcomes[-1]) == (False, True)
    assert outcomes == sorted(outcomes)
