"""The application: every API's routes over one engine, inside the layers that all of them share."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from antiphon.engine.engine import Engine
from antiphon.server import (
    console,
    conversations,
    doors,
    files,
    health,
    metrics,
    models,
    nodes,
    resources,
    responses,
    uistream,
)
from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.describing.openapi import PATH as DOCUMENT
from antiphon.server.describing.openapi import document
from antiphon.server.http.body import answer
from antiphon.server.http.edge import Edge
from antiphon.server.http.faults import Faults
from antiphon.server.http.limits import LOOPBACK, Limits
from antiphon.server.http.sse import Streams
from antiphon.server.rights.admission import Admission
from antiphon.server.rights.principals import Keyring, Principals


def endpoints() -> list[Endpoint]:
    """Return every endpoint there is, of every API."""
    routes: list[Endpoint] = [
        *health.routes,
        *metrics.routes,
        *resources.routes,
        *models.routes,
        *responses.routes,
        *conversations.routes,
        *files.routes,
        *doors.routes,
        *uistream.routes,
    ]

    async def describe(request: Request) -> Response:
        """Return this document."""
        return answer(document(routes))

    routes.append(Endpoint("GET", DOCUMENT, describe, answer=dict[str, Any]))
    return routes


class Application(Starlette):
    """The routes inside our own layers and no others: each would be passed by every piece of a stream."""

    def build_middleware_stack(self) -> ASGIApp:
        """Return the layers around the routes; what goes wrong in any, `Faults` answers."""
        app: ASGIApp = Direct(self.router)
        for layer, args, kwargs in reversed(self.user_middleware):
            app = layer(app, *args, **kwargs)
        return app


class Direct:
    """Finds a path that is written out by itself, and asks the routes one by one only about others."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._known = {
            (method, route.path): route
            for route in reversed(router.routes)  # the first of two counts
            if isinstance(route, Endpoint) and not route.param_convertors
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by the route that the path names."""
        named = scope["type"] == "http" and not scope.get("root_path")
        route = self._known.get((scope["method"], scope["path"])) if named else None
        if route is None:
            await self._router(scope, receive, send)
        else:
            await route.handle(scope, receive, send)


def build(engine: Engine, keyring: Keyring | None = None) -> Starlette:
    """Return the application over a started engine; opening and closing it is the caller's.

    Without a keyring, or with an empty one, whoever asks is the local owner.

    `app.state.streams.close()` ends every open stream in good order.
    """
    settings = engine.world.settings
    keyring = keyring or Keyring(engine.world)
    engine.shared.append(keyring.reload)
    counts = metrics.Metrics(engine.world)
    routes = endpoints()
    app = Application(
        routes=[*routes, *nodes.routes, *console.routes],
        middleware=[
            # The outermost first: what is refused by one is answered by those around it.
            Middleware(Edge, new_id=engine.world.new_id, metrics=counts),
            Middleware(Faults, refused=counts.refused),
            Middleware(
                Limits,
                max_body_bytes=settings.max_body_bytes,
                body_timeout_s=settings.body_timeout_s,
                # A key protects better than a name, and who listens wider has more than one.
                forms=frozenset({files.PATH}),
                hosts=None if not keyring.empty else LOOPBACK | {settings.host},
            ),
            Middleware(Principals, keyring=keyring),
        ],
    )
    app.state.engine = engine
    app.state.keyring = keyring
    app.state.admission = Admission(engine.world)
    app.state.metrics = counts
    app.state.readiness = health.Readiness(engine.world)
    app.state.streams = Streams()
    return app
