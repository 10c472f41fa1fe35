"""One HTTP request, sent once, with an honest account of whether it left.

What the dispatch table does next depends on one fact that HTTP clients like to hide: could a
byte of this request have reached the provider? Here `on_written` is called immediately before
the first byte may leave, a failure before that point is `NotSent`, and any failure after it
is `Cut`. Nothing is repeated behind the caller's back: no redirect, no retry, and not the
silent second try that clients give to a request on a connection found dead.

This module does not know what a provider's answer means, and it has no timeout but the one
for connecting: how long to wait for an answer is the engine's decision.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast
from urllib.parse import urlsplit

from antiphon.engine.catalogue.models import LOCAL_HOST, REHEARSAL_HOST
from antiphon.engine.ports import Cut, NotSent

if TYPE_CHECKING:
    # The client takes a quarter of a second to import, which `antiphon --help` need not pay.
    import aiohttp
    from aiohttp.abc import AbstractResolver, ResolveResult
    from aiohttp.client_reqrep import ClientRequest, ClientResponse

    from antiphon.core.manifest import WireRequest
    from antiphon.engine.settings import Settings

Address: TypeAlias = tuple[str, int]


class OwnServer(Protocol):
    """A server of our own on this machine, such as the rehearsal model's."""

    async def address(self) -> Address:
        """Return where it listens, having started it where it was not running."""

    async def close(self) -> None:
        """Stop it, where it is running."""


KEY_HEADERS: Final = frozenset({"authorization", "api-key", "x-api-key", "x-goog-api-key"})
"""Where a dialect may want its key: it renders the header empty, and the key is put there."""

SLICE_BYTES: Final = 64 * 1024
"""The most that is handed to the socket at once: hanging up stops what was not handed over."""

KEEPALIVE_S: Final = 4.0
"""How long an idle connection is kept: less than the 5 s after which common servers close.

A request that meets a server's closing connection has an unknown outcome, which costs a person's
attention; a handshake costs a tenth of a second.
"""

MAX_LINE_BYTES: Final = 32 * 1024
MAX_HEADERS: Final = 256


class HttpTransport:
    """Sends requests over HTTP/1.1, with connections kept for the next step of a tool loop.

    `hosts` gives names to servers of our own, `{REHEARSAL_HOST: RehearsalServer()}`: they are
    started when first needed and closed with the transport, and the name stands in the request
    and its digest whatever port they were given. `trust_env` takes proxies from the environment.
    """

    def __init__(
        self,
        *,
        hosts: Mapping[str, OwnServer] | None = None,
        trust_env: bool = False,
        keepalive_s: float = KEEPALIVE_S,
    ) -> None:
        import antiphon.engine.edge.leaving  # noqa: F401  # it and the client: no request waits

        self._hosts = dict(hosts or {})
        self._addresses: dict[str, Address] = {}
        self._connector: aiohttp.TCPConnector | None = None
        self._trust_env = trust_env
        self._keepalive_s = keepalive_s
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def send(
        self,
        request: WireRequest,
        *,
        api_key: str | None,
        connect_timeout_s: float,
        on_written: Callable[[], None],
    ) -> HttpReply:
        """Send `request` once and return when the head of its answer is here.

        `on_written` runs immediately before the first byte may leave, and if it raises, none
        does. Canceling this call hangs up.

        Raises:
            NotSent: No byte left; `code` is `dns`, `connect`, `tls` or `connect_timeout`.
            Cut: Bytes may have left; `code` is `disconnected`, `reset` or `malformed`.
        """
        import aiohttp
        from yarl import URL

        from antiphon.engine.edge.leaving import LeavingRequest

        if self._closed:
            raise NotSent("connect", "The transport is closed.")
        host = urlsplit(request.url).hostname or ""
        await self._start(host)
        exchange = _Exchange(host, on_written)

        async def once(
            outgoing: ClientRequest, proceed: aiohttp.ClientHandlerType
        ) -> ClientResponse:
            # Our exceptions are none that the client would try again after, and they are raised
            # outside the handler because a chained exception would keep headers, key included.
            if api_key is not None:
                outgoing.headers.update([_key_header(request, api_key)])
            assert isinstance(outgoing, LeavingRequest)
            outgoing.on_leaving = exchange.leave
            failure: NotSent | Cut
            try:
                return await proceed(outgoing)
            except (aiohttp.ClientError, OSError) as exc:
                failure = exchange.failure(exc)
            raise failure

        try:
            response = await self._open().request(
                request.method,
                URL(request.url, encoded=True),  # the very characters that the digest covers
                headers=_headers(request),
                data=_body(request.chunks),
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, connect=connect_timeout_s),
                middlewares=(once,),
            )
        except aiohttp.ClientError:
            response = None  # it failed before `once` was asked
        if response is not None:
            if exchange.written:
                return HttpReply(response)
            response.close()
            raise exchange.unseen()
        raise NotSent("connect", "This address cannot be reached over HTTP.")

    async def close(self) -> None:
        """Close every connection, those with an answer under way too, and our own servers."""
        self._closed = True
        if self._session is not None:
            await self._session.close()
        for own in self._hosts.values():
            await own.close()

    async def _start(self, host: str) -> None:
        own = self._hosts.get(host)
        if own is None:
            return
        try:
            address = await own.address()
        except OSError as exc:
            message = f"{host} could not be started: {exc.strerror or exc}"
        else:
            if self._addresses.get(host) != address:  # started, or started anew on another port
                self._addresses[host] = address
                if self._connector is not None:
                    self._connector.clear_dns_cache()
            return
        raise NotSent("connect", message)

    def _open(self) -> aiohttp.ClientSession:
        """Return the client, made at the first request because it belongs to a running loop."""
        import aiohttp

        from antiphon.engine.edge.leaving import LeavingRequest

        if self._session is None:
            self._connector = aiohttp.TCPConnector(
                limit=0,  # how many run at once is decided where runs are claimed
                keepalive_timeout=self._keepalive_s,
                resolver=cast("AbstractResolver", _Resolver(self._addresses)),
            )
            self._session = aiohttp.ClientSession(
                connector=self._connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("content-type",),
                headers={"user-agent": "antiphon"},
                trust_env=self._trust_env,
                max_line_size=MAX_LINE_BYTES,
                max_field_size=MAX_LINE_BYTES,
                max_headers=MAX_HEADERS,
                request_class=LeavingRequest,
            )
        return self._session


