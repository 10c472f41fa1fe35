"""What the two nodes decide from the store alone: place and claim runs, drive and recover operations.

A node's own memory is its `task`; everything else it decides anew from the store's rows, so
those decisions are atomic here: read and compare-and-swap are one transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from antiphon.core.dispatch import ACTIVE, FINAL, IN_FLIGHT, Event, State
from tests.model import invariants
from tests.model.judge import Judge, Said, follow_head
from tests.model.world import (
    NOBODY,
    Breach,
    Message,
    Move,
    Node,
    Operation,
    Sender,
    World,
    line,
    put,
)

if TYPE_CHECKING:
    from tests.model.world import Run

Moves = Iterator[Move]
GENERATIONS = 5  # none of the scenarios needs more; a mutant might never stop


def with_task(world: World, node: int, task: Sender | None) -> World:
    """Return the world in which `node` holds `task`."""
    return world._replace(nodes=put(world.nodes, node, world.nodes[node]._replace(task=task)))


def with_operation(world: World, place: int, operation: Operation) -> World:
    return world._replace(operations=put(world.operations, place, operation))


def with_run(world: World, place: int, run: Run) -> World:
    return world._replace(runs=put(world.runs, place, run))


def current(node: Node) -> bool:
    """Whether the node's lease holds."""
    return node.mine == node.epoch


def drives(world: World, run: Run) -> bool:
    """Whether the run's owner still believes that it is; a zombie does."""
    return run.owner != NOBODY and world.nodes[run.owner].mine == run.epoch


# ---------------------------------------------------------------------------------------- runs


def runs(judge: Judge, world: World) -> Moves:
    """Placement, claims, preparation and the end of runs."""
    for place, run in enumerate(world.runs):
        if run.status == "queued":
            yield from _place(judge, world, place)
        elif run.status == "pending":
            yield from _claim(judge, world, place, run)
            yield from _end_late(judge, world, place, run)
            if drives(world, run) and run.cancel != "moving":
                yield from _prepare(judge, world, place, run)


def _place(judge: Judge, world: World, place: int) -> Moves:
    rules, spec = judge.rules, judge.setting.runs[place]
    if world.active != NOBODY and rules.input_waits_for_operation:
        return
    if world.slot != NOBODY and rules.slot:
        return
    if spec.parent == "default" and any(r.open and r.status != "queued" for r in world.runs):
        return  # its branch is not free
    if any(r.status == "queued" for r in world.runs[:place]):
        return  # in turn
    parent = 0 if spec.parent == "root" else _default_parent(judge, world)
    for number, node in enumerate(world.nodes):
        if not current(node):
            continue
        if not world.operations and number > 0:
            break  # the nodes are alike until one of them has begun
        run = world.runs[place]._replace(
            status="pending",
            owner=number,
            epoch=node.mine,
            leaf=len(world.messages),
            head_left=world.head,
            session=world.session,
        )
        yield Move(
            ("place", place, number),
            world._replace(
                revision=world.revision + 1,
                slot=place,
                messages=(*world.messages, Message("input", place, parent, "pending")),
                runs=put(world.runs, place, run),
            ),
        )


def _default_parent(judge: Judge, world: World) -> int:
    """The last closed point: the newest committed message on the line under which no call is open."""
    above = line(world, world.head)
    if not judge.rules.parent_is_closed_point:
        return next((m for m in above if world.messages[m].kind == "answer"), 0)
    for place in above:
        message = world.messages[place]
        if message.status == "success" and not message.calls:
            return place
    return 0


def _claim(judge: Judge, world: World, place: int, run: Run) -> Moves:
    if not judge.rules.claims or world.nodes[run.owner].epoch == run.epoch:
        return
    if any(op.run == place and op.state in ACTIVE for op in world.operations):
        return  # its attempt is recovered by anybody; who owns the run matters only between two
    for number, node in enumerate(world.nodes):
        if current(node):
            claimed = run._replace(owner=number, epoch=node.mine)
            if judge.setting.slow_owners:
                claimed = claimed._replace(former=(run.owner, run.epoch))
            yield Move(("claim", place, number), with_run(world, place, claimed))


def _end_late(judge: Judge, world: World, place: int, run: Run) -> Moves:
    """An owner that another has followed ends the run all the same: it has not noticed."""
    former, epoch = run.former
    if former != NOBODY and _may_end(judge, world, run, former, epoch):
        breach = invariants.at_end(run, former, epoch)
        yield Move(("end late", place, former), ended(world, place, "error"), breach, help=False)


