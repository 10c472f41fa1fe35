"""Carrying out calls of the ledger: each begins durable, runs once, and comes to one result."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from antiphon.core.blocks import ResultPart, Text
from antiphon.core.commands import FinishCall, LoseCall, StartCall
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

    async def carry_out(self, calls: Sequence[Call], control: Control) -> list[FinishCall]:
        """Carry out calls of one step, and return those of their results that came last.

        What is PENDING still is claimed first; what somebody else has taken meanwhile is left to
        him. A result is stored as soon as it is there, together with all that came in the same
        turn of the event loop. Only those that leave nothing under way are the caller's to store,
        with what follows from them.

        A cancel stops what can be stopped, and what has not begun. Those calls have no result
        here: the cancel has closed them, and says that they may have taken effect.
        """
        began, results = await self._claimed(calls)
        left, came = len(began), asyncio.Event()
        if results:
            came.set()

        async def run(call: Call) -> None:
            begun = await self._begun(call)
            if begun is not None and (result := await self._executed(begun, control)) is not None:
                results.append(result)

        def ended(_: asyncio.Task[None]) -> None:
            nonlocal left
            left -= 1
            came.set()

        async with asyncio.TaskGroup() as group:
            tasks = [(group.create_task(run(call)), call) for call in began]
            for task, _ in tasks:
                # Not at the end of `run`: what is stopped before its first step has none.
                task.add_done_callback(ended)

            def stop() -> None:
                for task, call in tasks:
                    if self._world.functions[call.name].stoppable:
                        task.cancel()

            with control.reaching(stop):
                while left:
                    await came.wait()
                    came.clear()
                    if left and results:
                        stored, results = results, []
                        await self.store(stored)
        return results

    async def store(self, results: Sequence[FinishCall]) -> None:
        """Store results: in one transaction, but where one of them comes too late, each apart."""
        if len(results) > 1 and not isinstance(await self._world.do_all(*results), Denied):
            return
        for result in results:
            await self._world.do(result)

    # Before a function runs.

    async def _claimed(self, calls: Sequence[Call]) -> tuple[list[Call], list[FinishCall]]:
        """Return which of `calls` may run here now, and the results of those that need not."""
        began = [call for call in calls if call.state is CallState.EXECUTING]
        pending = [call for call in calls if call.state is CallState.PENDING]
        if not pending:
            return began, []
        world, fresh, told = self._world, list[Call](), list[FinishCall]()
        ledger = await world.store.calls(pending[0].conversation, pending[0].run)
        places = {call.call_id: place for place, call in enumerate(ledger)}
        for call in pending:
            before = ledger[: places[call.call_id]]
            match repetition(call, before, repeat_limit=world.settings.repeat_limit):
                case AwaitTwin():
                    pass
                case Reuse(had):
                    again = self._told(call, "", None)
                    told.append(
                        replace(
                            again,
                            state=CallState.SUCCESS,
                            content=had.content,
                            reused_from=had.call_id,
                        )
                    )
                case TooOften(times):
                    told.append(self._told(call, repeated(times), REPEATED_CALL))
                case Fresh():
                    fresh.append(call)
                case never:
                    assert_never(never)
        return began + await self._started(fresh), told

    async def _started(self, calls: Sequence[Call]) -> list[Call]:
        """Claim `calls` together; where that is refused, each is claimed by itself, before it runs."""
        if len(calls) > 1:
            together = await self._world.do_all(*map(self._start, calls))
            if not isinstance(together, Denied):
                return list(together)
        return list(calls)

    async def _begun(self, call: Call) -> Call | None:
        """Return a call as EXECUTING; None where it was not there to take any more."""
        if call.state is CallState.EXECUTING:
            return call
        claimed = await self._world.do(self._start(call))
        return None if isinstance(claimed, Denied) else claimed

    def _start(self, call: Call) -> StartCall:
        return start_call(
            self._world.functions[call.name],
            conversation=call.conversation,
            run=call.run,
            call_id=call.call_id,
            fence=self._world.fence,
            now_ms=self._world.clock.now_ms(),
        )

    # While it runs.

    async def _executed(self, call: Call, control: Control) -> FinishCall | None:
        """Run the function of a call that is EXECUTING, once there is a place for it.

        None where nobody can say what it came to, or the run was canceled before it began. Past
        its deadline it does not begin: others may have been told by then that it never will.
        """
        function = self._world.functions[call.name]
        async with self._places:
            if control.canceled:
                return None
            try:
                state, content, code = await self._run(function, call)
            except FateUnknown:
                await self._lose(call)
                return None
        if call.changed_arguments is not None:
            content = (Text(text=changed(call.changed_arguments)), *content)
        return FinishCall(
            conversation=call.conversation,
            now_ms=self._world.clock.now_ms(),
            run=call.run,
            call_id=call.call_id,
            state=state,
            content=content,
            code=code,
            fence=self._world.fence,
            attempt=call.attempt,
        )

    async def _run(
        self, function: Function, started: Call
    ) -> tuple[CallState, tuple[ResultPart, ...], str | None]:
        """Return state, content and code of what a function came to."""
        try:
            async with asyncio.timeout(function.timeout_s):
                return CallState.SUCCESS, await execute(function, started, self._world.clock), None
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

    # Beside it: what waits for people, or is of unknown fate.

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
