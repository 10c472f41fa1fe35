"""The file and its log are copied at random moments under load, and the copies are opened.

A copy is what a file system's snapshot would hold: the file first, then the log, and the log has not
begun anew in between. Everything that was acknowledged before the copy began has to be in it.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from antiphon.core.blocks import Status
from antiphon.core.ids import ConversationId, MessageId, RunId
from antiphon.core.telling.examination import Problem
from antiphon.engine.edge.clock import SystemClock
from antiphon.handles.chat import Chat
from antiphon.library import Antiphon
from antiphon.stores.sqlite.examine import examine
from tests.server.history import Echo
from tests.support.engines import app_on

COPIES = 12
CLIENTS = 5
PATIENCE_S = 60.0
SALT = slice(0, 24)
"""What of the log's head changes when it begins anew."""


@dataclass(slots=True)
class Told:
    """What the clients of one conversation were told so far."""

    runs: list[tuple[RunId, str]] = field(default_factory=list)
    answers: list[tuple[MessageId, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy, and how much had been acknowledged when it was begun."""

    file: Path
    told: dict[ConversationId, Told]


async def client(chat: Chat, told: Told, until: asyncio.Event) -> None:
    while not until.is_set():
        word = f"w{len(told.runs)}"
        run = await chat.send(word)
        told.runs.append((run.id, word))
        answer = await run.result()
        told.answers.append((answer.id, answer.text))


def copied(db: Path, to: Path) -> bool:
    """Copy the file and its log; return whether the log has gone on all the while."""
    log = db.with_name(f"{db.name}-wal")
    before = log.read_bytes()[SALT]
    shutil.copyfile(db, to)
    shutil.copyfile(log, to.with_name(f"{to.name}-wal"))
    return log.read_bytes()[SALT] == before


async def copies(db: Path, told: dict[ConversationId, Told], chance: random.Random) -> list[Copy]:
    made: list[Copy] = []
    while len(made) < COPIES:
        await asyncio.sleep(chance.random() * 0.2)
        so_far = {name: Told(list(one.runs), list(one.answers)) for name, one in told.items()}
        to = db.with_name(f"copy-{len(made)}.db")
        if await asyncio.to_thread(copied, db, to):
            made.append(Copy(to, so_far))
    return made


async def problems(db: Path) -> list[Problem]:
    """Return what `antiphon doctor` would say."""
    checks = await asyncio.to_thread(examine, db)
    return [problem for check in checks for problem in check.problems]


async def missing(app: Antiphon, copy: Copy) -> list[str]:
    store = app.engine.world.store
    wrong = []
    for name, told in copy.told.items():
        for run, word in told.runs:
            asked = await store.run_input(name, run)
            if asked is None or asked.text != word:
                wrong.append(f"{run} of {word} is not there")
        for message, text in told.answers:
            kept = await store.message(name, message)
            if (kept.text, kept.status) != (text, Status.SUCCESS):
                wrong.append(f"{message} is {kept.text!r}")
    return wrong


@pytest.mark.req("M54", "M59", "M90")
async def test_a_copy_of_the_files_at_any_moment_holds_all_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    db, chance = tmp_path / "talk.db", random.Random(7)
    told: dict[ConversationId, Told] = {}
    async with asyncio.timeout(PATIENCE_S):
        async with app_on(db, Echo(chance), clock=SystemClock()) as app:
            until = asyncio.Event()
            chats = [await app.create() for _ in range(CLIENTS)]
            told |= {chat.id: Told() for chat in chats}
            async with asyncio.TaskGroup() as group:
                for chat in chats:
                    group.create_task(client(chat, told[chat.id], until))
                made = await copies(db, told, chance)
                until.set()
    assert sum(len(one.answers) for one in made[-1].told.values()) > COPIES, "too little was said"
    for copy in made:
        assert await problems(copy.file) == []
        async with app_on(copy.file, Echo(chance), clock=SystemClock()) as app:
            assert await missing(app, copy) == []
            for name in copy.told:
                await app.engine.idle(name)
                runs = await app.engine.world.store.runs(name)
                assert {run.status for run in runs} <= {"success", "error"}
                # A call that was in flight is not made again, and its run says so.
                assert {run.error_code for run in runs} <= {None, "outcome_unknown"}
        assert await problems(copy.file) == []
