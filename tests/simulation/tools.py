"""Tools of the simulated process. Their effects are outside: they stay when the process goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from antiphon.core.ids import ConversationId
from antiphon.core.manifest import ToolDeclaration
from antiphon.core.records import CallState
from antiphon.engine.tools.function import FateUnknown, Function, ToolContext, ToolError
from antiphon.engine.tools.typed import tool
from tests.simulation.chance import Chance
from tests.simulation.store import Database

AGAIN: Final = frozenset({"light", "count"})
"""Tools whose call may be carried out again under its key."""

ASK_USER: Final = ToolDeclaration(name="ask_user")
"""A tool that the client runs."""


@dataclass(slots=True)
class Effects:
    """What the tools did, in order, and what was wrong about that."""

    chance: Chance
    database: Database
    say: Callable[[str], None]
    trouble: float = 0
    done: list[tuple[str, str]] = field(default_factory=list)
    """Tool and idempotency key of each effect."""
    broken: list[str] = field(default_factory=list)

    async def happen(self, name: str, context: ToolContext) -> str:
        """Have the effect, after a while, unless something goes wrong before or after it."""
        await asyncio.sleep(self.chance.up_to(1.0))
        if self.chance.of_hundred(self.trouble):
            raise ToolError("The tool would not.")
        asyncio.get_running_loop().call_soon(self._note, name, context)
        await asyncio.sleep(self.chance.up_to(2.0))
        if self.chance.of_hundred(self.trouble):
            raise FateUnknown
        if self.chance.of_hundred(self.trouble):
            await asyncio.sleep(1000.0)
        return f"{name} {context.call_id} done"

    def _note(self, name: str, context: ToolContext) -> None:
        self.done.append((name, context.idempotency_key))
        self.say(f"effect of {name} for {context.call_id}")
        if name not in AGAIN and self.done.count(self.done[-1]) > 1:
            self.broken.append(f"{name} was done twice for {context.call_id}")
        store = self.database.store
        conversation = ConversationId(context.conversation)
        for call in self.database.ask(store.calls(conversation, context.run)):
            if call.call_id == context.call_id:
                if call.state in (CallState.PENDING, CallState.SUCCESS):
                    self.broken.append(f"{name} was done for a call that is {call.state}")
                return
        self.broken.append(f"{name} was done for no call of the ledger: {context.call_id}")

    def functions(self) -> list[Function]:
        """Return the tools as the engine is given them."""

        @tool(timeout_s=8.0)
        async def ring(times: int, context: ToolContext) -> str:
            return await self.happen("ring", context)

        @tool(idempotent=True, timeout_s=8.0)
        async def light(lamp: int, context: ToolContext) -> str:
            return await self.happen("light", context)

        @tool(read_only=True, timeout_s=8.0)
        async def count(shelf: int, context: ToolContext) -> str:
            return await self.happen("count", context)

        @tool(approval=True, timeout_s=8.0)
        async def pay(cents: int, context: ToolContext) -> str:
            return await self.happen("pay", context)

        return [ring, light, count, pay]
