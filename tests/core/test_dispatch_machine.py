"""Random walks over the table: more workers, generations and misfortunes than a model can exhaust.

The walk keeps its own store, in which the contract's lines are carried out by hand; the table
only decides. Every decision, legal or not, is compared with the contract's. Events are drawn
where they can happen, and after an operation has ended a new one begins, so that walks live
long enough to be worth something.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final

import pytest
from hypothesis import Phase, settings
from hypothesis import event as note
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from antiphon.core.dispatch import Denied, Event, Facts, step
from antiphon.core.ids import Digest, NodeId, OperationId
from antiphon.errors import IllegalTransition
from tests.core.dispatch_contract import (
    ACTIVE,
    CONTRACT,
    FAILS,
    HOLDS,
    IN_FLIGHT,
    MEANING,
    Line,
    read,
)

WORKERS: Final = ("ann", "ben", "cleo")
ALLOWED: Final = 4  # attempts of one operation
STEPS: Final = 50
FINAL: Final = ("COMMITTED", "CANCELED", "CLOSED")
LIVE: Final = ("accepted", "sent", "begun")

Move = Callable[[], object]

worker = st.sampled_from(WORKERS)
seldom = st.integers(0, 7).map(lambda n: n == 7)
hardly = st.integers(0, 31).map(lambda n: n == 31)


@dataclass
class Operation:
    """An operation's row, and what only the walk knows of it."""

    name: str
    base_revision: int
    base_cancel_generation: int
    state: str = "PREPARED"
    generation: int = 0
    owner: str | None = None
    owner_epoch: int = 0
    passed: bool = False
    handle: str | None = None
    sent_again: bool = False
    attempts: int = 1
    run_open: bool = True
    canceled: bool = False
    generations: list[int] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)  # generations that were confirmed ended


@dataclass
class Held:
    """What a worker's memory holds of one sending."""

    operation: Operation
    generation: int
    epoch: int
    at: str = "accepted"  # sent, begun, whole, no, not_sent, closed


