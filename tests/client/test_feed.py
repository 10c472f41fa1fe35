"""Whatever the way does to the frames, the client ends where the server is, and tells it once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import antiphon
from antiphon import client
from antiphon.client.feed import Feed
from antiphon.client.state import State
from antiphon.client.wire import Patience, Wire
from antiphon.core.events import CaughtUp, Durable, Preview
from antiphon.core.ids import ConversationId
from antiphon.engine.ports import Cut
from antiphon.errors import NotFound, ServerUnavailable
from antiphon.handles.events import RunEvent
from tests.client.proxy import proxied
from tests.client.stage import QUICK, listening, staged
from tests.server.process import server_process
from tests.support.provider import Hold, ScriptedProvider, Step, chunk, says

TEXT = "Fine. 🚢 And you?"


def provider() -> ScriptedProvider:
    """Text that is withdrawn, then an answer: three kinds of preview frames."""
    broken: list[Step] = [chunk({"content": "Fi"}), chunk({"content": "n"}), Cut("reset", "gone")]
    return ScriptedProvider(broken, says("Fine.", " 🚢", " And you?"))


async def recorded(url: str, conversation: str) -> list[bytes]:
    """The frames of a stream from the beginning, to the byte, until a run succeeds."""
    frames: list[bytes] = []
    held = b""
    path = f"{url}/antiphon/v1/conversations/{conversation}/events"
    async with aiohttp.ClientSession() as session, session.get(path) as answer:
        async for data in answer.content.iter_any():
            *whole, held = (held + data).split(b"\n\n")
            frames += [frame + b"\n\n" for frame in whole]
            if any(b'"status":"success"' in frame for frame in frames):
                return frames
    raise AssertionError("the stream ended early")


class Recording:
    """What a real server said of one conversation while it was live, and what it is now."""

    def __init__(self, frames: list[bytes]) -> None:
        self.live = frames
        self.durable = [frame for frame in frames if frame.startswith(b"id: ")]
        self.last = len(self.durable)

    def after(self, seq: int) -> bytes:
        """What the server says to whoever attaches now with `seq`."""
        end = (
            b"event: caught_up\ndata: "
            + json.dumps({"type": "caught_up", "seq": self.last}).encode()
        )
        return b"".join(self.durable[seq:]) + end + b"\n\n"


class Damaged(Wire):
    """The first stream is what a test makes of it; every later one is whole."""

    def __init__(self, recording: Recording, first: list[bytes]) -> None:
        self.patience = Patience(total_s=5.0)
        self._recording = recording
        self._first: list[bytes] | None = first

    @asynccontextmanager
    async def answered(self, method: str, path: str, *_: Any, **more: Any) -> AsyncIterator[Any]:
        if self._first is not None:
            pieces, self._first = self._first, None
        else:
            pieces = [self._recording.after(int(path.rpartition("=")[2]))]
        yield _Answer(pieces)


class _Answer:
    content_type = "text/event-stream"

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    @property
    def content(self) -> Any:
        return self

    async def iter_any(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


async def followed(wire: Wire, last: int) -> tuple[State, list[int], dict[int, str]]:
    """The state once number `last` was told, the numbers that were told, the text by generation."""
    feed = Feed(wire, "/events", 0)
    numbers: list[int] = []
    shown: dict[int, str] = {}
    async for item in feed.items():
        match item:
            case Durable(seq=seq):
                numbers.append(seq)
            case Preview(generation=generation, offset=offset, text=text):
                assert offset == len(shown.get(generation, ""))
                shown[generation] = shown.get(generation, "") + text
            case CaughtUp():
                pass
        if feed.state.seq == last:
            break
    return feed.state, numbers, shown


def damages(frames: list[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    whole = b"".join(frames)
    for place in range(len(whole) + 1):
        yield f"cut at byte {place}", [whole[:place]]
    for n, frame in enumerate(frames):
        yield f"frame {n} twice", [*frames[: n + 1], frame, *frames[n + 1 :]]
        yield f"frame {n} missing", [*frames[:n], *frames[n + 1 :]]
        yield f"frame {n} last", [*frames[:n], *frames[n + 1 :], frame]
        yield f"all again from frame {n}", [*frames[: n + 1], *frames]
        for other in range(n):
            swapped = [*frames]
            swapped[n], swapped[other] = frame, frames[other]
            yield f"frames {other} and {n} swapped", swapped
    yield "byte by byte", [bytes([byte]) for byte in whole]


@pytest.mark.req("M78")
async def test_cut_doubled_and_reordered_the_state_is_the_servers_and_nothing_is_told_twice(
    tmp_path: Path,
) -> None:
    async with staged(tmp_path / "a.db", provider()) as stage:
        chat = await stage.app.create()
        listener = asyncio.create_task(recorded(stage.url, chat.id))
        run = await chat.send("How are you?")
        assert (await run.result()).text == TEXT
        row, tree, runs = await chat.row(), await chat.tree(), await chat.runs()
        recording = Recording(await listener)
    assert recording.last == row.last_event
    assert sum(b"preview." in frame for frame in recording.live) > 2
    tried = 0
    for what, first in damages(recording.live):
        state, numbers, shown = await followed(Damaged(recording, first), recording.last)
        assert numbers == list(range(1, recording.last + 1)), what
        assert state.head == row.head, what
        assert state.messages == {message.id for message in tree}, what
        assert state.runs == {one.id: one.status for one in runs}, what
        assert state.previews == {}, what
        assert TEXT.startswith(shown.get(2, "")), what
        assert "Fin".startswith(shown.get(1, "")), what
        tried += 1
    assert tried > len(b"".join(recording.live))


async def test_a_run_followed_through_broken_connections_is_told_as_if_they_had_held(
    tmp_path: Path,
) -> None:
    answers = [says("Fine.", " 🚢", " And you?") for _ in range(9)]
    async with (
        listening(tmp_path / "a.db", ScriptedProvider(*answers)) as (_, url),
        proxied(url) as proxy,
        client.open(proxy.url, patience=QUICK) as app,
    ):
        chat = await app.create()
        for place in range(9):
            proxy.cuts = [170 + 151 * place, 200 + 410 * place]
            run = await chat.send("How are you?")
            events = [event async for event in run.events()]
            pieces = [event for event in events if isinstance(event, antiphon.Preview)]
            assert "".join(piece.text for piece in pieces) == TEXT
            ends = [type(event) for event in events if not isinstance(event, antiphon.Preview)]
            assert ends == [antiphon.Committed, antiphon.Ended]
        assert proxy.streams > 9
        assert len(await chat.tree()) == 18


async def test_behind_something_that_keeps_streams_until_they_are_whole_it_polls(
    tmp_path: Path,
) -> None:
    hold = Hold()
    steps = [chunk({"content": "Half"}), hold, *says(" and", " all")]
    async with (
        listening(tmp_path / "a.db", ScriptedProvider(steps)) as (_, url),
        proxied(url) as proxy,
        client.open(proxy.url, patience=QUICK) as app,
    ):
        proxy.cuts = [300] * 2  # no stream comes so far as to be caught up
        chat = await app.create()
        run = await chat.send("Talk.")
        shown = ""
        async for event in run.events():
            if isinstance(event, antiphon.Preview):
                shown += event.text
                hold.go.set()
        assert shown == "Half and all"
        assert b"/events/poll?" in proxy.sent


@pytest.mark.req("M77")
async def test_what_was_only_shown_is_in_no_request(tmp_path: Path) -> None:
    half: list[Step] = [chunk({"content": "Zeppelin"}), Hold()]
    provider = ScriptedProvider(half, says("Fine."))
    async with (
        listening(tmp_path / "a.db", provider) as (_, url),
        proxied(url) as proxy,
        client.open(proxy.url, patience=QUICK) as app,
    ):
        chat = await app.create()
        run = await chat.send("Talk.")
        async for event in run.events():
            if isinstance(event, antiphon.Preview):
                assert event.text == "Zeppelin"
                await run.cancel()
        assert (await (await chat.send("Again.")).result()).text == "Fine."
        assert (await chat.line())[-1].text == "Fine."
        assert b"Zeppelin" not in proxy.sent
        assert all(b"Zeppelin" not in body for body in provider.bodies)


async def test_a_message_whose_acknowledgement_was_lost_is_one_message(tmp_path: Path) -> None:
    async with (
        listening(tmp_path / "a.db", ScriptedProvider(says("Fine."))) as (library, url),
        proxied(url) as proxy,
        client.open(proxy.url, patience=QUICK) as app,
    ):
        chat = await app.create()
        proxy.lose_next = b"/messages "
        run = await chat.send("Once.")
        assert (await run.result()).text == "Fine."
        assert proxy.lost == 1
        assert [m.text for m in await (await library.conversation(chat.id)).tree()] == [
            "Once.",
            "Fine.",
        ]


async def test_a_conversation_that_is_not_there_is_an_end_not_a_wait(tmp_path: Path) -> None:
    async with staged(tmp_path / "a.db") as stage:
        stream = stage.app.feed(ConversationId("conv_nothing")).items()
        with pytest.raises(NotFound):
            await anext(stream)


async def test_a_server_that_stays_away_is_given_up_after_its_patience(tmp_path: Path) -> None:
    patience = Patience(total_s=0.3, answer_s=0.3, silence_s=0.3)
    async with proxied("http://127.0.0.1:9") as proxy, listening(tmp_path / "a.db") as (_, url):
        proxy.target = url
        async with client.open(proxy.url, patience=patience) as app:
            chat = await app.create()
            feed = app.feed(chat.id)
            stream = feed.items()
            assert isinstance(await anext(stream), CaughtUp)
            proxy.target = "http://127.0.0.1:9"
            await proxy.close()
            with pytest.raises(ServerUnavailable):
                await anext(stream)
            with pytest.raises(ServerUnavailable):
                await chat.send("Hello?")


@pytest.mark.req("M77", "M78")
async def test_a_server_killed_in_mid_stream_comes_back_and_so_does_its_client(
    tmp_path: Path,
) -> None:
    slow = {"ANTIPHON_REHEARSAL_DELAY_S": "0.02"}
    seen: list[RunEvent] = []
    with server_process(tmp_path, env=slow) as first:
        async with (
            proxied(first.url) as proxy,
            client.open(proxy.url, patience=Patience(total_s=60.0)) as app,
        ):
            chat = await app.create()
            run = await chat.send("/long 200")
            events = run.events()
            while len(seen) < 3:
                seen.append(await anext(events))
            await asyncio.to_thread(first.kill)
            with server_process(tmp_path, env=slow) as second:
                proxy.target = second.url
                seen += [event async for event in events]
                ended = seen[-1]
                assert isinstance(ended, antiphon.Ended)
                assert ended.code == "outcome_unknown"
                assert any(isinstance(event, antiphon.Withdrawn) for event in seen)
                assert not any(isinstance(event, antiphon.Committed) for event in seen)
                numbers = [e.offset for e in seen if isinstance(e, antiphon.Preview)]
                assert numbers == sorted(set(numbers))
                shown = "".join(e.text for e in seen if isinstance(e, antiphon.Preview))
                again = await chat.send("Hello again")
                answer = await again.result()
                assert "Hello again" in answer.text
                assert len(shown) > 20
                assert shown.encode() not in await again.request()
                assert not any(shown in message.text for message in await chat.line())
                assert [m.text for m in await chat.line()][-2:] == ["Hello again", answer.text]