def open_transport(settings: Settings) -> HttpTransport:
    """Return the transport that `settings` describe, with the servers of our own that they name."""
    from antiphon.engine.edge.local_model import LocalServer
    from antiphon.engine.edge.rehearsal import RehearsalServer

    return HttpTransport(
        hosts={
            REHEARSAL_HOST: RehearsalServer(delay_s=settings.rehearsal_delay_s),
            LOCAL_HOST: LocalServer(),
        },
        trust_env=settings.trust_env,
    )


class HttpReply:
    """An answer from its head on; made by `HttpTransport.send`."""

    def __init__(self, response: ClientResponse) -> None:
        self._response = response
        self._body = _Body(response)

    @property
    def status(self) -> int:
        """HTTP status."""
        return self._response.status

    @property
    def headers(self) -> dict[str, str]:
        """Headers with lower-case names; of those that repeat, the last."""
        return {name.lower(): value for name, value in self._response.headers.items()}

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives, without transfer and content encoding.

        There is one body and one iterator, so a second call goes on where the first stopped, and
        a read that was canceled may be repeated: nothing is lost by it.

        Raises:
            Cut: The connection ended before the body did: `disconnected` or `reset` by the
                provider, `closed` here, or `malformed`, since what came cannot be decoded.
        """
        return self._body

    async def close(self) -> None:
        """Hang up unless the body has ended; afterwards nothing of it can reach us."""
        self._body.close()


class _Body:
    """The body as an iterator that survives the cancellation of a read."""

    def __init__(self, response: ClientResponse) -> None:
        import aiohttp

        self._failures = (aiohttp.ClientError, OSError)
        self._response = response
        self._content = response.content
        # What only the connection knows: a body without length looks the same whether it was
        # ended or reset, and framing that makes no sense ends the connection but not the read.
        connection = response.connection
        protocol = connection.protocol if connection is not None else None
        self._closed = protocol.closed if protocol is not None else None
        if self._closed is not None:
            self._closed.add_done_callback(self._connection_closed)
        self._open_ended = not {"content-length", "transfer-encoding"} & set(
            map(str.lower, response.headers)
        )
        self._nonsense = False
        self._closed_here = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        failure: Exception | None
        try:
            data = await self._content.readany()
            if data:
                return data
            failure = self._broken() if self._open_ended else None
        except self._failures as exc:
            failure = exc
        if failure is None:
            self._forget()
            raise StopAsyncIteration
        cut = self._cut(failure)
        self._response.close()
        self._forget()
        raise cut

    def close(self) -> None:
        self._closed_here = self._closed_here or not self._content.is_eof()
        self._response.close()
        self._forget()

    def _forget(self) -> None:
        """Let go of the connection: the next answer on it is not ours to watch.

        That it breaks while it is idle is no event, but asyncio complains on standard error of
        a failure at which nobody has looked.
        """
        if self._closed is not None:
            self._closed.remove_done_callback(self._connection_closed)
            self._closed.remove_done_callback(_noticed)  # of an answer before this one
            self._closed.add_done_callback(_noticed)

    def _broken(self) -> Exception | None:
        """Return what broke the connection, or None while it is open and after a proper close."""
        ended = self._closed is not None and self._closed.done()
        error = self._closed.exception() if ended and self._closed is not None else None
        return error if isinstance(error, Exception) else None

    def _connection_closed(self, closed: asyncio.Future[None]) -> None:
        import aiohttp

        broken = closed.exception()
        if not self._content.is_eof() and self._content.exception() is None:
            self._nonsense = broken is None
            self._content.set_exception(aiohttp.ClientPayloadError())

    def _cut(self, failure: Exception) -> Cut:
        host = self._response.url.host or ""
        ended = self._closed is not None and self._closed.done()
        if self._closed_here:
            return Cut("closed", f"The connection to {host} was closed here.")
        if self._nonsense or not ended:
            return Cut("malformed", f"{host} sent a body that cannot be decoded.")
        if isinstance(failure, ConnectionError) or self._broken() is not None:
            return Cut("reset", f"{host} broke the connection in the middle of its answer.")
        return Cut("disconnected", f"{host} closed the connection in the middle of its answer.")


def _noticed(closed: asyncio.Future[None]) -> None:
    closed.exception()


class _Exchange:
    """What is known of one request while it is being sent."""

    def __init__(self, host: str, on_written: Callable[[], None]) -> None:
        self._host = host
        self._on_written = on_written
        self.written = False

    def leave(self) -> None:
        """Note that from now on bytes may have left."""
        self._on_written()
        self.written = True

    def failure(self, exc: Exception) -> NotSent | Cut:
        """Return what this failure means for the caller, without anything of the request."""
        if self.written:
            return _cut(exc, self._host)
        return _not_sent(exc, self._host) if _is_of_connecting(exc) else self.unseen()

    def unseen(self) -> Cut:
        """Return what it means that bytes left which nobody saw leave: that was so, and no more."""
        self.leave()
        return Cut("unseen", "The HTTP client wrote a request without a word of it beforehand.")


def _is_of_connecting(exc: Exception) -> bool:
    """Whether a failure comes before there is a connection to write to, by its kind alone.

    That nothing was seen to leave is no proof: another release of the client may write otherwise.
    """
    import aiohttp

    return isinstance(
        exc,
        (
            aiohttp.ClientConnectorError,
            aiohttp.ClientHttpProxyError,
            aiohttp.ClientSSLError,
            aiohttp.ConnectionTimeoutError,
            aiohttp.ServerFingerprintMismatch,
        ),
    )


def _not_sent(exc: Exception, host: str) -> NotSent:
    import aiohttp

    match exc:
        case aiohttp.ClientConnectorDNSError():
            return NotSent("dns", f"The name {host} has no address.")
        case aiohttp.ClientSSLError() | aiohttp.ServerFingerprintMismatch():
            return NotSent("tls", f"No secure connection to {host}: {_reason(exc)}.")
        case TimeoutError():
            return NotSent("connect_timeout", f"{host} did not accept a connection in time.")
        case _:
            return NotSent("connect", f"No connection to {host}: {_reason(exc)}.")


def _cut(exc: Exception, host: str) -> Cut:
    import aiohttp

    match exc:
        case aiohttp.ClientResponseError():
            return Cut("malformed", f"{host} sent what is not HTTP, or a head longer than we read.")
        case aiohttp.ServerDisconnectedError():
            return Cut("disconnected", f"{host} closed the connection before it answered.")
        case _:
            return Cut("reset", f"The connection broke before {host} answered: {_reason(exc)}.")


def _reason(exc: Exception) -> str:
    """Return the system's or the TLS library's own words for it; never the client's text."""
    inner = getattr(exc, "os_error", None) or exc.__cause__ or exc
    return str(
        getattr(inner, "strerror", None) or getattr(inner, "reason", None) or type(inner).__name__
    )


