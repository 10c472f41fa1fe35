"""What a request may be before anybody reads it: from where, of which kind, how large, how slow.

A browser on this machine may be told by any page to talk to a loopback server. Where no key
protects it, the name in `Host` and the page in `Origin` have to be this machine's own, and a
body has to be declared JSON, which a page of somebody else cannot do without asking first.
"""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from antiphon.errors import Forbidden, InvalidInput

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})

DISCARDED_BYTES: Final = 64 * 1024
"""As much of a body that is refused by its kind is read, so that its sender can read why."""


class Limits:
    """Refuses what may not come in, and reads the rest within its limits."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        max_body_bytes: int,
        body_timeout_s: float,
        hosts: frozenset[str] | None,
        forms: frozenset[str] = frozenset(),
    ) -> None:
        """Make the layer.

        Args:
            app: What is further in.
            max_body_bytes: Largest body.
            body_timeout_s: Longest time from the first look at the body to its end.
            hosts: Names by which this server may be called; None for any.
            forms: Paths that take a form with a file. A page of any origin may send one without
                asking first, but it says its origin.
        """
        self._app = app
        self._max_body_bytes = max_body_bytes
        self._body_timeout_s = body_timeout_s
        self._hosts = hosts
        self._forms = forms

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer within, where the request may come in."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        self._check_names(headers)
        receive = self._within(receive)
        try:
            self._check_body(headers, form=scope["path"] in self._forms)
        except InvalidInput as error:
            if error.code in ("not_json", "encoding_not_supported"):
                await _discard(receive)
            raise
        await self._app(scope, receive, send)

    def _check_names(self, headers: Headers) -> None:
        if self._hosts is None:
            return
        host = headers.get("host", "")
        if _name(f"//{host}") not in self._hosts:
            raise InvalidInput(
                "This server answers only to the names of its own machine, such as localhost, until "
                "it has a key: antiphon keys create.",
                code="host_not_allowed",
                at=host[:80],
            )
        origin = headers.get("origin")
        if origin is not None and _name(origin) not in self._hosts:
            raise Forbidden(
                "A page of another origin may not talk to a server without a key.",
                code="origin_not_allowed",
                at=origin[:80],
            )

    def _check_body(self, headers: Headers, *, form: bool) -> None:
        length = headers.get("content-length", "0")
        if length == "0" and "transfer-encoding" not in headers:
            return
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        wanted = "multipart/form-data" if form else "application/json"
        if kind != wanted:
            raise InvalidInput(
                f"A body has to come with content-type: {wanted}.",
                code="not_json",
                at=kind[:80] or None,
            )
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding != "identity":
            raise InvalidInput(
                "A body comes as it is: what is compressed has no size before it is read.",
                code="encoding_not_supported",
                at=encoding[:80],
            )
        if length.isdigit() and int(length) > self._max_body_bytes:
            raise self._too_large()

    def _within(self, receive: Receive) -> Receive:
        loop = asyncio.get_running_loop()
        read, ends_at, whole = 0, 0.0, False

        async def limited() -> Message:
            nonlocal read, ends_at, whole
            if whole:
                return await receive()
            ends_at = ends_at or loop.time() + self._body_timeout_s
            try:
                async with asyncio.timeout_at(ends_at):
                    message = await receive()
            except TimeoutError:
                raise InvalidInput(
                    "The body did not come within its time.", code="body_timeout", retryable=True
                ) from None
            read += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if read > self._max_body_bytes:
                raise self._too_large()
            return message

        return limited

    def _too_large(self) -> InvalidInput:
        return InvalidInput(
            f"The body is larger than {self._max_body_bytes} bytes.", code="body_too_large"
        )


async def _discard(receive: Receive) -> None:
    """Read a small body to its end, and throw it away.

    A connection that is closed with bytes unread is reset, and the reset may overtake the answer.
    """
    read, more = 0, True
    while more and read < DISCARDED_BYTES:
        message = await receive()
        read += len(message.get("body", b""))
        more = message.get("more_body", False)


def _name(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None
