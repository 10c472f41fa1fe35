"""The outermost layer: every request has an id, in its answer and in the log."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Edge:
    """Gives each request its id."""

    def __init__(self, app: ASGIApp, *, new_id: Callable[[str], str]) -> None:
        self._app = app
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer within."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = self._new_id("req_")
        scope.setdefault("state", {})["request_id"] = request_id

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    (b"x-request-id", request_id.encode()),
                ]
            await send(message)

        await self._app(scope, receive, named)
