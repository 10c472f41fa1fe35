"""The outermost layer: every request has an id, a line in the log, and counts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from antiphon.server.metrics import Metrics

log = logging.getLogger("antiphon.server.requests")

NOWHERE = "none"
"""The route of a request that found none: its path may be anything, and goes in no label."""


class Edge:
    """Gives each request its id, and tells what became of it without telling what it held."""

    def __init__(self, app: ASGIApp, *, new_id: Callable[[str], str], metrics: Metrics) -> None:
        self._app = app
        self._new_id = new_id
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer within."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        request_id = state["request_id"] = self._new_id("req_")
        clock = asyncio.get_running_loop().time
        began, status, streams, sent, whole = clock(), 0, False, 0, False

        async def named(message: Message) -> None:
            nonlocal status, streams, sent, whole
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message["headers"]
                streams = any(
                    name == b"content-type" and b"event-stream" in value for name, value in headers
                )
                message["headers"] = [*headers, (b"x-request-id", request_id.encode())]
            else:
                sent += len(message.get("body", b""))
                whole = not message.get("more_body", False)
            await send(message)

        try:
            await self._app(scope, receive, named)
        finally:
            seconds = clock() - began
            route = state.get("route", NOWHERE)
            self._metrics.answered(scope["method"], route, status, None if streams else seconds)
            principal = state.get("principal")
            fields = {
                "request_id": request_id,
                "method": scope["method"],
                "route": route,
                "status": status,
                "ms": round(seconds * 1000, 1),
                "bytes": sent,
                "principal": getattr(principal, "id", None),
                "whole": whole,
            }
            log.info("request", extra={"fields": fields})
