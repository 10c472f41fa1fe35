"""Machines that can be cut from each other: network namespaces where we are root, else proxies.

Each node has three ways: to the database, to the other nodes, and to everything else (the provider,
its clients). A way that is cut says nothing to anybody: what is on it waits, as packets that are sent
again and again do, and arrives late when the way is open again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Literal, Protocol

End = Literal["database", "nodes"]
"""What a node can be cut from."""

PORT: Final = 8000


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where a node runs.

    Attributes:
        command: What its command line begins with.
        listen: Where it listens, as host and port.
        database: Host and port of the database, seen from there.
        provider: Host and port of the provider, seen from there.
        address: Where other nodes reach it.
    """

    command: tuple[str, ...]
    listen: tuple[str, int]
    database: tuple[str, int]
    provider: tuple[str, int]
    address: str


class Network(Protocol):
    """Two machines, and the ways between them."""

    kind: str

    async def machine(self, name: str) -> Machine:
        """Make a machine."""

    def listens(self, name: str, port: int) -> str:
        """Learn where the node on a machine listens; return where clients reach it."""

    async def cut(self, name: str, *ends: End) -> None:
        """Cut a machine from these."""

    async def heal(self, name: str) -> None:
        """Open all of its ways again."""


@dataclass(slots=True)
class Way:
    """Passes bytes on, for as long as it is open."""

    target: tuple[str, int]
    open: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there = None
        try:
            await self.open.wait()
            back, there = await asyncio.open_connection(*self.target)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, there))
                group.create_task(self._copy(back, writer))
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            pass  # whoever is at its ends sees it broken
        finally:
            self._tasks.discard(task)
            for end in filter(None, (there, writer)):
                end.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self.open.wait()
            writer.write(data)
            await writer.drain()
        await self.open.wait()
        raise ConnectionResetError  # one end has gone: so has the other

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def way(host: str, target: tuple[str, int]) -> AsyncIterator[tuple[Way, int]]:
    """Open a way to `target` at `host`; give it and its port."""
    made = Way(target)
    made.open.set()
    server = await asyncio.start_server(made.serve, host, 0)
    try:
        yield made, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await made.close()


@dataclass(slots=True)
class Proxies:
    """All on one machine; every way leads through a proxy that drops what it is told to."""

    stack: AsyncExitStack
    database: tuple[str, int]
    provider: tuple[str, int]
    kind: str = "a dropping proxy"
    _ways: dict[tuple[str, End], Way] = field(default_factory=dict)

    async def machine(self, name: str) -> Machine:
        here = "127.0.0.1"
        base, to_base = await self.stack.enter_async_context(way(here, self.database))
        node, to_node = await self.stack.enter_async_context(way(here, (here, 0)))
        self._ways |= {(name, "database"): base, (name, "nodes"): node}
        return Machine(
            command=(),
            listen=(here, 0),
            database=(here, to_base),
            provider=self.provider,
            address=f"http://{here}:{to_node}",
        )

    def listens(self, name: str, port: int) -> str:
        self._ways[name, "nodes"].target = ("127.0.0.1", port)
        return f"http://127.0.0.1:{port}"

    async def cut(self, name: str, *ends: End) -> None:
        for end in ends:
            self._ways[name, end].open.clear()

    async def heal(self, name: str) -> None:
        for (node, _), one in self._ways.items():
            if node == name:
                one.open.set()


@dataclass(slots=True)
class Namespaces:
    """Each machine is a network namespace of its own; to cut a way is to take its cable out."""

    stack: AsyncExitStack
    database: tuple[str, int]
    provider: tuple[str, int]
    kind: str = "network namespaces"
    _names: list[str] = field(default_factory=list)

    async def machine(self, name: str) -> Machine:
        number = len(self._names)
        assert number < 2, "the way between nodes is one cable"
        self._names.append(name)
        space = self._space(name)
        _ip("netns", "add", space)
        self.stack.callback(_ip, "netns", "del", space)
        _ip("-n", space, "link", "set", "lo", "up")
        for net, end in ((10 * number + 1, "database"), (10 * number + 2, "world")):
            _ip("link", "add", f"{space}{end[0]}", "type", "veth", "peer", end, "netns", space)
            _ip("addr", "add", f"10.213.{net}.1/30", "dev", f"{space}{end[0]}")
            _ip("link", "set", f"{space}{end[0]}", "up")
            self._up(space, end, f"10.213.{net}.2/30")
        if number:
            other = self._space(self._names[0])
            _ip(
                "-n", other, "link", "add", "nodes", "type", "veth", "peer", "nodes", "netns", space
            )
            self._up(other, "nodes", "10.213.99.1/30")
            self._up(space, "nodes", "10.213.99.2/30")
        base = f"10.213.{10 * number + 1}.1"
        world = f"10.213.{10 * number + 2}.1"
        _, to_base = await self.stack.enter_async_context(way(base, self.database))
        _, to_provider = await self.stack.enter_async_context(way(world, self.provider))
        return Machine(
            command=("ip", "netns", "exec", space),
            listen=("0.0.0.0", PORT),
            database=(base, to_base),
            provider=(world, to_provider),
            address=f"http://10.213.99.{number + 1}:{PORT}",
        )

    def listens(self, name: str, port: int) -> str:
        return f"http://10.213.{10 * self._names.index(name) + 2}.2:{port}"

    async def cut(self, name: str, *ends: End) -> None:
        for end in ends:
            self._far(name, end, "down")

    async def heal(self, name: str) -> None:
        self._far(name, "database", "up")
        self._far(name, "nodes", "up")

    def _far(self, name: str, end: End, state: str) -> None:
        """Take the cable out at its other end: here it still seems to lead somewhere."""
        space = self._space(name)
        if end == "database":
            _ip("link", "set", f"{space}d", state)
        else:
            (other,) = (one for one in self._names if one != name)
            _ip("-n", self._space(other), "link", "set", "nodes", state)

    def _space(self, name: str) -> str:
        return f"at{os.getpid() % 100_000}{self._names.index(name)}"

    @staticmethod
    def _up(space: str, device: str, address: str) -> None:
        _ip("-n", space, "addr", "add", address, "dev", device)
        _ip("-n", space, "link", "set", device, "up")


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stderr)


@cache
def namespaces() -> bool:
    """Whether this user may make network namespaces here."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    probe = f"at{os.getpid() % 100_000}x"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False)
    with contextlib.suppress(OSError):
        subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return made.returncode == 0


def networks() -> Sequence[type[Proxies] | type[Namespaces]]:
    """Return the kinds of network that can be made here, the real one first."""
    return (Namespaces, Proxies) if namespaces() else (Proxies,)
