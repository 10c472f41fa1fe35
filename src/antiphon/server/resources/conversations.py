"""Conversations: the list, one of them, its tree, its head, its sessions."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.records import Conversation, Session
from antiphon.core.telling.listings import URGENCY, Messages, Page, Runs, Sessions, Tree
from antiphon.core.tree import siblings
from antiphon.engine.keeping.looking import line, tree
from antiphon.engine.runs.pausing import paused
from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.http.body import Body, Query, answer, decoded, engine_of, queried
from antiphon.server.rights.principals import principal_of
from antiphon.server.rights.scope import view_of

PATH: Final = "/antiphon/v1/conversations"


class NewConversation(Body, frozen=True, kw_only=True):
    """A conversation to be."""

    title: Annotated[str, Meta(max_length=500)] | None = None
    metadata: Annotated[dict[str, str], Meta(max_length=16)] | None = None
    scheduling: bool | None = None


class Changes(Body, frozen=True, kw_only=True):
    """What is to be changed; what is left out stays."""

    title: Annotated[str, Meta(max_length=500)] | msgspec.UnsetType | None = msgspec.UNSET
    metadata: Annotated[dict[str, str], Meta(max_length=16)] | msgspec.UnsetType = msgspec.UNSET


class NewHead(Body, frozen=True, kw_only=True):
    """The message in which the active line is to end; null for the root."""

    head: MessageId | None


class Listing(Query, frozen=True, kw_only=True):
    """Which conversations; with `q` those whose title, or a text in which, holds these words."""

    q: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    cursor: ConversationId | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class Line(Query, frozen=True, kw_only=True):
    """To which message, the head by default; and how many of the newest on it, all by default."""

    leaf: MessageId | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] | None = None


class Newest(Query, frozen=True, kw_only=True):
    """How many of the newest messages on the line that is looked at; without it, every message."""

    newest: Annotated[int, Meta(ge=1, le=1000)] | None = None


class Below(Query, frozen=True, kw_only=True):
    """Below which message; the roots by default."""

    parent: MessageId | None = None


class OfMessage(Query, frozen=True, kw_only=True):
    """Of which message."""

    message: MessageId


class Siblings(msgspec.Struct, frozen=True, kw_only=True):
    """The alternatives to a message, itself included, in their order."""

    message: MessageId
    siblings: tuple[MessageId, ...]


class NewSession(Body, frozen=True, kw_only=True):
    """A session to be, with its goal in one sentence where it has one."""

    goal: str | None = None


class Scheduling(Body, frozen=True, kw_only=True):
    """Whether sessions come and go by themselves; null leaves that to the settings."""

    on: bool | None


async def _create(request: Request) -> Response:
    """Create a conversation."""
    new = await decoded(request, NewConversation)
    row = await engine_of(request).create_conversation(
        title=new.title,
        metadata=new.metadata,
        tenant=principal_of(request).tenant,
        scheduling=new.scheduling,
    )
    return answer(row, 201, {"location": f"{PATH}/{row.id}"})


async def _list(request: Request) -> Response:
    """List conversations, last changed first."""
    query = queried(request, Listing)
    view = view_of(request)
    rows = await view.conversations(limit=query.limit + 1, before=query.cursor, words=query.q)
    world = engine_of(request).world
    page = [await paused(world, row) for row in rows[: query.limit]]
    statuses = await world.store.open_statuses(row.id for row in page)
    return answer(
        Page(
            data=page,
            cursor=page[-1].id if len(rows) > len(page) else None,
            open={name: min(found, key=URGENCY.index) for name, found in statuses.items()},
        )
    )


async def _get(request: Request) -> Response:
    """Return a conversation as it stands."""
    row = await view_of(request).conversation(request.path_params["conversation"])
    return answer(await paused(engine_of(request).world, row))


async def _change(request: Request) -> Response:
    """Change its title or its metadata; what is given replaces what was there."""
    row = await view_of(request).conversation(request.path_params["conversation"])
    changes = await decoded(request, Changes)
    if changes.title is not msgspec.UNSET:
        row = await engine_of(request).set_title(row.id, changes.title)
    if changes.metadata is not msgspec.UNSET:
        row = await engine_of(request).set_metadata(row.id, changes.metadata)
    return answer(row)


async def _delete(request: Request) -> Response:
    """Answer for it no longer, and cancel what works in it; this cannot be taken back."""
    row = await view_of(request).conversation(request.path_params["conversation"])
    await engine_of(request).delete_conversation(row.id)
    return Response(status_code=204)


async def _tree(request: Request) -> Response:
    """Return its tree, canceled and failed messages included, and its runs: whole, or its end."""
    query = queried(request, Newest)
    row = await view_of(request).conversation(request.path_params["conversation"])
    world = engine_of(request).world
    return answer(await tree(world.store, await paused(world, row), query.newest))


async def _line(request: Request) -> Response:
    """Return the line that a model may see: committed messages, without the deleted ones."""
    query = queried(request, Line)
    row = await view_of(request).conversation(request.path_params["conversation"])
    store = engine_of(request).world.store
    return answer(Messages(data=await line(store, row.id, query.leaf, query.limit)))


async def _children(request: Request) -> Response:
    """Return the messages below one message, or the roots, in the order they came."""
    query = queried(request, Below)
    row = await view_of(request).conversation(request.path_params["conversation"])
    children = await engine_of(request).world.store.children(row.id, query.parent)
    return answer(Messages(data=children))


async def _runs(request: Request) -> Response:
    """Return its runs, in the order they were started."""
    row = await view_of(request).conversation(request.path_params["conversation"])
    return answer(Runs(data=await engine_of(request).world.store.runs(row.id)))


async def _siblings(request: Request) -> Response:
    """Return the alternatives to one message."""
    query = queried(request, OfMessage)
    message = await view_of(request).message(query.message, request.path_params["conversation"])
    store = engine_of(request).world.store
    children = await store.children(message.conversation, message.parent)
    return answer(Siblings(message=message.id, siblings=siblings(message, children)))


async def _head(request: Request) -> Response:
    """Look at another line: the next message goes there unless it says otherwise."""
    row = await view_of(request).conversation(request.path_params["conversation"])
    head = await decoded(request, NewHead)
    return answer(await engine_of(request).move_head(row.id, head.head))


async def _sessions(request: Request) -> Response:
    """Return its sessions."""
    row = await view_of(request).conversation(request.path_params["conversation"])
    return answer(Sessions(data=await engine_of(request).world.store.sessions(row.id)))


async def _begin(request: Request) -> Response:
    """Archive the active session and begin another one."""
    row = await view_of(request).conversation(request.path_params["conversation"])
    new = await decoded(request, NewSession)
    engine = engine_of(request)
    begun = await engine.sessions.begin(row.id, new.goal)
    return answer(await engine.world.store.session(row.id, begun.session), 201)


async def _undo(request: Request) -> Response:
    """Take the last switch back: the session before is active again, with what was said since."""
    row = await view_of(request).conversation(request.path_params["conversation"])
    engine = engine_of(request)
    undone = await engine.sessions.undo(row.id)
    return answer(await engine.world.store.session(row.id, undone.session))


async def _schedule(request: Request) -> Response:
    """Let sessions come and go by themselves here, or not."""
    row = await view_of(request).conversation(request.path_params["conversation"])
    wanted = await decoded(request, Scheduling)
    return answer(await engine_of(request).sessions.schedule(row.id, wanted.on))


ONE: Final = PATH + "/{conversation}"

routes: Final = [
    Endpoint("POST", PATH, _create, body=NewConversation, answer=Conversation, status=201),
    Endpoint("GET", PATH, _list, query=Listing, answer=Page),
    Endpoint("GET", ONE, _get, answer=Conversation),
    Endpoint("PATCH", ONE, _change, body=Changes, answer=Conversation),
    Endpoint("DELETE", ONE, _delete, status=204),
    Endpoint("GET", ONE + "/tree", _tree, query=Newest, answer=Tree),
    Endpoint("GET", ONE + "/line", _line, query=Line, answer=Messages),
    Endpoint("GET", ONE + "/children", _children, query=Below, answer=Messages),
    Endpoint("GET", ONE + "/runs", _runs, answer=Runs),
    Endpoint("GET", ONE + "/siblings", _siblings, query=OfMessage, answer=Siblings),
    Endpoint("PUT", ONE + "/head", _head, body=NewHead, answer=Conversation),
    Endpoint("GET", ONE + "/sessions", _sessions, answer=Sessions),
    Endpoint("POST", ONE + "/sessions", _begin, body=NewSession, answer=Session, status=201),
    Endpoint("POST", ONE + "/sessions/undo", _undo, answer=Session),
    Endpoint("PUT", ONE + "/scheduling", _schedule, body=Scheduling, answer=Conversation),
]
