"""Runs: where one stands, what was sent for it, its cancel, the results that it waits for."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from antiphon.core.records import Run
from antiphon.engine.explain import Explanation, explain
from antiphon.server.body import Body, answer, decoded, engine_of
from antiphon.server.endpoints import Endpoint
from antiphon.server.scope import view_of

ONE: Final = "/antiphon/v1/runs/{run}"


class Cancel(Body, frozen=True, kw_only=True):
    """Why a run is canceled; the reason becomes its error code."""

    reason: str = "canceled"


async def _get(request: Request) -> Response:
    """Return a run with its operations, every attempt at them, and its calls."""
    run = await view_of(request).run(request.path_params["run"])
    return answer(await explain(engine_of(request).world, run.id))


async def _cancel(request: Request) -> Response:
    """Cancel a run, in whatever state it is; for one that has ended nothing changes."""
    run = await view_of(request).run(request.path_params["run"])
    cancel = await decoded(request, Cancel)
    row = await engine_of(request).cancel(run.conversation, run.id, reason=cancel.reason)
    return answer(row)


routes: Final = [
    Endpoint("GET", ONE, _get, answer=Explanation),
    Endpoint("POST", ONE + "/cancel", _cancel, body=Cancel, answer=Run),
]
