"""Crashes: what was acknowledged is there, what was not is whole or absent, and nothing is torn."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.core.dispatch import ACTIVE
from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.records import OPEN_RUN, TERMINAL_CALL
from antiphon.stores.base import Store
from antiphon.stores.sqlite import open_sqlite
from tests.stores.talk import Talk

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0


def start(path: Path, dies_at: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.stores.crashing", str(path), str(dies_at)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def acknowledged(lines: list[str]) -> dict[str, int]:
    """The number of the last event that each conversation was told to have."""
    return {line.split()[0]: int(line.split()[1]) for line in lines if line.count(" ") == 2}


def check_file(path: Path) -> None:
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    db.close()


async def check_store(store: Store, told: dict[str, int]) -> None:
    """All that was acknowledged is there, and every conversation is consistent in itself."""
    for name, last in told.items():
        row = await store.conversation(ConversationId(name))
        assert row.last_event >= last, "an acknowledged change was lost"
    for row in await store.conversations(Talk.tenant()):
        events = await store.events(row.id, 0, limit=100_000)
        assert [event.seq for event in events] == list(range(1, row.last_event + 1))
        active = [a for a in await store.attempts_in(ACTIVE) if a.conversation == row.id]
        assert [a.operation for a in active] == (
            [row.active_operation] if row.active_operation else []
        )
        runs = await store.runs(row.id)
        assert [run.id for run in runs if run.status in OPEN_RUN and run.started_ms] == (
            [row.slot] if row.slot else []
        )
        tree = await store.tree(row.id)
        if row.head is not None:
            assert (await store.path(row.id, row.head))[-1].id == row.head
        # A result stands in the tree only for a closed call, and once.
        for run in runs:
            calls = {call.call_id: call for call in await store.calls(row.id, run.id)}
            results = [r for m in tree if m.run == run.id for r in m.results]
            assert len({r.call_id for r in results}) == len(results)
            assert all(calls[r.call_id].state in TERMINAL_CALL for r in results)
            committed = [m for m in tree if m.run == run.id and m.role == "assistant"]
            assert len(committed) == run.committed


@pytest.mark.req("M54", "M63")
@pytest.mark.parametrize("dies_at", range(2, 330, 27))
async def test_killed_before_any_statement_the_store_is_what_was_acknowledged_or_one_step_more(
    tmp_path: Path, dies_at: int
) -> None:
    path = tmp_path / "a.db"
    child = start(path, dies_at)
    out, err = await asyncio.to_thread(child.communicate, timeout=PATIENCE_S)
    assert child.returncode == -signal.SIGKILL, err
    store = await open_sqlite(path)
    await check_store(store, acknowledged(out.splitlines()))
    # The next process works on, whatever the last one left.
    talk = await Talk.begin(store, "conv_after")
    await talk.answered()
    await store.close()
    check_file(path)


async def test_killed_again_and_again_under_load_nothing_acknowledged_is_lost(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.db"
    told: dict[str, int] = {}
    for lines in (7, 12, 25):
        child = start(path, 0)
        assert child.stdout is not None
        seen = [await asyncio.to_thread(child.stdout.readline) for _ in range(lines)]
        child.kill()
        rest, err = await asyncio.to_thread(child.communicate, timeout=PATIENCE_S)
        assert all(seen), err
        told |= acknowledged([*seen, *rest.splitlines()])
        store = await open_sqlite(path)
        await check_store(store, told)
        await store.close()
    assert len(told) == 3
    check_file(path)


async def test_a_log_torn_behind_its_last_flush_loses_only_what_nobody_was_told(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.db"
    store = await open_sqlite(path, linger_s=0.001)
    talk = await Talk.begin(store)
    await talk.answered("run_1", "op_1")
    told = {talk.conversation: (await talk.row()).last_event}
    log = f"{path}-wal"
    flushed = await asyncio.to_thread(os.path.getsize, log)
    # What follows was never acknowledged: say that the power went before its flush.
    await talk.answered("run_2", "op_2", name="m2", parent="a1", answer="a2")
    end = await asyncio.to_thread(os.path.getsize, log)
    copy = tmp_path / "copy.db"
    content, log_content = await asyncio.to_thread(
        lambda: (path.read_bytes(), Path(log).read_bytes())
    )
    await store.close()
    for number, cut in enumerate(range(flushed, end + 1, max(1, (end - flushed) // 24) | 1)):
        garbage = bytes(reversed(log_content[cut:])) if number % 2 else b""

        def tear(kept: bytes) -> None:
            copy.write_bytes(content)
            Path(f"{copy}-wal").write_bytes(kept)
            Path(f"{copy}-shm").unlink(missing_ok=True)

        await asyncio.to_thread(tear, log_content[:cut] + garbage)
        torn = await open_sqlite(copy)
        await check_store(torn, {str(name): last for name, last in told.items()})
        path_ids = [m.id for m in await torn.path(talk.conversation, MessageId("a1"))]
        assert path_ids == ["m1", "a1"]
        await torn.close()
        await asyncio.to_thread(check_file, copy)
