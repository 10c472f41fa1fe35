"""Driving runs: one worker per conversation, from the queue to the end of each run.

A worker holds nothing that a restart could lose. After every step it asks the store what
stands there and the loop what comes next, so it can be killed anywhere and begun anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, assert_never

from antiphon.core import loop, recovery
from antiphon.core.blocks import Message
from antiphon.core.commands import (
    ClaimRun,
    EndRun,
    FinishCall,
    PlaceResults,
    PlaceRun,
    StartCall,
    WaitRun,
)
from antiphon.core.dispatch import Denied, State
from antiphon.core.ids import ConversationId, MessageId, RunId
from antiphon.core.ledger import text_result, timed_out
from antiphon.core.placement import CannotPlace, PlaceAt, StayQueued, place
from antiphon.core.records import (
    OPEN_RUN,
    TERMINAL_CALL,
    Call,
    CallState,
    Conversation,
    Run,
    RunStatus,
)
from antiphon.core.tree import last_closed_point
from antiphon.core.tree import line as visible
from antiphon.engine.control import Control
from antiphon.engine.dispatcher import Dispatcher
from antiphon.engine.startup import settle_unknown
from antiphon.engine.tools import execute
from antiphon.engine.world import World
from antiphon.errors import InternalError

NEAR_HEAD: Final = 64
"""How much of a line is read to find its last closed point; the whole line if it is not there."""


class _Moved(Exception):
    """A run could not be placed as decided, since the conversation has changed."""


class Worker:
    """Works through one conversation's runs, one at a time."""

    def __init__(
        self,
        world: World,
        dispatcher: Dispatcher,
        conversation: ConversationId,
        strays: set[asyncio.Task[None]],
        kick: Callable[[], None],
    ) -> None:
        self._world = world
        self._dispatcher = dispatcher
        self._conversation = conversation
        self._strays = strays
        self._kick = kick
        self._controls: dict[RunId, Control] = {}

    async def work(self) -> None:
        """Drive runs until there is none that could go on now.

        A canceled run holds up nobody: what it still has under way goes on beside the next.
        """
        while (run := await self._next()) is not None:
            control = self._controls[run.id] = Control(self._world.clock)
            task = asyncio.create_task(self._drive(run, control), name=f"run {run.id}")
            try:
                done = await control.until(task)
            except asyncio.CancelledError:
                task.cancel()
                await asyncio.wait({task})
                raise
            if done:
                self._let_go(run.id)
                task.result()
            else:
                self._strays.add(task)
                task.add_done_callback(self._strays.discard)
                task.add_done_callback(partial(self._let_go, run.id))

    def cancel(self, run: RunId) -> None:
        """Tell a run under way that it was canceled in the store."""
        if run in self._controls:
            self._controls[run].cancel(self._world.settings.cancel_grace_s)

    def _let_go(self, run: RunId, _: object = None) -> None:
        self._controls.pop(run, None)
        self._world.broker.drop(run)

    # Which run is next.

    async def _next(self) -> Run | None:
        while True:
            try:
                return await self._look()
            except _Moved:
                continue  # the world moved between looking and placing: look again

    async def _look(self) -> Run | None:
        store = self._world.store
        conversation = await store.conversation(self._conversation)
        runs = await store.runs(self._conversation, OPEN_RUN)
        if conversation.slot is not None:
            held = next((run for run in runs if run.id == conversation.slot), None)
            if held is not None and held.status is RunStatus.UNKNOWN:
                await self._await_deadline(held)
            return await self._claimed(held) if held else None
        for run in runs:
            if run.status is RunStatus.WAITING and await self._answered(run):
                resumed = await self._place_results(run)
                if resumed is not None:
                    return resumed
        for run in runs:
            if run.status is RunStatus.QUEUED:
                placed = await self._place(run, conversation, runs)
                if placed is not None:
                    return placed
        return None

    async def _await_deadline(self, run: Run) -> None:
        """Come back when the run's attempt can be settled; settle it if its time has passed.

        Raises:
            _Moved: It was settled.
        """
        operations = await self._world.store.operations(run.conversation, run.id)
        attempt = (await self._world.store.attempts(operations[-1]))[-1]
        if attempt.state is not State.UNKNOWN:
            return
        wait_ms = attempt.deadline_ms - self._world.clock.now_ms()
        if wait_ms > 0:
            self._world.clock.call_later(wait_ms / 1000, self._kick)
        elif isinstance(await settle_unknown(self._world, attempt), recovery.ConfirmEnded):
            raise _Moved

    async def _claimed(self, run: Run) -> Run | None:
        if not loop.may_go_on(run):
            return None
        if run.node == self._world.fence.node and run.epoch == self._world.fence.epoch:
            return run if run.status is RunStatus.PENDING else None
        claimed = await self._world.store.do(
            ClaimRun(
                conversation=run.conversation,
                now_ms=self._world.clock.now_ms(),
                run=run.id,
                fence=self._world.fence,
            )
        )
        if isinstance(claimed, Denied) or claimed.status is not RunStatus.PENDING:
            return None
        return claimed

    async def _answered(self, run: Run) -> bool:
        calls = await self._open_step(run)
        return bool(calls) and all(call.state in TERMINAL_CALL for call in calls)

    async def _open_step(self, run: Run) -> list[Call]:
        """Return the calls of the run's newest message whose results are not placed yet."""
        if run.leaf is None:
            return []
        return await self._world.store.calls(run.conversation, run.id, run.leaf)

    async def _place(self, run: Run, conversation: Conversation, runs: list[Run]) -> Run | None:
        others = [other for other in runs if other.id != run.id]
        line = await self._line_to(conversation, run.asked_parent or conversation.head)
        match place(run, line, others):
            case PlaceAt(parent):
                placed = await self._world.store.do(
                    PlaceRun(
                        conversation=run.conversation,
                        now_ms=self._world.clock.now_ms(),
                        run=run.id,
                        parent=parent,
                        revision=conversation.revision,
                        fence=self._world.fence,
                    )
                )
                if isinstance(placed, Denied):
                    raise _Moved
                return placed
            case StayQueued():
                return None
            case CannotPlace(code):
                await self._end(run, code)
                return None

    async def _line_to(self, conversation: Conversation, leaf: MessageId | None) -> list[Message]:
        """Return the newest part of a line that reaches back to a closed point."""
        if leaf is None:
            return []
        store = self._world.store
        near = await store.path(conversation.id, leaf, limit=NEAR_HEAD)
        line = visible(near, conversation.deletions)
        if near and near[0].parent is not None and last_closed_point(line) is None:
            line = visible(await store.path(conversation.id, leaf), conversation.deletions)
        return line

    # One run.

    async def _drive(self, run: Run, control: Control) -> None:
        store, functions = self._world.store, frozenset(self._world.functions)
        while run.status is RunStatus.PENDING and not control.canceled:
            calls = await self._open_step(run)
            step = loop.next_step(run, calls, functions)
            match step:
                case loop.CallModel(tools):
                    if loop.over_limit(run):
                        await self._end(run, "model_call_limit")
                        return
                    made = run.committed
                    run = await self._dispatcher.turn(run, control, tools=tools)
                    if run.status is RunStatus.PENDING and run.committed == made:
                        raise InternalError("A model call came to nothing.", at=run.id)
                case loop.RunTools(calls_to_run):
                    await self._run_tools(run, calls_to_run)
                    run = await store.run(run.conversation, run.id)
                case loop.PlaceToolResults():
                    placed = await self._place_results(run)
                    if placed is None:
                        return
                    run = placed
                case loop.AwaitOutputs(end_code):
                    await self._wait(run, end_code)
                    return
                case loop.Finish():
                    return
                case _:
                    assert_never(step)

    async def _wait(self, run: Run, end_code: str | None) -> None:
        await self._world.store.do(
            WaitRun(
                conversation=run.conversation,
                now_ms=self._world.clock.now_ms(),
                run=run.id,
                end_code=end_code,
            )
        )

    async def _place_results(self, run: Run) -> Run | None:
        placed = await self._world.store.do(
            PlaceResults(
                conversation=run.conversation,
                now_ms=self._world.clock.now_ms(),
                run=run.id,
                message=MessageId(self._world.new_id("msg_")),
                fence=self._world.fence,
            )
        )
        return None if isinstance(placed, Denied) or not placed.open else placed

    async def _end(self, run: Run, code: str) -> None:
        await self._world.store.do(
            EndRun(
                conversation=run.conversation,
                now_ms=self._world.clock.now_ms(),
                run=run.id,
                status=RunStatus.ERROR,
                error_code=code,
            )
        )

    # Tools that run here.

    async def _run_tools(self, run: Run, calls: tuple[Call, ...]) -> None:
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(self._execute(run, call))

    async def _execute(self, run: Run, call: Call) -> None:
        world = self._world
        function = world.functions[call.name]
        started = await world.store.do(
            StartCall(
                conversation=run.conversation,
                now_ms=world.clock.now_ms(),
                run=run.id,
                call_id=call.call_id,
                fence=world.fence,
                deadline_ms=world.clock.now_ms() + int(function.timeout_s * 1000),
            )
        )
        if isinstance(started, Denied):
            return
        try:
            async with asyncio.timeout(function.timeout_s):
                text = await execute(function, call)
        except TimeoutError:
            # Nobody can be asked whether it took effect, so the model is told just that.
            text = timed_out(function.timeout_s)
            await self._finish(started, CallState.ERROR, text, code="timeout_unknown")
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is its result
            problem = f"{type(error).__name__}: {error}"
            await self._finish(started, CallState.ERROR, problem, code="exception")
        else:
            await self._finish(started, CallState.SUCCESS, text)

    async def _finish(
        self, started: Call, state: CallState, text: str, *, code: str | None = None
    ) -> None:
        await self._world.store.do(
            FinishCall(
                conversation=started.conversation,
                now_ms=self._world.clock.now_ms(),
                run=started.run,
                call_id=started.call_id,
                state=state,
                content=text_result(text),
                code=code,
                fence=self._world.fence,
                attempt=started.attempt,
            )
        )
