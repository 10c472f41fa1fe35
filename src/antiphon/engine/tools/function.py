"""Functions of this process that a model may call.

A function has a name, a schema and a word on what may happen if it runs twice. What the ledger
says decides whether it runs at all.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import partial
from typing import Any, Final

import msgspec

from antiphon.core.blocks import ResultPart, Text, encode_blocks
from antiphon.core.commands import Fence, StartCall
from antiphon.core.ids import CallId, ConversationId, RunId
from antiphon.core.manifest import ToolDeclaration
from antiphon.core.records import Call
from antiphon.core.tools.ledger import TOO_LATE, invalid_arguments
from antiphon.engine.ports import Clock
from antiphon.engine.texts import storable

DEFAULT_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a function may know of the call that it runs for.

    Attributes:
        idempotency_key: The same for every execution of this call, also after a crash. Hand it
            to whatever has the effect, and a second execution has none.
        execution: Counts the executions of this call, from 1.
    """

    conversation: ConversationId
    run: RunId
    call_id: CallId
    idempotency_key: str
    execution: int


class ToolError(Exception):
    """Raise it in a function to give the model an error result in your own words.

    Attributes:
        code: A stable word for programs; the model reads the message.
    """

    def __init__(self, message: str, *, code: str = "tool_error") -> None:
        super().__init__(message)
        self.code = code


class FateUnknown(Exception):
    """Raise it in a function where the work may have been done and nobody here can tell.

    The call becomes UNKNOWN: it is looked up where the function can be asked, and never run again.
    """


class Lookup(StrEnum):
    """What a tool may answer about a call beside its result."""

    RUNNING = "running"
    NOT_EXECUTED = "not_executed"


def as_json(text: str) -> dict[str, Any]:
    """Return the arguments as `json` reads them, but never with another number than was written.

    Raises:
        ValueError: It has a number that no float is, such as 1e400 or one of twenty digits.
    """
    arguments: dict[str, Any] = json.loads(text, parse_float=_same_float)
    return arguments


def _same_float(text: str) -> float:
    value = float(text)
    if Decimal(repr(value)) != Decimal(text):
        raise ValueError(f"the number {text} has more digits or a larger exponent than is taken")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A tool that runs in this process.

    Attributes:
        run: Takes the arguments by keyword; returns text, a text, image or file block, a list of
            them, or a value that JSON can hold. A plain function runs in a thread.
        parameters: JSON Schema of its arguments; None takes no arguments.
        read_only: It changes nothing: after a crash it may run again.
        idempotent: Running it again under the same key has no second effect.
        repeatable: The same arguments may well mean to run it again in the same run. Any other
            function gives the result that it gave before.
        approval: Somebody has to agree to each call before it runs.
        timeout_s: Seconds until its outcome counts as unknown.
        max_result_chars: Most characters of a result that the model is shown; None takes the
            setting of that name, 0 is no limit.
        decode: Makes keyword arguments of the call's JSON text. Where it raises a `ValueError` or an
            error of msgspec, the arguments do not fit, and nothing was run.
        context: The parameter that is given the `ToolContext`, if any.
        lookup: Finds out what became of a call of unknown fate, by its `ToolContext`: returns its
            result, as `run` would have, or a `Lookup`.
    """

    name: str
    run: Callable[..., Any | Awaitable[Any]]
    description: str = ""
    parameters: dict[str, Any] | None = None
    read_only: bool = False
    idempotent: bool = False
    repeatable: bool = False
    approval: bool = False
    timeout_s: float = DEFAULT_TIMEOUT_S
    max_result_chars: int | None = None
    decode: Callable[[str], Mapping[str, Any]] = as_json
    context: str | None = None
    lookup: Callable[[ToolContext], Any | Awaitable[Any]] | None = None

    @property
    def declaration(self) -> ToolDeclaration:
        """Return what the model is told of it."""
        schema = self.parameters or {"type": "object", "properties": {}}
        return ToolDeclaration(
            name=self.name,
            description=self.description,
            parameters=msgspec.Raw(msgspec.json.encode(schema)),
        )

    @property
    def stoppable(self) -> bool:
        """Whether a cancel can reach it. Nothing stops a thread."""
        return inspect.iscoroutinefunction(self.run)


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


async def execute(function: Function, call: Call, clock: Clock) -> tuple[ResultPart, ...]:
    """Run `function` for `call`, which is EXECUTING, and return its result.

    A plain function runs in a thread, so that it cannot hold up the event loop. Whatever it
    raises comes out of here.

    Raises:
        ToolError: It did not run. `invalid_arguments`: they are not what the function takes.
            `not_run`: its deadline had passed before it, or its thread, could begin.
    """
    try:
        arguments = dict(function.decode(call.changed_arguments or call.arguments))
    except (ValueError, msgspec.MsgspecError) as error:
        raise ToolError(invalid_arguments(str(error)), code="invalid_arguments") from None
    if function.context is not None:
        arguments[function.context] = _context(call)

    def begin() -> object:
        # Asked where it begins: a thread may have to be waited for, too.
        if clock.now_ms() >= call.deadline_ms:
            raise ToolError(TOO_LATE, code="not_run")
        return function.run(**arguments)

    return _parts(await _called(begin, stoppable=function.stoppable))


async def look_up(function: Function, call: Call) -> tuple[ResultPart, ...] | Lookup:
    """Ask what became of `call`, whose fate is unknown; `function` has a `lookup`."""
    assert function.lookup is not None
    ask = partial(function.lookup, _context(call))
    found = await _called(ask, stoppable=inspect.iscoroutinefunction(function.lookup))
    return found if isinstance(found, Lookup) else _parts(found)


def _context(call: Call) -> ToolContext:
    return ToolContext(
        conversation=call.conversation,
        run=call.run,
        call_id=call.call_id,
        idempotency_key=call.idempotency_key,
        execution=call.attempt,
    )


async def _called(ask: Callable[[], Any], *, stoppable: bool) -> object:
    value = await (ask() if stoppable else asyncio.to_thread(ask))
    return await value if inspect.isawaitable(value) else value


def _parts(value: object) -> tuple[ResultPart, ...]:
    """Return what a function returned as parts of a result."""
    if isinstance(value, ResultPart):
        parts: tuple[ResultPart, ...] = (value,)
    elif isinstance(value, list | tuple) and value and all(map(_is_part, value)):
        parts = tuple(value)
    elif isinstance(value, str):
        parts = (Text(text=value),)
    else:
        parts = (Text(text=msgspec.json.encode(value, enc_hook=str).decode()),)
    with storable("result"):
        encode_blocks(parts)
    return parts


def _is_part(value: object) -> bool:
    return isinstance(value, ResultPart)
