"""Random walks over the real store: two workers, restarts, late reports, cancels.

Each step is one command, likely to be legal and sometimes not; what the store answers is taken
as it comes. What must hold is read back after every step, and says nothing of how it is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from hypothesis.stateful import run_state_machine_as_test as walk

from antiphon.core.blocks import Message, Text
from antiphon.core.commands import (
    BindHandle,
    CancelRun,
    Close,
    Command,
    DeleteMessages,
    End,
    EndRun,
    Fence,
    Lose,
    MoveHead,
    Refuse,
    Replay,
    Resume,
    Retry,
)
from antiphon.core.dispatch import ACTIVE, Denied, State
from antiphon.core.ids import Digest, MessageId, NodeId, OperationId, RunId
from antiphon.core.records import OPEN_RUN, Attempt, Run, RunStatus
from antiphon.stores.base import Store
from antiphon.stores.postgres import open_postgres
from antiphon.stores.sqlite import open_sqlite
from tests.stores.talk import Talk, a_digest
from tests.support.postgres import shared_server

T = TypeVar("T")
pick = st.integers(0, 10**6)


class Walk(RuleBasedStateMachine):
    """One conversation in one file.

    There is one rule, since Hypothesis leaves some rules out of each walk, and a walk without
    acceptance or without commits says little.
    """

    reached: ClassVar[Counter[str]] = Counter()

    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp())
        self.count = 0
        self.sent: dict[str, str] = {}  # acknowledged run -> its message
        self.settled: dict[str, str] = {}  # message -> the status it moved to
        self.frozen: dict[str, int] = {}  # canceled run -> answers it had then
        self.digests: dict[str, Digest] = {}  # operation -> its manifest's
        self.again: dict[str, int] = {}  # operation -> the generation that was sent a second time
        self.revision = 0
        self.store: Store = self.wait(self.open())
        self.talk = self.wait(Talk.begin(self.store))
        self.old = self.talk.fence

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

    def do(self, *commands: Command[Any]) -> Any:
        answer = self.wait(self.store.do_all(*commands))
        self.reached["denied" if isinstance(answer, Denied) else type(commands[0]).__name__] += 1
        return answer

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def runs(self, *statuses: RunStatus) -> list[Run]:
        return self.wait(self.store.runs(self.talk.conversation, statuses or None))

    def tree(self) -> list[Message]:
        return self.wait(self.store.tree(self.talk.conversation))

    def attempts(self, *states: State) -> list[Attempt]:
        return self.wait(self.store.attempts_in(states or tuple(State)))

    def speaker(self, number: int) -> Fence:
        """The worker of today, or one whose epoch is over."""
        return self.old if number % 4 == 0 else self.talk.fence

    def told(self, attempt: Attempt, **more: Any) -> dict[str, Any]:
        return {
            **self.talk.head(),
            "operation": attempt.operation,
            "generation": attempt.generation,
            **more,
        }

    # What happens next.

    @rule(choice=pick, number=pick)
    def something_happens(self, choice: int, number: int) -> None:
        """One move out of those that lead on, and now and then one out of turn."""
        moves = [self.send, self.look_or_delete, self.answer]
        moves += [self.cancel] if choice % 3 == 0 else []
        moves += [self.restart] if choice % 5 == 0 else []
        moves += [self.another_worker, self.give_up] if choice % 7 == 0 else []
        states = {a.state for a in self.attempts()}
        if states & {State.DISPATCHING, State.SENT}:
            moves += [*[self.go_on] * 8, self.fail]
        if State.STREAMING in states:
            moves += [*[self.answer] * 5, self.fail, self.fail]
        if states & {State.UNKNOWN, State.FAILED}:
            moves += [self.settle] * 12
        if self.runs(RunStatus.QUEUED):
            moves += [self.place] * 4
        if self.runs(RunStatus.PENDING):
            moves += [self.dispatch] * 5
        moves[(choice // 35) % len(moves)](number)

    # Runs.

    def send(self, number: int) -> None:
        run, message = self.name("run_"), self.name("m")
        if not isinstance(self.do(self.talk.start(run, message)), Denied):
            self.sent[run] = message

    def place(self, number: int) -> None:
        for run in self.runs(RunStatus.QUEUED)[:1]:
            row = self.wait(self.talk.row())
            good = [m.id for m in self.tree() if m.status == "success"]
            parent = ([None, *good])[number % (len(good) + 1)]
            self.do(self.talk.place(run.id, parent=parent, revision=row.revision))

    def cancel(self, number: int) -> None:
        for run in self.runs()[number % 5 :: 7][:1]:
            partial = (Text(text="half"),) if number % 2 else ()
            self.do(
                CancelRun(
                    **self.talk.head(),
                    run=run.id,
                    reason="user",
                    partial=partial,
                    partial_id=MessageId(self.name("x")) if partial else None,
                    results_id=MessageId(self.name("t")),
                )
            )
            if run.open:
                answers = [m for m in self.tree() if m.run == run.id and m.role == "assistant"]
                self.frozen[run.id] = sum(m.status == "success" for m in answers)

    # Attempts.

    def dispatch(self, number: int) -> None:
        for run in self.runs(RunStatus.PENDING):
            row, operation = self.wait(self.talk.row()), self.name("op_")
            if run.leaf is not None:
                prepare = self.talk.prepare(
                    run.id,
                    operation,
                    base=run.leaf,
                    revision=row.revision,
                    answer=self.name("a"),
                    canceled=row.cancel_generation,
                )
                self.digests[operation] = prepare.manifest_digest
                self.do(prepare, self.talk.accept(operation))

    def go_on(self, number: int) -> None:
        for a in self.attempts(State.DISPATCHING, State.SENT):
            step = self.talk.written if a.state is State.DISPATCHING else self.talk.opened
            fresh, self.talk.fence = self.talk.fence, self.speaker(number)
            self.do(step(a.operation, a.generation))
            self.talk.fence = fresh

    def answer(self, number: int) -> None:
        """Commit a whole answer: in its time, or far too late."""
        found = self.attempts() if number % 3 == 0 else self.attempts(State.STREAMING)
        for a in found[number % 3 :: 3][:1]:
            run = self.wait(self.talk.run(a.run))
            message = self.talk.answer(run.answer or self.name("late"))
            self.do(self.talk.commit(a.operation, max(1, a.generation - number % 2), message))

    def fail(self, number: int) -> None:
        for a in self.attempts(State.DISPATCHING, State.SENT, State.STREAMING):
            fence = self.speaker(number)
            kind = Refuse if number % 2 else Lose
            self.do(kind(**self.told(a, fence=fence, code="planned", shown=True)))

    def settle(self, number: int) -> None:
        for a in self.attempts(State.UNKNOWN):
            self.recover(a, number)
        for a in self.attempts(State.FAILED)[:1]:
            head = {**self.talk.head(), "operation": a.operation}
            if number % 3:
                self.do(Retry(**head, attempts_allowed=3), self.talk.accept(a.operation))
            else:
                self.do(Close(**head))

    def recover(self, a: Attempt, number: int) -> None:
        """Go on with the same generation by the handle or under the key, or prove its end."""
        again = self.told(a, fence=self.speaker(number))
        if number % 5 < 2:
            digest, handle = self.digests[a.operation], a.handle or self.name("resp_")
            self.do(BindHandle(**self.told(a, manifest_digest=digest, handle=handle)))
            self.do(Resume(**again))
        elif number % 5 == 2:
            bytes_ = a_digest("request" if number % 3 else "other bytes")
            self.do(Replay(**again, request_digest=bytes_, honours_key=True))
        elif number % 5 == 3:
            run = self.wait(self.talk.run(a.run))
            message = self.talk.answer(run.answer or self.name("late"))
            self.do(self.talk.commit(a.operation, a.generation, message, found=True))
        else:
            self.do(End(**self.told(a, proof="closed")))

    def give_up(self, number: int) -> None:
        for run in self.runs(RunStatus.PENDING, RunStatus.UNKNOWN)[:1]:
            self.do(
                EndRun(
                    **self.talk.head(),
                    run=run.id,
                    status=RunStatus.ERROR,
                    fence=self.talk.fence,
                    error_code="planned",
                )
            )

    # The world.

    def restart(self, number: int) -> None:
        self.wait(self.store.close())
        self.store = self.wait(self.open())
        self.talk.store = self.store
        self.another_worker(number)

    def another_worker(self, number: int) -> None:
        self.old = self.talk.fence
        node = NodeId("node_of_conv_1")
        self.talk.fence = self.wait(self.store.join(node, None, self.talk.now_ms))

    def look_or_delete(self, number: int) -> None:
        for message in [m for m in self.tree() if m.status == "success"][number % 7 :: 11][:1]:
            if number % 5:
                self.do(MoveHead(**self.talk.head(), head=message.id))
            else:
                self.do(DeleteMessages(**self.talk.head(), messages=(message.id,)))

    # What must hold.

    @invariant()
    def one_thing_is_active_and_the_conversation_says_which(self) -> None:
        row, active = self.wait(self.talk.row()), self.attempts(*ACTIVE)
        assert [a.operation for a in active] == [x for x in [row.active_operation] if x]
        assert row.revision >= self.revision
        self.revision = row.revision

    @invariant()
    def a_generation_is_given_once_and_only_after_the_one_before_has_ended(self) -> None:
        row, attempts = self.wait(self.talk.row()), self.attempts()
        given = [a.generation for a in attempts if a.generation]
        assert len(set(given)) == len(given)
        assert max(given, default=0) <= row.attempt_generation
        for operation in {a.operation for a in attempts}:
            tries = self.wait(self.store.attempts(OperationId(operation)))
            assert all(a.state is State.FAILED for a in tries[:-1])

    @invariant()
    def a_base_revision_has_one_answer_and_the_answer_stands_on_its_base(self) -> None:
        tree, bases = {m.id: m for m in self.tree()}, []
        for a in self.attempts(State.COMMITTED):
            manifest, digest = self.wait(self.store.manifest(a.operation))
            assert digest == self.digests[a.operation]
            bases.append(manifest.conversation_revision)
            answers = [m for m in tree.values() if m.run == a.run and m.role == "assistant"]
            assert manifest.base_leaf in {m.parent for m in answers if m.status == "success"}
        assert len(set(bases)) == len(bases)

    @invariant()
    def a_second_sending_stays_in_its_generation(self) -> None:
        for a in self.attempts():
            if a.sent_again:
                assert (
                    self.again.setdefault(f"{a.operation} {a.number}", a.generation) == a.generation
                )

    @invariant()
    def what_was_acknowledged_is_there_and_a_status_moves_once(self) -> None:
        tree = {m.id: m for m in self.tree()}
        for run, message in self.sent.items():
            row = self.wait(self.store.run(self.talk.conversation, RunId(run)))
            asked = self.wait(self.store.run_input(self.talk.conversation, RunId(run)))
            assert asked is not None
            assert asked.id == message
            assert row.status in RunStatus
        for message, status in self.settled.items():
            assert tree[MessageId(message)].status == status
        self.settled |= {m.id: m.status for m in tree.values() if m.status != "pending"}

    @invariant()
    def nothing_older_than_a_cancel_commits(self) -> None:
        tree = self.tree()
        for run, number in self.frozen.items():
            answers = [m for m in tree if m.run == run and m.role == "assistant"]
            assert sum(m.status == "success" for m in answers) == number

    @invariant()
    def each_committed_operation_has_one_answer_and_events_have_no_gap(self) -> None:
        committed = self.attempts(State.COMMITTED)
        answers = [m for m in self.tree() if m.role == "assistant" and m.status == "success"]
        assert len(answers) == len(committed)
        events = self.wait(self.store.events(self.talk.conversation, 0, 100_000))
        assert [e.seq for e in events] == list(range(1, len(events) + 1))

    @invariant()
    def the_slot_is_held_by_an_open_run_or_by_nobody(self) -> None:
        row = self.wait(self.talk.row())
        if row.slot is not None:
            assert self.wait(self.talk.run(row.slot)).status in OPEN_RUN


@pytest.mark.req("M7", "M52", "M53", "M61", "M65", "M66", "M90")
def test_random_walks_over_the_real_store_keep_every_promise() -> None:
    Walk.reached.clear()
    walk(Walk, settings=settings(max_examples=25, stateful_step_count=60))
    # What a walk does is chance; that the walks together came everywhere is not.
    wanted = {"CommitAnswer", "Retry", "CancelRun", "Lose", "Refuse"}
    assert wanted <= Walk.reached.keys(), Walk.reached
    assert {"Resume", "Replay", "End"} & Walk.reached.keys(), Walk.reached


class SharedWalk(Walk):
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
def test_random_walks_over_postgresql_keep_every_promise() -> None:
    walk(SharedWalk, settings=settings(max_examples=4, stateful_step_count=30))
