"""Random walks over the ledger of the real store: executors that die, come late, or do not know that they are too late.

What an executor does to the world is counted here, beside the store: a tool that may write
takes effect once at most, whatever happens to the node that ran it.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from hypothesis.stateful import run_state_machine_as_test as walk

from antiphon.core.blocks import Message, Status
from antiphon.core.commands import CancelRun, Command, Fence, LoseCall, StartKey, Then
from antiphon.core.dispatch import Denied
from antiphon.core.ids import MessageId, NodeId, RunId
from antiphon.core.records import TERMINAL_CALL, Call, CallState, Run, Runner
from antiphon.stores.base import Store
from antiphon.stores.postgres import open_postgres
from antiphon.stores.sqlite import open_sqlite
from tests.stores.talk import DEADLINE_MS, START_MS, Talk, a_digest
from tests.support.postgres import shared_server

T = TypeVar("T")
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Executor:
    """What a process holds in memory of a call that it claimed."""

    run: RunId
    call: str
    attempt: int
    fence: Fence
    deadline_ms: int
    executed: bool = False


class Ledger(RuleBasedStateMachine):
    """One conversation in one file; one run after the other asks for two tool calls.

    There is one rule, since Hypothesis leaves some rules out of each walk.
    """

    reached: ClassVar[Counter[str]] = Counter()

    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp())
        self.count = 0
        self.store: Store = self.wait(self.open())
        self.talk = self.wait(Talk.begin(self.store))
        self.old = self.talk.fence
        self.executors: list[Executor] = []
        self.effects: Counter[tuple[str, str]] = Counter()
        self.ended: dict[tuple[str, str], Call] = {}  # calls as they stood when they had ended
        self.keys: dict[str, str] = {}  # key -> the run it started
        self.read_only: set[str] = set()

    def wait(self, work: Awaitable[T]) -> T:
        async def waited() -> T:
            return await work

        return self.runner.run(waited())

    async def open(self) -> Store:
        """Open what the last process left."""
        return await open_sqlite(self.folder / "a.db", synchronous="OFF")

    def teardown(self) -> None:
        with contextlib.suppress(AttributeError):
            self.wait(self.store.close())
            self.runner.close()
            shutil.rmtree(self.folder)

    def do(self, command: Command[T]) -> T | Denied:
        answer = self.wait(self.store.do(command))
        word = "denied" if isinstance(answer, Denied) else "done"
        self.reached[f"{type(command).__name__} {word}"] += 1
        return answer

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def runs(self) -> list[Run]:
        return self.wait(self.store.runs(self.talk.conversation))

    def calls(self, run: RunId) -> list[Call]:
        return self.wait(self.store.calls(self.talk.conversation, run))

    def tree(self) -> dict[str, Message]:
        return {m.id: m for m in self.wait(self.store.tree(self.talk.conversation))}

    # What happens next.

    @rule(data=st.data())
    def something_happens(self, data: st.DataObject) -> None:
        """One thing out of all that can happen now."""
        data.draw(st.sampled_from(list(self.moves())))()

    def moves(self) -> Iterator[Callable[[], object]]:
        yield from (self.restart, self.time_passes, self.repeat_a_key)
        yield from [self.another_worker] * (4 if self.executors else 1)
        open_runs = [run for run in self.runs() if run.open]
        if not open_runs:
            yield from [partial(self.ask, then) for then in (Then.CONTINUE, Then.WAIT) * 3]
        for run in self.runs()[-2:]:
            yield partial(self.cancel, run)
            calls = self.calls(run.id)
            for call in calls:
                pending = call.state == CallState.PENDING
                yield from [partial(self.claim, run, call)] * (8 if pending else 1)
                # Lost while its owner works, brought after it has ended: to be refused.
                gone = call.state == CallState.EXECUTING and call.epoch != self.talk.fence.epoch
                yield from [partial(self.lose, run, call)] * (12 if gone else 1)
                yield partial(self.bring, run, call)
            if run.open and calls and all(call.state in TERMINAL_CALL for call in calls):
                yield from [partial(self.close_step, run)] * 20
        for executor in self.executors:
            step = self.report if executor.executed else self.execute
            # A process whose lease is over is slow, so that others come before it.
            yield from [partial(step, executor)] * (10 if executor.fence == self.talk.fence else 2)

    def ask(self, then: Then) -> None:
        """A run comes as far as an answer that asks for two calls."""
        run, operation, talk = self.name("run_"), self.name("op_"), self.talk
        key = StartKey(
            scope="s",
            key=f"key-{run}",
            body_digest=a_digest(run),
            expires_ms=talk.now_ms + DAY_MS,
        )
        self.keys[key.key] = run
        self.wait(talk.do(talk.start(run, self.name("m"), key=key)))
        row = self.wait(talk.row())
        placed = self.wait(talk.do(talk.place(run, parent=None, revision=row.revision)))
        answer, calls = self.name("a"), (self.name("call_"), self.name("call_"))
        assert placed.leaf
        self.prepare(run, operation, placed.leaf, answer)
        attempt = self.wait(talk.do(talk.accept(operation)))
        self.wait(talk.do(talk.written(operation, attempt.generation)))
        assert self.calls(RunId(run)) == [], "calls before the commit"
        self.wait(talk.do(talk.opened(operation, attempt.generation)))
        harmless = self.count % 3 > 0
        self.read_only |= set(calls) if harmless else set()
        commit = talk.commit(
            operation,
            attempt.generation,
            talk.answer(answer, *calls),
            then=then,
            runner=Runner.CLIENT if then is Then.WAIT else Runner.FUNCTION,
            read_only=harmless,
        )
        self.wait(talk.do(commit))

    def prepare(self, run: str, operation: str, base: str, answer: str) -> None:
        row = self.wait(self.talk.row())
        command = self.talk.prepare(
            run,
            operation,
            base=base,
            revision=row.revision,
            answer=answer,
            canceled=row.cancel_generation,
        )
        self.wait(self.talk.do(command))

    def close_step(self, run: Run) -> None:
        """All calls have ended: their results enter the tree, and the run answers."""
        placed = self.do(self.talk.place_results(run.id, self.name("t")))
        if isinstance(placed, Denied):
            return
        operation, answer = self.name("op_"), self.name("a")
        assert placed.leaf
        self.prepare(run.id, operation, placed.leaf, answer)
        attempt = self.wait(self.talk.do(self.talk.accept(operation)))
        for step in (self.talk.written, self.talk.opened):
            self.wait(self.talk.do(step(operation, attempt.generation)))
        commit = self.talk.commit(operation, attempt.generation, self.talk.answer(answer))
        self.wait(self.talk.do(commit))

    def repeat_a_key(self) -> None:
        """The same start again is the run that it started; another one under its key is refused."""
        for key, run in list(self.keys.items())[-1:]:
            again = StartKey(
                scope="s", key=key, body_digest=a_digest(run), expires_ms=self.talk.now_ms + DAY_MS
            )
            if self.talk.now_ms >= START_MS + DAY_MS:
                return  # it may have been forgotten
            before = len(self.runs())
            answer = self.do(self.talk.start(self.name("run_"), self.name("m"), key=again))
            assert not isinstance(answer, Denied)
            assert answer.id == run
            other = replace(again, body_digest=a_digest("other"))
            refused = self.do(self.talk.start(self.name("run_"), self.name("m"), key=other))
            assert refused == Denied("idempotency_conflict")
            assert len(self.runs()) == before

    # Calls.

    def speaker(self, number: int) -> Fence:
        return self.old if number % 7 == 0 else self.talk.fence

    def claim(self, run: Run, call: Call) -> None:
        fence = self.speaker(self.count)
        self.count += 1
        command = replace(self.talk.start_call(run.id, call.call_id), fence=fence)
        answer = self.do(command)
        current = fence == self.talk.fence
        assert isinstance(answer, Denied) is not (
            run.open and current and call.state == CallState.PENDING
        )
        if not isinstance(answer, Denied):
            assert answer.state == CallState.EXECUTING
            deadline_ms = self.talk.now_ms + DEADLINE_MS
            self.executors.append(
                Executor(run.id, call.call_id, answer.attempt, fence, deadline_ms)
            )

    def execute(self, executor: Executor) -> None:
        """The tool is called, unless its time is over: then the executor must not."""
        if executor.executed or self.talk.now_ms >= executor.deadline_ms:
            return
        self.effects[executor.run, executor.call] += 1
        self.executors[self.executors.index(executor)] = replace(executor, executed=True)

    def report(self, executor: Executor) -> None:
        """The result is brought, in time or after the call was given up."""
        self.executors.remove(executor)
        call = self.call(executor)
        open_run = self.wait(self.talk.run(executor.run)).open
        finish = self.talk.finish_call(executor.run, executor.call, attempt=executor.attempt)
        answer = self.do(replace(finish, fence=executor.fence))
        own = (call.node, call.epoch, call.attempt) == (
            executor.fence.node,
            executor.fence.epoch,
            executor.attempt,
        )
        same_again = call.state == CallState.SUCCESS and call.content == finish.content
        taken = open_run and own and call.state == CallState.EXECUTING
        assert isinstance(answer, Denied) is not (taken or same_again)

    def call(self, executor: Executor) -> Call:
        return next(c for c in self.calls(executor.run) if c.call_id == executor.call)

    def lose(self, run: Run, call: Call) -> None:
        command = LoseCall(**self.talk.head(), run=run.id, call_id=call.call_id)
        answer = self.do(command)
        gone = call.epoch != self.talk.fence.epoch or command.now_ms >= call.deadline_ms
        taken = call.state == CallState.EXECUTING and gone
        assert isinstance(answer, Denied) is not taken
        if not isinstance(answer, Denied):
            again = call.call_id in self.read_only
            assert answer.state == (CallState.PENDING if again else CallState.UNKNOWN)

    def bring(self, run: Run, call: Call) -> None:
        """A client or a person says what came of it; nobody may while it is being executed."""
        answer = self.do(
            self.talk.finish_call(run.id, call.call_id, self.name("said "), outside=True)
        )
        taken = run.open and call.state in {CallState.PENDING, CallState.UNKNOWN}
        assert isinstance(answer, Denied) is not taken

    def cancel(self, run: Run) -> None:
        results = MessageId(self.name("t"))
        self.do(CancelRun(**self.talk.head(), run=run.id, reason="user", results_id=results))

    # The world.

    def another_worker(self) -> None:
        """The lease runs out; the old process lives on and does not know."""
        self.old = self.talk.fence
        self.talk.fence = self.wait(self.store.join(self.old.node, None, self.talk.now_ms))

    def restart(self) -> None:
        """The process dies with all that it held in memory."""
        self.wait(self.store.close())
        self.executors.clear()
        self.store = self.wait(self.open())
        self.talk.store = self.store
        self.old = self.talk.fence
        node = NodeId("node_of_conv_1")
        self.talk.fence = self.wait(self.store.join(node, None, self.talk.now_ms))

    def time_passes(self) -> None:
        self.talk.now_ms += DEADLINE_MS // 2

    # What must hold.

    @invariant()
    def a_tool_that_may_write_takes_effect_once_at_most(self) -> None:
        for (_, call), times in self.effects.items():
            assert times <= 1 or call in self.read_only

    @invariant()
    def a_call_that_has_ended_stands_as_it_did(self) -> None:
        for run in self.runs():
            for call in self.calls(run.id):
                known = self.ended.get((run.id, call.call_id))
                assert known in (None, call)
                if call.state in TERMINAL_CALL:
                    self.ended[run.id, call.call_id] = call

    @invariant()
    def a_run_that_has_ended_leaves_no_call_open(self) -> None:
        for run in self.runs():
            if not run.open:
                assert all(call.state in TERMINAL_CALL for call in self.calls(run.id))

    @invariant()
    def every_call_belongs_to_a_committed_answer(self) -> None:
        tree = self.tree()
        for run in self.runs():
            for call in self.calls(run.id):
                asking = tree[call.message]
                assert asking.status is Status.SUCCESS
                assert call.call_id in {asked.call_id for asked in asking.calls}

    @invariant()
    def results_stand_once_behind_their_calls_and_say_what_the_ledger_says(self) -> None:
        tree = self.tree()
        behind: Counter[str] = Counter()
        for message in tree.values():
            if message.role != "tool":
                continue
            asking = tree[message.parent or ""]
            behind[asking.id] += 1
            assert [r.call_id for r in message.results] == [c.call_id for c in asking.calls]
            assert message.run
            ledger = {c.call_id: c for c in self.calls(message.run)}
            for result in message.results:
                assert result.content == ledger[result.call_id].content or not result.content
        assert set(behind.values()) <= {1}

    @invariant()
    def the_model_is_asked_again_only_when_every_call_has_its_result(self) -> None:
        tree = self.tree()
        for message in tree.values():
            above = tree.get(message.parent or "")
            if message.role == "assistant" and message.status is Status.SUCCESS and above:
                assert not above.calls, "an answer stands right under an open call"


@pytest.mark.req("M5", "M34", "M68", "M80", "M90")
def test_random_walks_over_the_ledger_keep_every_promise() -> None:
    Ledger.reached.clear()
    # Not shrunk: that takes minutes, in which a failure looks like a test that hangs.
    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    walk(Ledger, settings=settings(max_examples=25, stateful_step_count=50, phases=phases))
    commands = ("StartCall", "FinishCall", "LoseCall", "PlaceResults", "CancelRun", "StartRun")
    wanted = {f"{command} done" for command in commands} | {"StartCall denied", "FinishCall denied"}
    assert wanted <= Ledger.reached.keys(), Ledger.reached


class SharedLedger(Ledger):
    """The same in a database that several processes may share."""

    address: str

    async def open(self) -> Store:
        if not hasattr(self, "address"):
            self.address = await asyncio.to_thread(shared_server().database)
        return await open_postgres(self.address)

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "address"):
            shared_server().give_back(self.address)


@pytest.mark.needs("postgres")
def test_random_walks_over_the_ledger_on_postgresql_keep_every_promise() -> None:
    walk(SharedLedger, settings=settings(max_examples=4, stateful_step_count=30))
