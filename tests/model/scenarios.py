"""The scenarios: small enough to be explored to the end, each about one thing that can go wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tests.model import invariants
from tests.model.engine import operations, runs
from tests.model.explore import Explorer, Found
from tests.model.judge import Judge
from tests.model.ledger import ledger
from tests.model.people import people, stray
from tests.model.senders import senders
from tests.model.weather import misfortune, provider, time
from tests.model.world import NOBODY, Breach, Budget, Move, Rules, Setting, Spec, World, start

NO_SLOT: Final = Rules(slot=False)

SCENARIOS: Final[dict[str, Setting]] = {
    "every weather": Setting(
        weather=frozenset({"refuse", "cut", "spoil", "unreachable"}),
        budget=Budget(crashes=1, expiries=1, deaths=1),
    ),
    "by the handle": Setting(
        profile=frozenset({"handle", "connection"}),
        weather=frozenset({"cut", "spoil"}),
        budget=Budget(expiries=1),
    ),
    "by the handle, after a crash": Setting(
        profile=frozenset({"handle"}),
        weather=frozenset({"cut"}),
        budget=Budget(crashes=1, deaths=1),
    ),
    "under the key": Setting(
        profile=frozenset({"key"}),
        weather=frozenset({"refuse", "unreachable"}),
        budget=Budget(expiries=1),
    ),
    "under the key, after a crash": Setting(
        profile=frozenset({"key", "connection"}),
        weather=frozenset({"refuse", "cut"}),
        budget=Budget(crashes=1),
    ),
    "three generations": Setting(
        attempts=3,
        weather=frozenset({"cut", "refuse"}),
        budget=Budget(expiries=2),
    ),
    "a slow owner": Setting(
        attempts=1,
        weather=frozenset({"refuse"}),
        budget=Budget(crashes=1, expiries=1),
        slow_owners=True,
    ),
    "cancel": Setting(
        runs=(Spec(), Spec()),
        attempts=1,
        budget=Budget(expiries=1, cancels=1),
    ),
    "cancel in two strides": Setting(
        weather=frozenset({"refuse"}),
        budget=Budget(crashes=1, cancels=1),
        cancel_in_two=True,
    ),
    "a stray hand": Setting(
        weather=frozenset({"refuse"}),
        budget=Budget(expiries=1, strays=1),
    ),
    "a stray hand, no deadline": Setting(
        profile=frozenset(),
        budget=Budget(strays=1),
        rules=Rules(deadlines=False),
    ),
    "tool": Setting(
        runs=(Spec(tool="plain"),),
        attempts=1,
        budget=Budget(crashes=1, expiries=1, cancels=1),
    ),
    "tool with a query": Setting(
        runs=(Spec(tool="query"),),
        attempts=1,
        budget=Budget(expiries=1),
    ),
    "idempotent tool": Setting(
        runs=(Spec(tool="idempotent"),),
        attempts=1,
        budget=Budget(expiries=1),
    ),
    "two branches": Setting(
        runs=(Spec(tool="client"), Spec(parent="root")),
        attempts=1,
        budget=Budget(cancels=1),
    ),
    "two branches without a slot": Setting(
        runs=(Spec(parent="root"), Spec(parent="root")),
        attempts=1,
        budget=Budget(cancels=1),
        rules=NO_SLOT,
    ),
    "one branch waits, no slot": Setting(
        runs=(Spec(parent="root", tool="client"), Spec(parent="root")),
        attempts=1,
        rules=replace(NO_SLOT, deadlines=False),
    ),
    "next message": Setting(
        runs=(Spec(tool="client"), Spec()),
        attempts=1,
        budget=Budget(cancels=1),
    ),
    "a reader and a switch": Setting(
        runs=(Spec(tool="plain"),),
        attempts=1,
        budget=Budget(looks=1, switches=1),
    ),
}


def moves(judge: Judge) -> Callable[[World], list[Move]]:
    """Return the function that lists every move in a world."""
    parts = (runs, operations, senders, ledger, provider, time, misfortune, people, stray)

    def all_moves(world: World) -> list[Move]:
        return [move for part in parts for move in part(judge, world)]

    return all_moves


def finished(world: World) -> bool:
    """Whether every run has ended, every call is closed and nothing is held."""
    return (
        world.active == NOBODY
        and world.slot == NOBODY
        and not any(run.open for run in world.runs)
        and all(call.closed and call.placed for call in world.calls)
    )


def explore(setting: Setting, wanted: Callable[[Breach], bool] = lambda _: True) -> Found:
    """Explore one scenario to its end, or to the first wanted breach."""
    judge = Judge(setting)
    found = Explorer(moves(judge), invariants.standing, finished, wanted=wanted).run(start(setting))
    return replace(found, rows=frozenset(judge.taken))
