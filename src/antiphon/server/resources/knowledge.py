"""What stands beside the talk: files, what is remembered, and instructions that have a name."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from antiphon.core.blocks import Trust
from antiphon.core.ids import ConversationId
from antiphon.core.knowledge.kept import File, Instructions, Remembered, RememberedKind
from antiphon.core.knowledge.retrieval import Beside
from antiphon.core.telling.listings import Files, Kept
from antiphon.core.traffic.keys import Right
from antiphon.engine.knowledge.context import find_instructions
from antiphon.engine.knowledge.searching import beside_message
from antiphon.errors import InvalidInput
from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.http.body import Body, Query, answer, decoded, engine_of, queried
from antiphon.server.resources.conversations import ONE
from antiphon.server.resources.messages import Of
from antiphon.server.rights.principals import principal_of
from antiphon.server.rights.scope import view_of

ROOT: Final = "/antiphon/v1"
MEMORIES: Final = "/memories"
INSTRUCTIONS: Final = ROOT + "/instructions"


class NewFile(Body, frozen=True, kw_only=True):
    """A file to look questions up in: its `data` in base64 with a `name`, or one that is kept."""

    name: Annotated[str, Meta(max_length=4096)] = ""
    data: bytes | None = None
    charset: Annotated[str, Meta(max_length=64)] | None = None
    file_id: str | None = None


class NewText(Body, frozen=True, kw_only=True):
    """What is to be kept under a key; the same key and kind again replaces it."""

    text: str
    kind: RememberedKind = RememberedKind.MEMORY
    priority: Annotated[int, Meta(ge=-1000, le=1000)] = 0
    required: bool = False


class OfKind(Query, frozen=True, kw_only=True):
    """Of which kind."""

    kind: RememberedKind = RememberedKind.MEMORY


class NewInstructions(Body, frozen=True, kw_only=True):
    """What the model is told in the operator's name; to write it again makes the next version."""

    text: str


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """Instructions: the newest version of each, or every version of one."""

    data: list[Instructions]


# Files of a conversation.


async def _give(request: Request) -> Response:
    """Give the conversation a file: what is asked in it from now on is looked up there."""
    row = await view_of(request).conversation(request.path_params["conversation"])
    new = await decoded(request, NewFile)
    engine, tenant = engine_of(request), principal_of(request).tenant
    if (new.data is None) == (new.file_id is None):
        raise InvalidInput("Bring either data or a file_id.", at="data")
    if new.file_id is not None:
        now_ms = engine.world.clock.now_ms()
        file = await engine.world.store.knowledge.give_file(tenant, new.file_id, row.id, now_ms)
    else:
        data = new.data or b""
        file = await engine.files.add(
            tenant, new.name, data, conversation=row.id, charset=new.charset
        )
    return answer(file, 201)


async def _given(request: Request) -> Response:
    """Return the files that the conversation's questions are looked up in."""
    row = await view_of(request).conversation(request.path_params["conversation"])
    return answer(Files(data=await engine_of(request).world.store.knowledge.files_of(row.id)))


async def _take(request: Request) -> Response:
    """Look nothing more up in a file for this conversation; the file itself stays."""
    row = await view_of(request).conversation(request.path_params["conversation"])
    file = request.path_params["file"]
    store = engine_of(request).world.store
    return answer(await store.knowledge.take_file(row.tenant, file, row.id))


async def _beside(request: Request) -> Response:
    """Return what was looked up for a message, and what of it the model sees beside it."""
    query = queried(request, Of)
    message = await view_of(request).message(request.path_params["message"], query.conversation)
    world, tenant = engine_of(request).world, principal_of(request).tenant
    return answer(await beside_message(world, tenant, message))


# What is remembered, for one conversation or for all.


async def _where(request: Request) -> ConversationId | None:
    name = request.path_params.get("conversation")
    return None if name is None else (await view_of(request).conversation(name)).id


