"""Carrying out calls of the ledger: each begins durable, runs once, and comes to one result."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import assert_never

from antiphon.core.blocks import ResultPart, Text
from antiphon.core.commands import FinishCall, LoseCall
from antiphon.core.dispatch import Denied
from antiphon.core.records import Approval, Call, CallState
from antiphon.core.tools.ledger import (
    APPROVAL_EXPIRED,
    NOT_APPROVED,
    NOT_EXECUTED,
    CallAction,
    changed,
    fate_unknown,
    next_call_action,
    repeated,
    text_result,
    timed_out,
)
from antiphon.core.tools.repeats import (
    REPEATED_CALL,
    AwaitTwin,
    Fresh,
    Reuse,
    TooOften,
    repetition,
)
from antiphon.engine.runs.control import Control
from antiphon.engine.tools.function import (
    FateUnknown,
    Function,
    Lookup,
    ToolError,
    execute,
    look_up,
    start_call,
)
from antiphon.engine.world import World


class Executor:
    """Runs the calls of one conversation, a bounded number at a time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._places = asyncio.Semaphore(world.settings.max_parallel_tools)

    async def claim(self, call: Call, control: Control) -> FinishCall | None:
        """Carry out a pending call and return its result; None where it was not there to take."""
        world = self._world
        earlier = await world.store.calls(call.conversation, call.run)
        before = earlier[: next(n for n, one in enumerate(earlier) if one.call_id == call.call_id)]
        match repetition(call, before, repeat_limit=world.settings.repeat_limit):
            case AwaitTwin():
                return None
            case Reuse(had):
                return replace(
                    self._told(call, "", None),
                    state=CallState.SUCCESS,
                    content=had.content,
                    reused_from=had.call_id,
                )
            case TooOften(times):
                return self._told(call, repeated(times), REPEATED_CALL)
            case Fresh():
                pass
            case never:
                assert_never(never)
        started = await world.do(
            start_call(
                world.functions[call.name],
                conversation=call.conversation,
                run=call.run,
                call_id=call.call_id,
                fence=world.fence,
                now_ms=world.clock.now_ms(),
            )
        )
        return None if isinstance(started, Denied) else await self.execute(started, control)

    async def execute(self, started: Call, control: Control) -> FinishCall | None:
        """Run the function of a call that is EXECUTING and return what it came to.

        None where the run was canceled and its function could be stopped: the cancel has closed
        the call, and says that it may have taken effect.
        """
        function = self._world.functions[started.name]
        async with self._places:
            if control.canceled:
                return None  # it waited behind others; nothing begins after a cancel
            running = asyncio.ensure_future(self._run(function, started))
            try:
                if not await control.until(running) and function.stoppable:
                    running.cancel()
                    await asyncio.wait({running})
                    return None
                state, content, code = await running
            except FateUnknown:
                await self._lose(started)
                return None
            finally:
                running.cancel()
        if started.changed_arguments is not None:
            content = (Text(text=changed(started.changed_arguments)), *content)
        return FinishCall(
            conversation=started.conversation,
            now_ms=self._world.clock.now_ms(),
            run=started.run,
            call_id=started.call_id,
            state=state,
            content=content,
            code=code,
            fence=self._world.fence,
            attempt=started.attempt,
        )

    async def _run(
        self, function: Function, started: Call
    ) -> tuple[CallState, tuple[ResultPart, ...], str | None]:
        """Return state, content and code of what a function came to."""
        try:
            async with asyncio.timeout(function.timeout_s):
                return CallState.SUCCESS, await execute(function, started), None
        except TimeoutError:
            # Nobody can be asked whether it took effect, so the model is told just that.
            text, code = timed_out(function.timeout_s), "timeout_unknown"
        except FateUnknown:
            raise
        except ToolError as error:
            text, code = str(error), error.code
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is its result
            text, code = f"{type(error).__name__}: {error}", "exception"
        return CallState.ERROR, text_result(text), code

    async def _lose(self, started: Call) -> None:
        """Record that nobody knows what became of a call; the run waits until somebody does."""
        await self._world.do(
            LoseCall(
                conversation=started.conversation,
                now_ms=self._world.clock.now_ms(),
                run=started.run,
                call_id=started.call_id,
                fence=self._world.fence,
            )
        )

    async def settle(self, call: Call) -> FinishCall | None:
        """Do the next safe thing about a call that waits, and return its result if it has one.

        None where there is nothing to do yet: look again later. What waits for approval is closed
        when its time has passed, what is of unknown fate when it can be told or nobody can be
        asked.
        """
        now_ms = self._world.clock.now_ms()
        if call.state is CallState.PENDING and call.approval is Approval.NEEDED:
            due = now_ms >= call.deadline_ms
            return self._told(call, NOT_APPROVED, APPROVAL_EXPIRED) if due else None
        if call.state is not CallState.UNKNOWN:
            return None
        function = self._world.functions.get(call.name)
        can_query = function is not None and function.lookup is not None
        match next_call_action(call, can_query=can_query, now_ms=now_ms):
            case CallAction.WAIT:
                return None
            case CallAction.CLOSE:
                return self._told(call, fate_unknown(), "timeout_unknown")
            case CallAction.QUERY:
                assert function is not None
                return await self._queried(function, call)

    async def _queried(self, function: Function, call: Call) -> FinishCall | None:
        try:
            async with asyncio.timeout(function.timeout_s):
                found = await look_up(function, call)
        except ToolError as error:
            return self._told(call, str(error), error.code)
        except Exception:  # noqa: BLE001 - a question without an answer leaves the call as it is
            return None
        match found:
            case Lookup.RUNNING:
                return None
            case Lookup.NOT_EXECUTED:
                # Until its deadline an executor that nobody sees may still be about to begin.
                late = self._world.clock.now_ms() >= call.deadline_ms
                return self._told(call, NOT_EXECUTED, "not_executed") if late else None
            case _:
                return replace(self._told(call, "", None), state=CallState.SUCCESS, content=found)

    def _told(self, call: Call, text: str, code: str | None) -> FinishCall:
        """Return the result of a call that is not EXECUTING here: an error with its text."""
        return FinishCall(
            conversation=call.conversation,
            now_ms=self._world.clock.now_ms(),
            run=call.run,
            call_id=call.call_id,
            state=CallState.ERROR,
            content=text_result(text),
            code=code,
        )
