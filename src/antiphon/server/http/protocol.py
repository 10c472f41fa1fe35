"""The HTTP protocol of one connection, with the patience that a public socket needs."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

LINGER_S: Final = 5.0
"""How long a connection that is being closed may take what was written to it."""

CHUNKED: Final = b"\r\nTransfer-Encoding: chunked\r\n"


class Connection(H11Protocol):
    """Hangs up on who sends no request, and on who never reads the end of an answer."""

    head_timeout_s = 30.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as uvicorn calls it
        super().__init__(*args, **kwargs)
        self.conn = _Framing(h11.SERVER)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the head of a request."""
        super().connection_made(_Closing(transport, self.loop))  # type: ignore[arg-type]
        self._head_timer: asyncio.TimerHandle | None = None
        self._await_head()

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_timeout_s, self._no_head)

    def _no_head(self) -> None:
        self._head_timer = None
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            self.transport.abort()

    def handle_events(self) -> None:
        """Take what has come; a whole head ends the wait for one."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def data_received(self, data: bytes) -> None:
        """Take bytes; those of a further request are given their time as well."""
        cycle: RequestResponseCycle | None = self.cycle
        idle = cycle is not None and cycle.response_complete
        if idle and self._head_timer is None:
            self._await_head()
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        if self._head_timer is not None:
            self._head_timer.cancel()
        super().connection_lost(exc)


class _Framing(h11.Connection):
    """HTTP/1.1 as h11 knows it, but for the pieces of an answer without a length, and the head of others.

    Such a piece changes no state, and there is one for every word of every stream: the sixth part
    of what a word costs would be that h11 finds this out. Where the length is known, the body is
    there as well, and the head leaves with it: one packet, and one system call, instead of two.
    """

    _chunked = False  # whether the body that is being sent goes out in chunks
    _head: tuple[bytes, ...] = ()  # what waits for the body

    def send_with_data_passthrough(self, event: h11.Event) -> list[bytes] | None:
        """Return the bytes of an event, or None where the connection has to be closed."""
        if self._chunked and type(event) is h11.Data:
            size = len(event.data)
            return [b"%x\r\n" % size, event.data, b"\r\n"] if size else []
        data = super().send_with_data_passthrough(event)
        if data is None:
            return None
        if type(event) is not h11.Response:
            data, self._head = [*self._head, *data], ()
            self._chunked = False
            return data
        # A head says so itself, in a line of its own: no value of a header holds the end of one.
        self._chunked = CHUNKED in b"".join(data)
        if not self._chunked and any(name == b"content-length" for name, _ in event.headers):
            data, self._head = [], tuple(data)
        return data


class _Closing:
    """A transport whose `close` does not wait for ever for a reader that reads nothing."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self.write = transport.write

    def close(self) -> None:
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self._loop.call_later(LINGER_S, self._transport.abort)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a transport has
        return getattr(self._transport, name)
