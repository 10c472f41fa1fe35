"""The invariants of the contract, as far as the model reaches: what must hold in every world and at every effect.

These functions see both the store's rows and what the checker alone knows. They say what is
wrong, never how the table prevents it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.dispatch import ACTIVE, FINAL, Event, State
from tests.model.world import NOBODY, Breach, Sender, line

if TYPE_CHECKING:
    from antiphon.core.dispatch import Row
    from tests.model.world import Call, Operation, Run, Setting, World

ENDED = frozenset({State.FAILED, State.PREPARED, State.CLOSED})


def standing(world: World) -> Breach | None:
    """What holds between two effects, whatever happened before."""
    active = [n for n, op in enumerate(world.operations) if op.state in ACTIVE]
    at_work = [n for n in active if world.runs[world.operations[n].run].cancel != "moving"]
    if len(at_work) > 1:
        return Breach("one", "two active attempts in one conversation")
    if at_work and world.active != at_work[0]:
        return Breach("one", "an active attempt does not hold the conversation")
    if not active and world.active != NOBODY:
        return Breach("one", "the conversation is held by nobody")
    bases = [m.base for m in world.messages if m.kind == "answer"]
    if len(bases) != len(set(bases)):
        return Breach("3", "two answers on one base revision")
    if any(not m.whole for m in world.messages):
        return Breach("4", "partial in history")
    for run in world.runs:
        if run.status == "canceled" and run.cancel == "no":
            return Breach("13", "a run canceled that nobody canceled")
    for place, op in enumerate(world.operations):
        if world.runs[op.run].status == "canceled" and op.state not in FINAL:
            return Breach("13", "an attempt of a canceled run is open")
        if any(op.generation == other.generation > 0 for other in world.operations[:place]):
            return Breach("7", "one generation given twice")
    for call in world.calls:
        if call.results > 1:
            return Breach("5", "second terminal result")
        if not call.closed and not world.runs[call.run].open:
            return Breach("13", "an open call of a run that has ended")
    return None


def alive(world: World, operation: int, generation: int) -> bool:
    """Whether something of this generation can still be sent, or can still bring its answer."""
    op = world.operations[operation]
    for node in world.nodes:
        task = node.task
        if not isinstance(task, Sender) or (task.operation, task.generation) != (
            operation,
            generation,
        ):
            continue
        if task.at == "accepted":
            return True
        if task.at in {"sent", "head"} and answer_of(op, task) != "bad":
            return True
    return False


def answer_of(op: Operation, task: Sender) -> str:
    """Return what became of the request whose answer `task` waits for: flying, good, bad or dead."""
    if op.state in FINAL or op.generation != task.generation:
        return "good"  # forgotten; the worst that can come is a whole answer
    if task.sending != NOBODY:
        return op.sendings[task.sending]
    return "good" if "good" in op.sendings else "bad"  # by the handle: what was carried out


def at_accept(world: World, operation: int) -> Breach | None:
    """A generation opens: from the world before it."""
    op = world.operations[operation]
    run = world.runs[op.run]
    if run.status == "canceled":
        return Breach("13", "attempt opened for a canceled run")
    if op.generation and alive(world, operation, op.generation):
        return Breach("7", "generation opened before the earlier ended")
    if run.cancel == "moving" or op.base_cancel_generation != world.cancel_generation:
        return Breach("13", "attempt opened after the cancel")
    if op.base_revision != world.revision:
        return Breach("stale", "stale manifest accepted")
    return None


def at_end(run: Run, node: int, epoch: int) -> Breach | None:
    """A run is ended by a node that works on it: from the run before it."""
    if (run.owner, run.epoch) != (node, epoch):
        return Breach("owner", "a run ended by one that another has followed")
    return None


def at_send(world: World, task: Sender) -> Breach | None:
    """Bytes leave the process."""
    op = world.operations[task.operation]
    if op.generation < task.generation:
        return Breach("1", "sent before it was accepted")
    if op.generation > task.generation or op.state in ENDED:
        return Breach("7", "sent after it was declared ended")
    why = illegal_line(world, op.base_leaf, op.run)
    return (
        Breach("4" if why == "uncommitted" else "2", f"illegal sequence sent: {why}")
        if why
        else None
    )


def illegal_line(world: World, leaf: int, run: int) -> str | None:
    """Return why what ends in `leaf` may not be shown to a model, or None."""
    places = line(world, leaf)
    for below, place in zip([NOBODY, *places], places, strict=False):
        message = world.messages[place]
        own_input = message.kind == "input" and message.run == run
        if not message.whole or (message.status != "success" and not own_input):
            return "uncommitted"
        if message.calls and (below == NOBODY or world.messages[below].kind != "results"):
            return "open call"
    return None


def at_execution(op: Operation) -> Breach | None:
    """The provider carries out a request."""
    if op.executions > 1:
        return Breach("7", "one generation executed twice")
    return None


def at_report(
    setting: Setting, world: World, event: Event, task: Sender, row: Row
) -> Breach | None:
    """A sender's report is taken: from the world before it."""
    op = world.operations[task.operation]
    run = world.runs[op.run]
    if row.target is State.COMMITTED:
        return _at_commit(world, op, task)
    if event is Event.CONFLICT and run.cancel == "no" and not setting.budget.strays:
        return Breach("zero", "whole answer of another run refused")
    if task.generation != op.generation and event is not Event.LOST:  # that, anybody may say
        return Breach("6", f"{event.value} of a late generation taken")
    return None


def _at_commit(world: World, op: Operation, task: Sender) -> Breach | None:
    run = world.runs[op.run]
    if task.generation != op.generation:
        return Breach("6", "late generation committed")
    if op.state in FINAL or op.state in ENDED:
        if run.status == "canceled":
            return Breach("13", "commit after cancel")
        return Breach("6", "committed from a closed attempt")
    if run.cancel in {"moving", "done"} or op.base_cancel_generation != world.cancel_generation:
        return Breach("13", "commit after cancel")
    if op.base_revision != world.revision:
        return Breach("3", "committed on a passed base")
    if run.session != world.session:
        return Breach("10", "answer in an archived session")
    return None


def after_commit(setting: Setting, before: World, after: World, task: Sender) -> Breach | None:
    """The path that a person looks at moves only if it stands where the run left it."""
    run = before.runs[before.operations[task.operation].run]
    if after.head != before.head and before.head != run.head_left:
        return Breach("head", "path pulled from under a reader")
    return None


def at_effect(call: Call, *, committed: bool, counts: bool) -> Breach | None:
    """A tool has its effect: after it."""
    if not committed:
        return Breach("5", "a tool ran for a call that is not committed")
    if counts and call.effects > 1:
        return Breach("5", "effect twice")
    return None


def at_tool_claim(world: World, call: Call) -> Breach | None:
    """A tool call is claimed: from the world before it."""
    if world.runs[call.run].status == "canceled":
        return Breach("13", "tool claimed for a canceled run")
    return None