def _key_header(request: WireRequest, api_key: str) -> tuple[str, str]:
    for name, value in request.headers:
        if name in KEY_HEADERS and value == "":
            return name, f"Bearer {api_key}" if name == "authorization" else api_key
    return "authorization", f"Bearer {api_key}"


def _headers(request: WireRequest) -> list[tuple[str, str]]:
    headers = [(name, value) for name, value in request.headers if value or name not in KEY_HEADERS]
    if request.chunks:
        headers.append(("content-length", str(sum(map(len, request.chunks)))))
    return headers


def _body(chunks: tuple[bytes, ...]) -> bytes | AsyncIterator[bytes | memoryview] | None:
    """Return the body as the client takes it: whole, or slice by slice where it is long."""
    if sum(map(len, chunks)) > SLICE_BYTES:
        return _slices(chunks)
    return b"".join(chunks) or None


async def _slices(chunks: tuple[bytes, ...]) -> AsyncIterator[bytes | memoryview]:
    """Yield the body in pieces that the socket takes one by one, without copying it whole."""
    for chunk in chunks:
        view = memoryview(chunk)
        for start in range(0, len(view), SLICE_BYTES):
            yield view[start : start + SLICE_BYTES]


class _Resolver:
    """Names of our own servers first, then the system's."""

    def __init__(self, own: Mapping[str, Address]) -> None:
        from aiohttp import DefaultResolver

        self._own = own
        self._system = DefaultResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        if host not in self._own:
            return await self._system.resolve(host, port, family)
        address, own_port = self._own[host]
        return [
            {
                "hostname": host,
                "host": address,
                "port": own_port,
                "family": socket.AF_INET,
                "proto": 0,
                "flags": socket.AI_NUMERICHOST,
            }
        ]

    async def close(self) -> None:
        await self._system.close()
