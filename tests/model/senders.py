"""What a node does that holds a model call in its memory: send, report, commit, or come too late.

A report is offered whenever the sender has something to say; whether it is taken is for the
table to decide. Nothing here knows whether the sender is still the owner: a zombie does not
know it either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from antiphon.core.dispatch import IN_FLIGHT, Event, State
from tests.model import invariants
from tests.model.engine import failed, with_operation, with_task
from tests.model.judge import Said
from tests.model.world import NOBODY, Move, Sender, World

if TYPE_CHECKING:
    from tests.model.judge import Judge

Moves = Iterator[Move]


def senders(judge: Judge, world: World) -> Moves:
    """What a node does that holds a model call: send, report, commit, or find that it came too late."""
    for number, node in enumerate(world.nodes):
        if isinstance(node.task, Sender):
            yield from _send(judge, world, number, node.task)
            yield from _report(judge, world, number, node.task)
            yield from _let_go(judge, world, number, node.task)


def _send(judge: Judge, world: World, node: int, task: Sender) -> Moves:
    if task.at == "expired" and not judge.rules.sender_checks_deadline:
        pass
    elif task.at != "accepted":
        return
    op = world.operations[task.operation]
    breach = invariants.at_send(world, task)
    sending = NOBODY
    if op.generation == task.generation:
        sending = len(op.sendings)
        op = op._replace(sendings=(*op.sendings, "flying"))
    after = with_operation(world, task.operation, op)
    yield Move(
        ("send", node), with_task(after, node, task._replace(at="sent", sending=sending)), breach
    )
    if "unreachable" in judge.setting.weather:
        yield Move(
            ("unreachable", node), with_task(world, node, task._replace(at="not_sent")), help=False
        )


def _report(judge: Judge, world: World, node: int, task: Sender) -> Moves:
    """Tell the store what happened; where the table has another name for it now, under that name."""
    place = task.operation
    whole = Said(node, task.generation, whole=task.at == "whole")
    definite = Said(node, task.generation, definite=True)
    finished = Said(node, task.generation, proof="finished without an answer")
    closed = Said(node, task.generation, proof="connection")

    def take(event: Event, said: Said, after: Sender | None, *, by: str = "") -> Moves:
        row = judge.ask(world, event, place, said)
        if row:
            breach = invariants.at_report(judge.setting, world, event, task, row)
            changed = judge.apply(world, row, place, node=node, whole=task.at == "whole")
            changed = failed(changed, place, by)
            breach = breach or invariants.after_commit(judge.setting, world, changed, task)
            # A failed or committed attempt needs no sender; an unknown one may still hear from it.
            held = None if row.target in {State.FAILED, State.COMMITTED} else after
            yield Move((event.value, place, node), with_task(changed, node, held), breach)

    if task.at in {"sent", "head", "whole", "bad", "no"}:
        yield from take(Event.WRITTEN, definite, task)
    if task.at in {"head", "whole", "bad"}:
        yield from take(Event.OPENED, definite, task)
    if task.at == "whole" or (task.at == "head" and not judge.rules.commit_waits_for_finish):
        for event in (Event.COMMIT, Event.FOUND):
            yield from take(event, whole, None)
        yield from take(Event.CONFLICT, whole, None, by="conflict")
    if task.at in {"bad", "no"}:
        after = task if task.at == "bad" else task._replace(at="closed")
        yield from take(Event.REFUSED, definite, after, by="no")
    if task.at == "bad":
        yield from take(Event.ENDED, finished, None, by="ended")
    if task.at == "not_sent":
        yield from take(Event.NOT_SENT, definite, task._replace(at="closed"), by="no")
    if task.at in {"closed", "expired"}:
        if world.operations[place].generation == task.generation:
            yield from take(Event.LOST, definite, task)
        if "connection" in judge.setting.profile and not world.operations[place].again:
            yield from take(Event.ENDED, closed, None, by="ended")


def _let_go(judge: Judge, world: World, node: int, task: Sender) -> Moves:
    """Once the attempt is no longer this sender's it may hang up, and drops what it cannot use."""
    op = world.operations[task.operation]
    mine = (
        op.state in IN_FLIGHT
        and op.generation == task.generation
        and (op.owner, op.epoch) == (node, world.nodes[node].mine)
    )
    if mine:
        return
    if task.at in {"accepted", "sent", "head"}:
        proof = (
            "connection" in judge.setting.profile
            and not op.again
            and op.generation == task.generation
        )
        closed = task._replace(at="closed") if proof and op.state is State.UNKNOWN else None
        yield Move(("hang up", node), with_task(world, node, closed))
    else:
        yield Move(("drop", node), with_task(world, node, None))
    # The handle may still be told while its generation is current and nobody else has it.
    handle_wanted = (
        "handle" in judge.setting.profile and task.at in {"head", "whole"} and not op.handle
    )
    if handle_wanted and op.state is State.UNKNOWN and op.generation == task.generation:
        yield Move(
            ("handle", node), with_operation(world, task.operation, op._replace(handle=True))
        )
