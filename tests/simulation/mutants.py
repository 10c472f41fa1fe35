"""Faults planted in the running code of engine and store, and the promise that each one breaks.

Each is a mistake that somebody could make. A mutant that survives its seeds says that the simulation
has become too tame to be believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

import msgspec

from antiphon.core import recovery
from antiphon.core.answers.answer import Answer
from antiphon.core.ids import ConversationId
from antiphon.core.records import Call, CallState, StoredEvent
from antiphon.engine.dispatch import exchange
from antiphon.engine.dispatch.exchange import Answered
from antiphon.engine.dispatch.settlement import Settlement
from antiphon.engine.live import Broker
from antiphon.engine.runs import startup
from antiphon.engine.tools.executor import Executor
from antiphon.stores.sql.call_rows import CallRow
from antiphon.stores.sql.commands import endings, runs
from antiphon.stores.sql.transaction import Transaction
from tests.simulation.history import History, simulate

Plant = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A fault, how it is planted, and a word of the report that it is to cause."""

    name: str
    caught_by: str
    plant: Plant


def hunt(mutant: Mutant, seeds: range) -> tuple[History, str] | None:
    """Return the first history that shows the mutant, and what gave it away."""
    for seed in seeds:
        with mutant.plant():
            history = simulate(seed)
        for broken in history.broken:
            if mutant.caught_by in broken:
                return history, broken
    return None


async def _nothing(*_: object, **__: object) -> None:
    return None


async def _nothing_left(*_: object) -> list[object]:
    return []


def _half(answer: Answer) -> Answered:
    """Take whatever came for the whole."""
    if answer.text:
        answer = msgspec.structs.replace(answer, committable=True, error=None, finish="stop")
    return Answered(answer)


def _unanswered(*_: object) -> Iterator[Any]:
    yield from ()


def _pending_again(tx: Transaction, row: CallRow, **values: object) -> Call:
    """Take a call of unknown fate for one that was never begun."""
    if values.get("state") == CallState.UNKNOWN:
        values["state"] = CallState.PENDING
    return _change_call(tx, row, **values)


_change_call: Final = Transaction.change_call


async def _unrecorded(executor: Executor, call: Call) -> Call:
    """Run a call before anybody has recorded that it runs."""
    return call


async def _one_less(
    broker: Broker, topic: Any, conversation: ConversationId, seq: int
) -> Iterable[StoredEvent]:
    """Begin one event behind what the reader has not seen."""
    found = list(await _after(broker, topic, conversation, seq))
    return found[1:] if len(found) > 1 else found


_after: Final = Broker._after


def _patched(target: object, name: str, value: object) -> Plant:
    return lambda: mock.patch.object(target, name, value)


MUTANTS: Final = (
    Mutant(
        name="half an answer is committed",
        caught_by="4: ",
        plant=_patched(exchange, "Answered", _half),
    ),
    Mutant(
        name="a crash sends again what may have been sent",
        caught_by="was sent again by a process",
        plant=_patched(recovery, "may_resend", lambda policy, witness, *, resent: resent == 0),
    ),
    Mutant(
        name="a message id is not looked up",
        caught_by="15: ",
        plant=_patched(runs, "_by_input", lambda tx, c, command: None),
    ),
    Mutant(
        name="a start key is not looked up",
        caught_by="15: ",
        plant=_patched(runs, "_by_key", lambda tx, c, command: None),
    ),
    Mutant(
        name="a cancel leaves calls open",
        caught_by="5: ",
        plant=_patched(endings, "_close_calls", _unanswered),
    ),
    Mutant(
        name="a call of unknown fate runs again",
        caught_by="was done",
        plant=_patched(Transaction, "change_call", _pending_again),
    ),
    Mutant(
        name="a tool runs before that is durable",
        caught_by="was done for a call that is PENDING",
        plant=_patched(Executor, "_begun", _unrecorded),
    ),
    Mutant(
        name="what a dead process had in flight is never said to be lost",
        caught_by="is left",
        plant=_patched(startup, "_lose", _nothing),
    ),
    Mutant(
        name="what was submitted on the way is taken to be recorded",
        caught_by="The store refused a commit",
        plant=_patched(Settlement, "_way", _nothing_left),
    ),
    Mutant(
        name="a reader begins one event behind",
        caught_by="came after",
        plant=_patched(Broker, "_after", _one_less),
    ),
)
