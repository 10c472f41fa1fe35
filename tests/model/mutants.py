"""The mutants of the contract: one mistake each, planted, and the invariant that has to catch it.

A mutant changes rows of the real table, the meaning of one of its conditions, or what store
and engine do beside it (`Rules`). Where the contract says that a single omission is masked by
the rules around it, the mutant names the pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final
from unittest import mock

from antiphon.core import dispatch
from antiphon.core.dispatch import PREDICATES, Condition, Effect, Event, Facts, Row, State
from tests.model.explore import Found
from tests.model.inbox import InboxRules, explore_inbox
from tests.model.scenarios import SCENARIOS, explore
from tests.model.world import Breach

Table = tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One mistake, where it is planted, and the breach that has to be found."""

    name: str
    scenario: str
    caught_by: str
    what: str
    table: Callable[[Table], Table] = lambda table: table
    meanings: Mapping[Condition, Callable[[Facts], bool]] = field(default_factory=dict)
    rules: Mapping[str, bool] = field(default_factory=dict)
    inbox: InboxRules | None = None

    def wanted(self, breach: Breach) -> bool:
        """Whether this is the breach that the contract names."""
        return breach.number == self.caught_by and self.what in breach.what


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Plant the mutant in the real module, for as long as the block runs."""
    rows = dispatch.by_pair(mutant.table(dispatch.TABLE))
    meanings = MappingProxyType({**PREDICATES, **mutant.meanings})
    with (
        mock.patch.object(dispatch, "_BY_PAIR", rows),
        mock.patch.object(dispatch, "PREDICATES", meanings),
    ):
        yield


def hunt(mutant: Mutant) -> Found:
    """Explore the mutant's scenario until its breach is found, or to the end."""
    if mutant.inbox:
        return explore_inbox(mutant.inbox, mutant.wanted)
    setting = SCENARIOS[mutant.scenario]
    setting = replace(setting, rules=replace(setting.rules, **mutant.rules))
    with planted(mutant):
        return explore(setting, mutant.wanted)


def without(*conditions: Condition, rows: set[int]) -> Callable[[Table], Table]:
    """These rows no longer ask for these conditions."""
    return lambda table: tuple(
        replace(row, conditions=tuple(c for c in row.conditions if c not in conditions))
        if row.number in rows
        else row
        for row in table
    )


def removed(*numbers: int) -> Callable[[Table], Table]:
    """The table lacks these rows."""
    return lambda table: tuple(row for row in table if row.number not in numbers)


def also_from(*states: State, rows: set[int]) -> Callable[[Table], Table]:
    """These rows may be taken from these states too."""
    return lambda table: tuple(
        replace(row, sources=row.sources | set(states)) if row.number in rows else row
        for row in table
    )


def both(*changes: Callable[[Table], Table]) -> Callable[[Table], Table]:
    """One change after the other."""

    def change(table: Table) -> Table:
        for one in changes:
            table = one(table)
        return table

    return change


def lost_to_prepared(table: Table) -> Table:
    """A lease that runs out frees the operation for its next attempt at once."""
    return tuple(
        replace(row, target=State.PREPARED, effects=(Effect.RELEASE,))
        if row.event is Event.LOST
        else row
        for row in table
    )


def owner_or_stale(facts: Facts) -> bool:
    """As OWNER_OR_GONE, but the attempt's deadline says nothing."""
    mine = (facts.my_node, facts.my_epoch, facts.my_generation)
    return mine == (facts.owner, facts.owner_epoch, facts.generation) or (
        facts.owner_epoch != facts.owner_epoch_current
    )


C: Final = Condition
ANY: Final = tuple(State)

