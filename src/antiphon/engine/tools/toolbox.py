"""All tools that this process can run: functions, and what its MCP servers offer at the moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from antiphon.engine.ports import Clock
from antiphon.engine.tools.function import Function
from antiphon.engine.tools.mcp.servers import McpServer
from antiphon.errors import InvalidInput

if TYPE_CHECKING:
    from antiphon.engine.tools.mcp.connection import Connection


class Toolbox(Mapping[str, Function]):
    """Functions by name. What a server offers comes and goes with its list; functions stay."""

    def __init__(
        self, functions: Iterable[Function], connections: Iterable[Connection] = ()
    ) -> None:
        self._functions = {function.name: function for function in functions}
        self.connections = tuple(connections)

    def on_coming(self, listener: Callable[[], None]) -> None:
        """Call `listener` on the event loop each time that a server and its tools have come."""
        for connection in self.connections:
            connection.coming.append(listener)

    def __getitem__(self, name: str) -> Function:
        found = self._functions.get(name)
        if found is not None:
            return found
        for connection in self.connections:
            if name in connection.tools:
                return connection.tools[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        yield from self._functions
        for connection in self.connections:
            yield from (name for name in connection.tools if name not in self._functions)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def missing(self) -> dict[str, str]:
        """Return why each server that is not there is not, by its name."""
        return {one.name: one.problem for one in self.connections if one.problem is not None}

    def told(self) -> list[str]:
        """Return each server with how many tools it offers, or why it is not there."""
        return [
            f"{one.name}: {one.problem or f'{len(one.tools)} tools'}" for one in self.connections
        ]


@asynccontextmanager
async def open_toolbox(
    functions: Iterable[Function], servers: Mapping[str, McpServer], clock: Clock
) -> AsyncIterator[Toolbox]:
    """Hold the servers while open; each is there, or has failed once, when this yields.

    Raises:
        InvalidInput: `extra_missing`: servers are configured and the MCP SDK is not installed.
    """
    if not servers:
        yield Toolbox(functions)
        return
    # Importing the SDK takes its time: nobody else on the event loop waits for that.
    connection = await asyncio.to_thread(_connection_type)
    connections = [connection(name, server, clock) for name, server in servers.items()]
    try:
        await asyncio.gather(*(one.start() for one in connections))
        yield Toolbox(functions, connections)
    finally:
        await asyncio.gather(*(one.close() for one in connections))


def _connection_type() -> type[Connection]:
    try:
        from antiphon.engine.tools.mcp.connection import Connection
    except ImportError:
        raise InvalidInput(
            "MCP servers need the extra: pip install 'antiphon[mcp]'.",
            code="extra_missing",
            at="mcp",
        ) from None
    return Connection