async def _remember(request: Request) -> Response:
    """Keep a text under this key: the model is told it in `<ctx>` from the next run on.

    Context (`stable`) is an application's word, and needs the right to instruct.
    """
    where, principal = await _where(request), principal_of(request)
    new = await decoded(request, NewText)
    trust = Trust.USER
    if new.kind is RememberedKind.STABLE:
        principal.require(Right.INSTRUCT)
        trust = Trust.DEVELOPER
    one = Remembered(
        key=request.path_params["key"],
        text=new.text,
        kind=new.kind,
        conversation=where,
        trust=trust,
        priority=new.priority,
        required=new.required,
    )
    return answer(await engine_of(request).memories.remember(principal.tenant, one))


async def _remembered(request: Request) -> Response:
    """Return what is kept for the conversation and for all, or only for all."""
    where, tenant = await _where(request), principal_of(request).tenant
    return answer(Kept(data=await engine_of(request).memories.kept(tenant, where)))


async def _forget(request: Request) -> Response:
    """Forget it: the model is told it no more from the next run on."""
    where, principal = await _where(request), principal_of(request)
    kind = queried(request, OfKind).kind
    if kind is RememberedKind.STABLE:
        principal.require(Right.INSTRUCT)
    await engine_of(request).memories.forget(
        principal.tenant, request.path_params["key"], kind=kind, conversation=where
    )
    return Response(status_code=204)


# Instructions.


async def _write(request: Request) -> Response:
    """Write the next version of instructions; they belong to the key that wrote the first one.

    A run is given them by its `named`: a name, or `name@version`.
    """
    new, principal = await decoded(request, NewInstructions), principal_of(request)
    return answer(
        await engine_of(request).memories.write_instructions(
            principal.tenant, request.path_params["name"], new.text, principal.id
        )
    )


async def _told(request: Request) -> Response:
    """Return instructions: the newest version, or the one that `name@version` means."""
    world, tenant = engine_of(request).world, principal_of(request).tenant
    return answer(await find_instructions(world, tenant, request.path_params["name"]))


async def _all(request: Request) -> Response:
    """Return the newest version of all instructions."""
    store, tenant = engine_of(request).world.store, principal_of(request).tenant
    return answer(Versions(data=await store.knowledge.all_instructions(tenant)))


async def _versions(request: Request) -> Response:
    """Return every version of instructions, in the order they were written."""
    store, tenant = engine_of(request).world.store, principal_of(request).tenant
    name = request.path_params["name"]
    return answer(Versions(data=await store.knowledge.all_instructions(tenant, name)))


GIVEN: Final = ONE + "/files"
KEY: Final = MEMORIES + "/{key}"
NAMED: Final = INSTRUCTIONS + "/{name}"

routes: Final = [
    Endpoint("POST", GIVEN, _give, body=NewFile, answer=File, status=201),
    Endpoint("GET", GIVEN, _given, answer=Files),
    Endpoint("DELETE", GIVEN + "/{file}", _take, answer=File),
    Endpoint("GET", ROOT + "/messages/{message}/beside", _beside, query=Of, answer=Beside),
    Endpoint("GET", ONE + MEMORIES, _remembered, answer=Kept),
    Endpoint("PUT", ONE + KEY, _remember, body=NewText, answer=Remembered),
    Endpoint("DELETE", ONE + KEY, _forget, query=OfKind, status=204),
    Endpoint("GET", ROOT + MEMORIES, _remembered, answer=Kept),
    Endpoint("PUT", ROOT + KEY, _remember, body=NewText, answer=Remembered),
    Endpoint("DELETE", ROOT + KEY, _forget, query=OfKind, status=204),
    Endpoint("GET", INSTRUCTIONS, _all, answer=Versions),
    Endpoint("GET", NAMED, _told, answer=Instructions),
    Endpoint("GET", NAMED + "/versions", _versions, answer=Versions),
    Endpoint("PUT", NAMED, _write, body=NewInstructions, answer=Instructions, right=Right.INSTRUCT),
]
