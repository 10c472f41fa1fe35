"""Messages: sending one, and what a person does with one that is there."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Raw
from starlette.requests import Request
from starlette.responses import Response

from antiphon.core.asking import Ask
from antiphon.core.blocks import Audio, File, Image, Message, Role, Text
from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.manifest import ToolDeclaration
from antiphon.core.records import Conversation, Run
from antiphon.core.traffic.keys import Right
from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.http.body import Body, Query, answer, decoded, engine_of, queried
from antiphon.server.http.urls import check_block_urls
from antiphon.server.resources.conversations import ONE
from antiphon.server.rights.admission import may_ask
from antiphon.server.rights.principals import principal_of
from antiphon.server.rights.scope import view_of
from antiphon.server.starting import alone, start_key

Said: TypeAlias = Annotated[str, Meta(extra_json_schema={"minLength": 1})]
Blocks: TypeAlias = Annotated[
    tuple[Text | Image | Audio | File, ...], Meta(extra_json_schema={"minItems": 1})
]
# That something has to be said is for the engine to judge, which has a code of its own for it.
Content: TypeAlias = Said | Blocks


class Asking(Body, frozen=True, kw_only=True):
    """What a run is asked to do, beside its input; what is left out is the model's default."""

    model: str | None = None
    instructions: str | None = None
    named: str | None = None
    """Instructions that are kept, by their name or as `name@version`."""
    tools: tuple[ToolDeclaration, ...] = ()
    tool_choice: str | None = None
    temperature: Annotated[float, Meta(ge=0)] | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    answer_schema: Raw | None = None
    """A JSON Schema that the answer is judged by once it is committed."""
    retry_answer: bool = False
    """Whether the model is told of an answer that does not fit, and asked once more."""


class NewMessage(Asking, frozen=True, kw_only=True):
    """A message, and what its run is asked to do.

    With an `id` of the client's own the same call again is the same run. Without a `parent`
    it goes to the last closed point of the head.
    """

    content: Content
    id: MessageId | None = None
    parent: MessageId | None = None
    steer: bool = False
    """Whether it may join the run that works, at its next step boundary."""


class Edit(Asking, frozen=True, kw_only=True):
    """What is said instead, and what its run is asked to do."""

    content: Content
    id: MessageId | None = None


class Of(Query, frozen=True, kw_only=True):
    """Of which conversation, where several have a message of this id; it also spares a search."""

    conversation: ConversationId | None = None


def ask_of(request: Request, asking: Asking) -> Ask:
    """Return what a run is asked to do, where whoever asks may ask it."""
    if asking.instructions is not None:
        principal_of(request).require(Right.INSTRUCT)
    model = engine_of(request).world.settings.models.get(asking.model)
    may_ask(principal_of(request), model.name)
    return Ask(
        key=principal_of(request).id,
        model=asking.model,
        instructions=asking.instructions,
        named=asking.named,
        tools=asking.tools,
        tool_choice=asking.tool_choice,
        temperature=asking.temperature,
        max_output_tokens=asking.max_output_tokens,
        answer_schema=asking.answer_schema,
        retry_answer=asking.retry_answer,
        alone=alone(request),
    )


def _check_content(request: Request, content: Content) -> None:
    """Refuse addresses that no model's server may be told to fetch."""
    if not isinstance(content, str):
        check_block_urls(engine_of(request).world.settings, content)


async def _send(request: Request) -> Response:
    """Send a message. The run is durable when this answers; follow it by the events."""
    row = await view_of(request).conversation(request.path_params["conversation"])
    new = await decoded(request, NewMessage)
    _check_content(request, new.content)
    run = await engine_of(request).send(
        row.id,
        new.content,
        replace(ask_of(request, new), steer=new.steer),
        parent=new.parent,
        message=new.id,
        key=await start_key(request),
        role=Role.USER,
    )
    return _started(run)


async def _get(request: Request) -> Response:
    """Return a message."""
    return answer(await _named(request))


async def _keep(request: Request) -> Response:
    """Keep the text of a canceled answer as a message of its own, and look at it."""
    source = await _named(request)
    engine = engine_of(request)
    row = await engine.keep(source.conversation, source.id)
    assert row.head is not None
    return answer(await engine.world.store.message(row.id, row.head), 201)


async def _edit(request: Request) -> Response:
    """Say something else in place of a user message; the old one and its answers stay."""
    old = await _named(request)
    edit = await decoded(request, Edit)
    _check_content(request, edit.content)
    run = await engine_of(request).edit(
        old.conversation,
        old.id,
        edit.content,
        ask_of(request, edit),
        message=edit.id,
        key=await start_key(request),
    )
    return _started(run)


async def _regenerate(request: Request) -> Response:
    """Ask for another answer beside this one; it stays."""
    old = await _named(request)
    asking = await decoded(request, Asking)
    run = await engine_of(request).regenerate(
        old.conversation, old.id, ask_of(request, asking), key=await start_key(request)
    )
    return _started(run)


async def _delete(request: Request) -> Response:
    """Skip a message on every line from now on; calls go with their results."""
    old = await _named(request)
    return answer(await engine_of(request).delete(old.conversation, [old.id]))


async def _named(request: Request) -> Message:
    """Return the message in the path, of the conversation in the query where one is named."""
    query = queried(request, Of)
    return await view_of(request).message(request.path_params["message"], query.conversation)


def _started(run: Run) -> Response:
    return answer(run, 202, {"location": f"/antiphon/v1/runs/{run.id}"})


ITSELF: Final = "/antiphon/v1/messages/{message}"

routes: Final = [
    Endpoint(
        "POST", ONE + "/messages", _send, body=NewMessage, answer=Run, status=202, starts=True
    ),
    Endpoint("GET", ITSELF, _get, query=Of, answer=Message),
    Endpoint("POST", ITSELF + "/keep", _keep, query=Of, answer=Message, status=201),
    Endpoint(
        "POST", ITSELF + "/edit", _edit, query=Of, body=Edit, answer=Run, status=202, starts=True
    ),
    Endpoint(
        "POST",
        ITSELF + "/regenerate",
        _regenerate,
        query=Of,
        body=Asking,
        answer=Run,
        status=202,
        starts=True,
    ),
    Endpoint("DELETE", ITSELF, _delete, query=Of, answer=Conversation),
]
