"""What nodes ask each other: the previews of what one of them works on. No API of anybody else's."""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import AsyncGenerator
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from antiphon.core.events import Durable, Preview, RunChanged
from antiphon.core.ids import ConversationId
from antiphon.core.records import OPEN_RUN
from antiphon.core.telling.attach import Ending
from antiphon.engine.nodes.relay import PATH
from antiphon.errors import NotFound, Unauthorized
from antiphon.server.http.body import engine_of
from antiphon.server.http.sse import COMMENT, EventStream, Streams, frame
from antiphon.server.rights.principals import secret_of

_written: Final = msgspec.json.Encoder().encode


async def _previews(request: Request) -> Response:
    """Show another node the previews of a conversation, until a run of it ends or waits."""
    engine = engine_of(request)
    nodes = engine.world.store.nodes
    reach = None if nodes is None else await nodes.reach(engine.world.fence.node)
    if reach is None:
        raise NotFound("This server shares its database with nobody.")
    if not hmac.compare_digest(secret_of(request.headers), reach.secret):
        raise Unauthorized("Only a node of the same database may ask.", code="bad_key")
    conversation = ConversationId(request.query_params.get("conversation", ""))
    row = await engine.world.store.conversation(conversation)

    async def frames() -> AsyncGenerator[bytes, None]:
        async with contextlib.aclosing(engine.follow(conversation, row.last_event)) as stream:
            async for item in stream:
                match item:
                    case Preview():
                        yield frame(_written(item))
                    case Durable(event=RunChanged(status=status)) if status not in OPEN_RUN:
                        return
                    case _:
                        continue

    streams = request.app.state.streams
    assert isinstance(streams, Streams)
    return EventStream(frames(), streams, engine.world.settings, farewell=_farewell)


def _farewell(_: Ending) -> bytes:
    return COMMENT


routes: Final = [Route(PATH, _previews)]
