"""Driving runs: one worker per conversation, from the queue to the end of each run.

A worker holds nothing that a restart could lose. After every step it asks the store what
stands there and the loop what comes next, so it can be killed anywhere and begun anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, assert_never

from msgspec.structs import replace

from antiphon.core import recovery
from antiphon.core.answers.judging import SCHEMA_MISMATCH, asking_again
from antiphon.core.blocks import Message
from antiphon.core.commands import (
    AskAgain,
    ClaimRun,
    EndRun,
    JoinRun,
    ResumeRun,
    WaitRun,
)
from antiphon.core.dispatch import IN_FLIGHT, Denied, State
from antiphon.core.ids import ConversationId, MessageId, OperationId, RunId
from antiphon.core.knowledge.retrieval import Beside
from antiphon.core.placement import CannotPlace, PlaceAt, StayQueued, place
from antiphon.core.records import (
    OPEN_RUN,
    TERMINAL_CALL,
    Approval,
    Call,
    CallState,
    Conversation,
    Run,
    RunStatus,
)
from antiphon.core.sessions.handover import with_precis
from antiphon.core.tools import loop
from antiphon.core.tree import last_closed_point
from antiphon.core.tree import line as visible
from antiphon.engine.dispatch.dispatcher import Dispatcher
from antiphon.engine.dispatch.targets import is_beyond
from antiphon.engine.knowledge.searching import look_up
from antiphon.engine.runs.control import Control
from antiphon.engine.runs.entering import (
    Entering,
    NotAtOnce,
    Start,
    as_closed,
    begins_at_once,
    input_enters,
    results_enter,
)
from antiphon.engine.runs.pausing import pause_of
from antiphon.engine.runs.startup import adopt, settle_unknown
from antiphon.engine.sessions.scheduler import Scheduler
from antiphon.engine.tools.executor import Executor
from antiphon.engine.world import World
from antiphon.errors import InternalError, InvalidInput, NotFound

LOOK_AGAIN_MS: Final = 5_000
"""Pause between two questions about a call of unknown fate."""

NEAR_HEAD: Final = 8
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
        wake_at: Callable[[int], None],
        start_of: Callable[[], Start | None],
    ) -> None:
        self._world = world
        self._dispatcher = dispatcher
        self._executor = Executor(world)
        self._scheduler = Scheduler(world)
        self._conversation = conversation
        self._strays = strays
        self._wake_at = wake_at
        self._start_of = start_of
        self._controls: dict[RunId, Control] = {}
        self._early: set[RunId] = set()  # canceled while they were about to begin
        self._asked: set[OperationId | None] = set()
        self._found: tuple[RunId, Beside | None] | None = None
        self._closing: Control | None = None
        self._called = False
        self._leaving = False

    def leave(self) -> None:
        """Begin no further run; the one under way goes on to its end."""
        self._leaving = True
        self.call()

    async def work(self) -> None:
        """Drive runs until there is none that could go on now.

        A canceled run holds up nobody: what it still has under way goes on beside the next.
        """
        while not self._leaving and (found := await self._next()) is not None:
            run = found.run if isinstance(found, Entering) else found
            if run.id in self._early:
                continue  # the store knows; it is not found again
            control = self._controls[run.id] = Control(self._world.clock)
            task = asyncio.create_task(self._drive(found, control), name=f"run {run.id}")
            try:
                done = await control.until(task)
            except asyncio.CancelledError:
                task.cancel()
                await asyncio.wait({task})
                raise
            if done:
                self._let_go(run.id)
                try:
                    task.result()
                except NotAtOnce:
                    assert isinstance(found, Entering)
                    assert found.start is not None
                    await found.start.alone()
                    continue
                await self._after(run.id)
            else:
                self._strays.add(task)
                task.add_done_callback(self._strays.discard)
                task.add_done_callback(partial(self._let_go, run.id))

    async def _after(self, run: RunId) -> None:
        """Let the session be looked at after a run; a message that comes cuts it short."""
        if self._leaving or self._called:
            return
        conversation = await self._world.store.conversation(self._conversation)
        if not self._scheduler.looks_after(conversation):
            return
        self._closing = Control(self._world.clock)
        try:
            ended = await self._world.store.run(self._conversation, run)
            await self._scheduler.after(ended, self._closing)
        finally:
            self._closing = None

    def call(self) -> None:
        """Something is to be done: do not dwell on what was."""
        self._called = True
        if self._closing is not None:
            self._closing.cancel(0.0)

    @property
    def under_way(self) -> tuple[RunId, ...]:
        """The runs that it works on, and has not been told to let go of."""
        return tuple(run for run, control in self._controls.items() if not control.canceled)

    def cancel(self, run: RunId) -> None:
        """Tell a run under way that it was canceled in the store."""
        if run in self._controls:
            self._controls[run].cancel(self._world.settings.cancel_grace_s)
        else:
            self._early.add(run)

    def _let_go(self, run: RunId, _: object = None) -> None:
        self._controls.pop(run, None)
        self._world.broker.drop(run)

    # Which run is next.

    async def _next(self) -> Run | Entering | None:
        start = self._start_of()
        if start is not None:
            entering = await self._at_once(start)
            if entering is not None:
                return entering
            await start.alone()
        while True:
            try:
                found = await self._look()
            except _Moved:
                continue  # the world moved between looking and placing: look again
            if found is not None and (start := self._start_of()) is not None:
                await start.alone()  # it came meanwhile, and who waits for it waits for no other
            return found

    async def _look(self) -> Run | Entering | None:
        """Return a run that holds the slot, or what is to enter for one that may take it."""
        self._called = False
        store = self._world.store
        try:
            conversation = await store.conversation(self._conversation)
        except NotFound:
            return None  # it was to be created with a run, and was not
        runs = await store.runs(self._conversation, OPEN_RUN)
        if conversation.slot is not None:
            held = next((run for run in runs if run.id == conversation.slot), None)
            if (
                held is not None
                and held.status is RunStatus.PENDING
                and await self._paused(held, conversation)
            ):
                return None
            if held is not None and held.status is RunStatus.UNKNOWN:
                if self._world.owns(held) and held.operation not in self._asked:
                    return held  # its provider may keep the answer: `_drive` asks
                await self._await_deadline(held)
            return await self._claimed(held) if held else None
        for run in runs:
            if run.status is RunStatus.WAITING:
                found = await self._woken(run, conversation)
                if found is not None:
                    return found
        for run in runs:
            if run.status is RunStatus.QUEUED:
                if await self._paused(run, conversation):
                    return None  # whoever waits behind it waits too
                placed = await self._place(run, conversation, runs)
                if placed is not None:
                    return placed
        return None

    async def _at_once(self, start: Start) -> Entering | None:
        """Return what is to enter for a run as it is started; None where it is started first."""
        run, conversation = start.run, start.conversation
        if self._scheduler.on(conversation) or not await begins_at_once(self._world, start):
            return None
        line = [*start.before] or await self._line_to(
            conversation, run.asked_parent or conversation.head
        )
        match place(run, line, ()):
            case PlaceAt(parent) if parent is not None or not conversation.revision:
                conversation = await self._in_session_of(parent, line, conversation)
                return input_enters(
                    self._world, conversation, run, start.waiting, parent, start=start
                )
            case _:
                return None

    async def _paused(self, run: Run, conversation: Conversation) -> bool:
        """Say whether the run has to wait for another adapter; it is kept where all can see it."""
        pause = await pause_of(self._world, run, conversation)
        paused = self._world.rollouts.paused
        paused.pop(conversation.id, None)
        if pause is not None:
            paused[conversation.id] = pause.block_kind
        return pause is not None

    async def _woken(self, run: Run, conversation: Conversation) -> Run | Entering | None:
        """Return a waiting run that can go on: its calls are closed, or one may run here now."""
        calls = await self._open_step(run)
        await self._settle_calls(calls)
        match loop.next_step(run, calls, frozenset(self._world.functions)):
            case loop.PlaceToolResults():
                return results_enter(self._world, conversation, run, calls)
            case loop.RunTools():
                resumed = await self._world.do(
                    ResumeRun(
                        conversation=run.conversation,
                        now_ms=self._world.clock.now_ms(),
                        run=run.id,
                        fence=self._world.fence,
                    )
                )
                return None if isinstance(resumed, Denied) else resumed
            case _:
                return None

    async def _settle_calls(self, calls: Sequence[Call]) -> None:
        """Close waiting calls that can be closed now; come back when others may be.

        Raises:
            _Moved: One was closed.
        """
        now_ms = self._world.clock.now_ms()
        for call in calls:
            result = await self._executor.settle(call)
            if result is not None:
                await self._world.do(result)
                raise _Moved
            if call.state is CallState.UNKNOWN:
                soon = now_ms + LOOK_AGAIN_MS
                self._wake_at(min(soon, call.deadline_ms) if call.deadline_ms > now_ms else soon)
            elif call.approval is Approval.NEEDED and call.state is CallState.PENDING:
                self._wake_at(call.deadline_ms)

    async def _await_deadline(self, run: Run) -> None:
        """Come back when the run's attempt can be settled; settle it if its time has passed.

        Raises:
            _Moved: It was settled.
        """
        operations = await self._world.store.operations(run.conversation, run.id)
        attempt = (await self._world.store.attempts(operations[-1]))[-1]
        if attempt.state is not State.UNKNOWN:
            return
        if attempt.deadline_ms > self._world.clock.now_ms():
            self._wake_at(attempt.deadline_ms)
        elif isinstance(await settle_unknown(self._world, attempt), recovery.ConfirmEnded):
            raise _Moved

    async def _still_a_dead_nodes(self, run: Run) -> bool:
        """Say whether something of this run is in flight that a dead node has left.

        The run was claimed a moment ago, and a client's word came before that was settled: who
        claimed it does so next, and then calls.
        """
        world = self._world
        if world.alone:
            return False
        here = (world.fence.node, world.fence.epoch)
        if run.operation is not None:
            attempt = (await world.store.attempts(run.operation))[-1]
            if attempt.state in IN_FLIGHT and (attempt.node, attempt.epoch) != here:
                return True
        calls = await world.store.calls(run.conversation, run.id)
        return any(c.state is CallState.EXECUTING and (c.node, c.epoch) != here for c in calls)

    async def _claimed(self, run: Run) -> Run | None:
        """Return a run that may go on here; take it over where its owner is gone.

        Raises:
            _Moved: It was taken over.
        """
        if not loop.may_go_on(run):
            return None
        if self._world.owns(run):
            ready = run.status is RunStatus.PENDING and not await self._still_a_dead_nodes(run)
            return run if ready else None
        if run.operation is not None and await is_beyond(self._world, run.operation):
            return None
        claimed = await self._world.do(
            ClaimRun(
                conversation=run.conversation,
                now_ms=self._world.clock.now_ms(),
                run=run.id,
                fence=self._world.fence,
            )
        )
        if isinstance(claimed, Denied):
            return None
        # Its owner is gone, and a client's word came before anybody looked: what that one had in
        # flight is settled first.
        await adopt(self._world, [claimed])
        raise _Moved

    async def _open_step(self, run: Run) -> list[Call]:
        """Return the calls of the run's newest message whose results are not placed yet."""
        if run.leaf is None:
            return []
        return await self._world.store.calls(run.conversation, run.id, run.leaf)

    async def _place(
        self, run: Run, conversation: Conversation, runs: list[Run]
    ) -> Entering | None:
        others = [other for other in runs if other.id != run.id]
        line = await self._line_to(conversation, run.asked_parent or conversation.head)
        match place(run, line, others):
            case PlaceAt(parent):
                conversation = await self._in_session_of(parent, line, conversation)
                waiting, beside = None, None
                if run.input is not None:
                    waiting = await self._world.store.run_input(run.conversation, run.id)
                if waiting is not None and await self._decided(run, conversation, others, waiting):
                    raise _Moved
                if waiting is not None:
                    beside = await self._beside(run, conversation, waiting)
                # A précis came with a switch, and that moved the revision.
                if waiting is not None and parent is None and conversation.revision:
                    session = await self._world.store.session(conversation.id, conversation.session)
                    beside = with_precis(beside, session.id, session.precis)
                key = await self._world.store.tenant_key(conversation.tenant)
                return input_enters(
                    self._world, conversation, run, waiting, parent, beside, key=key
                )
            case StayQueued():
                return None
            case CannotPlace(code):
                await self._end(run, code)
                return None

    async def _beside(self, run: Run, conversation: Conversation, input_: Message) -> Beside | None:
        """Return what was found for a run's input; looked up once, though it be placed again."""
        if self._found is None or self._found[0] != run.id:
            self._found = (run.id, await look_up(self._world, conversation, input_))
        return self._found[1]

    async def _decided(
        self, run: Run, conversation: Conversation, others: list[Run], waiting: Message
    ) -> bool:
        """Let it be decided where a message belongs; a cancel of its run reaches that."""
        control = self._controls[run.id] = Control(self._world.clock)
        try:
            return await self._scheduler.before(run, conversation, others, waiting, control)
        finally:
            self._controls.pop(run.id, None)

    async def _in_session_of(
        self, parent: MessageId | None, line: list[Message], conversation: Conversation
    ) -> Conversation:
        """Return the row as it will stand: a parent in an archived session makes that one active."""
        above = next((m for m in line if m.id == parent), None)
        if above is None or above.session in (None, conversation.session):
            return conversation
        session = await self._world.store.session(conversation.id, above.session)
        return replace(conversation, session=session.id, head=session.head)

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

    async def _drive(self, found: Run | Entering, control: Control) -> None:
        store, functions = self._world.store, frozenset(self._world.functions)
        run, entering = (found.run, found) if isinstance(found, Entering) else (found, None)
        if run.status is RunStatus.UNKNOWN:
            run, entering = await self._taken_up(run, control)
            if not self._world.owns(run):
                return
        while run.status is RunStatus.PENDING and not control.canceled:
            calls = [] if entering else await self._open_step(run)
            step = loop.next_step(run, calls, functions)
            match step:
                case loop.CallModel(tools):
                    before = run, entering
                    run, entering = await self._between_steps(run, entering, control)
                    if (run, entering) != before:
                        continue
                    made = run.committed
                    stepped = await self._dispatcher.turn(
                        run, control, tools=tools, entering=entering
                    )
                    run, entering = stepped.run, None
                    if not self._world.owns(run):
                        return  # another node was there first
                    came_to_nothing = run.committed == made and run.wish is None
                    if run.status is RunStatus.PENDING and came_to_nothing:
                        raise InternalError("A model call came to nothing.", at=run.id)
                    if stepped.started:
                        run, entering = await self._through(run, control, stepped.started)
                case loop.RunTools(calls_to_run):
                    run, entering = await self._through(run, control, calls_to_run)
                case loop.PlaceToolResults():
                    conversation = await store.conversation(run.conversation)
                    entering = results_enter(self._world, conversation, run, calls)
                    run = entering.run
                case loop.AwaitOutputs(end_code):
                    await self._wait(run, end_code)
                    return
                case loop.Finish():
                    return
                case _:
                    assert_never(step)

    async def _between_steps(
        self, run: Run, entering: Entering | None, control: Control
    ) -> tuple[Run, Entering | None]:
        """Let happen what has to before the model is called; as they were, where nothing has."""
        if run.wish is not None:
            for command in entering.commands if entering else ():
                await self._world.store.do(command)
            return await self._scheduler.inside(run, control), None
        if loop.over_limit(run):
            await self._end(run, "model_call_limit", entering)
            return await self._world.store.run(run.conversation, run.id), None
        if not run.committed:
            return run, entering
        if run.end_code == SCHEMA_MISMATCH:
            run = await self._asked_again(run)
        return await self._joined(run, entering)

    async def _asked_again(self, run: Run) -> Run:
        """Let the model know why its answer does not do, once."""
        store = self._world.store
        assert run.leaf is not None
        answer = await store.message(run.conversation, run.leaf)
        problem = await self._dispatcher.problem(run, answer)
        now_ms = self._world.clock.now_ms()
        named = MessageId(self._world.new_id("msg_"))
        await store.do(
            AskAgain(
                conversation=run.conversation,
                now_ms=now_ms,
                run=run.id,
                message=asking_again(named, run.conversation, problem or "it did not fit", now_ms),
                parent=run.leaf,
                fence=self._world.fence,
            )
        )  # denied where the world moved: the loop looks again
        return await store.run(run.conversation, run.id)

    async def _joined(self, run: Run, entering: Entering | None) -> tuple[Run, Entering | None]:
        """Let messages that were sent to steer this run follow the results of its last step."""
        store = self._world.store
        queued = await store.runs(run.conversation, {RunStatus.QUEUED})
        steering = [other for other in queued if other.options.steer]
        if not steering:
            return run, entering
        for command in entering.commands if entering else ():
            await store.do(command)
        for other in steering:
            run = await store.run(run.conversation, run.id)
            if run.status is not RunStatus.PENDING or run.leaf is None:
                break
            await store.do(
                JoinRun(
                    conversation=run.conversation,
                    now_ms=self._world.clock.now_ms(),
                    run=other.id,
                    into=run.id,
                    parent=run.leaf,
                    fence=self._world.fence,
                )
            )  # denied where it was withdrawn, or the world moved: then it waits for its turn
        return await store.run(run.conversation, run.id), None

    async def _taken_up(self, run: Run, control: Control) -> tuple[Run, Entering | None]:
        """Read on what was left UNKNOWN, where its provider keeps the answer; once."""
        self._asked.add(run.operation)
        try:
            stepped = await self._dispatcher.take_up(run, control)
        except (InvalidInput, NotFound):
            return run, None  # the model, or its key, is not there any more: time will tell
        if stepped is None:
            return run, None
        if stepped.started:
            return await self._through(stepped.run, control, stepped.started)
        return stepped.run, None

    async def _wait(self, run: Run, end_code: str | None) -> None:
        await self._world.do(
            WaitRun(
                conversation=run.conversation,
                now_ms=self._world.clock.now_ms(),
                run=run.id,
                fence=self._world.fence,
                end_code=end_code,
            )
        )

    async def _end(self, run: Run, code: str, entering: Entering | None = None) -> None:
        for command in entering.commands if entering else ():
            await self._world.do(command)
        await self._world.do(
            EndRun(
                conversation=run.conversation,
                now_ms=self._world.clock.now_ms(),
                run=run.id,
                status=RunStatus.ERROR,
                fence=self._world.fence,
                error_code=code,
            )
        )

    # Tools that run here.

    async def _through(
        self, run: Run, control: Control, calls: Sequence[Call]
    ) -> tuple[Run, Entering | None]:
        """Carry out `calls`; where that closes their step, their results enter next.

        The results that close it are stored with what follows from them, which is returned with
        the run as it will stand then.
        """
        store = self._world.store
        last = await self._executor.carry_out(calls, control)
        if last:
            step = as_closed(await self._open_step(run), last)
            if not control.canceled and all(call.state in TERMINAL_CALL for call in step):
                conversation = await store.conversation(run.conversation)
                entering = results_enter(self._world, conversation, run, step, last)
                return entering.run, entering
            await self._executor.store(last)
        return await store.run(run.conversation, run.id), None
