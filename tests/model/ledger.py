"""Tool calls: claimed durably before they run, one terminal result each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.model import invariants
from tests.model.engine import current, drives, results
from tests.model.world import NOBODY, Call, Executor, Move, Sender, World, put

if TYPE_CHECKING:
    from tests.model.judge import Judge

Moves = Iterator[Move]
TRIES = 2  # a third time would tell nothing that the second does not


def ledger(judge: Judge, world: World) -> Moves:
    """Every move of the ledger, and the results that enter the tree when all calls are closed."""
    for place, call in enumerate(world.calls):
        tool = judge.setting.runs[call.run].tool
        if tool == "client":
            yield from _client(judge, world, place, call)
        else:
            yield from _start(judge, world, place, call)
            yield from _lose(judge, world, place, call, tool)
            yield from _settle(judge, world, place, call, tool)
    for number, node in enumerate(world.nodes):
        if isinstance(node.task, Executor):
            yield from _execute(judge, world, number, node.task)
        elif isinstance(node.task, Sender) and not judge.rules.tool_waits_for_commit:
            yield from _too_early(judge, world, number, node.task)
    yield from results(judge, world)


def with_call(world: World, place: int, call: Call) -> World:
    """Return the world with this ledger row; who executed a closed call is forgotten."""
    if call.closed:
        call = call._replace(owner=NOBODY, epoch=0, attempt=0, passed=False)
    return world._replace(calls=put(world.calls, place, call))


def _with_task(world: World, node: int, task: Executor | None) -> World:
    return world._replace(nodes=put(world.nodes, node, world.nodes[node]._replace(task=task)))


def _client(judge: Judge, world: World, place: int, call: Call) -> Moves:
    """The client brings its result, in its own time; once more, if nothing stops it."""
    if call.state == "PENDING" or (not judge.rules.result_is_fenced and call.results < 2):
        done = call._replace(state="SUCCESS", results=call.results + 1)
        yield Move(("client result", place), with_call(world, place, done))


def _start(judge: Judge, world: World, place: int, call: Call) -> Moves:
    run = world.runs[call.run]
    if call.state != "PENDING" or not drives(world, run):
        return
    node = world.nodes[run.owner]
    if not current(node) or node.task is not None:
        return
    if not run.open and judge.rules.claim_needs_open_run:
        return
    breach = invariants.at_tool_claim(world, call)
    attempt = call.attempt + 1
    if judge.rules.executing_is_durable:
        claimed = call._replace(
            state="EXECUTING", owner=run.owner, epoch=node.mine, attempt=attempt, passed=False
        )
        world = with_call(world, place, claimed)
    task = Executor(place, attempt, "claimed")
    yield Move(("claim call", place, run.owner), _with_task(world, run.owner, task), breach)


def _execute(judge: Judge, world: World, node: int, task: Executor) -> Moves:
    call = world.calls[task.call]
    tool = judge.setting.runs[call.run].tool
    if task.at == "claimed" or (task.at == "expired" and not judge.rules.executor_checks_deadline):
        # An idempotent tool has its effect once per key, however often it is called.
        effects = 1 if tool == "idempotent" else call.effects + 1
        done = call._replace(effects=effects)
        breach = invariants.at_effect(done, committed=True, counts=tool != "idempotent")
        after = _with_task(with_call(world, task.call, done), node, task._replace(at="called"))
        yield Move(("effect", task.call, node), after, breach)
    elif task.at == "called":
        yield from _finish(judge, world, node, task, call)
    elif task.at == "expired":
        yield Move(("give up", task.call, node), _with_task(world, node, None))


def _finish(judge: Judge, world: World, node: int, task: Executor, call: Call) -> Moves:
    fenced = (
        call.state == "EXECUTING"
        and (call.owner, call.epoch) == (node, world.nodes[node].mine)
        and call.attempt == task.attempt
    )
    unclaimed = not judge.rules.executing_is_durable and call.state == "PENDING"
    if fenced or unclaimed or not judge.rules.result_is_fenced:
        done = call._replace(state="SUCCESS", results=call.results + 1)
        yield Move(
            ("finish", task.call, node), _with_task(with_call(world, task.call, done), node, None)
        )
    else:
        yield Move(("late result", task.call, node), _with_task(world, node, None))


def _lose(judge: Judge, world: World, place: int, call: Call, tool: str) -> Moves:
    """EXECUTING with a stale owner or past its deadline: again where that is safe, else unknown."""
    if call.state in {"EXECUTING", "UNKNOWN"} and not call.passed:
        yield Move(("call deadline", place), _passed(world, place, call))
    if call.state != "EXECUTING":
        return
    if world.nodes[call.owner].epoch != call.epoch or call.passed:
        safe = tool == "idempotent" or not judge.rules.unknown_fate_waits
        again = safe and call.attempt < TRIES
        lost = call._replace(state="PENDING" if again else "UNKNOWN", owner=NOBODY, epoch=0)
        yield Move(("lose call", place), with_call(world, place, lost))


def _passed(world: World, place: int, call: Call) -> World:
    world = with_call(world, place, call._replace(passed=True))
    for number, node in enumerate(world.nodes):
        if node.task == Executor(place, call.attempt, "claimed"):
            world = _with_task(world, number, Executor(place, call.attempt, "expired"))
    return world


def _settle(judge: Judge, world: World, place: int, call: Call, tool: str) -> Moves:
    """UNKNOWN ends by a query where there is one; else, after the deadline, by saying so."""
    if call.state != "UNKNOWN":
        return
    if tool == "query":
        if call.effects:
            known = call._replace(state="SUCCESS", results=call.results + 1)
            yield Move(("query: done", place), with_call(world, place, known))
        elif call.attempt < TRIES and (call.passed or not judge.rules.negative_query_waits):
            yield Move(
                ("query: not done", place), with_call(world, place, call._replace(state="PENDING"))
            )
    if call.passed and (tool != "query" or call.attempt == TRIES):
        closed = call._replace(state="ERROR", results=call.results + 1)
        yield Move(("timeout_unknown", place), with_call(world, place, closed))


def _too_early(judge: Judge, world: World, node: int, task: Sender) -> Moves:
    run = world.operations[task.operation].run
    if task.at == "head" and judge.setting.runs[run].tool:
        breach = invariants.at_effect(Call(run, NOBODY, effects=1), committed=False, counts=True)
        yield Move(("tool from the stream", node), world, breach)
