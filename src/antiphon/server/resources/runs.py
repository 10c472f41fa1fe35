"""Runs: where one stands, what was sent for it, its cancel, the results that it waits for."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from antiphon.core.asking import Output
from antiphon.core.ids import CallId, Digest, OperationId, RunId
from antiphon.core.manifest import Manifest
from antiphon.core.records import Run
from antiphon.core.telling.attach import Numbered
from antiphon.core.telling.explanation import Explanation, PlanTold
from antiphon.engine.keeping.explain import (
    explain,
    history,
    newest_sent,
    plan_told,
    verified_request,
)
from antiphon.errors import Conflict, NotFound
from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.http.body import Body, Query, answer, decoded, engine_of, queried
from antiphon.server.rights.scope import view_of

ONE: Final = "/antiphon/v1/runs/{run}"
BYTES: Final = "application/octet-stream"


class Cancel(Body, frozen=True, kw_only=True):
    """Why a run is canceled; the reason becomes its error code."""

    reason: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[a-z0-9_]+$")] = "canceled"


class OfDispatch(Query, frozen=True, kw_only=True):
    """Which of its dispatches; the newest that was sent by default."""

    dispatch: OperationId | None = None


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a run, in its order, with the numbers that its conversation gave."""

    data: list[Numbered]


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """A request exactly as it left; keys are added at the socket and never stored."""

    operation: OperationId
    request_digest: Digest
    method: str
    url: str
    headers: dict[str, str]
    body: str


class Result(Body, frozen=True, kw_only=True):
    """What a call came to."""

    call_id: CallId
    output: str
    error: bool = False
    code: Annotated[str, Meta(min_length=1, max_length=64)] | None = None


class Outputs(Body, frozen=True, kw_only=True):
    """The results of all open calls of a waiting run, each once."""

    outputs: Annotated[tuple[Result, ...], Meta(min_length=1)]


async def _get(request: Request) -> Response:
    """Return a run with its operations, every attempt at them, and its calls."""
    run = await view_of(request).run(request.path_params["run"])
    return answer(await explain(engine_of(request).world, run.id))


async def _events(request: Request) -> Response:
    """Return what happened to a run and when, from its start to its end, or until now."""
    run = await view_of(request).run(request.path_params["run"])
    told = await history(engine_of(request).world, run.id)
    return answer(
        History(data=[Numbered(seq=one.seq, at_ms=one.at_ms, event=one.event) for one in told])
    )


async def _cancel(request: Request) -> Response:
    """Cancel a run, in whatever state it is; for one that has ended nothing changes."""
    run = await view_of(request).run(request.path_params["run"])
    cancel = await decoded(request, Cancel)
    row = await engine_of(request).cancel(run.conversation, run.id, reason=cancel.reason)
    return answer(row)


async def _plan(request: Request) -> Response:
    """Say what went into a dispatch of the run, and what stayed out."""
    manifest = await _dispatched(request)
    return answer(await plan_told(engine_of(request).world, manifest))


async def _request(request: Request) -> Response:
    """Return the exact request of a dispatch, rendered again and verified by its digest."""
    manifest = await _dispatched(request)
    sent = await verified_request(engine_of(request).world, manifest)
    return answer(
        Sent(
            operation=manifest.operation,
            request_digest=manifest.request_digest,
            method=sent.method,
            url=sent.url,
            headers=dict(sent.headers),
            body=sent.body.decode(),
        )
    )


async def _body(request: Request) -> Response:
    """Return the body of a dispatch to the byte, and nothing else; its digest is verified."""
    manifest = await _dispatched(request)
    sent = await verified_request(engine_of(request).world, manifest)
    return Response(sent.body, media_type=BYTES)


async def _dispatched(request: Request) -> Manifest:
    """Return the manifest that is meant: the one named, or the newest that was sent."""
    view = view_of(request)
    run = await view.run(request.path_params["run"])
    named = queried(request, OfDispatch).dispatch
    if named is not None:
        manifest = await view.operation(named)
        if manifest.run != run.id:
            raise NotFound("This dispatch belongs to another run.", at=named)
        return manifest
    return await newest_sent(engine_of(request).world, run.id)


async def _outputs(request: Request) -> Response:
    """Bring the results that a waiting run waits for; the same ones again change nothing."""
    run = await view_of(request).run(request.path_params["run"])
    brought = await decoded(request, Outputs)
    outputs: dict[str, Output] = {}
    for result in brought.outputs:
        if result.call_id in outputs:
            raise Conflict(
                "This call is answered twice.", code="duplicate_tool_result", at=result.call_id
            )
        outputs[result.call_id] = Output(text=result.output, error=result.error, code=result.code)
    row = await engine_of(request).answer(run.conversation, RunId(run.id), outputs)
    return answer(row, 202)


routes: Final = [
    Endpoint("GET", ONE, _get, answer=Explanation),
    Endpoint("GET", ONE + "/events", _events, answer=History),
    Endpoint("POST", ONE + "/cancel", _cancel, body=Cancel, answer=Run),
    Endpoint("GET", ONE + "/plan", _plan, query=OfDispatch, answer=PlanTold),
    Endpoint("GET", ONE + "/request", _request, query=OfDispatch, answer=Sent),
    Endpoint("GET", ONE + "/request/body", _body, query=OfDispatch, answer=bytes, media_type=BYTES),
    Endpoint("POST", ONE + "/outputs", _outputs, body=Outputs, answer=Run, status=202),
]
