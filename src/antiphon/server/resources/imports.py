"""Bringing conversations in, as `antiphon export` and `…/export` write them."""

from __future__ import annotations

import io
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from antiphon.core.ids import ConversationId
from antiphon.core.planning.trimming import INSTRUCTING
from antiphon.core.telling.archive import read
from antiphon.core.traffic.keys import Right
from antiphon.engine.keeping.importing import Brought, bring
from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.http.body import Body, answer, decoded, engine_of
from antiphon.server.http.urls import check_urls
from antiphon.server.rights.principals import principal_of
from antiphon.server.rights.scope import view_of

PATH: Final = "/antiphon/v1/imports"


class NewImport(Body, frozen=True, kw_only=True):
    """The lines of the file; `into` is a conversation that its one conversation is added to."""

    lines: str
    into: ConversationId | None = None


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What was brought; `torn_line` is the number of a last line that was cut and left out."""

    conversations: list[Brought]
    torn_line: int | None


async def _create(request: Request) -> Response:
    """Bring in what the lines hold: all of it, or nothing.

    Ids stay as they are. What is there already with the same content is left alone and counted.
    A file says nothing that whoever brings it may not say: system and developer messages need the
    right to instruct.
    """
    wanted = await decoded(request, NewImport)
    if wanted.into is not None:
        await view_of(request).conversation(wanted.into)
    archive = read(io.BytesIO(wanted.lines.encode()))
    world, principal = engine_of(request).world, principal_of(request)
    messages = [message for one in archive.conversations for message in one.messages]
    if any(message.role in INSTRUCTING for message in messages):
        principal.require(Right.INSTRUCT)
    check_urls(world.settings, messages)
    brought = await bring(world, archive, principal.tenant, wanted.into)
    return answer(Imported(conversations=brought, torn_line=archive.torn_line))


routes: Final = [Endpoint("POST", PATH, _create, body=NewImport, answer=Imported)]
