"""A long line opened again: what was rendered is read as it was rendered, and is proven by what was sent."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.core.asking import Ask
from antiphon.core.blocks import Message
from antiphon.core.digests import digest
from antiphon.core.ids import LOCAL_TENANT, MessageId
from antiphon.core.planning.trace import PromptTrace, Reason, decode_trace
from antiphon.engine.dispatch import stretches, warm
from antiphon.engine.dispatch.again import rendered_again
from antiphon.engine.dispatch.stretches import STRETCH_BYTES, LineStretch
from antiphon.engine.dispatch.targets import Targets
from antiphon.handles.chat import Chat
from antiphon.library import Antiphon
from antiphon.stores.sql.packing import pack
from tests.engine.test_planning import holding
from tests.support.engines import app_on
from tests.support.provider import ScriptedProvider, says

TURNS = 60
FEW = 12
"""Messages that any turn reads, to see where it stands."""

SAID = "It was low water at six, and the berths by the north mole lay dry. " * 40


class Opened:
    """A process that has just started, and how many messages it has read for each turn."""

    def __init__(self, app: Antiphon, provider: ScriptedProvider) -> None:
        self.app, self.provider = app, provider
        self.read = 0
        store = app.engine.world.store
        path = store.path

        async def counted(*where: Any, **how: Any) -> list[Message]:
            found = await path(*where, **how)
            self.read += len(found)
            return found

        store.path = counted  # type: ignore[method-assign]

    async def say(
        self, chat: Chat, text: str, parent: MessageId | None = None, ask: Ask | None = None
    ) -> PromptTrace:
        """Say it, and return the plan of it; `read` tells how many messages that took."""
        self.read = 0
        self.provider.scripts.append(says(f"Answer to {text[:20]}"))
        run = await chat.send(text, parent=parent, ask=ask)
        await run.result()
        read, trace = self.read, (await run.plan()).trace
        self.read = read
        return trace

    async def prove(self, chat: Chat) -> None:
        """Hold what was sent last against the tree, read and rendered message by message."""
        world = self.app.engine.world
        row = await world.store.conversation(chat.id)
        assert row.head is not None
        run = (await world.store.message(chat.id, row.head)).run
        assert run is not None
        manifest, _ = await world.store.manifest((await world.store.operations(chat.id, run))[-1])
        target = await Targets(world).of_manifest(manifest, row)
        whole = await rendered_again(world, manifest, target)
        assert whole.request.body == self.provider.bodies[-1]
        assert whole.sequence_digest == manifest.sequence_digest


@asynccontextmanager
async def opened(db: Path, window: int = 1_000_000) -> AsyncIterator[Opened]:
    provider = ScriptedProvider()
    async with app_on(db, provider, settings=holding(window)) as app:
        yield Opened(app, provider)


async def the_chat(here: Opened) -> Chat:
    [row] = await here.app.engine.world.store.conversations(LOCAL_TENANT)
    return await here.app.conversation(row.id)


@pytest.fixture(scope="module")
def long_talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in which two people have talked for long."""

    async def talk(db: Path) -> None:
        async with opened(db) as here:
            chat = await here.app.create()
            for number in range(TURNS):
                await here.say(chat, f"{number}. {SAID}")
            assert here.read < FEW
            assert not here.app.engine.world.lines._warm[chat.id].unstored

    db = tmp_path_factory.mktemp("talk") / "a.db"
    asyncio.run(talk(db))
    return db


@pytest.fixture
def db(long_talk: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(long_talk, tmp_path / "a.db"))


@pytest.mark.req("M20", "M106")
async def test_a_process_that_has_just_started_reads_only_what_came_behind_what_was_rendered(
    db: Path,
) -> None:
    async with opened(db) as here:
        chat = await the_chat(here)
        trace = await here.say(chat, "Once more.")
        assert here.read < TURNS
        assert trace.prefix is not None
        assert not trace.prefix.moved_by
        assert trace.messages == 2 * TURNS + 1
        await here.prove(chat)
        await here.say(chat, "And again.")
        assert here.read < FEW
        await here.prove(chat)


