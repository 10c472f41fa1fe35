"""The console: pages in a browser, made beforehand by `make web` and served as they are.

Every page is the same document; the script in it reads the address. It talks to the server as
any other client does, over `/antiphon/v1/`, so a page is public and what it shows is not.
Where nothing was built, a page written by hand takes its place (`fallback/`).
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from antiphon.errors import NotFound
from antiphon.server.console.site import Site

PAGES: Final = ("/", "/c/{conversation}", "/operations", "/keys")
"""Addresses of the console; the same ones are in `web/console/src/address.ts`."""


class Page(Route):
    """An address that a browser is sent to. It is no endpoint: no client is told of it."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, under the address's pattern in log and metrics."""
        scope.setdefault("state", {})["route"] = self.path
        await super().handle(scope, receive, send)


def pages(site: Site) -> list[Page]:
    """Return every address of `site`: the pages, and what they are made of."""

    async def page(request: Request) -> Response:
        return site.index.answer(request)

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        found = site.assets.get(name)
        if found is None:
            raise NotFound("The console has no such file.", at=name[:80])
        return found.answer(request)

    return [*(Page(path, page) for path in PAGES), Page("/assets/{name}", asset)]


routes: Final = pages(Site.built())