def _may_end(judge: Judge, world: World, run: Run, node: int, epoch: int) -> bool:
    """Whether the store lets a process end the run, as long as it is that process still."""
    if world.nodes[node].mine != epoch:
        return False
    is_owner = world.nodes[node].epoch == epoch and (run.owner, run.epoch) == (node, epoch)
    return is_owner or not judge.rules.end_is_fenced


def _prepare(judge: Judge, world: World, place: int, run: Run) -> Moves:
    mine = [op for op in world.operations if op.run == place]
    if mine and mine[-1].state not in FINAL:
        return
    if mine and mine[-1].state is State.CLOSED:
        if _may_end(judge, world, run, run.owner, run.epoch):
            yield Move(("end", place), ended(world, place, "error"))
        closed = sum(op.state is State.CLOSED for op in mine)
        if closed >= judge.setting.operations and mine[-1].failed_by != "conflict":
            return
    if any(call.run == place and not call.placed for call in world.calls):
        return
    legal = invariants.illegal_line(world, run.leaf, place) is None
    if judge.may_prepare(world, place, legal=legal) is None:
        if not legal and _may_end(judge, world, run, run.owner, run.epoch):
            breach = Breach("2", "no legal next message")
            yield Move(("refuse", place), ended(world, place, "error"), breach)
        return
    operation = Operation(
        run=place,
        base_leaf=run.leaf,
        base_revision=world.revision,
        base_cancel_generation=world.cancel_generation,
        state=State.PREPARED,
    )
    yield Move(("prepare", place), world._replace(operations=(*world.operations, operation)))


def ended(world: World, place: int, status: str) -> World:
    """End an open run in `status`: it gives the slot back, and its input is no longer pending."""
    run = world.runs[place]
    said = "error" if status == "error" and run.committed == 0 else "success"
    messages = tuple(
        m._replace(status=said) if m.run == place and m.status == "pending" else m
        for m in world.messages
    )
    return world._replace(
        messages=messages,
        runs=put(
            world.runs,
            place,
            run._replace(status=status, owner=NOBODY, epoch=0, former=(NOBODY, 0)),
        ),
        slot=NOBODY if world.slot == place else world.slot,
    )


def results(judge: Judge, world: World) -> Moves:
    """Every call of a run is closed: the results message enters the tree."""
    for place, run in enumerate(world.runs):
        mine = [call for call in world.calls if call.run == place and not call.placed]
        if not mine or not all(call.closed for call in mine):
            continue
        if world.active != NOBODY and judge.rules.results_wait_for_operation:
            continue
        if run.open and judge.rules.slot and world.slot not in {NOBODY, place}:
            continue
        yield Move(("results", place), with_results(world, place))


def with_results(world: World, place: int) -> World:
    """Return the world in which the results of the run's calls stand in the tree."""
    run = world.runs[place]
    message = Message("results", place, run.leaf)
    calls = tuple(c._replace(placed=True) if c.run == place else c for c in world.calls)
    head_left = run.head_left
    run = run._replace(leaf=len(world.messages))
    if run.status == "waiting":
        owner = next((n for n, node in enumerate(world.nodes) if current(node)), run.owner)
        run = run._replace(status="pending", owner=owner, epoch=world.nodes[owner].mine)
    world = world._replace(
        revision=world.revision + 1,
        messages=(*world.messages, message),
        calls=calls,
        runs=put(world.runs, place, run),
        slot=place if run.status == "pending" else world.slot,
    )
    return follow_head(world, place) if world.head == head_left else world


# ---------------------------------------------------------------------------------- operations


def operations(judge: Judge, world: World) -> Moves:
    """What a run's driver, or anybody, does with an attempt that no sender is at work on."""
    for place, op in enumerate(world.operations):
        run = world.runs[op.run]
        yield from _accept(judge, world, place, run)
        if op.state in ACTIVE:
            yield from _recover(judge, world, place, op)
        elif drives(world, run):
            yield from _drive(judge, world, place, op)


