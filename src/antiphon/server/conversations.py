"""OpenAI's Conversations API: a conversation as one list of items, the line that ends in its head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from msgspec import Meta
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from antiphon.adapters.base import Parsed
from antiphon.adapters.openai_responses.parse import parse
from antiphon.core.blocks import Message, Role, block_id
from antiphon.core.commands import (
    AddMessages,
    Command,
    CreateConversation,
    GiveFile,
    SetMetadata,
)
from antiphon.core.dispatch import Denied
from antiphon.core.ids import MessageId
from antiphon.core.records import Conversation
from antiphon.core.rules.findings import Finding
from antiphon.core.rules.graph import LineChecker
from antiphon.core.traffic.keys import Right
from antiphon.core.tree import last_closed_point
from antiphon.core.tree import line as visible
from antiphon.engine.engine import Engine
from antiphon.engine.runs.refusals import refusal
from antiphon.engine.runs.responding import foreseen, placed, places_of
from antiphon.engine.texts import storable
from antiphon.errors import NotFound, SequenceRejected
from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.http.body import Body, answer, decoded, engine_of, queried
from antiphon.server.http.urls import check_urls
from antiphon.server.responses.attaching import without_attached
from antiphon.server.responses.items import Listing, all_items, items_of, page_of
from antiphon.server.responses.output import Json
from antiphon.server.responses.request import Metadata, unsupported
from antiphon.server.rights.principals import principal_of
from antiphon.server.rights.scope import view_of

PATH: Final = "/v1/conversations"
ONE: Final = PATH + "/{conversation}"
ITEMS: Final = ONE + "/items"
ITEM: Final = ITEMS + "/{item}"
MOST_ITEMS: Final = 20
SECOND_MS: Final = 1000


class New(Body, frozen=True, kw_only=True):
    """A conversation to be, and what was said in it already."""

    items: Annotated[list[Any], Meta(max_length=MOST_ITEMS)] | None = None
    metadata: Metadata | None = None


class Change(Body, frozen=True, kw_only=True):
    """The metadata that takes the place of what there was."""

    metadata: Metadata | None


class NewItems(Body, frozen=True, kw_only=True):
    """What is to be added at the end of the line."""

    items: Annotated[list[Any], Meta(min_length=1, max_length=MOST_ITEMS)]


async def _create(request: Request) -> Response:
    """Create a conversation."""
    new = await decoded(request, New)
    engine, principal = engine_of(request), principal_of(request)
    row = foreseen(engine, principal.tenant)
    create = CreateConversation(
        conversation=row.id,
        now_ms=row.created_ms,
        tenant=row.tenant,
        session=row.session,
        metadata=tuple((new.metadata or {}).items()),
    )
    nodes: tuple[Message, ...] = ()
    files: tuple[str, ...] = ()
    if new.items:
        parsed, files = await _said(request, new.items)
        nodes = _checked(placed(engine, row, None, parsed.messages), parsed)
    await _done(engine, create, *_added(engine, row, nodes, files))
    return answer(_resource(await engine.world.store.conversation(row.id)))


async def _retrieve(request: Request) -> Response:
    """Return a conversation."""
    return answer(
        _resource(await view_of(request).conversation(request.path_params["conversation"]))
    )


async def _update(request: Request) -> Response:
    """Replace its metadata."""
    row = await view_of(request).conversation(request.path_params["conversation"])
    change = await decoded(request, Change)
    engine = engine_of(request)
    pairs = tuple((change.metadata or {}).items())
    command = SetMetadata(conversation=row.id, now_ms=engine.world.clock.now_ms(), metadata=pairs)
    await _done(engine, command)
    return answer(_resource(await engine.world.store.conversation(row.id)))


async def _delete(request: Request) -> Response:
    """Delete a conversation: what works in it is canceled, and nobody finds it any more."""
    row = await view_of(request).conversation(request.path_params["conversation"])
    engine = engine_of(request)
    await engine.delete_conversation(row.id)
    return answer({"id": row.id, "object": "conversation.deleted", "deleted": True})


async def _add_items(request: Request) -> Response:
    """Add items at the end of the line."""
    row = await view_of(request).conversation(request.path_params["conversation"])
    new = await decoded(request, NewItems)
    engine = engine_of(request)
    parsed, files = await _said(request, new.items)
    line = await _line(engine, row)
    if not _goes_on(line, parsed.messages):
        closed = last_closed_point(line)
        line = line[: next((n + 1 for n, m in enumerate(line) if m.id == closed), 0)]
    parent = line[-1].id if line else None
    nodes = _checked(placed(engine, row, parent, parsed.messages), parsed, line)
    await _done(engine, *_added(engine, row, nodes, files))
    items = await all_items(engine, row, nodes)
    return answer(page_of(items, Listing(order="asc", limit=100)))


async def _list_items(request: Request) -> Response:
    """List the items of the line that ends in the head."""
    row = await view_of(request).conversation(request.path_params["conversation"])
    listing = queried(request, Listing)
    engine = engine_of(request)
    items = await all_items(engine, row, await _line(engine, row))
    return answer(page_of(items, listing))


async def _get_item(request: Request) -> Response:
    """Return one item, on whatever line it stands."""
    _, _, item = await _item(request)
    return answer(item)


async def _delete_item(request: Request) -> Response:
    """Skip the message of an item on every line; a call goes with its result."""
    row, message, _ = await _item(request)
    await engine_of(request).delete(row.id, [message.id])
    return answer(_resource(await engine_of(request).world.store.conversation(row.id)))


async def _item(request: Request) -> tuple[Conversation, Message, Json]:
    """Return the item that the path names, and the message that it is a part of."""
    view, engine = view_of(request), engine_of(request)
    row = await view.conversation(request.path_params["conversation"])
    name: str = request.path_params["item"]
    message = await engine.world.store.message(row.id, MessageId(name.partition(".")[0]))
    calls = [] if message.run is None else await engine.world.store.calls(row.id, message.run)
    items = items_of(message, {call.call_id: call for call in calls})
    found = next((item for item in items if item["id"] == name), None)
    if found is None or message.id in row.deletions:
        raise NotFound("There is no such item in this conversation.", at=name)
    return row, message, found


async def _said(request: Request, items: list[Any]) -> tuple[Parsed, tuple[str, ...]]:
    """Return items as messages, where whoever asks may say them, and the files that they name.

    Raises:
        SequenceRejected: One of them cannot be an item at all.
    """
    parsed = parse({"input": items})
    check_urls(engine_of(request).world.settings, parsed.messages)
    if parsed.findings:
        raise SequenceRejected([_here(f) for f in parsed.located(parsed.findings)])
    for place in parsed.uncarried:
        raise unsupported(place.replace("input", "items", 1))
    if any(m.role in (Role.SYSTEM, Role.DEVELOPER) for m in parsed.messages):
        principal_of(request).require(Right.INSTRUCT)
    return await without_attached(engine_of(request), principal_of(request).tenant, parsed)


def _goes_on(line: Sequence[Message], messages: Sequence[Message]) -> bool:
    """Return whether the first of the items is the output of a call that ends the line."""
    if not line or not messages or messages[0].role is not Role.TOOL:
        return False
    newest = next((m for m in reversed(line) if m.role is not Role.TOOL), None)
    asked = {call.call_id for call in newest.calls} if newest is not None else set()
    return any(result.call_id in asked for result in messages[0].results)


def _checked(
    nodes: tuple[Message, ...], parsed: Parsed, line: Sequence[Message] = ()
) -> tuple[Message, ...]:
    """Return `nodes`, where a model may still be sent the line that ends in them.

    Calls at its very end may be open: their outputs can come with the next items.

    Raises:
        SequenceRejected: No later item could make the line legal.
    """
    places = places_of(nodes, parsed.messages, parsed.places)
    checker = LineChecker()
    for message in (*line, *nodes):
        checker.feed(message)
    end = next((n for n in reversed(nodes) if n.role is not Role.TOOL), None)
    open_yet = {block_id(end.id, order) for order in range(len(end.blocks))} if end else set()
    findings = [
        _here(replace(finding, at=places[finding.at]))
        for finding in checker.finish()
        if finding.at in places
        and not (finding.code == "missing_tool_result" and finding.at in open_yet)
    ]
    if findings:
        raise SequenceRejected(findings)
    return nodes


def _here(finding: Finding) -> Finding:
    """Return a finding at its place in the body: these items are no input."""
    return replace(finding, at=finding.at.replace("input", "items", 1))


def _added(
    engine: Engine, row: Conversation, nodes: tuple[Message, ...], files: tuple[str, ...]
) -> tuple[Command[Any], ...]:
    if not nodes:
        return ()
    now_ms = engine.world.clock.now_ms()
    return (
        AddMessages(conversation=row.id, now_ms=now_ms, messages=nodes, head=nodes[-1].id),
        *(GiveFile(conversation=row.id, now_ms=now_ms, file=file) for file in files),
    )


async def _line(engine: Engine, row: Conversation) -> list[Message]:
    if row.head is None:
        return []
    return visible(await engine.world.store.path(row.id, row.head), row.deletions)


async def _done(engine: Engine, *commands: Command[Any]) -> None:
    with storable("items"):
        done = await engine.world.store.do_all(*commands)
    if isinstance(done, Denied):
        raise refusal(done)


def _resource(row: Conversation) -> Json:
    return {
        "id": row.id,
        "object": "conversation",
        "created_at": row.created_ms // SECOND_MS,
        "metadata": row.metadata,
    }


routes: Final = [
    Endpoint("POST", PATH, _create, body=New, answer=dict[str, Any]),
    Endpoint("GET", ONE, _retrieve, answer=dict[str, Any]),
    Endpoint("POST", ONE, _update, body=Change, answer=dict[str, Any]),
    Endpoint("DELETE", ONE, _delete, answer=dict[str, Any]),
    Endpoint("POST", ITEMS, _add_items, body=NewItems, answer=dict[str, Any]),
    Endpoint("GET", ITEMS, _list_items, query=Listing, answer=dict[str, Any]),
    Endpoint("GET", ITEM, _get_item, answer=dict[str, Any]),
    Endpoint("DELETE", ITEM, _delete_item, answer=dict[str, Any]),
]
