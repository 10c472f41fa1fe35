"""Streams: for readers that are slow, that leave, that are many, and that stay too long."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message

from antiphon.core.records import StoredEvent
from antiphon.core.telling.attach import Ending
from antiphon.engine.settings import Settings
from antiphon.server.http.serving import listen, serve
from antiphon.server.http.sse import EventStream, Streams
from tests.server.stage import ROOT, Served, served
from tests.support.asgi import WAIT_S, Frame
from tests.support.provider import DONE, Hold, ScriptedProvider, chunk, says, usage


def quick(**more: Any) -> Settings:
    return Settings(port=0, retry_base_s=0.0, cancel_grace_s=0.0, drain_s=0.0, **more)


def shown(frames: list[Frame]) -> str:
    """Return the preview text that a client would show, checking every offset."""
    text = ""
    for frame in frames:
        if frame.event == "preview.snapshot":
            text = "".join(block["text"] for block in frame.json["blocks"])
        elif frame.event == "preview.delta":
            assert frame.json["offset"] == len(text), "a gap or a repetition"
            text += frame.json["text"]
    return text


async def test_a_reader_that_takes_its_time_gets_it_all_in_fewer_pieces(tmp_path: Path) -> None:
    words = [f"word{n} " for n in range(200)]
    begun, most = Hold(), Hold()
    pieces_of = [chunk({"content": word}) for word in words]
    script = [chunk({"content": "So: "}), begun, *pieces_of, most, *says("end")]
    async with served(tmp_path / "a.db", ScriptedProvider(script)) as server:
        name = await server.conversation()
        path = f"{ROOT}/conversations/{name}/events"
        async with server.client.asked("GET", path) as slow:
            await slow.until("caught_up")
            await server.send(name, "Go on.")
            told = await slow.until("preview.delta")
            begun.go.set()
            await asyncio.wait_for(most.reached.wait(), WAIT_S)  # nothing was read meanwhile
            most.go.set()
            told += await slow.until("message.committed")
        pieces = [one for one in told if one.event == "preview.delta"]
        assert shown(told) == "So: " + "".join(words) + "end"
        assert len(pieces) < 10, "a slow reader is handed what has piled up, in one piece"


async def test_who_attaches_in_mid_answer_gets_one_whole_snapshot_before_it_is_caught_up(
    tmp_path: Path,
) -> None:
    hold = Hold()
    script = [chunk({"content": "So far"}), hold, *says(", so good.")]
    async with served(tmp_path / "a.db", ScriptedProvider(script)) as server:
        name = await server.conversation()
        run = await server.send(name, "Well?")
        await asyncio.wait_for(hold.reached.wait(), WAIT_S)
        path = f"{ROOT}/conversations/{name}/events"
        async with server.client.asked("GET", path) as late:
            told = await late.until("caught_up")
            *events, snapshot, caught_up = told
            assert [e.event for e in events] == [
                "run.changed",
                "message.placed",
                "run.changed",
                "dispatch.changed",
            ]
            assert snapshot.event == "preview.snapshot"
            assert (snapshot.json["run"], snapshot.json["generation"]) == (run["id"], 1)
            assert shown([snapshot]) == "So far"
            assert caught_up.json["seq"] == events[-1].number
            hold.go.set()
            told += await late.until("message.committed")
        assert shown(told) == "So far, so good."
        # Who comes back with the newest number is told nothing again.
        newest = max(e.number for e in told if e.number)
        await server.idle(name)
        async with server.client.asked("GET", f"{path}?after={newest}") as back:
            rest = await back.until("caught_up")
        assert [e.event for e in rest] == ["head.moved", "run.changed", "caught_up"]


async def test_a_client_that_leaves_at_any_moment_leaves_nothing_behind(tmp_path: Path) -> None:
    frames = 8  # at least so many come, however the words are put together
    provider = ScriptedProvider(*[says("one", "two", "three") for _ in range(frames)])
    async with served(tmp_path / "a.db", provider) as server:
        for moment in range(frames):
            name = await server.conversation()
            path = f"{ROOT}/conversations/{name}/events"
            async with server.client.asked("GET", path) as stream:
                await stream.until("caught_up")
                await server.send(name, "Hello")
                for _ in range(moment):
                    await stream.frame()
            await server.idle(name)
            tree = (await server.client.get(f"{ROOT}/conversations/{name}/tree")).json
            assert tree["messages"][-1]["blocks"] == [{"kind": "text", "text": "onetwothree"}]
            assert server.app.state.streams.open == set()
        assert _followed(server) == 0
    assert len(provider.requests) == frames


async def test_a_hundred_readers_cost_one_read_of_the_store_and_none_per_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path / "a.db", ScriptedProvider(says("a", "b"), says("c"))) as server:
        name = await server.conversation()
        await server.send(name, "before")
        await server.idle(name)
        store, reads = server.engine.world.store, 0
        read = store.events

        async def counted(*args: Any) -> list[StoredEvent]:
            nonlocal reads
            reads += 1
            return await read(*args)

        monkeypatch.setattr(store, "events", counted)
        path = f"{ROOT}/conversations/{name}/events"
        ready = asyncio.Barrier(101)

        async def follow() -> list[Frame]:
            async with server.client.asked("GET", path) as stream:
                told = await stream.until("caught_up")
                await ready.wait()
                while not _succeeded(told, times=2):
                    frame = await stream.frame()
                    assert frame is not None
                    told.append(frame)
                return told

        readers = [asyncio.create_task(follow()) for _ in range(100)]
        await asyncio.wait_for(ready.wait(), WAIT_S)
        attached = reads
        await server.send(name, "after")
        told = await asyncio.wait_for(asyncio.gather(*readers), WAIT_S)
        assert attached <= 1, "one read, or none where the store has it at hand"
        assert reads == attached, "what happens now is told from memory"
        numbers = [[frame.number for frame in one if frame.number] for one in told]
        assert all(one == list(range(1, len(one) + 1)) for one in numbers)


async def test_a_cursor_from_the_future_or_of_no_kind_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path / "a.db", ScriptedProvider(says("x"))) as server:
        name = await server.conversation()
        path = f"{ROOT}/conversations/{name}/events"
        for query, headers in (
            ("?after=1", {}),
            ("", {"last-event-id": "1"}),
            ("", {"last-event-id": "abc"}),
            ("?after=-1", {}),
            ("?after=x", {}),
            ("", {"last-event-id": "९"}),
        ):
            told = await server.client.ask("GET", path + query, headers=headers)
            assert told.status == 400, query
        told = await server.client.get(path, last_event_id="9" * 30)
        assert (told.status, told.json["error"]["code"]) == (400, "bad_cursor")


async def test_a_stream_that_stays_is_ended_in_good_order_and_goes_on_from_its_cursor(
    tmp_path: Path,
) -> None:
    settings = quick(stream_s=0.05, heartbeat_s=0.01)
    async with served(tmp_path / "a.db", ScriptedProvider(says("x")), settings=settings) as server:
        name = await server.conversation()
        await server.send(name, "Hello")
        await server.idle(name)
        path = f"{ROOT}/conversations/{name}/events"
        async with server.client.asked("GET", path) as stream:
            told, beats = [], 0
            while (frame := await stream.frame(comments=True)) is not None:
                beats += not frame.data
                told.append(frame)
        end = told[-1]
        assert (end.event, end.json["reason"], beats > 0) == ("end", "recycled", True)
        assert end.json["seq"] == max(f.number for f in told if f.number)
        async with server.client.asked("GET", f"{path}?after={end.json['seq']}") as again:
            first = await again.frame()
            assert first is not None
            assert first.event == "caught_up"


async def test_a_server_that_stops_tells_every_stream(tmp_path: Path) -> None:
    async with served(tmp_path / "a.db") as server:
        name = await server.conversation()
        path = f"{ROOT}/conversations/{name}/events"
        async with server.client.asked("GET", path) as stream:
            await stream.until("caught_up")
            server.app.state.streams.close()
            last = await stream.until("end")
            assert last[-1].json["reason"] == "shutdown"
            assert last[-1].json["retry_ms"] > 0
            assert await stream.frame() is None
        async with server.client.asked("GET", path) as late:
            assert (await late.until("end"))[-1].json["reason"] == "shutdown"


async def test_a_stream_that_is_told_to_end_loses_no_frame_and_no_client_that_leaves() -> None:
    told: list[bytes] = []
    room, more, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def frames() -> AsyncGenerator[bytes, None]:
        yield b"one"
        await more.wait()
        yield b"two"

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            await room.wait()
            told.append(message["body"])

    async def receive() -> Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    class Leaving(set[EventStream]):
        """The open streams of a server that stops while one of them is taken away."""

        def discard(self, element: object) -> None:
            assert isinstance(element, EventStream)
            element.end(Ending.SHUTDOWN)

    everything = Streams()

    def farewell(reason: Ending) -> bytes:
        return reason.value.encode()

    def stream() -> tuple[EventStream, asyncio.Task[None]]:
        made = EventStream(frames(), everything, quick(), farewell=farewell)
        return made, asyncio.create_task(made({"type": "http"}, receive, send))

    async def settled() -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    # In the middle of a frame: it reaches the reader, and the farewell behind it.
    ends, work = stream()
    await settled()
    ends.end(Ending.SHUTDOWN)
    await settled()
    assert told == []
    room.set()
    await asyncio.wait_for(work, WAIT_S)
    assert told == [b"one", b"shutdown", b""]
    # While it waits for one, even where it came at that very moment.
    ends, work = stream()
    await settled()
    more.set()
    ends.end(Ending.SHUTDOWN)
    await asyncio.wait_for(work, WAIT_S)
    assert told[3:] == [b"one", b"shutdown", b""]
    # Where its client leaves in the same moment, nothing more is written.
    more.clear()
    ends, work = stream()
    await settled()
    everything.open = Leaving()
    gone.set()
    await asyncio.wait_for(work, WAIT_S)
    assert told[6:] == [b"one"]


async def test_a_reader_that_reads_nothing_is_cut_and_holds_up_nobody(tmp_path: Path) -> None:
    settings = quick(write_timeout_s=2.0)
    large, pieces = "x" * 65_536, 200
    script = [*[chunk({"content": large})] * pieces, chunk({}, "stop"), usage(1, 1), DONE]
    provider = ScriptedProvider(script)
    async with served(tmp_path / "a.db", provider, settings=settings) as server:
        listener = listen(server.engine.world.settings)
        stop, started = asyncio.Event(), asyncio.Event()
        work = asyncio.create_task(serve(server.app, listener, stop=stop, started=started.set))
        await asyncio.wait_for(started.wait(), WAIT_S)
        name = await server.conversation()
        path = f"{ROOT}/conversations/{name}/events"
        stalled = socket.socket()
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        stalled.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(stalled, listener.getsockname())
        head = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
        await loop.sock_sendall(stalled, head.encode())
        try:
            async with server.client.asked("GET", path) as reader:
                await reader.until("caught_up")
                await _until(lambda: len(server.app.state.streams.open) == 2)
                await server.send(name, "Much.")
                told = await reader.until("message.committed")
                assert len(shown(told)) == len(large) * pieces
            await _until(lambda: not server.app.state.streams.open)
            assert _followed(server) == 0
        finally:
            stalled.close()
            stop.set()
            await asyncio.wait_for(work, WAIT_S)


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not true():  # noqa: ASYNC110 - what is waited for has no event to tell of it
            await asyncio.sleep(0.01)


def _succeeded(told: list[Frame], times: int) -> bool:
    ends = [f for f in told if f.event == "run.changed" and "success" in f.data]
    return len(ends) >= times


def _followed(server: Served) -> int:
    """Return how many conversations the engine thinks are followed by somebody."""
    return len(server.engine.world.broker._topics)
