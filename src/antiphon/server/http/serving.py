"""One process that serves: sockets, signals, and an end that loses nothing.

A server that is told to stop takes no further connection and begins no further run; what is in
flight has `drain_s` to come to its end. What has not is recorded as every close records it, and
the next start settles it. Told a second time, it stops at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import signal
import socket
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from typing import Final

import uvicorn
from starlette.applications import Starlette

from antiphon.engine.settings import Settings
from antiphon.errors import InvalidInput
from antiphon.server.http.protocol import Connection
from antiphon.server.rights.principals import Keyring

BACKLOG: Final = 1024

NEW_OBJECTS: Final = 100_000
"""After how many the collector looks through them; by itself it would after 700.

More than some hundred requests under way hold together: else every wave of requests is looked
through while it is at work, and a twelfth of what a call costs goes into finding nothing.
"""


def listen(settings: Settings) -> socket.socket:
    """Return a socket that listens where the settings say.

    Raises:
        InvalidInput: `address_in_use`, or an address that this machine does not have.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # Only where a socket says its protocol does asyncio send at once what is written: else the first
    # words of a stream wait for the client's word on its headers, which comes 40 ms late.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        problem = error.strerror or str(error)
        elsewhere = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
    else:
        listener.setblocking(False)
        return listener
    raise InvalidInput(
        f"The server cannot listen there: {problem}. "
        + (
            "--host takes a name of this machine." if elsewhere else "--port 0 takes any free port."
        ),
        code="address_unusable",
        at=f"{settings.host}:{settings.port}",
    )


def may_listen(listener: socket.socket, keyring: Keyring) -> None:
    """Refuse to be reachable from other machines by anybody who likes.

    Raises:
        InvalidInput: `key_required`, and how to make one.
    """
    host = listener.getsockname()[0]
    if keyring.empty and not ip_address(host).is_loopback:
        raise InvalidInput(
            "Others could reach this server, and no key is defined. Make one first: "
            "antiphon keys create --name NAME --right all",
            code="key_required",
            at=host,
        )


def url_of(listener: socket.socket) -> str:
    """Return the address by which this machine reaches the server."""
    host, port = listener.getsockname()[:2]
    reach = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - what others bind to is told, not bound
    return f"http://[{reach}]:{port}" if ":" in reach else f"http://{reach}:{port}"


async def serve(
    app: Starlette,
    listener: socket.socket,
    *,
    stop: asyncio.Event,
    started: Callable[[], None] = lambda: None,
) -> None:
    """Serve `app` on `listener` until `stop` is set; then let what is in flight end."""
    engine = app.state.engine
    settings: Settings = engine.world.settings

    class Patient(Connection):
        head_timeout_s = settings.body_timeout_s

    server = _Server(
        uvicorn.Config(
            app,
            http=Patient,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # nothing here asks where a request came from
            timeout_keep_alive=75,
            timeout_graceful_shutdown=None,
        )
    )
    work = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    stopping = asyncio.create_task(stop.wait())
    try:
        listening = asyncio.create_task(server.listening.wait())
        await asyncio.wait({work, listening}, return_when=asyncio.FIRST_COMPLETED)
        listening.cancel()
        if server.started:
            started()
        with seldom_collected():
            await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await engine.drain(settings.drain_s)
        app.state.streams.close()
        await asyncio.wait({work}, timeout=LAST_ANSWERS_S)
        server.force_exit = True
        await work
    finally:
        stopping.cancel()
        work.cancel()
        await asyncio.gather(work, stopping, return_exceptions=True)


LAST_ANSWERS_S: Final = 5.0
"""How long the last answers have to reach their readers once everything has been decided."""


@contextlib.contextmanager
def seldom_collected() -> Iterator[None]:
    """Let the collector look for circles seldom, and not at all in what was there before.

    What a request makes goes when it is let go of; circles are few.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


class _Server(uvicorn.Server):
    """Uvicorn without its own idea of signals."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def told_to_stop() -> Iterator[asyncio.Event]:
    """Give an event that SIGINT and SIGTERM set; the second of them ends the program's main task."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    main = asyncio.current_task()

    def told() -> None:
        if stop.is_set() and main is not None:
            main.cancel()
        stop.set()

    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, told)
    try:
        yield stop
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
