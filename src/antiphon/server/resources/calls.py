"""Tool calls that wait for somebody to agree."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from antiphon.core.ids import RunId
from antiphon.core.records import Call
from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.http.body import Body, answer, decoded, engine_of
from antiphon.server.rights.scope import view_of

PATH: Final = "/antiphon/v1/calls/{call}"


class Approval(Body, frozen=True, kw_only=True):
    """Of which run the call is, and what its arguments, a JSON object, become where they change."""

    run: RunId
    arguments: str | None = None


class Refusal(Body, frozen=True, kw_only=True):
    """Of which run the call is, and what the model is told beside that it was refused."""

    run: RunId
    reason: Annotated[str, Meta(max_length=2000)] = ""


async def _approve(request: Request) -> Response:
    """Let a call run that waits for approval; the same approval again changes nothing."""
    approval = await decoded(request, Approval)
    run = await view_of(request).run(approval.run)
    call = await engine_of(request).verdicts.approve(
        run.conversation, run.id, request.path_params["call"], arguments=approval.arguments
    )
    return answer(call)


async def _refuse(request: Request) -> Response:
    """Close a call that waits for approval: it does not run, and the model is told so."""
    refusal = await decoded(request, Refusal)
    run = await view_of(request).run(refusal.run)
    call = await engine_of(request).verdicts.refuse(
        run.conversation, run.id, request.path_params["call"], reason=refusal.reason
    )
    return answer(call)


routes: Final = [
    Endpoint("POST", PATH + "/approve", _approve, body=Approval, answer=Call),
    Endpoint("POST", PATH + "/refuse", _refuse, body=Refusal, answer=Call),
]
