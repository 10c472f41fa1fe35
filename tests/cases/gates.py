"""Where a case may hold the engine: before acceptance, before a byte leaves, around a tool.

The parts held are the real ones. A gate only delays, as a slow disk or network would, so that a
case can crash or cancel exactly there; what happens when it opens is the product's own business.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from antiphon.core.commands import (
    Accept,
    Command,
    CommitAnswer,
    FinishCall,
    PlaceResults,
    PlaceRun,
    Prepare,
    StartCall,
    StartRun,
)
from antiphon.core.dispatch import Denied
from antiphon.core.ids import OperationId
from antiphon.core.manifest import WireRequest
from antiphon.core.records import Call, CallState
from antiphon.engine.ports import Reply, Transport
from antiphon.engine.tools.function import Function
from antiphon.stores.base import Store

TOGETHER = (StartRun, PlaceRun, StartCall, FinishCall, PlaceResults, CommitAnswer)
"""What the engine lets others go along with."""


class Gates:
    """Named places where a task waits until the case opens them. `free` gates hold nobody."""

    def __init__(self, *, all_free: bool = False) -> None:
        self._held: dict[str, asyncio.Future[Any]] = {}
        self._free: set[str] = set()
        self._all_free = all_free
        self.busy = 0
        """Store calls under way: while there are any, the engine is not waiting for the case."""

    @property
    def held(self) -> list[str]:
        return [name for name, waiting in self._held.items() if not waiting.done()]

    async def wait(self, name: str) -> Any:
        """Wait at a gate; return what it was opened with."""
        if not self.holds(name):
            return None
        waiting = self._held[name] = asyncio.get_running_loop().create_future()
        try:
            return await waiting
        finally:
            if self._held.get(name) is waiting:
                del self._held[name]

    def open(self, name: str, value: object = None) -> bool:
        """Let whoever is held at a gate go on; return whether anybody was."""
        waiting = self._held.get(name)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(value)
        return True

    def holds(self, name: str) -> bool:
        """Whether anybody would be held at this gate."""
        return not (self._all_free or name in self._free)

    def free(self, name: str) -> None:
        """Hold nobody at this gate any more."""
        self._free.add(name)
        self.open(name)


class HeldStore:
    """The real store, with `Accept` and `StartCall` held until the case lets them pass."""

    def __init__(self, store: Store, gates: Gates) -> None:
        self._store = store
        self._gates = gates
        self._runs: dict[OperationId, str] = {}
        self.sender: dict[asyncio.Task[Any] | None, str] = {}
        """Whose request the transport will be handed next by each task."""

    async def do(self, command: Command[Any]) -> Any:
        await self._pass(command)
        return await self._counted(self._store.do(command))

    async def do_all(self, *commands: Command[Any]) -> Any:
        if any(isinstance(c, TOGETHER) for c in commands[:-1]) and self._holds(commands):
            # The engine would do in one transaction what the case wants to stop in between. A
            # store may refuse that, and then the engine does one after the other.
            return Denied("held by the case")
        for command in commands:
            await self._pass(command)
        return await self._counted(self._store.do_all(*commands))

    def submit(self, command: Command[Any]) -> Awaitable[Any]:
        # Waited for here, so that it is durable by the time the case looks.
        return asyncio.ensure_future(self._counted(self._store.submit(command)))

    def _holds(self, commands: Sequence[Command[Any]]) -> bool:
        """Whether one of `commands` would be held here."""
        for command in commands:
            match command:
                case Prepare(manifest=manifest) if self._gates.holds(f"accept {manifest.run}"):
                    return True
                case StartCall(call_id=call_id) if self._gates.holds(f"call {call_id}"):
                    return True
                case _:
                    pass
        return False

    async def _pass(self, command: Command[Any]) -> None:
        match command:
            case Prepare(manifest=manifest):
                self._runs[manifest.operation] = manifest.run
            case Accept(operation=operation):
                run = self._runs.get(operation) or (await self._store.manifest(operation))[0].run
                await self._gates.wait(f"accept {run}")
                self.sender[asyncio.current_task()] = run
            case StartCall(call_id=call_id):
                await self._gates.wait(f"call {call_id}")
            case _:
                pass

    async def _counted(self, work: Awaitable[Any]) -> Any:
        self._gates.busy += 1
        try:
            return await work
        finally:
            self._gates.busy -= 1

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def counted(*args: Any, **named: Any) -> Any:
            return await self._counted(method(*args, **named))

        return counted


class HeldTransport:
    """The real transport, each request held until the case lets its first byte leave."""

    def __init__(self, transport: Transport, gates: Gates, store: HeldStore) -> None:
        self._transport = transport
        self._gates = gates
        self._store = store

    async def send(
        self,
        request: WireRequest,
        *,
        api_key: str | None,
        connect_timeout_s: float,
        on_written: Callable[[], None],
    ) -> Reply:
        await self._gates.wait(f"send {self._store.sender.get(asyncio.current_task(), '')}")
        return await self._transport.send(
            request, api_key=api_key, connect_timeout_s=connect_timeout_s, on_written=on_written
        )

    async def close(self) -> None:
        await self._transport.close()


class ToolFailed(Exception):
    """What a tool of a case raises where its result is an error."""


class HeldFunction:
    """A tool with an effect outside: it writes a line to a file, when the case says so.

    Which call it runs for is read from the ledger, where that call stands as EXECUTING before
    the function is entered.
    """

    def __init__(
        self,
        name: str,
        *,
        gates: Gates,
        effects: Path,
        executing: Callable[[], Awaitable[list[Call]]],
    ) -> None:
        self.name = name
        self._gates = gates
        self._effects = effects
        self._executing = executing
        self._taken: set[tuple[str, str, int]] = set()

    def declared(self, *, read_only: bool, idempotent: bool) -> Function:
        """Return it as the engine takes it."""
        return Function(
            name=self.name,
            run=self.run,
            parameters={"type": "object"},
            read_only=read_only,
            idempotent=idempotent,
            timeout_s=10_000.0,
        )

    async def run(self, **arguments: Any) -> str:
        call = await self._call(arguments)
        self._note("started", call)
        await self._gates.wait(f"effect {call.call_id}")
        self._note("effect", call)
        outcome = await self._gates.wait(f"result {call.call_id}") or {}
        if outcome.get("outcome", "success") != "success":
            raise ToolFailed(outcome.get("content") or outcome["outcome"])
        return str(outcome.get("content") or "")

    async def _call(self, arguments: dict[str, Any]) -> Call:
        for call in await self._executing():
            key = (call.run, call.call_id, call.attempt)
            same = call.name == self.name and json.loads(call.arguments) == arguments
            if same and call.state is CallState.EXECUTING and key not in self._taken:
                self._taken.add(key)
                return call
        raise AssertionError(f"{self.name} was entered and no call of it stands as EXECUTING")

    def _note(self, what: str, call: Call) -> None:
        line = {"what": what, "call": call.call_id, "run": call.run, "attempt": call.attempt}
        with self._effects.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
