"""What people do while runs are at work: cancel, look elsewhere, switch sessions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from antiphon.core.dispatch import Event
from tests.model.engine import with_results, with_run
from tests.model.judge import Said
from tests.model.world import NOBODY, Move, World, put

if TYPE_CHECKING:
    from tests.model.judge import Judge

Moves = Iterator[Move]


def people(judge: Judge, world: World) -> Moves:
    """Every act that a budget is left for, and the delivery of cancels that were asked."""
    budget = world.budget
    for place, run in enumerate(world.runs):
        if run.cancel == "no" and run.open and budget.cancels:
            asked = with_run(world, place, run._replace(cancel="asked"))
            spent = budget._replace(cancels=budget.cancels - 1)
            yield Move(("ask cancel", place), asked._replace(budget=spent), help=False)
        elif run.cancel in {"asked", "moving"}:
            yield Move(("cancel", place), _deliver(judge, world, place))
    if budget.looks and world.head != 0:
        spent = budget._replace(looks=budget.looks - 1)
        yield Move(("look elsewhere",), world._replace(head=0, budget=spent), help=False)
    if budget.switches and _may_switch(judge, world):
        switched = world._replace(
            session=world.session + 1,
            revision=world.revision + 1,
            budget=budget._replace(switches=budget.switches - 1),
        )
        yield Move(("switch session",), switched, help=False)


def stray(judge: Judge, world: World) -> Moves:
    """Something that breaks the rules moves the revision; the guards have to bear it."""
    if world.budget.strays:
        spent = world.budget._replace(strays=world.budget.strays - 1)
        yield Move(
            ("stray",), world._replace(revision=world.revision + 1, budget=spent), help=False
        )


def _may_switch(judge: Judge, world: World) -> bool:
    placed = any(run.open and run.status != "queued" for run in world.runs)
    if not judge.rules.switch_waits_for_run:
        return world.active == NOBODY
    return not placed


def _deliver(judge: Judge, world: World, place: int) -> World:
    run = world.runs[place]
    hit = place
    if not judge.rules.cancel_names_run and world.active != NOBODY:
        hit = world.operations[world.active].run
        world = with_run(world, place, run._replace(cancel="done"))
    if not world.runs[hit].open:
        return with_run(world, hit, world.runs[hit]._replace(cancel="done"))
    if judge.setting.cancel_in_two and run.cancel == "asked" and run.status == "pending":
        return _first_stride(judge, world, hit)
    return canceled(judge, world, hit)


def _first_stride(judge: Judge, world: World, place: int) -> World:
    """Where a cancel is two transactions: the first lets go and moves the number, no more."""
    if judge.rules.cancel_moves_number:
        world = world._replace(cancel_generation=world.cancel_generation + 1)
    if world.active != NOBODY and world.operations[world.active].run == place:
        world = world._replace(active=NOBODY)
    return with_run(world, place, world.runs[place]._replace(cancel="moving"))


def canceled(judge: Judge, world: World, place: int) -> World:
    """Cancel one run, in any state of it, in one transaction."""
    rules, run = judge.rules, world.runs[place]
    held = world.active != NOBODY and world.operations[world.active].run == place
    waiting = run.status == "waiting" and not rules.waiting_cancel_keeps_number
    for number, op in enumerate(world.operations):
        row = judge.ask(world, Event.CANCEL, number, Said()) if op.run == place else None
        if row:
            world = judge.apply(world, row, number)
    if (held or waiting) and rules.cancel_moves_number:
        world = world._replace(cancel_generation=world.cancel_generation + 1)
    mark = "no" if run.cancel == "no" else "done"
    world = _close(world, place, mark, calls=rules.cancel_closes_calls)
    mine = [c for c in world.calls if c.run == place and not c.placed]
    if mine and all(c.closed for c in mine) and world.active == NOBODY:
        world = with_results(world, place)
    return world


def _close(world: World, place: int, mark: str, *, calls: bool) -> World:
    run = world.runs[place]
    messages = tuple(
        m._replace(status="success") if m.run == place and m.status == "pending" else m
        for m in world.messages
    )
    ledger = tuple(
        c._replace(state="CANCELED", results=c.results + 1)
        if c.run == place and not c.closed and calls
        else c
        for c in world.calls
    )
    plain = run.status == "pending" and run.committed == 0 and world.head == run.head_left
    return world._replace(
        messages=messages,
        calls=ledger,
        runs=put(world.runs, place, run._replace(status="canceled", cancel=mark)),
        slot=NOBODY if world.slot == place else world.slot,
        head=run.leaf if plain else world.head,
    )
