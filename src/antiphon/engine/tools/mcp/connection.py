"""One MCP server: a connection that is made again when it breaks, and its tools as functions.

The official SDK speaks the protocol, both eras of it. What this adds is what the ledger needs: a
call that may have taken effect is never sent twice, and one that cannot have is told as that.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final, cast

from mcp import Client, MCPError, StdioServerParameters
from mcp.client import Transport
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    RequestParamsMeta,
    Tool,
)

from antiphon.core.blocks import ResultPart
from antiphon.engine.ports import Clock
from antiphon.engine.tools.function import (
    FateUnknown,
    Function,
    ToolContext,
    ToolError,
    as_json,
)
from antiphon.engine.tools.mcp.results import parts_of, texts_of
from antiphon.engine.tools.mcp.servers import Asking, McpServer
from antiphon.errors import InvalidInput

log = logging.getLogger("antiphon.tools")

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
START_S: Final = 20.0
"""Longest time in which a server has to start, agree on a protocol and list its tools."""

SIGN_OF_LIFE_S: Final = 5.0
"""Longest time in which a server whose last call was given up has to say that it is there."""

KEY: Final = "antiphon/idempotencyKey"
"""Under this name a call's metadata carry its idempotency key, for servers that honour one."""

MOST_TOOLS: Final = 1000
LONGEST_NAME: Final = 64
SESSION_GONE: Final = (INVALID_REQUEST, "Session terminated")
"""What the SDK makes of a server that knows our session no more: it was started again."""
NO_ANSWER: Final = (INTERNAL_ERROR, "Server returned an error response")
"""What the SDK makes of an HTTP error that is none of the server's own, as of a gateway before it."""
ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_-]")


