"""Functions of this process that a model may call.

Here in their simplest honest form: a function has a name, a schema and a word on what may
happen if it runs twice. What the ledger says decides whether it runs at all.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from antiphon.core.commands import Fence, StartCall
from antiphon.core.ids import CallId, ConversationId, RunId
from antiphon.core.manifest import ToolDeclaration
from antiphon.core.records import Call

DEFAULT_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A tool that runs in this process.

    Attributes:
        run: Takes the arguments by keyword; returns text, or a value that JSON can hold.
        read_only: It changes nothing: after a crash it may run again.
        idempotent: Running it again under the same key has no second effect.
        timeout_s: Seconds until its outcome counts as unknown.
    """

    name: str
    run: Callable[..., Any | Awaitable[Any]]
    description: str = ""
    parameters: dict[str, Any] | None = None
    read_only: bool = False
    idempotent: bool = False
    timeout_s: float = DEFAULT_TIMEOUT_S

    @property
    def declaration(self) -> ToolDeclaration:
        """Return what the model is told of it."""
        schema = self.parameters or {"type": "object", "properties": {}}
        return ToolDeclaration(
            name=self.name,
            description=self.description,
            parameters=msgspec.Raw(msgspec.json.encode(schema)),
        )


def start_call(
    function: Function,
    *,
    conversation: ConversationId,
    run: RunId,
    call_id: CallId,
    fence: Fence,
    now_ms: int,
) -> StartCall:
    """Return the command that claims a call of `function` for this process, from now on."""
    return StartCall(
        conversation=conversation,
        now_ms=now_ms,
        run=run,
        call_id=call_id,
        fence=fence,
        deadline_ms=now_ms + int(function.timeout_s * 1000),
    )


async def execute(function: Function, call: Call) -> str:
    """Run `function` for `call` and return its result as text.

    A plain function runs in a thread, so that it cannot hold up the event loop. Whatever it
    raises comes out of here.
    """
    arguments = json.loads(call.arguments)
    if inspect.iscoroutinefunction(function.run):
        value = await function.run(**arguments)
    else:
        value = await asyncio.to_thread(function.run, **arguments)
        if inspect.isawaitable(value):
            value = await value
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