@pytest.mark.req("M20")
async def test_a_short_talk_stores_nothing_as_it_was_rendered(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as here:
        chat = await here.app.create()
        await here.say(chat, SAID[:200])
        assert (await here.say(chat, SAID[:200])).stretch is None


@pytest.mark.req("M20")
async def test_what_a_line_tells_it_tells_once(db: Path) -> None:
    found = stored(db)
    assert len(found) > 1
    for number, stretch in enumerate(found):
        assert len(stretch.rested.items) >= STRETCH_BYTES
        assert len(stretch.after) == number
    told = [message for stretch in found for message in stretch.rested.judged.messages]
    assert len(told) == len({*told}) < 2 * TURNS


def stored(db: Path) -> list[LineStretch]:
    """Return the stretches that are stored, the eldest first."""
    found = []
    with closing(sqlite3.connect(db)) as file:
        for (data,) in file.execute("SELECT data FROM content"):
            try:
                found.append(stretches._decode(data))
            except msgspec.MsgspecError:
                continue
    return sorted(found, key=lambda stretch: len(stretch.after))


async def test_another_branch_is_not_taken_for_the_one_that_was_rendered(db: Path) -> None:
    async with opened(db) as here:
        chat = await the_chat(here)
        line = await chat.line()
        assert line[6].parent == line[5].id
        await here.say(chat, "Something else.", parent=line[5].id)
        sent = here.provider.messages()
        assert len(sent) == 7
        assert sent[-1]["content"] == "Something else."
        await here.prove(chat)


async def test_what_was_deleted_meanwhile_is_not_sent_as_it_was_rendered(db: Path) -> None:
    async with opened(db) as here:
        chat = await the_chat(here)
        line = await chat.line()
        await chat.delete([line[4].id, line[5].id])
        prefix = (await here.say(chat, "And now?")).prefix
        assert len(here.provider.messages()) == 2 * TURNS - 1
        await here.prove(chat)
        assert prefix is not None
        assert prefix.moved_by == (Reason.DELETION,)


def written(db: Path) -> bytes:
    return db.read_bytes()


def gone(file: sqlite3.Connection, key: bytes) -> None:
    file.execute("DELETE FROM content WHERE length(data) > ?", [STRETCH_BYTES])


def flipped(file: sqlite3.Connection, key: bytes) -> None:
    """Another message is said to have passed the rules: no byte of the request tells."""
    for name, data in file.execute("SELECT digest, data FROM content").fetchall():
        if len(data) > STRETCH_BYTES:
            first = stretches._decode(data).rested.judged.messages[0].encode()
            other = data.replace(first, first[::-1])
            file.execute("UPDATE content SET data = ? WHERE digest = ?", [other, name])


def forged(file: sqlite3.Connection, key: bytes) -> None:
    """Whoever has the key may store a stretch that was never sent, and a plan that names it."""
    for name, data in file.execute("SELECT digest, data FROM content").fetchall():
        try:
            trace = decode_trace(data)
        except msgspec.MsgspecError:
            continue
        if trace.stretch is None:
            continue
        [(old,)] = file.execute("SELECT data FROM content WHERE digest = ?", [pack(trace.stretch)])
        new = old.replace(b"north", b"south")
        other = digest(key, "stretch", new)
        file.execute(
            "INSERT INTO content (tenant, digest, data) SELECT tenant, ?, ? FROM content "
            "WHERE digest = ? ON CONFLICT DO NOTHING",
            [pack(other), new, name],
        )
        lying = msgspec.json.encode(msgspec.structs.replace(trace, stretch=other))
        file.execute("UPDATE content SET data = ? WHERE digest = ?", [lying, name])


@pytest.mark.req("M20", "M46")
@pytest.mark.parametrize("spoil", [gone, flipped, forged])
async def test_a_stretch_that_is_not_what_was_sent_is_never_sent(
    db: Path, spoil: Callable[[sqlite3.Connection, bytes], None]
) -> None:
    async with opened(db) as here:
        key = await here.app.engine.world.store.tenant_key(LOCAL_TENANT)
    with closing(sqlite3.connect(db)) as file, file:
        spoil(file, key)
    async with opened(db) as here:
        chat = await the_chat(here)
        await here.say(chat, "Once more.")
        assert here.read > 2 * TURNS
        assert b"south" not in here.provider.bodies[-1]
        await here.prove(chat)


@pytest.mark.req("M20", "M107")
async def test_what_was_left_out_to_fit_is_not_read_again_by_the_next_process(db: Path) -> None:
    """The path goes on being cut where it was, and what was left out stays told."""
    bounded = Ask(truncation="auto")
    async with opened(db, window=40_000) as here:
        before = await here.say(await the_chat(here), "Once more.", ask=bounded)
        assert before.selection.start is not None
        assert before.stretch is not None
    async with opened(db, window=40_000) as here:
        chat = await the_chat(here)
        trace = await here.say(chat, "And again.", ask=bounded)
        assert here.read < TURNS
        assert trace.selection == before.selection
        assert trace.left_out == before.left_out != ()
        assert trace.messages == before.messages + 2
        assert trace.prefix is not None
        assert not trace.prefix.moved_by
        await here.prove(chat)


@pytest.mark.req("M20")
async def test_what_another_release_had_judged_is_judged_again(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "__version__", "99.0")
    async with opened(db) as here:
        await here.say(await the_chat(here), "Once more.")
        assert here.read > 2 * TURNS


@pytest.mark.req("M20")
async def test_another_model_is_not_given_what_was_rendered_for_the_one_before(db: Path) -> None:
    async with opened(db) as here:
        chat = await the_chat(here)
        here.provider.scripts.append(says("Yes."))
        await (await chat.send("Once more.", ask=Ask(temperature=0.5))).result()
        assert here.read > 2 * TURNS
        await here.prove(chat)


async def test_erasure_takes_what_was_rendered_too(db: Path) -> None:
    assert stored(db)
    async with opened(db) as here:
        chat = await the_chat(here)
        await here.app.engine.erasure.erase([chat.id])
    assert not stored(db)
    assert b"north mole" not in written(db)