class Connection:
    """Holds one server. `tools` are those it listed last, also while it is away."""

    def __init__(self, name: str, server: McpServer, clock: Clock) -> None:
        self.name = name
        self.tools: dict[str, Function] = {}
        self.coming: list[Callable[[], None]] = []
        """Called each time that the server is there, with its tools."""
        self.problem: str | None = None
        """Why it is not connected, in one sentence; None while it is."""
        self._server = server
        self._clock = clock
        self._client: Client | None = None
        self._broken = asyncio.Event()
        self._under_way = 0
        self._tried = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._asking: set[asyncio.Task[None]] = set()

    @property
    def protocol(self) -> str | None:
        """The version of the protocol that was agreed on; None while it is not connected."""
        return None if self._client is None else self._client.protocol_version

    async def start(self) -> None:
        """Begin to hold it; returns when it is there, or has failed for the first time."""
        self._task = asyncio.create_task(self._hold(), name=f"mcp {self.name}")
        await self._tried.wait()

    async def close(self) -> None:
        """Let go of it. A server that was started ends."""
        if self._task is not None:
            ending = {self._task, *self._asking}
            for task in ending:
                task.cancel()
            await asyncio.wait(ending)

    async def _hold(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                async with AsyncExitStack() as stack:
                    async with asyncio.timeout(START_S):
                        target = await self._target(stack)
                        client = await stack.enter_async_context(Client(target))
                        self.tools = await self._listed(client)
                    self._broken.clear()
                    self._client, self.problem, pause_s = client, None, FIRST_PAUSE_S
                    self._tried.set()
                    for listener in self.coming:
                        listener()
                    await self._broken.wait()
                    self._client = None
                    problem = "The connection broke, or nothing came over it any more."
            except TimeoutError:
                problem = f"It did not begin and list its tools within {START_S:g} s."
            except Exception as error:  # noqa: BLE001 - a server may fail in any way; it is told
                first = _first(error)
                problem = f"{type(first).__name__}: {first}"
            finally:
                self._client = None
            if problem != self.problem:
                log.warning("The MCP server %s is not there: %s", self.name, problem)
            self.problem = problem
            self._tried.set()
            await self._clock.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    async def _target(self, stack: AsyncExitStack) -> StdioServerParameters | Transport:
        server = self._server
        if server.command:
            return StdioServerParameters(
                command=server.command, args=server.args, env=dict(server.env) or None
            )
        headers = {}
        if server.token_env:
            token = os.environ.get(server.token_env)
            if not token:
                raise InvalidInput(
                    f"The environment has no {server.token_env}.", code="key_missing"
                )
            headers["authorization"] = f"Bearer {token}"
        # It reads certificates from the disk.
        client = await asyncio.to_thread(create_mcp_http_client, headers=headers)
        stack.push_async_callback(client.aclose)
        return streamable_http_client(server.url, http_client=client)

    async def _listed(self, client: Client) -> dict[str, Function]:
        found: dict[str, Function] = {}
        cursor: str | None = None
        while True:
            page = await client.list_tools(cursor=cursor, cache_mode="bypass")
            for tool in page.tools:
                if not self._server.only or tool.name in self._server.only:
                    function = self._function(tool)
                    found[function.name] = function
            cursor = page.next_cursor
            if cursor is None or len(found) >= MOST_TOOLS:
                return found

    def _function(self, tool: Tool) -> Function:
        hints, server = tool.annotations, self._server
        # Hints that are not given promise nothing.
        read_only = bool(hints and hints.read_only_hint)
        idempotent = bool(hints and hints.idempotent_hint)
        ask = server.approval is Asking.ALWAYS or (
            server.approval is Asking.WRITES and not read_only
        )
        return Function(
            name=tool_name(self.name, tool.name),
            run=partial(self._call, tool.name, safe=read_only or idempotent),
            description=tool.description or tool.title or "",
            parameters=tool.input_schema,
            read_only=read_only,
            idempotent=idempotent,
            approval=ask,
            timeout_s=server.timeout_s,
            max_result_chars=server.max_result_chars,
            decode=_as_keywords,
            context="context",
        )

    async def _call(
        self, tool: str, *, safe: bool, context: ToolContext, arguments: Mapping[str, Any]
    ) -> tuple[ResultPart, ...]:
        """Call a tool once.

        Raises:
            ToolError: The tool said so, or the server was not there and nothing was sent.
            FateUnknown: The connection broke under a call that may have taken effect.
        """
        client = await self._there(check=not safe)
        self._under_way += 1
        try:
            result = await client.call_tool(
                tool,
                dict(arguments),
                # The executor's own limit of time comes first, and tells the server.
                read_timeout_seconds=self._server.timeout_s * 2,
                meta=cast("RequestParamsMeta", {KEY: context.idempotency_key}),
            )
        except asyncio.CancelledError:
            self._given_up(client)
            raise
        except MCPError as error:
            raise self._failed(error, safe=safe) from None
        finally:
            self._under_way -= 1
        if result.is_error:
            raise ToolError(texts_of(result))
        return parts_of(result)

    def _failed(self, error: MCPError, *, safe: bool) -> ToolError | FateUnknown:
        """Return what an error says of a call that was sent."""
        gone = error.code == CONNECTION_CLOSED
        if gone or _is(error, SESSION_GONE):
            self._broken.set()
        if _is(error, SESSION_GONE):
            return self._away()
        if not gone and not _is(error, NO_ANSWER):
            return ToolError(error.message, code="mcp_error")
        if not safe:
            return FateUnknown()
        return ToolError(
            f"The tool server {self.name} failed under this call. It may have been carried out; "
            "asking for it again does no harm.",
            code="tool_unavailable",
        )

    def _given_up(self, client: Client) -> None:
        """A call was canceled or took too long, and the server has been told.

        One that hears that answers something else soon. One that does not is held by what it does
        and would hold up every later call: its connection ends, and with it all its processes.
        While it works on other calls it is left alone.
        """
        if self._under_way > 1 or client is not self._client:
            return
        asking = asyncio.create_task(self._look_for_life(client), name=f"mcp {self.name} alive")
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)

    async def _look_for_life(self, client: Client) -> None:
        asked = asyncio.ensure_future(client.list_tools(cache_mode="bypass"))
        late = asyncio.ensure_future(self._clock.sleep(SIGN_OF_LIFE_S))
        try:
            await asyncio.wait({asked, late}, return_when=asyncio.FIRST_COMPLETED)
            error = asked.exception() if asked.done() else None
            gone = isinstance(error, MCPError) and error.code == CONNECTION_CLOSED
            deaf = not asked.done() and self._under_way == 0
            if (gone or deaf) and client is self._client:
                self._broken.set()
        finally:
            asked.cancel()
            late.cancel()

    async def _there(self, *, check: bool) -> Client:
        """Return the connection; with `check` one that has just answered.

        A server that died while nobody spoke to it is found out here, before a call whose fate
        would be unknown.

        Raises:
            ToolError: `tool_unavailable`: nothing was sent.
        """
        client = self._client
        if client is None:
            raise self._away()
        if check:
            try:
                await client.list_tools(cache_mode="bypass")
            except MCPError as error:
                if (
                    error.code == CONNECTION_CLOSED
                    or _is(error, SESSION_GONE)
                    or _is(error, NO_ANSWER)
                ):
                    self._broken.set()
                    raise self._away() from None
        return client

    def _away(self) -> ToolError:
        return ToolError(
            f"The tool server {self.name} is not there at the moment; nothing was run. "
            "It is being started again.",
            code="tool_unavailable",
        )


def _is(error: MCPError, known: tuple[int, str]) -> bool:
    return (error.code, error.message) == known


def _first(error: Exception) -> Exception:
    """Return what went wrong first: tasks that share a group wrap it in one."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def tool_name(server: str, tool: str) -> str:
    """Return the name under which models are offered a server's tool.

    Names of two servers never meet, and what providers do not take in a name is re-spelled; a name
    that had to be changed or is too long ends in a digest of the whole, so that no two become one.
    """
    whole = f"{server}_{tool}"
    spelled = ILLEGAL.sub("_", whole)
    if spelled == whole and len(whole) <= LONGEST_NAME:
        return whole
    return f"{spelled[: LONGEST_NAME - 9]}_{hashlib.sha256(whole.encode()).hexdigest()[:8]}"


def _as_keywords(text: str) -> Mapping[str, Any]:
    return {"arguments": as_json(text)}