MUTANTS: Final = (
    # ------------------------------------------------------------------------ accept and generations
    Mutant(
        name="accept from UNKNOWN",
        scenario="every weather",
        caught_by="7",
        what="generation opened before the earlier ended",
        table=both(also_from(State.UNKNOWN, rows={2}), without(C.NO_ACTIVE_OPERATION, rows={2})),
    ),
    Mutant(
        name="lease expiry straight to PREPARED",
        scenario="every weather",
        caught_by="7",
        what="generation opened before the earlier ended",
        table=lost_to_prepared,
    ),
    Mutant(
        name="accept from any state of the attempt or its run",
        scenario="cancel",
        caught_by="13",
        what="attempt opened for a canceled run",
        table=both(also_from(*ANY, rows={2}), without(C.RUN_OPEN, C.CANCEL_GENERATION, rows={2})),
    ),
    Mutant(
        name="accept without cancel_generation",
        scenario="cancel in two strides",
        caught_by="13",
        what="attempt opened after the cancel",
        table=without(C.CANCEL_GENERATION, rows={2}),
    ),
    Mutant(
        name="cancel does not move cancel_generation",
        scenario="cancel in two strides",
        caught_by="13",
        what="attempt opened after the cancel",
        rules={"cancel_moves_number": False},
    ),
    Mutant(
        name="accept without revision, something else moves it",
        scenario="a stray hand",
        caught_by="stale",
        what="stale manifest accepted",
        table=without(C.REVISION, rows={2}),
    ),
    Mutant(
        name="accept without active_operation IS NULL, two branches and no slot",
        scenario="two branches without a slot",
        caught_by="one",
        what="two active attempts in one conversation",
        table=without(C.NO_ACTIVE_OPERATION, rows={2}),
    ),
    Mutant(
        name="retry reuses the generation",
        scenario="three generations",
        caught_by="7",
        what="one generation executed twice",
        rules={"retry_opens_generation": False},
    ),
    Mutant(
        name="sent before the accept has won",
        scenario="every weather",
        caught_by="1",
        what="sent before it was accepted",
        rules={"accept_before_sending": False},
    ),
    # --------------------------------------------------------------------------------------- commit
    Mutant(
        name="commit without generation",
        scenario="three generations",
        caught_by="6",
        what="late generation committed",
        table=without(C.GENERATION, rows={6, 13}),
    ),
    Mutant(
        name="commit without revision, something else moves it",
        scenario="a stray hand",
        caught_by="3",
        what="committed on a passed base",
        table=without(C.REVISION, rows={6, 13}),
    ),
    Mutant(
        name="commit without state and active_operation",
        scenario="every weather",
        caught_by="6",
        what="committed from a closed attempt",
        table=both(also_from(*ANY, rows={6}), without(C.ACTIVE_OPERATION, rows={6})),
    ),
    Mutant(
        name="commit without cancel_generation and active_operation",
        scenario="cancel in two strides",
        caught_by="13",
        what="commit after cancel",
        table=without(C.CANCEL_GENERATION, C.ACTIVE_OPERATION, rows={6, 13}),
    ),
    Mutant(
        name="commit without a finish",
        scenario="every weather",
        caught_by="4",
        what="partial in history",
        table=without(C.WHOLE_ANSWER, rows={6, 13}),
        rules={"commit_waits_for_finish": False},
    ),
    # ------------------------------------------------------------------------------ owners and ends
    Mutant(
        name="written, opened, refused without owner, epoch and generation",
        scenario="three generations",
        caught_by="7",
        what="generation opened before the earlier ended",
        table=without(C.OWNER, C.GENERATION, rows={4, 5, 8, 12}),
    ),
    Mutant(
        name="connection taken from a stale lease",
        scenario="every weather",
        caught_by="7",
        what="generation opened before the earlier ended",
        rules={"connection_from_holder": False},
    ),
    Mutant(
        name="sender ignores its deadline",
        scenario="every weather",
        caught_by="7",
        what="sent after it was declared ended",
        rules={"sender_checks_deadline": False},
    ),
    Mutant(
        name="replay without the key",
        scenario="every weather",
        caught_by="7",
        what="one generation executed twice",
        table=without(C.HONOURS_KEY, rows={11}),
    ),
    Mutant(
        name="refused replay to FAILED",
        scenario="under the key",
        caught_by="7",
        what="generation opened before the earlier ended",
        table=both(without(C.FIRST_SENDING, rows={8}), removed(12)),
    ),
    Mutant(
        name="run ended without owner and epoch",
        scenario="a slow owner",
        caught_by="owner",
        what="a run ended by one that another has followed",
        rules={"end_is_fenced": False},
    ),
    Mutant(
        name="proof of an earlier generation's end",
        scenario="three generations",
        caught_by="7",
        what="generation opened before the earlier ended",
        table=without(C.GENERATION, rows={14}),
    ),
    # ------------------------------------------------------------------------------ what never ends
    Mutant(
        name="no UNKNOWN by deadline while the node lives",
        scenario="every weather",
        caught_by="stuck",
        what="",
        meanings={C.OWNER_OR_GONE: owner_or_stale},
    ),
    Mutant(
        name="no claim of runs between two steps",
        scenario="tool",
        caught_by="stuck",
        what="",
        rules={"claims": False},
    ),
    Mutant(
        name="no FAILED to PREPARED",
        scenario="under the key",
        caught_by="stuck",
        what="",
        table=removed(15),
    ),
    Mutant(
        name="no supersede", scenario="a stray hand", caught_by="stuck", what="", table=removed(3)
    ),
    Mutant(
        name="no way out for a handle profile without a handle",
        scenario="by the handle, after a crash",
        caught_by="stuck",
        what="",
        rules={"ladder_falls": False},
    ),
    Mutant(
        name="no conflict row, and no deadline",
        scenario="a stray hand, no deadline",
        caught_by="stuck",
        what="",
        table=removed(7),
    ),
    # -------------------------------------------------------------------- cancel, branches, placement
    Mutant(
        name="cancel without a run id",
        scenario="cancel",
        caught_by="13",
        what="a run canceled that nobody canceled",
        rules={"cancel_names_run": False},
    ),
    Mutant(
        name="cancel of a waiting run moves the fence",
        scenario="two branches",
        caught_by="zero",
        what="whole answer of another run refused",
        rules={"waiting_cancel_keeps_number": False},
    ),
    Mutant(
        name="results enter the tree while an operation is active, no slot",
        scenario="one branch waits, no slot",
        caught_by="zero",
        what="whole answer of another run refused",
        rules={"results_wait_for_operation": False},
    ),
    Mutant(
        name="a user message enters the tree while an operation is active, no slot",
        scenario="two branches without a slot",
        caught_by="zero",
        what="whole answer of another run refused",
        rules={"input_waits_for_operation": False},
    ),
    Mutant(
        name="active path always follows the commit",
        scenario="a reader and a switch",
        caught_by="head",
        what="path pulled from under a reader",
        rules={"head_follows_only_unmoved": False},
    ),
    Mutant(
        name="session switch with an open run",
        scenario="a reader and a switch",
        caught_by="10",
        what="answer in an archived session",
        rules={"switch_waits_for_run": False},
    ),
    Mutant(
        name="default parent = newest assistant message",
        scenario="next message",
        caught_by="2",
        what="no legal next message",
        rules={"parent_is_closed_point": False},
    ),
    Mutant(
        name="default parent = newest assistant message, without validation",
        scenario="next message",
        caught_by="2",
        what="illegal sequence sent",
        table=without(C.LINE_LEGAL, rows={1}),
        rules={"parent_is_closed_point": False},
    ),
    # ---------------------------------------------------------------------------------------- tools
    Mutant(
        name="tool before the commit",
        scenario="tool",
        caught_by="5",
        what="a tool ran for a call that is not committed",
        rules={"tool_waits_for_commit": False},
    ),
    Mutant(
        name="EXECUTING not durable before the call",
        scenario="tool",
        caught_by="5",
        what="effect twice",
        rules={"executing_is_durable": False},
    ),
    Mutant(
        name="call of unknown fate run again",
        scenario="tool",
        caught_by="5",
        what="effect twice",
        rules={"unknown_fate_waits": False},
    ),
    Mutant(
        name="negative query taken before the deadline",
        scenario="tool with a query",
        caught_by="5",
        what="effect twice",
        rules={"negative_query_waits": False},
    ),
    Mutant(
        name="executor ignores its deadline",
        scenario="tool with a query",
        caught_by="5",
        what="effect twice",
        rules={"executor_checks_deadline": False},
    ),
    Mutant(
        name="tool result without state, owner, attempt",
        scenario="tool",
        caught_by="5",
        what="second terminal result",
        rules={"result_is_fenced": False},
    ),
    Mutant(
        name="calls left open by cancel",
        scenario="tool",
        caught_by="13",
        what="an open call of a run that has ended",
        rules={"cancel_closes_calls": False},
    ),
    Mutant(
        name="calls left open by cancel, and claimed without asking for an open run",
        scenario="tool",
        caught_by="13",
        what="tool claimed for a canceled run",
        rules={"cancel_closes_calls": False, "claim_needs_open_run": False},
    ),
    # ---------------------------------------------------------------------------------------- inbox
    Mutant(
        name="key row in a second transaction",
        scenario="inbox",
        caught_by="15",
        what="one key, two runs",
        inbox=InboxRules(key_with_the_run=False),
    ),
    Mutant(
        name="key not looked up",
        scenario="inbox",
        caught_by="15",
        what="one key, two runs",
        inbox=InboxRules(key_looked_up=False),
    ),
    Mutant(
        name="message acknowledged before it is durable",
        scenario="inbox",
        caught_by="15",
        what="acknowledged message lost",
        inbox=InboxRules(durable_before_acknowledged=False),
    ),
)
