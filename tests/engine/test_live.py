"""Readers of a conversation: nothing missed, nothing twice, however late or slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import pytest

from antiphon.core.events import (
    CaughtUp,
    Committed,
    Durable,
    Kept,
    Preview,
    StreamItem,
    Withdrawn,
    encode_event,
)
from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.records import StoredEvent
from antiphon.engine.live import Broker
from antiphon.handles.chat import Chat
from antiphon.library import Antiphon
from antiphon.stores.base import Store
from tests.support.engines import app_on, talk
from tests.support.provider import Hold, ScriptedProvider, chunk, says


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "antiphon.db"


async def gather(app: Antiphon, chat: Chat, after: int, until: type) -> list[StreamItem]:
    """Return what a reader is told up to an event of the type `until`."""
    items: list[StreamItem] = []
    stream = app.engine.follow(chat.id, after)
    async for item in stream:
        items.append(item)
        if isinstance(item, until) or (isinstance(item, Durable) and isinstance(item.event, until)):
            break
    await stream.aclose()
    return items


def numbers(items: list[StreamItem]) -> list[int]:
    return [item.seq for item in items if isinstance(item, Durable)]


def shown(items: list[StreamItem]) -> str:
    text = ""
    for item in items:
        if isinstance(item, Preview):
            assert item.offset == len(text), "a gap or a repetition"
            text += item.text
    return text


@pytest.mark.req("M71", "M78")
async def test_a_reader_who_comes_in_mid_answer_gets_all_of_it_once(db: Path) -> None:
    first, second = Hold(), Hold()
    provider = ScriptedProvider(
        [chunk({"content": "Once "}), first, chunk({"content": "upon "}), second, *says("a tide.")]
    )
    async with app_on(db, provider) as app:
        chat = await app.create()
        await chat.send("A tale")
        await first.reached.wait()
        early = await gather(app, chat, 0, CaughtUp)
        assert shown(early) == "Once "
        first.go.set()
        await second.reached.wait()
        late = asyncio.create_task(gather(app, chat, 0, Committed))
        await asyncio.sleep(0)
        second.go.set()
        items = await late
        assert shown(items) == "Once upon a tide."
        assert numbers(items) == list(range(1, len(numbers(items)) + 1))


@pytest.mark.req("M71")
async def test_a_reader_who_was_away_while_all_of_it_was_said_is_shown_it_before_its_end(
    db: Path,
) -> None:
    async with app_on(db, ScriptedProvider(says("Otters"))) as app:
        chat = await app.create()
        reader = app.engine.follow(chat.id, 0)
        assert isinstance(await anext(reader), CaughtUp)
        assert await talk(chat, "Name one") == "Otters"
        await app.engine.idle(chat.id)
        items: list[StreamItem] = []
        while not (
            items and isinstance(items[-1], Durable) and isinstance(items[-1].event, Committed)
        ):
            items.append(await anext(reader))
        assert shown(items) == "Otters"
        await reader.aclose()


async def test_a_reader_goes_on_after_its_own_number(db: Path) -> None:
    provider = ScriptedProvider(says("One."), says("Two."))
    async with app_on(db, provider) as app:
        chat = await app.create()
        await talk(chat, "first")
        seen = numbers(await gather(app, chat, 0, CaughtUp))
        reader = asyncio.create_task(gather(app, chat, seen[-1], Committed))
        await talk(chat, "second")
        items = await reader
        assert numbers(items)[0] == seen[-1] + 1
        assert shown(items) == "Two."


async def test_a_reader_who_falls_behind_the_ring_reads_from_the_store(db: Path) -> None:
    provider = ScriptedProvider(says("One."))
    async with app_on(db, provider) as app:
        chat = await app.create()
        stream = app.engine.follow(chat.id, 0)
        first = await anext(stream)
        assert isinstance(first, CaughtUp | Durable)
        for number in range(300):
            await chat.rename(f"title {number}")
        await talk(chat, "hello")
        row = await chat.row()
        seen = [first.seq] if isinstance(first, Durable) else []
        async for item in stream:
            if isinstance(item, Durable):
                seen.append(item.seq)
                if item.seq == row.last_event:
                    break
        await stream.aclose()
        assert seen == list(range(1, row.last_event + 1))


@pytest.mark.req("M70", "M86")
async def test_a_withdrawn_preview_is_followed_by_the_new_ones_own_text(db: Path) -> None:
    provider = ScriptedProvider([chunk({"content": "wrong"})], says("right"))
    async with app_on(db, provider) as app:
        chat = await app.create()
        reader = asyncio.create_task(gather(app, chat, 0, Committed))
        await talk(chat, "Hello")
        items = await reader
        text: dict[int, str] = {}
        for item in items:
            if isinstance(item, Preview):
                text[item.generation] = text.get(item.generation, "") + item.text
            elif isinstance(item, Durable) and isinstance(item.event, Withdrawn):
                text.pop(item.event.generation, None)
        assert text == {2: "right"}


async def test_many_readers_share_one_text_and_leave_nothing_behind(db: Path) -> None:
    provider = ScriptedProvider(says(*(f"w{n} " for n in range(50))))
    async with app_on(db, provider) as app:
        chat = await app.create()
        readers = [asyncio.create_task(gather(app, chat, 0, Committed)) for _ in range(20)]
        await talk(chat, "Hello")
        texts = {shown(await reader) for reader in readers}
        assert texts == {"".join(f"w{n} " for n in range(50))}
        broker = app.engine.world.broker
        await app.engine.idle(chat.id)
        assert (broker._topics, broker._live) == ({}, {})


async def test_a_failure_of_the_worker_is_told_to_those_who_wait(db: Path) -> None:
    class Broken(ScriptedProvider):
        async def send(self, *_: object, **__: object) -> object:  # type: ignore[override]
            raise RuntimeError("a bug")

    async with app_on(db, Broken()) as app:
        chat = await app.create()
        run = await chat.send("Hello")
        with pytest.raises(RuntimeError, match="a bug"):
            await run.result()


async def test_a_reader_that_leaves_while_all_are_woken_troubles_nobody(db: Path) -> None:
    async with app_on(db, ScriptedProvider(says("One."))) as app:
        chat = await app.create()
        leaving = asyncio.create_task(gather(app, chat, 0, Committed))
        staying = asyncio.create_task(gather(app, chat, 0, Committed))
        async with asyncio.timeout(10):
            await gather(app, chat, 0, CaughtUp)
            for _ in range(5):
                await asyncio.sleep(0)  # both wait for what comes next
            leaving.cancel()
            app.engine.world.broker.fail(chat.id, RuntimeError("nothing more comes"))
            with pytest.raises(RuntimeError, match="nothing more comes"):
                await staying
            with pytest.raises(asyncio.CancelledError):
                await leaving


class Slow:
    """A store in which another node writes: what is read of it is told as late as the test says."""

    def __init__(self) -> None:
        self.written = 0
        self.reads: list[asyncio.Event] = []
        self.begun = asyncio.Event()

    def on_events(self, listener: object) -> None:
        """Nothing is written here by this process."""

    def events_at_hand(self, conversation: ConversationId, after: int) -> None:
        """Nothing is known without asking."""

    async def events(self, conversation: ConversationId, after: int) -> list[StoredEvent]:
        rows = [stored(number) for number in range(after + 1, self.written + 1)]
        told = asyncio.Event()
        self.reads.append(told)
        self.begun.set()
        await told.wait()
        return rows


TOLD = ConversationId("conv_1")


def stored(seq: int) -> StoredEvent:
    data = msgspec.Raw(encode_event(Kept(message=MessageId("m2"), source=MessageId("m1"))))
    return StoredEvent(conversation=TOLD, seq=seq, run=None, at_ms=0, data=data)


@pytest.mark.req("M71", "M78")
@pytest.mark.parametrize("late", [False, True], ids=["who reads", "who joins the reading"])
async def test_what_another_node_has_told_during_the_first_reading_is_not_missed(
    late: bool,
) -> None:
    store = Slow()
    broker = Broker(cast("Store", store))

    async def told() -> int:
        async for item in broker.follow(TOLD, 0):
            if isinstance(item, Durable):
                return item.seq
        raise AssertionError

    async with asyncio.timeout(10):
        first = asyncio.create_task(told())
        await store.begun.wait()  # and finds nothing
        store.written = 1
        broker.reached(TOLD, 1)
        asked = asyncio.create_task(told()) if late else first
        while not asked.done():
            await asyncio.sleep(0)
            for read in store.reads:
                read.set()
        assert await asked == await first == 1


@pytest.mark.req("M71", "M78")
async def test_who_has_read_all_is_woken_by_a_later_reader_that_finds_more() -> None:
    store = Slow()
    broker = Broker(cast("Store", store))
    told: list[int] = []

    async def follow(until: int) -> None:
        async for item in broker.follow(TOLD, 0):
            if isinstance(item, Durable):
                told.append(item.seq)
                if item.seq == until:
                    return

    async def read_until(done: Callable[[], bool]) -> None:
        while not done():
            await asyncio.sleep(0)
            for read in store.reads:
                read.set()

    async with asyncio.timeout(10):
        store.written = 1
        first = asyncio.create_task(follow(until=2))
        await read_until(lambda: told == [1])
        store.written = 2  # by another node
        await read_until(asyncio.create_task(follow(until=2)).done)
        broker.reached(TOLD, 2)  # which is nothing new here
        await read_until(first.done)
    assert told == [1, 1, 2, 2]
