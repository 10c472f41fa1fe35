"""The routes of the UI message stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from antiphon.core.events import CallChanged, CaughtUp, Committed, Durable, Preview, RunChanged
from antiphon.core.ids import CallId
from antiphon.core.records import Call, Conversation, Run, RunStatus
from antiphon.core.tree import line as visible
from antiphon.engine.engine import Engine
from antiphon.handles.run import RunHandle, run_error
from antiphon.library import Local
from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.doors.turn import UNKNOWN_GRACE_S
from antiphon.server.http.body import answer, decoded, engine_of
from antiphon.server.http.sse import EventStream, Streams, frame
from antiphon.server.responses.routes import WITHDRAW
from antiphon.server.uistream.beginning import Begun, begun, conversation_of
from antiphon.server.uistream.request import Chat
from antiphon.server.uistream.transcript import messages
from antiphon.server.uistream.write import Chunk, Writer

PATH: Final = "/antiphon/v1/chat"
ONE: Final = PATH + "/{chat}"
PROTOCOL: Final = {"x-vercel-ai-ui-message-stream": "v1"}
DONE: Final = frame(b"[DONE]")
EVENTS: Final = "text/event-stream"


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """A chat as it stands: what `useChat` takes as its initial messages."""

    id: str
    conversation: str
    messages: list[dict[str, Any]]


async def _post(request: Request) -> Response:
    """Take a request of `useChat`: a message, an edit, another answer, an approval; stream the answer."""
    return _streamed(request, await begun(request, await decoded(request, Chat)))


async def _resume(request: Request) -> Response:
    """Stream the answer that is being given, from its beginning; 204 where none is."""
    row = await conversation_of(request, request.path_params["chat"])
    run = await _working(engine_of(request), row)
    if run is None:
        return Response(status_code=204)
    return _streamed(request, Begun(run, run.seq - 1))


async def _stop(request: Request) -> Response:
    """Cancel the answer that is being given; leaving its stream does not."""
    row = await conversation_of(request, request.path_params["chat"])
    engine = engine_of(request)
    run = await _working(engine, row)
    if run is not None:
        await engine.cancel(row.id, run.id)
    return Response(status_code=204)


async def _get(request: Request) -> Response:
    """Return the messages of the line that is looked at, with the one that is being answered."""
    chat = request.path_params["chat"]
    row = await conversation_of(request, chat)
    engine = engine_of(request)
    store = engine.world.store
    run = await _working(engine, row)
    leaf = run.leaf if run is not None and run.head_left == row.head else row.head
    path = await store.path(row.id, leaf) if leaf is not None else []
    line = visible(path, row.deletions)
    calls: dict[CallId, Call] = {}
    for owner in {message.run for message in line if message.run is not None and message.calls}:
        calls.update((call.call_id, call) for call in await store.calls(row.id, owner))
    # A run at work tells its whole answer to whoever resumes it.
    saved = [m for m in line if run is None or m.run != run.id or m.id == run.input]
    return answer(Transcript(id=chat, conversation=row.id, messages=messages(saved, calls)))


async def _working(engine: Engine, row: Conversation) -> Run | None:
    """Return the run that is at work, or else the first that waits for its turn."""
    store = engine.world.store
    if row.slot is not None:
        return await store.run(row.id, row.slot)
    runs = await store.runs(row.id)
    return next((run for run in runs if run.status is RunStatus.QUEUED), None)


def _streamed(request: Request, begun: Begun) -> EventStream:
    streams = request.app.state.streams
    assert isinstance(streams, Streams)
    engine, run = engine_of(request), begun.run
    writer = Writer(
        run.id,
        {"conversation": run.conversation, "run": run.id, "model": run.options.model},
        takes_withdrawals=request.headers.get(WITHDRAW) == "1",
    )
    return EventStream(
        _frames(engine, begun, writer), streams, engine.world.settings, headers=PROTOCOL
    )


async def _frames(engine: Engine, begun: Begun, writer: Writer) -> AsyncGenerator[bytes, None]:
    for chunk in writer.begin():
        yield _written(chunk)
    async with aclosing(_chunks(engine, begun, writer)) as chunks:
        async for chunk in chunks:
            yield _written(chunk)
    if writer.whole:
        yield DONE


def _written(chunk: Chunk) -> bytes:
    return frame(msgspec.json.encode(chunk))


async def _chunks(engine: Engine, begun: Begun, writer: Writer) -> AsyncGenerator[Chunk, None]:
    """Yield what the run's events tell, until it ends, waits, or is not known to do either."""
    run, store = begun.run, engine.world.store
    unknown = False
    try:
        async with aclosing(engine.follow(run.conversation, begun.since)) as items:
            while not writer.over:
                async with asyncio.timeout(UNKNOWN_GRACE_S if unknown else None):
                    item = await anext(items)
                match item:
                    case Preview() if item.run == run.id:
                        for chunk in writer.show(item):
                            yield chunk
                    case Durable(event=event) if getattr(event, "run", None) == run.id:
                        if isinstance(event, RunChanged):
                            unknown = event.status is RunStatus.UNKNOWN
                        message, calls, failure = None, {}, None
                        if isinstance(event, RunChanged) and event.status is RunStatus.ERROR:
                            handle = RunHandle(Local(engine), run)
                            failure = await handle.failure(event.status, event.code)
                        if isinstance(event, Committed):
                            message = await store.message(run.conversation, event.message)
                        if isinstance(event, Committed | CallChanged | RunChanged):
                            rows = await store.calls(run.conversation, run.id)
                            calls = {call.call_id: call for call in rows}
                        for chunk in writer.tell(
                            event, message=message, calls=calls, failure=failure
                        ):
                            yield chunk
                    case Preview() | Durable() | CaughtUp():
                        pass
    except TimeoutError:
        for chunk in writer.fail(run_error(run.id, RunStatus.UNKNOWN, "outcome_unknown")):
            yield chunk


routes: Final = [
    Endpoint("POST", PATH, _post, body=Chat, answer=dict[str, Any], media_type=EVENTS, starts=True),
    Endpoint("GET", ONE, _get, answer=Transcript),
    Endpoint("GET", ONE + "/stream", _resume, answer=dict[str, Any], media_type=EVENTS),
    Endpoint("POST", ONE + "/stop", _stop, status=204),
]
