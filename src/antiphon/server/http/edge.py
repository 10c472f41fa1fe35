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


class Answering:
    """The way of an answer to its client, and what of it has gone there.

    One for all layers: each that looks at the messages by itself would cost every piece of every
    stream its time.
    """

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._name = (b"x-request-id", request_id.encode())
        self.status = 0
        self.streams = False
        self.sent_bytes = 0
        self.whole = False

    @property
    def begun(self) -> bool:
        """Whether it can be no other answer any more."""
        return self.status != 0

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = message["headers"]
            self.streams = any(
                name == b"content-type" and b"event-stream" in value for name, value in headers
            )
            message["headers"] = [*headers, self._name]
        else:
            self.sent_bytes += len(message.get("body", b""))
            self.whole = not message.get("more_body", False)
        await self._send(message)


def answering(scope: Scope) -> Answering:
    """Return what has gone out of the answer to a request."""
    found = scope["state"]["answering"]
    assert isinstance(found, Answering)
    return found


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
        answer = state["answering"] = Answering(send, request_id)
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            await self._app(scope, receive, answer.send)
        finally:
            seconds = clock() - began
            route = state.get("route", NOWHERE)
            self._metrics.answered(
                scope["method"], route, answer.status, None if answer.streams else seconds
            )
            principal = state.get("principal")
            fields = {
                "request_id": request_id,
                "method": scope["method"],
                "route": route,
                "status": answer.status,
                "ms": round(seconds * 1000, 1),
                "bytes": answer.sent_bytes,
                "principal": getattr(principal, "id", None),
                "whole": answer.whole,
            }
            log.info("request", extra={"fields": fields})
