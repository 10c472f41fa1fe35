"""Calls of one step that are carried out together: claimed, run, stopped, and stored as they end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from antiphon.core.blocks import Origin, Role, Text, ToolCall
from antiphon.core.commands import (
    CancelRun,
    Command,
    CreateConversation,
    FinishCall,
    LoseCall,
    StartCall,
    Then,
)
from antiphon.core.dispatch import Denied
from antiphon.core.ids import LOCAL_TENANT, CallId, ConversationId, RunId, SessionId
from antiphon.core.records import Call, CallState
from antiphon.core.tools.ledger import TOO_LATE, WAS_RUNNING
from antiphon.engine.assembly import open_world
from antiphon.engine.runs.control import Control
from antiphon.engine.settings import Settings
from antiphon.engine.tools.executor import Executor
from antiphon.engine.tools.function import Function
from antiphon.engine.world import World
from antiphon.errors import StoreError
from tests.stores.talk import Talk, a_digest
from tests.support.clock import SimulatedClock
from tests.support.provider import ScriptedProvider

RUN = RunId("run_1")


class Step:
    """The calls of one committed answer, PENDING, and an executor for them.

    Attributes:
        transactions: The ledger's commands of each transaction, as far as they were carried out.
        denies: Whether the store refuses these commands, which are tried as one transaction.
        then: What happens as soon as a transaction of several is durable.
    """

    def __init__(self, world: World, talk: Talk, clock: SimulatedClock) -> None:
        self.world = world
        self.talk = talk
        self.clock = clock
        self.executor = Executor(world)
        self.control = Control(clock)
        self.transactions: list[tuple[str, ...]] = []
        self._noted = asyncio.Event()
        self.denies: Callable[[tuple[Command[Any], ...]], bool] = lambda _: False
        self.then: Callable[[], object] = lambda: None
        self._do, self._do_all = world.store.do, world.store.do_all
        world.store.do, world.store.do_all = self._one, self._several  # type: ignore[method-assign]

    async def _one(self, command: Command[Any]) -> Any:
        answer = await self._do(command)
        self._note((command,), answer)
        return answer

    async def _several(self, *commands: Command[Any]) -> Any:
        if self.denies(commands):
            return Denied("by the test")
        answer = await self._do_all(*commands)
        self._note(commands, answer)
        self.then()
        return answer

    def _note(self, commands: Iterable[Command[Any]], answer: object) -> None:
        named = tuple(
            f"{type(command).__name__} {command.call_id}"
            for command in commands
            if isinstance(command, StartCall | FinishCall)
        )
        if named and not isinstance(answer, Denied):
            self.transactions.append(named)
            self._noted.set()

    async def until(self, *transaction: str) -> None:
        """Wait until this transaction was carried out."""
        async with asyncio.timeout(5):
            while transaction not in self.transactions:
                self._noted.clear()
                await self._noted.wait()

    async def rows(self) -> list[Call]:
        return await self.world.store.calls(self.talk.conversation, RUN)

    async def states(self) -> list[CallState]:
        return [row.state for row in await self.rows()]

    async def carry_out(self) -> None:
        """Carry all of them out, and store what came last."""
        last = await self.executor.carry_out(await self.rows(), self.control)
        await self.executor.store(last)

    async def cancel(self) -> None:
        """Cancel the run as the engine does: in the store, and then in what is under way."""
        await self.talk.do(CancelRun(**self.talk.head(), run=RUN, reason="user"))
        self.control.cancel(0.0)


@asynccontextmanager
async def step_of(
    tmp_path: Path,
    *runs: Callable[[], Awaitable[str] | str],
    places: int = 16,
    again: Sequence[int] = (),
) -> AsyncIterator[Step]:
    """A step whose calls c0, c1, … are each of a tool of its own; then those `again`."""
    clock = SimulatedClock()
    functions = [Function(name=f"t{n}", run=run) for n, run in enumerate(runs)]
    names = [function.name for function in functions]
    names += [names[n] for n in again]
    async with open_world(
        tmp_path / "antiphon.db",
        settings=Settings(max_parallel_tools=places),
        functions=functions,
        transport=ScriptedProvider(),
        clock=clock,
    ) as world:
        talk = Talk(world.store, world.fence, ConversationId("conv_1"), SessionId("sess_1"))
        talk.now_ms = clock.now_ms()
        await talk.do(CreateConversation(**talk.head(), tenant=LOCAL_TENANT, session=talk.session))
        attempt = await talk.streaming()
        blocks = [
            ToolCall(call_id=CallId(f"c{n}"), name=names[n], arguments="{}")
            for n in range(len(names))
        ]
        answer = talk.message("a1", role=Role.ASSISTANT, origin=Origin.MODEL, blocks=tuple(blocks))
        commit = talk.commit("op_1", attempt.generation, answer, then=Then.CONTINUE)
        calls = tuple(replace(call, arguments_digest=a_digest(call.name)) for call in commit.calls)
        await talk.do(replace(commit, calls=calls))
        yield Step(world, talk, clock)


async def quick() -> str:
    return "done"


async def test_calls_of_a_step_are_claimed_in_one_transaction_and_durable_before_any_runs(
    tmp_path: Path,
) -> None:
    seen: list[list[CallState]] = []

    async def look() -> str:
        seen.append(await step.states())
        return "seen"

    async with step_of(tmp_path, look, look, look) as step:
        await step.carry_out()
        assert step.transactions[0] == ("StartCall c0", "StartCall c1", "StartCall c2")
        assert seen == [[CallState.EXECUTING] * 3] * 3


async def test_results_that_come_together_are_stored_together_and_the_last_are_left_to_the_caller(
    tmp_path: Path,
) -> None:
    gate = asyncio.Event()

    async def slow() -> str:
        await gate.wait()
        return "late"

    async with step_of(tmp_path, quick, slow, quick, slow) as step:
        last = asyncio.ensure_future(step.executor.carry_out(await step.rows(), step.control))
        await step.until("FinishCall c0", "FinishCall c2")
        gate.set()
        results = await asyncio.wait_for(last, 5)
        assert [result.call_id for result in results] == ["c1", "c3"]
        assert (await step.states()).count(CallState.EXECUTING) == 2
        await step.executor.store(results)
        assert step.transactions[2:] == [("FinishCall c1", "FinishCall c3")]
        assert await step.states() == [CallState.SUCCESS] * 4


async def test_a_result_from_the_ledger_does_not_wait_for_what_runs_beside_it(
    tmp_path: Path,
) -> None:
    began, gate = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        began.set()
        await gate.wait()
        return "late"

    async with step_of(tmp_path, slow, quick, again=[1]) as step:
        waiting, first, same = await step.rows()
        await step.executor.store(await step.executor.carry_out([first], step.control))
        work = asyncio.ensure_future(step.executor.carry_out([waiting, same], step.control))
        await asyncio.wait_for(began.wait(), 5)
        await step.until("FinishCall c2")
        assert (await step.rows())[2].reused_from == "c1"
        assert not work.done()
        gate.set()
        assert [result.call_id for result in await asyncio.wait_for(work, 5)] == ["c0"]


async def test_where_somebody_took_one_of_them_the_others_run_and_that_one_does_not(
    tmp_path: Path,
) -> None:
    ran: Counter[int] = Counter()

    def counting(n: int) -> Callable[[], Awaitable[str]]:
        async def run() -> str:
            ran[n] += 1
            return str(n)

        return run

    async with step_of(tmp_path, *map(counting, range(3))) as step:
        before = await step.rows()
        await step.talk.do(step.talk.start_call("run_1", "c1"))
        await step.executor.store(await step.executor.carry_out(before, step.control))
        assert ran == {0: 1, 2: 1}
        done, going = CallState.SUCCESS, CallState.EXECUTING
        assert await step.states() == [done, going, done]


async def test_where_one_result_comes_too_late_the_others_are_stored_and_it_is_put_aside_once(
    tmp_path: Path,
) -> None:
    gate = asyncio.Event()

    async def at_the_end() -> str:
        await gate.wait()
        return "done"

    async def given_up() -> str:
        step.talk.now_ms += 61_000  # past its deadline, in the middle of it
        await step.talk.do(LoseCall(**step.talk.head(), run=RUN, call_id=CallId("c1")))
        gate.set()
        return "all the same"

    async with step_of(tmp_path, at_the_end, given_up, at_the_end) as step:
        await step.carry_out()
        done, lost = CallState.SUCCESS, CallState.UNKNOWN
        assert await step.states() == [done, lost, done]
        (aside,) = await step.world.store.quarantine(step.talk.conversation)
        assert "all the same" in aside.data


async def test_a_store_that_takes_no_transaction_of_several_takes_each_by_itself(
    tmp_path: Path,
) -> None:
    async with step_of(tmp_path, quick, quick) as step:
        step.denies = lambda commands: len(commands) > 1
        await step.carry_out()
        assert sorted(step.transactions) == [
            ("FinishCall c0",),
            ("FinishCall c1",),
            ("StartCall c0",),
            ("StartCall c1",),
        ]
        assert await step.states() == [CallState.SUCCESS] * 2


async def test_what_was_under_way_when_results_could_not_be_stored_is_neither_lost_nor_run_again(
    tmp_path: Path,
) -> None:
    ran: list[str] = []

    async def pay() -> str:
        ran.append("paid")
        return "paid"

    async with step_of(tmp_path, pay, pay) as step:
        last = await step.executor.carry_out(await step.rows(), step.control)

        async def broken(*_: object) -> None:
            raise StoreError("The disk is gone.")

        whole = step.world.store.do_all
        step.world.store.do_all = broken  # type: ignore[method-assign,assignment]
        with pytest.raises(StoreError):
            await step.executor.store(last)
        step.world.store.do_all = whole  # type: ignore[method-assign]
        assert await step.states() == [CallState.EXECUTING] * 2
        assert ran == ["paid", "paid"]
        await step.executor.store(last)
        await step.executor.store(last)  # the same results again change nothing
        assert await step.states() == [CallState.SUCCESS] * 2


# Cancel.


async def test_a_call_that_waits_for_a_place_when_its_run_is_canceled_does_not_begin(
    tmp_path: Path,
) -> None:
    began, ran = asyncio.Event(), list[str]()

    async def slow() -> str:
        began.set()
        await asyncio.Event().wait()
        return ""

    def plain() -> str:
        ran.append("plain")
        return ""

    async def other() -> str:
        ran.append("other")
        return ""

    async with step_of(tmp_path, slow, plain, other, places=1) as step:
        work = asyncio.ensure_future(step.executor.carry_out(await step.rows(), step.control))
        await asyncio.wait_for(began.wait(), 5)
        await step.cancel()
        assert await asyncio.wait_for(work, 5) == []
        assert ran == []
        rows = await step.rows()
        assert [row.state for row in rows] == [CallState.CANCELED] * 3
        assert {row.content for row in rows} == {(Text(text=WAS_RUNNING),)}


async def test_a_cancel_between_the_claim_and_the_first_step_of_a_call_ends_it(
    tmp_path: Path,
) -> None:
    """It is canceled in the very turn of the event loop in which its task was made."""
    async with step_of(tmp_path, quick, quick) as step:
        step.then = partial(asyncio.get_running_loop().call_soon, step.control.cancel, 0.0)
        work = step.executor.carry_out(await step.rows(), step.control)
        assert await asyncio.wait_for(work, 5) == []


async def test_what_nothing_can_stop_ends_after_the_cancel_and_is_put_aside(
    tmp_path: Path,
) -> None:
    loop, began, gate = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def plain() -> str:
        loop.call_soon_threadsafe(began.set)
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(5)
        return "it did happen"

    async with step_of(tmp_path, plain, quick) as step:
        work = asyncio.ensure_future(step.carry_out())
        await asyncio.wait_for(began.wait(), 5)
        await step.cancel()
        assert not work.done()
        gate.set()
        await asyncio.wait_for(work, 5)
        aside = await step.world.store.quarantine(step.talk.conversation)
        assert "it did happen" in "".join(late.data for late in aside)


# Deadlines.


async def test_a_call_whose_deadline_passes_while_it_waits_for_a_place_does_not_begin(
    tmp_path: Path,
) -> None:
    began, gate, ran = asyncio.Event(), asyncio.Event(), list[str]()

    async def slow() -> str:
        began.set()
        await gate.wait()
        return "done"

    async def late() -> str:
        ran.append("late")
        return ""

    async with step_of(tmp_path, slow, late, places=1) as step:
        work = asyncio.ensure_future(step.carry_out())
        await asyncio.wait_for(began.wait(), 5)
        await step.clock.advance(60)
        gate.set()
        await asyncio.wait_for(work, 5)
        assert ran == []
        first, second = await step.rows()
        assert first.state is CallState.SUCCESS
        assert (second.state, second.code) == (CallState.ERROR, "not_run")
        assert second.content == (Text(text=TOO_LATE),)


async def test_a_call_whose_deadline_passes_while_it_waits_for_a_thread_does_not_begin(
    tmp_path: Path,
) -> None:
    loop, began, gate = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    ran = list[str]()

    def slow() -> str:
        loop.call_soon_threadsafe(began.set)
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(5)
        return "done"

    def late() -> str:
        ran.append("late")
        return ""

    loop.set_default_executor(ThreadPoolExecutor(1))
    async with step_of(tmp_path, slow, late) as step:
        work = asyncio.ensure_future(step.carry_out())
        await asyncio.wait_for(began.wait(), 5)
        await step.clock.advance(60)
        gate.set()
        await asyncio.wait_for(work, 5)
        assert ran == []
        assert [(row.state, row.code) for row in await step.rows()] == [
            (CallState.SUCCESS, None),
            (CallState.ERROR, "not_run"),
        ]
