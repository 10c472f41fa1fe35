"""Messages: sending one, and what a person does with one that is there."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from antiphon.core.blocks import Audio, File, Image, Role, Text
from antiphon.core.ids import MessageId
from antiphon.core.manifest import ToolDeclaration
from antiphon.core.records import Run
from antiphon.engine.engine import Ask
from antiphon.server.body import Body, answer, decoded, engine_of
from antiphon.server.endpoints import Endpoint
from antiphon.server.idempotency import start_key
from antiphon.server.principals import Right, principal_of
from antiphon.server.resources.conversations import ONE
from antiphon.server.scope import view_of

Content: TypeAlias = str | tuple[Text | Image | Audio | File, ...]


class Asking(Body, frozen=True, kw_only=True):
    """What a run is asked to do, beside its input; what is left out is the model's default."""

    model: str | None = None
    instructions: str | None = None
    tools: tuple[ToolDeclaration, ...] = ()
    tool_choice: str | None = None
    temperature: Annotated[float, Meta(ge=0)] | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None


class NewMessage(Asking, frozen=True, kw_only=True):
    """A message, and what its run is asked to do.

    With an `id` of the client's own the same call again is the same run. Without a `parent`
    it goes to the last closed point of the head.
    """

    content: Content
    id: MessageId | None = None
    parent: MessageId | None = None


def ask_of(request: Request, asking: Asking) -> Ask:
    """Return what a run is asked to do, where whoever asks may ask it."""
    if asking.instructions is not None:
        principal_of(request).require(Right.INSTRUCT)
    return Ask(
        model=asking.model,
        instructions=asking.instructions,
        tools=asking.tools,
        tool_choice=asking.tool_choice,
        temperature=asking.temperature,
        max_output_tokens=asking.max_output_tokens,
    )


async def _send(request: Request) -> Response:
    """Send a message. The run is durable when this answers; follow it by the events."""
    row = await view_of(request).conversation(request.path_params["conversation"])
    new = await decoded(request, NewMessage)
    run = await engine_of(request).send(
        row.id,
        new.content,
        ask_of(request, new),
        parent=new.parent,
        message=new.id,
        key=await start_key(request),
        role=Role.USER,
    )
    return answer(run, 202, {"location": f"/antiphon/v1/runs/{run.id}"})


routes: Final = [
    Endpoint("POST", ONE + "/messages", _send, body=NewMessage, answer=Run, status=202),
]
