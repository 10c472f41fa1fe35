"""Requests to a server: sent, answered, sent again only where that cannot do a thing twice.

What an application is told is what the library would have told it: the server's errors come back
as the classes that they were. Nothing here follows a redirect, so a key goes to nobody but the
server that it was given for.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec

from antiphon import __version__
from antiphon.core.rules.findings import Finding
from antiphon.errors import (
    AntiphonError,
    Conflict,
    DigestMismatch,
    Forbidden,
    InternalError,
    InvalidInput,
    NotDurable,
    NotFound,
    OutcomeUnknown,
    ProviderFailed,
    Refused,
    SequenceRejected,
    ServerUnavailable,
    StoreError,
    Unauthorized,
)

T = TypeVar("T")

FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a client bears what may pass.

    Attributes:
        total_s: Without any answer for so long, it gives up.
        answer_s: A request that takes longer is sent again, where it may be.
        silence_s: A stream that says nothing for so long is broken; a server says every 15 s that
            it lives.
    """

    total_s: float = 60.0
    answer_s: float = 30.0
    silence_s: float = 40.0


class Pause:
    """Pauses between tries: none, then growing, with some chance in them, so that no two march."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def seconds(self) -> float:
        """Return how long to wait now."""
        pause_s = self._next_s * random.uniform(0.5, 1.0)  # noqa: S311 - no secret hangs on it
        self._next_s = min(LONGEST_PAUSE_S, 2 * self._next_s) or FIRST_PAUSE_S
        return pause_s

    def reset(self) -> None:
        """Begin anew: something has come."""
        self._next_s = 0.0


class Lost(Exception):
    """A try came to nothing, and another may not. `sent`: a byte of it may have arrived."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.sent = sent


class Wire:
    """One server, and the connections to it. Opened and closed by `antiphon.client.open`."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, *, key: str | None, patience: Patience
    ) -> None:
        self._session = session
        self._url = url.rstrip("/")
        self._headers = {"user-agent": f"antiphon/{__version__}"}
        if key is not None:
            self._headers["authorization"] = f"Bearer {key}"
        self.patience = patience

    async def get(self, path: str, kind: type[T], **query: str | int | None) -> T:
        """Return what stands at `path`."""
        asked = {name: str(value) for name, value in query.items() if value is not None}
        return _read(await self.call("GET", path, query=asked), kind)

    async def change(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        kind: type[T],
        *,
        key: str | None = None,
        alone: bool = False,
        again: bool = True,
        **query: str | None,
    ) -> T:
        """Carry out a change and return what the server made of it.

        Args:
            method: The HTTP method.
            path: Where.
            body: What is sent as JSON.
            kind: What comes back.
            key: The idempotency key; the same one with every try.
            alone: Whether a run is to be refused, instead of queued, where another one works.
            again: Whether it may be sent again when nobody knows whether it arrived: with a key,
                an id of ours in it, or where doing it twice is doing it once.
            query: What follows the path.
        """
        asked = {name: value for name, value in query.items() if value is not None}
        headers = {"content-type": "application/json"}
        if key is not None:
            headers["idempotency-key"] = key
        if alone:
            headers["antiphon-when-busy"] = "refuse"
        data = msgspec.json.encode(body or {})
        return _read(
            await self.call(method, path, data, query=asked, headers=headers, again=again), kind
        )

    async def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        again: bool = True,
    ) -> bytes:
        """Return the body of the answer to one request, however many tries it takes.

        Raises:
            ServerUnavailable: No answer came in the time that patience gives.
            AntiphonError: What the server says; nothing was changed.
        """
        loop, pause = asyncio.get_running_loop(), Pause()
        until = loop.time() + self.patience.total_s
        while True:
            try:
                async with self.answered(
                    method, path, body, query=query, headers=headers
                ) as answer:
                    return await answer.read()
            except (Lost, aiohttp.ClientError, TimeoutError) as error:
                lost = error if isinstance(error, Lost) else lost_by(error)
            pause_s = pause.seconds()
            if (lost.sent and not again) or loop.time() + pause_s > until:
                raise self.unavailable(lost)
            await asyncio.sleep(pause_s)

    @asynccontextmanager
    async def answered(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        streamed: bool = False,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Give the answer to one request that was sent once, its body unread.

        Raises:
            Lost: None came, or one that says that another try may have better luck.
            AntiphonError: What the server says.
        """
        bounds = (
            aiohttp.ClientTimeout(sock_connect=10, sock_read=self.patience.silence_s)
            if streamed
            else aiohttp.ClientTimeout(sock_connect=10, total=self.patience.answer_s)
        )
        try:
            answer = await self._session.request(
                method,
                self._url + path,
                params=query,
                data=body,
                headers={**self._headers, **(headers or {})},
                timeout=bounds,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, TimeoutError) as error:
            lost = lost_by(error)
        else:
            async with answer:
                if answer.ok and not 300 <= answer.status < 400:
                    yield answer
                    return
                raise _told(answer, await answer.read())
        raise lost

    def unavailable(self, lost: Lost) -> ServerUnavailable:
        """Return the error for those who have waited long enough."""
        return ServerUnavailable(f"The server does not answer: {lost.reason}.", at=self._url)


