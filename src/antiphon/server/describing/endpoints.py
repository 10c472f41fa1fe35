"""Routes that can describe themselves: what they take, what they answer, what right they need."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from antiphon.core.traffic.keys import Right
from antiphon.server.rights.admission import Admission
from antiphon.server.rights.principals import principal_of

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


class Endpoint(Route):
    """One method of one path. The OpenAPI document is made of these.

    Attributes:
        method: The HTTP method.
        handler: What answers; its docstring describes the endpoint to users.
        answer: The type of the answer's body; None where it has none.
        body: The type of the request's body; None where it has none.
        query: The type of its query.
        status: The status of success.
        media_type: The kind of the answer, where it is not JSON.
        starts: Whether it starts a run, so that an `Idempotency-Key` makes it safe to repeat.
        right: What a key must be allowed to do.
        public: Whether it is answered to anybody.
    """

    def __init__(
        self,
        method: str,
        path: str,
        handler: Handler,
        *,
        answer: Any = None,  # noqa: ANN401 - a type, or a union of types
        body: Any = None,  # noqa: ANN401
        query: type[msgspec.Struct] | None = None,
        status: int = 200,
        media_type: str = "application/json",
        starts: bool = False,
        right: Right | None = None,
        public: bool = False,
    ) -> None:
        super().__init__(path, handler, methods=[method])
        self.method = method
        self.handler = handler
        self.answer = answer
        self.body = body
        self.query = query
        self.status = status
        self.media_type = media_type
        self.starts = starts
        self.public = public
        self.right = right or (Right.READ if method == "GET" else Right.WRITE)

    @property
    def needs_body(self) -> bool:
        """Whether there is a field that every body has to have."""
        return self.body is not None and any(
            field.required for field in msgspec.structs.fields(self.body)
        )

    @property
    def summary(self) -> str:
        """What it does, in one sentence."""
        return (inspect.getdoc(self.handler) or "").partition("\n")[0]

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, where whoever asks may do this."""
        scope.setdefault("state", {})["route"] = self.path
        if self.public or scope["method"] not in (self.methods or ()):
            await self._answered(scope, receive, send)
            return
        asking = HTTPConnection(scope)
        who = principal_of(asking)
        who.require(self.right)
        if not self.starts:
            await self._answered(scope, receive, send)
            return
        admission = asking.app.state.admission
        assert isinstance(admission, Admission)
        async with admission.admitted(who):
            await self._answered(scope, receive, send)

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)  # which says what the path takes
            return
        response = await self.handler(Request(scope, receive, send))
        await response(scope, receive, send)
