"""What goes on elsewhere: a fork beside a conversation, and a file of everything in it."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from antiphon.core.ids import MessageId
from antiphon.core.records import Conversation
from antiphon.core.telling.archive import write
from antiphon.engine.keeping.forking import fork
from antiphon.engine.keeping.looking import archived
from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.http.body import Body, answer, decoded, engine_of
from antiphon.server.resources.conversations import ONE, PATH
from antiphon.server.rights.scope import view_of

LINES: Final = "application/jsonl"


class Fork(Body, frozen=True, kw_only=True):
    """Where it leaves, the head by default; and what it is called."""

    leaf: MessageId | None = None
    title: Annotated[str, Meta(max_length=500)] | None = None


async def _fork(request: Request) -> Response:
    """Begin a conversation with copies of what was said on one line of this one."""
    row = await view_of(request).conversation(request.path_params["conversation"])
    wanted = await decoded(request, Fork)
    made = await fork(engine_of(request), row, wanted.leaf, title=wanted.title)
    return answer(made, 201, {"location": f"{PATH}/{made.id}"})


async def _export(request: Request) -> Response:
    """Return all of it as lines of JSON, for `antiphon import`: every branch, to the last marker."""
    row = await view_of(request).conversation(request.path_params["conversation"])
    lines = write([await archived(engine_of(request).world.store, row)])
    return Response(b"".join(lines), media_type=LINES)


routes: Final = [
    Endpoint("POST", ONE + "/fork", _fork, body=Fork, answer=Conversation, status=201),
    Endpoint("GET", ONE + "/export", _export, answer=bytes, media_type=LINES),
]