def lost_by(error: Exception) -> Lost:
    """Return what a failure of the network comes to. Its words are not looked at, only its kind."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return Lost("no connection", sent=False)
    if isinstance(error, TimeoutError):
        return Lost("nothing came for too long", sent=True)
    return Lost("the connection broke", sent=True)


def base_url(url: str) -> str:
    """Return `url` if it may be a server's.

    Raises:
        InvalidInput: `bad_url`.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        usable = usable and not (parts.query or parts.fragment or parts.username)
    except ValueError:
        usable = False
    if not usable:
        raise InvalidInput(
            "A server's address is like http://127.0.0.1:8000.", code="bad_url", at=url[:200]
        )
    return url


def _read(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        problem = str(error)
    raise not_antiphon(problem)


def not_antiphon(problem: str) -> ServerUnavailable:
    """Return the error for what is no answer that this release can read."""
    return ServerUnavailable(
        f"What answers there does not speak as this release does: {problem}.",
        code="not_antiphon",
        retryable=False,
    )


# Errors, as they were.


class _Error(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str
    at: str | None = None
    retryable: bool = False
    findings: tuple[Finding, ...] = ()


class _ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    error: _Error


_OF_CODE: Final[Mapping[str, type[AntiphonError]]] = {
    "missing_tool_result": Conflict,
    "orphan_tool_result": Conflict,
    "duplicate_tool_result": Conflict,
    "content_missing": DigestMismatch,
    # Of these it is not always known that nothing was kept.
    "database_unreachable": StoreError,
    "too_many_connections": StoreError,
    "store_busy": StoreError,
    "commit_unknown": StoreError,
}

_OF_STATUS: Final[Mapping[int, type[AntiphonError]]] = {
    400: Refused,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    424: OutcomeUnknown,
    429: Conflict,
    500: InternalError,
    502: ProviderFailed,
    503: NotDurable,
}


def _told(answer: aiohttp.ClientResponse, data: bytes) -> AntiphonError | Lost:
    """Return what an answer other than success says."""
    try:
        told = msgspec.json.decode(data, type=_ErrorBody).error
    except msgspec.DecodeError:
        if answer.status in (502, 503, 504):
            return Lost(f"something before it answers {answer.status}", sent=True)
        return not_antiphon(f"it answers {answer.status}")
    if answer.status == 503 and told.retryable:
        return Lost(told.message, sent=False)  # it says that nothing was written
    if told.findings:
        return SequenceRejected(told.findings)
    kind = _OF_CODE.get(told.code) or _OF_STATUS.get(answer.status, Refused)
    return kind(told.message, code=told.code, at=told.at, retryable=told.retryable)
