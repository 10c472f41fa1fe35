"""What nobody of ours decides: the provider, the clock, crashes and leases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from antiphon.core.dispatch import ACTIVE
from tests.model import invariants
from tests.model.engine import current, with_operation, with_task
from tests.model.world import Executor, Move, Node, Operation, Sender, World, put

if TYPE_CHECKING:
    from tests.model.judge import Judge

Moves = Iterator[Move]
TIMELY = frozenset({"accepted", "sent", "head"})


def provider(judge: Judge, world: World) -> Moves:
    """A request is carried out at most once per sending; its answer comes early, late or never."""
    for place, op in enumerate(world.operations):
        for number, sending in enumerate(op.sendings):
            if sending == "flying":
                yield from _carry_out(judge, world, place, op, number)
    for number, node in enumerate(world.nodes):
        if isinstance(node.task, Sender):
            yield from _answer(judge, world, number, node.task)


def _carry_out(judge: Judge, world: World, place: int, op: Operation, number: int) -> Moves:
    done = next((s for s in op.sendings if s in {"good", "bad"}), None)
    if done and "key" in judge.setting.profile:
        # The key is known: this sending gets the answer of the one that was carried out.
        joined = op._replace(sendings=put(op.sendings, number, done))
        yield Move(("join", place, number), with_operation(world, place, joined))
        return
    for kind in ("good", "bad") if "spoil" in judge.setting.weather else ("good",):
        ran = op._replace(sendings=put(op.sendings, number, kind), executions=op.executions + 1)
        breach = invariants.at_execution(ran)
        yield Move(("execute", place, number, kind), with_operation(world, place, ran), breach)


def _answer(judge: Judge, world: World, node: int, task: Sender) -> Moves:
    op = world.operations[task.operation]
    weather = judge.setting.weather
    sending = invariants.answer_of(op, task)

    def holds(at: str, label: str, *, help: bool = True) -> Move:
        return Move((label, node), with_task(world, node, task._replace(at=at)), help=help)

    if task.at == "sent" and sending in {"good", "bad"}:
        yield holds("head", "answer begins")
    if task.at == "head" and sending in {"good", "bad"}:
        yield holds("whole" if sending == "good" else "bad", "answer ends")
    if task.at == "sent" and sending == "flying" and "refuse" in weather:
        refused = op._replace(sendings=put(op.sendings, task.sending, "dead"))
        after = with_operation(world, task.operation, refused)
        yield Move(("refuse", node), with_task(after, node, task._replace(at="no")))
    if task.at in {"sent", "head"} and "cut" in weather:
        yield holds("closed", "cut", help=False)


def time(judge: Judge, world: World) -> Moves:
    """A deadline passes: it covers the longest request life, and owners hang up at it."""
    if not judge.rules.deadlines:
        return
    for place, op in enumerate(world.operations):
        if op.state in ACTIVE and not op.passed:
            yield Move(("deadline", place), _passed(world, place, op))


def _passed(world: World, place: int, op: Operation) -> World:
    still = tuple("dead" if s == "flying" else s for s in op.sendings)
    world = with_operation(world, place, op._replace(passed=True, sendings=still))
    for number, node in enumerate(world.nodes):
        task = node.task
        if not isinstance(task, Sender) or (task.operation, task.generation) != (
            place,
            op.generation,
        ):
            continue
        if task.at in TIMELY:
            late = "expired" if task.at == "accepted" else "closed"
            world = with_task(world, number, task._replace(at=late))
    return world


def misfortune(judge: Judge, world: World) -> Moves:
    """Crashes, dead tasks, leases that run out while the process lives, and zombies that notice."""
    budget = world.budget
    for number, node in enumerate(world.nodes):
        if budget.crashes and _matters(world, number):
            # Gone and back under a new epoch; until it is back nobody can do more than after it.
            fresh = Node(node.epoch + 1, node.epoch + 1)
            yield _spent(
                ("crash", number), world, number, fresh, budget._replace(crashes=budget.crashes - 1)
            )
        if budget.expiries and current(node) and _matters(world, number):
            stale = node._replace(epoch=node.epoch + 1)
            yield _spent(
                ("expire", number),
                world,
                number,
                stale,
                budget._replace(expiries=budget.expiries - 1),
            )
        if budget.deaths and node.task is not None:
            idle = node._replace(task=None)
            yield _spent(
                ("task dies", number),
                world,
                number,
                idle,
                budget._replace(deaths=budget.deaths - 1),
            )
        if not current(node) and node.task is None:
            yield Move(
                ("rejoin", number), _with_node(world, number, node._replace(mine=node.epoch))
            )


def _matters(world: World, node: int) -> bool:
    """Whether anything hangs on this node; else the misfortune would only cost states."""
    return world.nodes[node].task is not None or any(r.owner == node and r.open for r in world.runs)


def _with_node(world: World, number: int, node: Node) -> World:
    return world._replace(nodes=put(world.nodes, number, node))


def _spent(
    label: tuple[object, ...], world: World, number: int, node: Node, budget: object
) -> Move:
    after = _with_node(world, number, node)._replace(budget=budget)  # type: ignore[arg-type]
    return Move(label, after, help=False)


__all__ = ["Executor", "misfortune", "provider", "time"]
