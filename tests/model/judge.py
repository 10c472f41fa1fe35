"""The seam between the model and the code under test.

Facts are built from the model's rows as a store builds them from its own; the real `step`
decides; the effects of the row it returns are carried out on the model. What is planted in the
real table therefore shows here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from antiphon.core import dispatch
from antiphon.core.dispatch import Effect, Event, Facts, Row, State
from antiphon.core.ids import Digest, NodeId, OperationId
from antiphon.errors import IllegalTransition
from tests.model.world import NOBODY, Call, Message, Operation, put

if TYPE_CHECKING:
    from tests.model.world import Setting, World

NODES: Final = (NodeId("node-a"), NodeId("node-b"))
OPERATIONS: Final = tuple(OperationId(f"op_{n}") for n in range(16))
BYTES: Final = Digest("the same bytes")
DEADLINE: Final = 1  # only before and after matter
UNFINISHED: Final = frozenset(State) - dispatch.FINAL


class Said(NamedTuple):
    """What the caller brings: who it is, which generation it speaks of, what it holds."""

    node: int = NOBODY
    generation: int = 0
    whole: bool = False
    definite: bool = False
    proof: str | None = None


class Judge:
    """Asks the real table, and remembers its answers: the same facts always get the same one."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.rules = setting.rules
        self.taken: set[tuple[int, str]] = set()
        self._answers: dict[tuple[object, ...], Row | None] = {}

    def ask(self, world: World, event: Event, operation: int, said: Said) -> Row | None:
        """Return the row that `event` would take now, or None where it would change nothing."""
        op = world.operations[operation]
        me = world.nodes[said.node] if said.node != NOBODY else None
        owner_now = world.nodes[op.owner].epoch if op.owner != NOBODY else 0
        moving = (world.revision, world.cancel_generation, world.active, world.runs[op.run].open)
        key = (event, operation, said, moving, op, owner_now, me and me.epoch, me and me.mine)
        if key in self._answers:
            return self._answers[key]
        answer = self._step(
            event,
            Facts(
                state=op.state,
                operation=OPERATIONS[operation],
                generation=op.generation,
                owner=NODES[op.owner] if op.owner != NOBODY else None,
                owner_epoch=op.epoch,
                owner_epoch_current=owner_now,
                deadline_ms=DEADLINE,
                handle="handle" if op.handle else None,
                sent_again=op.again,
                base_revision=op.base_revision,
                base_cancel_generation=op.base_cancel_generation,
                request_digest=BYTES,
                attempts_made=op.attempts,
                revision=world.revision,
                cancel_generation=world.cancel_generation,
                active_operation=OPERATIONS[world.active] if world.active != NOBODY else None,
                run_open=world.runs[op.run].open,
                my_node=NODES[said.node] if me else None,
                my_epoch=me.mine if me else 0,
                my_epoch_current=me.epoch if me else 0,
                my_generation=said.generation,
                now_ms=DEADLINE if op.passed else DEADLINE - 1,
                my_request_digest=BYTES,
                whole_answer=said.whole,
                definite=said.definite,
                honours_key="key" in self.setting.profile,
                proof=said.proof,
                attempts_allowed=self.setting.attempts,
                names_run=True,
            ),
        )
        self._answers[key] = answer
        return answer

    def may_prepare(self, world: World, run: int, *, legal: bool) -> Row | None:
        """Return the row for a new operation of `run`, which has no attempt yet."""
        idle = all(o.run != run or o.state not in UNFINISHED for o in world.operations)
        row = self._step(
            Event.PREPARE, Facts(run_open=world.runs[run].open, run_idle=idle, line_legal=legal)
        )
        if row:
            self.taken.add((row.number, row.event))
        return row

    @staticmethod
    def _step(event: Event, facts: Facts) -> Row | None:
        try:
            answer = dispatch.step(facts, event)
        except IllegalTransition:
            return None
        return answer if isinstance(answer, Row) else None

    def apply(
        self, world: World, row: Row, operation: int, *, node: int = NOBODY, whole: bool = True
    ) -> World:
        """Carry out `row`: the new state and all its effects, in one transaction."""
        self.taken.add((row.number, row.event))
        op = world.operations[operation]._replace(state=row.target)
        world = world._replace(operations=put(world.operations, operation, op))
        for effect in row.effects:
            world = self._effect(world, effect, operation, node, whole=whole)
        return _forget(world, operation) if row.target in dispatch.FINAL else world

    def _effect(
        self, world: World, effect: Effect, operation: int, node: int, *, whole: bool
    ) -> World:
        op = world.operations[operation]
        match effect:
            case Effect.TAKE_CONVERSATION:
                return world._replace(active=operation)
            case Effect.RELEASE:
                return world._replace(active=NOBODY) if world.active == operation else world
            case Effect.OPEN_GENERATION:
                return self._open(world, operation)
            case Effect.TAKE_OWNERSHIP:
                op = op._replace(owner=node, epoch=world.nodes[node].mine)
            case Effect.MARK_AGAIN:
                op = op._replace(again=True)
            case Effect.BIND_HANDLE:
                op = op._replace(handle="handle" in self.setting.profile)
            case Effect.WRITE_MESSAGE:
                return self._write(world, op, whole=whole)
            case Effect.BEAR_CALLS:
                answer = len(world.messages) - 1
                if world.messages[answer].calls:
                    return world._replace(calls=(*world.calls, Call(op.run, answer)))
                return world
            case Effect.ADVANCE_REVISION:
                return world._replace(revision=world.revision + 1)
            case Effect.FOLLOW_HEAD:
                return follow_head(world, op.run, always=not self.rules.head_follows_only_unmoved)
            case Effect.WRITE_MANIFEST | Effect.QUARANTINE | Effect.RECORD_PROOF | Effect.CLOSE_RUN:
                return world  # kept by the caller, or of no consequence for what is compared
        return world._replace(operations=put(world.operations, operation, op))

    def _open(self, world: World, operation: int) -> World:
        op = world.operations[operation]
        again = op.generation > 0
        if again and not self.rules.retry_opens_generation:
            op = op._replace(passed=False)
            return world._replace(operations=put(world.operations, operation, op))
        generation = world.attempt_generation + 1
        op = op._replace(
            generation=generation,
            passed=False,
            handle=False,
            again=False,
            sendings=(),
            executions=0,
        )
        return world._replace(
            attempt_generation=generation, operations=put(world.operations, operation, op)
        )

    def _write(self, world: World, op: Operation, *, whole: bool) -> World:
        """The answer enters the tree; its run goes on, waits or ends with it."""
        run = world.runs[op.run]
        tool = self.setting.runs[op.run].tool if run.committed == 0 else ""
        answer = Message(
            "answer", op.run, op.base_leaf, calls=bool(tool), base=op.base_revision, whole=whole
        )
        messages = tuple(
            m._replace(status="success") if m.run == op.run and m.status == "pending" else m
            for m in world.messages
        )
        status = {"": "success", "client": "waiting"}.get(tool, "pending")
        run = run._replace(status=status, leaf=len(messages), committed=run.committed + 1)
        return world._replace(
            messages=(*messages, answer),
            runs=put(world.runs, op.run, run),
            slot=NOBODY if status != "pending" and world.slot == op.run else world.slot,
        )


def _forget(world: World, operation: int) -> World:
    """Drop what no condition looks at once an operation is over, so that equal worlds are found to be equal."""
    op = world.operations[operation]._replace(
        owner=NOBODY,
        epoch=0,
        passed=False,
        handle=False,
        again=False,
        attempts=1,
        sendings=(),
        executions=0,
    )
    run = world.runs[op.run]
    if not run.open:
        run = run._replace(owner=NOBODY, epoch=0)
    return world._replace(
        operations=put(world.operations, operation, op), runs=put(world.runs, op.run, run)
    )


def follow_head(world: World, run: int, *, always: bool = False) -> World:
    """Move the head to the run's leaf if it stands where the run left it."""
    row = world.runs[run]
    if world.head != row.head_left and not always:
        return world
    runs = put(world.runs, run, row._replace(head_left=row.leaf))
    return world._replace(head=row.leaf, runs=runs)