class Dispatch(RuleBasedStateMachine):
    """One conversation, three workers, any number of operations one after the other."""

    walks: ClassVar[list[int]] = []
    """The highest number of generations that one operation reached, for each walk."""

    def __init__(self) -> None:
        super().__init__()
        self.revision = 0
        self.cancel_generation = 0
        self.attempt_generation = 0
        self.active: str | None = None
        self.now: dict[str, int] = dict.fromkeys(WORKERS, 1)  # the registry's epochs
        self.mine: dict[str, int] = dict.fromkeys(WORKERS, 1)  # what each worker believes
        self.held: dict[str, Held | None] = dict.fromkeys(WORKERS)
        self.operations: list[Operation] = []
        self.messages: list[tuple[str, int, int]] = []  # operation, generation, base revision
        self.quarantine = 0
        self.steps = 0
        self.taken: Facts | None = None
        self.taken_as: Event | None = None

    @initialize(profile=st.frozensets(st.sampled_from(["handle", "key", "connection"])))
    def choose_a_provider(self, profile: frozenset[str]) -> None:
        self.profile = profile

    def teardown(self) -> None:
        most = max((len(op.generations) for op in self.operations), default=0)
        note(f"generations of one operation: {most}")
        if self.steps >= STEPS // 2:  # a walk that ran out of luck at its beginning says nothing
            Dispatch.walks.append(most)

    # ------------------------------------------------------------------------------ the small store

    @property
    def op(self) -> Operation | None:
        """The newest operation, while it is not over."""
        newest = self.operations[-1] if self.operations else None
        return newest if newest and newest.state not in FINAL else None

    def facts(self, op: Operation, who: str | None = None, **claims: Any) -> Facts:
        me: dict[str, Any] = {}
        if who:
            me = {
                "my_node": NodeId(who),
                "my_epoch": self.mine[who],
                "my_epoch_current": self.now[who],
            }
        return Facts(
            state=read(op.state),
            operation=OperationId(op.name),
            generation=op.generation,
            owner=NodeId(op.owner) if op.owner else None,
            owner_epoch=op.owner_epoch,
            owner_epoch_current=self.now[op.owner] if op.owner else 0,
            deadline_ms=10,
            now_ms=10 if op.passed else 9,
            handle=op.handle,
            sent_again=op.sent_again,
            base_revision=op.base_revision,
            base_cancel_generation=op.base_cancel_generation,
            request_digest=Digest("d"),
            attempts_made=op.attempts,
            revision=self.revision,
            cancel_generation=self.cancel_generation,
            active_operation=OperationId(self.active) if self.active else None,
            run_open=op.run_open,
            my_request_digest=Digest("d"),
            honours_key="key" in self.profile,
            attempts_allowed=ALLOWED,
            **(me | claims),
        )

    def decide(self, event: Event, facts: Facts) -> Line | None:
        """Ask the table; whatever it answers has to be what the contract says."""
        state = "none" if facts.state is None else str(facts.state)
        lines = [x for x in CONTRACT if state in x.sources.split() and x.event == event]
        due = [x for x in lines if all(MEANING[c](facts) for c in x.conditions.split())]
        if not lines:
            with pytest.raises(IllegalTransition):
                step(facts, event)
            return None
        answer = step(facts, event)
        if isinstance(answer, Denied):
            assert due == []
            return None
        assert [(answer.number, str(answer.target))] == [(x.number, x.target) for x in due]
        assert sorted(answer.effects) == sorted(due[0].effects.split())
        self.taken, self.taken_as = facts, event
        return due[0]

    def do(self, event: Event, op: Operation, facts: Facts, who: str | None = None) -> bool:
        """Decide, and carry out the contract's line by hand."""
        line = self.decide(event, facts)
        if line is None:
            return False
        op.state = line.target
        for effect in line.effects.split():
            self.carry_out(effect, op, who)
        if op.state in FINAL:
            op.run_open = False
        return True

    def expect(
        self, taken: bool, event: Event, op: Operation, facts: Facts, who: str | None = None
    ) -> None:
        assert self.do(event, op, facts, who) is taken

    def carry_out(self, effect: str, op: Operation, who: str | None) -> None:
        match effect:
            case "take_conversation":
                self.active = op.name
            case "open_generation":
                self.attempt_generation += 1
                op.generation = self.attempt_generation
                op.passed, op.handle, op.sent_again = False, None, False
                op.generations.append(op.generation)
            case "take_ownership":
                assert who
                op.owner, op.owner_epoch = who, self.mine[who]
            case "mark_again":
                op.sent_again = True
            case "bind_handle":
                op.handle = "resp_1" if "handle" in self.profile else None
            case "write_message":
                self.messages.append((op.name, op.generation, op.base_revision))
            case "advance_revision":
                self.revision += 1
            case "release":
                self.active = None if self.active == op.name else self.active
            case "record_proof":
                op.ended.add(op.generation)
            case "quarantine":
                self.quarantine += 1
            case _:
                assert effect in {"write_manifest", "bear_calls", "follow_head", "close_run"}

    # ------------------------------------------------------------------------------- what can happen

    @rule(data=st.data())
    def something_happens(self, data: st.DataObject) -> None:
        """One thing out of all that an engine, a worker or the provider can do next.

        Every rule ends with it: Hypothesis leaves out some rules in each walk, and life goes on.
        """
        data.draw(st.sampled_from([*self.drive(), *self.recover(), *self.work()]))()
        self.steps += 1

    def drive(self) -> Iterator[Move]:
        """A run's driver, between two sendings."""
        op, idle = self.op, [who for who in WORKERS if self.held[who] is None]
        if op is None:
            yield self.prepare
        elif op.state == "PREPARED":
            yield from (partial(self.accept, op, who) for who in idle)
            if self.fence_moved(op):
                yield partial(self.expect, True, Event.SUPERSEDE, op, self.facts(op))
        elif op.state == "FAILED":
            yield from (partial(self.retry_or_close, op, close) for close in (False, False, True))

    def prepare(self) -> None:
        assert self.decide(Event.PREPARE, Facts(run_open=True, run_idle=True, line_legal=True))
        name = f"op_{len(self.operations)}"
        self.operations.append(Operation(name, self.revision, self.cancel_generation))

    def accept(self, op: Operation, who: str) -> None:
        if self.do(Event.ACCEPT, op, self.facts(op, who), who):
            self.held[who] = Held(op, op.generation, self.mine[who])
        else:
            self.mine[who] = self.now[
                who
            ]  # told that its lease is over, or that the world has moved

    def fence_moved(self, op: Operation) -> bool:
        base = (op.base_revision, op.base_cancel_generation)
        return base != (self.revision, self.cancel_generation)

    def retry_or_close(self, op: Operation, close: bool) -> None:
        if not close and self.do(Event.RETRY, op, self.facts(op)):
            op.attempts += 1
            op.owner = None
        else:
            self.expect(True, Event.CLOSE, op, self.facts(op))

    def work(self) -> Iterator[Move]:
        """Workers that hold a sending: bytes leave, answers come, reports are made, some of them late."""
        for who, held in self.held.items():
            if held is None:
                continue
            comes = {
                "accepted": ("sent", "sent", "sent", "not_sent"),
                "sent": ("begun", "begun", "no", "no", "closed"),
                "begun": ("whole", "no", "closed"),
            }
            yield from (partial(setattr, held, "at", at) for at in comes.get(held.at, ()))
            if held.at != "accepted":
                yield partial(self.report, who, held)
                yield partial(self.report, who, held)

    def report(self, who: str, held: Held) -> None:
        """Tell the store; early, in time, or long after somebody else took over."""
        op, before = held.operation, held.operation.state
        facts = self.facts(
            op,
            who,
            my_generation=held.generation,
            whole_answer=held.at == "whole",
            definite=held.at == "no",
        )
        fits = {
            "not_sent": [Event.NOT_SENT],
            "sent": [Event.WRITTEN],
            "begun": [Event.WRITTEN, Event.OPENED],
            "whole": [Event.WRITTEN, Event.OPENED, Event.COMMIT, Event.FOUND, Event.CONFLICT],
            "no": [Event.WRITTEN, Event.REFUSED],
            "closed": [Event.LOST],
        }
        for event in fits[held.at]:
            if self.do(event, op, facts, who):
                if op.state == "FAILED":
                    op.ended.add(held.generation)
                # A sender is done after an event of its own, unless the attempt is still in flight
                # or it may yet prove that its connection is closed.
                proof = held.at == "closed" and op.state == "UNKNOWN" and before != "UNKNOWN"
                if op.state not in IN_FLIGHT.split() and not proof:
                    self.held[who] = None
                return
        owner = (op.owner, op.owner_epoch, op.generation) == (who, held.epoch, held.generation)
        if held.at not in {"sent", "begun"} and not (owner and op.state in IN_FLIGHT.split()):
            self.held[who] = None  # too late: it drops what it holds

    def recover(self) -> Iterator[Move]:
        """What anybody may do with an attempt whose owner is gone, or whose fate is unknown."""
        op = self.op
        if op and op.state in IN_FLIGHT.split():
            yield partial(self.say_that_it_is_lost, op)
        if op and op.state == "UNKNOWN":
            yield from (partial(self.prove_the_end, op, who) for who in WORKERS)
            for who in WORKERS:
                if self.held[who] is None and not op.passed:
                    yield partial(self.go_on, op, who, Event.RESUME, "begun")
                    yield partial(self.go_on, op, who, Event.REPLAY, "accepted")

    def say_that_it_is_lost(self, op: Operation) -> None:
        """As a stranger, who does not speak of a generation of its own: true once the owner is gone, or its time."""
        gone = op.passed or self.now[op.owner or ""] != op.owner_epoch
        self.expect(gone, Event.LOST, op, self.facts(op))

    def go_on(self, op: Operation, who: str, way: Event, at: str) -> None:
        """Go on with the same generation."""
        if self.do(way, op, self.facts(op, who, my_generation=op.generation), who):
            self.held[who] = Held(op, op.generation, self.mine[who], at)

    def prove_the_end(self, op: Operation, who: str) -> None:
        held = self.held[who]
        holds = held is not None and held.operation is op and held.generation == op.generation
        closed = holds and held is not None and held.at == "closed"
        succeeds = (
            op.owner == who and self.now[who] == self.mine[who] > op.owner_epoch and not holds
        )
        by_connection = "connection" in self.profile and not op.sent_again and (closed or succeeds)
        true = op.passed or by_connection
        facts = self.facts(op, who, my_generation=op.generation, proof="seen" if true else None)
        self.expect(true, Event.ENDED, op, facts, who)
        if true and holds:
            self.held[who] = None

    # ----------------------------------------------------------------------------------- misfortune

    @precondition(lambda self: self.op is not None and self.op.state in ACTIVE.split())
    @rule(data=st.data(), really=seldom)
    def the_deadline_passes(self, data: st.DataObject, really: bool) -> None:
        op = self.op
        assert op
        op.passed = op.passed or really
        for held in self.held.values():
            # Whoever has not heard the end by now hangs up, and sends nothing any more.
            own = held is not None and held.operation is op and held.generation == op.generation
            if op.passed and own and held and held.at in LIVE:
                held.at = "closed"
        self.something_happens(data)

    @rule(
        data=st.data(),
        who=worker,
        what=st.sampled_from(["crash", "lease", "lease", "notice"]),
        really=seldom,
    )
    def a_process_has_bad_luck(
        self, data: st.DataObject, who: str, what: str, really: bool
    ) -> None:
        if really:
            self.now[who] += what != "notice"
            self.held[who] = None if what == "crash" else self.held[who]
            if what == "crash" or self.held[who] is None:
                self.mine[who] = self.now[who]  # else the process lives on and does not know
        self.something_happens(data)

    @precondition(lambda self: self.op is not None)
    @rule(data=st.data(), really=seldom, other_run=seldom)
    def cancel(self, data: st.DataObject, really: bool, other_run: bool) -> None:
        op = self.op
        assert op
        if really:
            held = self.active == op.name
            self.expect(not other_run, Event.CANCEL, op, self.facts(op, names_run=not other_run))
            op.canceled = not other_run
            self.cancel_generation += held and not other_run
        self.something_happens(data)

    @rule(data=st.data(), revision=hardly, number=hardly)
    def something_else_moves_the_fence(
        self, data: st.DataObject, revision: bool, number: bool
    ) -> None:
        self.revision += revision
        self.cancel_generation += number
        self.something_happens(data)

    # ---------------------------------------------------------------------------- what must be refused

    @precondition(lambda self: self.taken is not None)
    @rule(data=st.data())
    def almost_the_same_is_decided_alike(self, data: st.DataObject) -> None:
        """The last event that was taken, with one of its conditions broken, or met in another way."""
        assert self.taken
        assert self.taken_as
        facts, event = self.taken, self.taken_as
        state = "none" if facts.state is None else str(facts.state)
        lines = [x for x in CONTRACT if state in x.sources.split() and x.event == event]
        conditions = sorted({c for x in lines for c in x.conditions.split()})
        if conditions:
            condition = data.draw(st.sampled_from(conditions))
            change = data.draw(st.sampled_from(FAILS[condition] + HOLDS[condition]))
            self.decide(event, dataclasses.replace(facts, **change))
        self.taken, self.taken_as = facts, event
        self.something_happens(data)

    @precondition(lambda self: bool(self.operations))
    @rule(data=st.data(), who=worker, holds=st.booleans(), open_run=st.booleans())
    def events_out_of_turn_are_decided_alike(
        self, data: st.DataObject, who: str, holds: bool, open_run: bool
    ) -> None:
        """Every event, whatever the caller claims to hold; what is over takes nothing at all."""
        claims = {"whole_answer": holds, "definite": holds, "proof": "seen" if holds else None}
        taken, taken_as = self.taken, self.taken_as
        for op in self.operations:
            facts = self.facts(op, who, my_generation=op.generation, names_run=holds, **claims)
            facts = dataclasses.replace(facts, run_open=open_run)
            for event in Event:
                line = self.decide(event, facts)
                assert line is None or op.state not in FINAL
        self.taken, self.taken_as = taken, taken_as
        self.something_happens(data)

    # ----------------------------------------------------------------------------------- invariants

    @invariant()
    def one_operation_at_most_is_active_and_holds_the_conversation(self) -> None:
        active = [op.name for op in self.operations if op.state in ACTIVE.split()]
        assert active == ([self.active] if self.active else [])

    @invariant()
    def a_base_revision_has_one_answer_at_most(self) -> None:
        bases = [base for _, _, base in self.messages]
        assert len(bases) == len(set(bases))

    @invariant()
    def what_is_committed_is_of_the_newest_generation_of_its_operation(self) -> None:
        newest = {op.name: op.generations for op in self.operations}
        for name, generation, _ in self.messages:
            assert newest[name][-1] == generation

    @invariant()
    def nothing_of_a_canceled_run_is_committed_or_open(self) -> None:
        canceled = {op.name for op in self.operations if op.canceled}
        assert not canceled & {name for name, _, _ in self.messages}
        assert all(op.state == "CANCELED" for op in self.operations if op.canceled)

    @invariant()
    def generations_rise_and_are_never_given_twice(self) -> None:
        given = [generation for op in self.operations for generation in op.generations]
        assert given == sorted(set(given))

    @invariant()
    def a_generation_opens_only_after_the_one_before_has_ended(self) -> None:
        for op in self.operations:
            assert set(op.generations[:-1]) <= op.ended

    @invariant()
    def nobody_can_still_send_or_hear_what_was_declared_ended(self) -> None:
        for held in self.held.values():
            if held and held.at in LIVE and not held.operation.canceled:
                assert held.generation not in held.operation.ended


@pytest.mark.req("M53", "M61", "M65", "M66")
def test_random_walks_keep_every_invariant_and_a_good_share_reaches_a_second_generation() -> None:
    Dispatch.walks.clear()
    # Not shrunk: that takes minutes, in which a failure looks like a test that hangs.
    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    limits = settings(max_examples=100, stateful_step_count=STEPS, phases=phases)
    run_state_machine_as_test(Dispatch, settings=limits)
    second = sum(most >= 2 for most in Dispatch.walks)
    assert second * 3 >= len(Dispatch.walks) > 50, (
        f"{second} of {len(Dispatch.walks)}: the walks die young"
    )