def _accept(judge: Judge, world: World, place: int, run: Run) -> Moves:
    """The run's driver accepts. Only the table says from which states: it is asked in every one."""
    if world.attempt_generation == GENERATIONS:
        return
    between = world.operations[place].state is State.PREPARED
    for number, node in enumerate(world.nodes):
        if node.task is not None or (between and run.owner != number):
            continue
        if between and not judge.rules.accept_before_sending:
            eager = Sender(place, world.attempt_generation + 1, "accepted")
            yield Move(("send first", place, number), with_task(world, number, eager))
        row = judge.ask(world, Event.ACCEPT, place, Said(node=number))
        if row:
            after = judge.apply(world, row, place, node=number)
            task = Sender(place, after.operations[place].generation, "accepted")
            breach = invariants.at_accept(world, place)
            yield Move(("accept", place, number), with_task(after, number, task), breach)


def _drive(judge: Judge, world: World, place: int, op: Operation) -> Moves:
    if op.state is State.PREPARED:
        row = judge.ask(world, Event.SUPERSEDE, place, Said())
        if row:
            yield Move(("supersede", place), judge.apply(world, row, place))
        return
    if op.state is not State.FAILED or world.runs[op.run].cancel == "moving":
        return
    retry = judge.ask(world, Event.RETRY, place, Said())
    if retry:
        yield Move(("retry", place), _again(judge.apply(world, retry, place), place))
    # A definite no is tried again while it may be; after an end without one that is somebody's choice.
    due = (
        op.failed_by == "no"
        and op.attempts < judge.setting.attempts
        and (op.base_revision, op.base_cancel_generation)
        == (world.revision, world.cancel_generation)
    )
    row = judge.ask(world, Event.CLOSE, place, Said())
    if row and not due:
        yield Move(("close", place), judge.apply(world, row, place))


def _again(world: World, place: int) -> World:
    op = world.operations[place]
    return with_operation(
        world, place, op._replace(attempts=op.attempts + 1, owner=NOBODY, epoch=0, failed_by="")
    )


def _recover(judge: Judge, world: World, place: int, op: Operation) -> Moves:
    if op.state in IN_FLIGHT:
        row = judge.ask(world, Event.LOST, place, Said())
        if row:
            yield Move(("lost", place), judge.apply(world, row, place))
        return
    for witness, proof in _proofs(judge, world, op):
        said = Said(generation=op.generation, proof=proof)
        row = judge.ask(world, Event.ENDED, place, said)
        if row:
            yield Move(
                ("ended", place, proof, witness),
                failed(judge.apply(world, row, place), place, "ended"),
            )
    for number, node in enumerate(world.nodes):
        if node.task is not None:
            continue
        yield from _continue(judge, world, place, op, number)


def _continue(judge: Judge, world: World, place: int, op: Operation, node: int) -> Moves:
    """Resume or ask by the handle, or replay under the key; the first that the profile has."""
    said = Said(node=node, generation=op.generation)
    # The table lets a reader begin at any time; one that began after the deadline could not hang up at it.
    row = None if op.passed else judge.ask(world, Event.RESUME, place, said)
    if row:
        reader = Sender(place, op.generation, "head")
        yield Move(
            ("resume", place, node),
            with_task(judge.apply(world, row, place, node=node), node, reader),
        )
    if op.handle:
        # One request was carried out, and the provider still has what came of it.
        answer = "whole" if "good" in op.sendings else "bad"
        held = Sender(place, op.generation, answer)
        yield Move(("query", place, node, answer), with_task(world, node, held))
    row = judge.ask(world, Event.REPLAY, place, said) if len(op.sendings) < 2 else None
    if row:
        sender = Sender(place, op.generation, "accepted")
        yield Move(
            ("replay", place, node),
            with_task(judge.apply(world, row, place, node=node), node, sender),
        )


def _proofs(judge: Judge, world: World, op: Operation) -> Iterator[tuple[int, str]]:
    """Who can prove, from the rows alone, that nothing of the attempt can reach us any more."""
    stuck_on_handle = (
        "handle" in judge.setting.profile and not op.handle and not judge.rules.ladder_falls
    )
    if stuck_on_handle:
        return
    if op.passed:
        yield NOBODY, "deadline"
    if "connection" not in judge.setting.profile or op.again:
        return
    owner = world.nodes[op.owner]
    # The process that held the socket is gone, and its successor on the same machine knows it.
    if owner.mine > op.epoch and owner.task is None and current(owner):
        yield op.owner, "connection"
    elif owner.epoch != op.epoch and not judge.rules.connection_from_holder:
        yield NOBODY, "connection"


def failed(world: World, place: int, by: str) -> World:
    op = world.operations[place]
    return (
        with_operation(world, place, op._replace(failed_by=by))
        if op.state is State.FAILED
        else world
    )
