"""What the model remembers: the store's rows, the two nodes' memory, and what the provider did.

A world is a value: nested tuples of small words and numbers, so that it can be hashed and two
ways to the same world are found to be one. Messages, runs, operations and calls are named by
their place in their tuple. Besides what a real store holds there are a few memories that only
the checker has: how often a request was carried out, how many results a call has had.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from antiphon.core.dispatch import State

NOBODY: Final = -1
"""No node, no run, no operation, no message: what NULL is in the store."""

T = TypeVar("T")


class Message(NamedTuple):
    """A node of the tree. `base` is the revision that an answer was made on."""

    kind: str  # root, input, answer, results
    run: int
    parent: int
    status: str = "success"  # pending, success, error
    calls: bool = False
    base: int = NOBODY
    whole: bool = True


class Run(NamedTuple):
    """One input worked through. `cancel` is what a person asked: no, asked, moving, done."""

    status: str = "queued"  # queued, pending, waiting, success, error, canceled
    owner: int = NOBODY
    epoch: int = 0
    leaf: int = NOBODY
    head_left: int = NOBODY
    session: int = 0
    committed: int = 0
    cancel: str = "no"
    former: tuple[int, int] = (NOBODY, 0)  # owner and epoch before this one, in a slow setting

    @property
    def open(self) -> bool:
        return self.status in {"queued", "pending", "waiting"}


class Operation(NamedTuple):
    """A manifest and its newest attempt.

    `sendings` tells for each time that bytes left in this generation what became of them at
    the provider: flying, good, bad (carried out, with what kind of answer), dead (never will be).
    """

    run: int
    base_leaf: int
    base_revision: int
    base_cancel_generation: int
    state: State
    generation: int = 0
    owner: int = NOBODY
    epoch: int = 0
    passed: bool = False  # its deadline
    handle: bool = False
    again: bool = False
    attempts: int = 1
    failed_by: str = ""
    sendings: tuple[str, ...] = ()
    executions: int = 0


class Call(NamedTuple):
    """A row of the ledger. `effects` and `results` are the checker's own counts."""

    run: int
    message: int
    state: str = "PENDING"
    owner: int = NOBODY
    epoch: int = 0
    attempt: int = 0
    passed: bool = False  # the deadline of this attempt at it
    effects: int = 0
    results: int = 0
    placed: bool = False

    @property
    def closed(self) -> bool:
        return self.state in {"SUCCESS", "ERROR", "CANCELED"}


class Sender(NamedTuple):
    """What a node holds of one model call, in memory.

    `at` is accepted (nothing left yet), sent, head (the answer has begun), whole, bad (whole,
    but may not be committed), no (a definite one), not_sent, closed (hung up or cut), or
    expired (its time was over before it sent). `sending` is its own, NOBODY when it reads by
    the handle.
    """

    operation: int
    generation: int
    at: str
    sending: int = NOBODY


class Executor(NamedTuple):
    """What a node holds of one tool call, in memory: claimed, expired, or called."""

    call: int
    attempt: int
    at: str


class Node(NamedTuple):
    """A process. Its lease is over when `epoch`, the registry's, has passed `mine`: a zombie."""

    epoch: int = 1
    mine: int = 1
    task: Sender | Executor | None = None


class Budget(NamedTuple):
    """How many more times each misfortune, or each act of a person, may happen."""

    crashes: int = 0
    expiries: int = 0
    deaths: int = 0
    cancels: int = 0
    strays: int = 0
    looks: int = 0
    switches: int = 0


class World(NamedTuple):
    """Everything. The first fields are the conversation's own row."""

    revision: int
    cancel_generation: int
    attempt_generation: int
    active: int
    slot: int
    head: int
    session: int
    messages: tuple[Message, ...]
    runs: tuple[Run, ...]
    operations: tuple[Operation, ...]
    calls: tuple[Call, ...]
    nodes: tuple[Node, ...]
    budget: Budget


class Breach(NamedTuple):
    """A broken invariant: its number in the contract's list, or a word where it has none, and what happened."""

    number: str
    what: str

    def __str__(self) -> str:
        return f"{self.number} {self.what}" if self.number.isdigit() else self.what


class Move(NamedTuple):
    """One atomic effect. `help` says whether it may be counted on to get work done."""

    label: tuple[object, ...]
    world: World
    breach: Breach | None = None
    help: bool = True


class Spec(NamedTuple):
    """What a run asks: under which parent, and which kind of tool its first answer calls."""

    parent: str = "default"  # default, root
    tool: str = ""  # "", client, plain, idempotent, query


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What store and engine must do beside the table. A mutant changes one of these."""

    slot: bool = True
    claims: bool = True
    accept_before_sending: bool = True
    end_is_fenced: bool = True
    retry_opens_generation: bool = True
    sender_checks_deadline: bool = True
    deadlines: bool = True
    ladder_falls: bool = True
    connection_from_holder: bool = True
    commit_waits_for_finish: bool = True
    cancel_names_run: bool = True
    cancel_moves_number: bool = True
    cancel_closes_calls: bool = True
    waiting_cancel_keeps_number: bool = True
    input_waits_for_operation: bool = True
    results_wait_for_operation: bool = True
    head_follows_only_unmoved: bool = True
    switch_waits_for_run: bool = True
    parent_is_closed_point: bool = True
    tool_waits_for_commit: bool = True
    executing_is_durable: bool = True
    unknown_fate_waits: bool = True
    negative_query_waits: bool = True
    executor_checks_deadline: bool = True
    result_is_fenced: bool = True
    claim_needs_open_run: bool = True


RULES: Final = Rules()
NO_BUDGET: Final = Budget()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One scenario: who asks what of which provider, and what may go wrong.

    `profile` holds what the provider offers: handle, key, connection. `weather` holds what it
    may do to us: refuse, cut, spoil (an answer that may not be committed), unreachable. Where
    owners are slow, one that has decided to end its run may say so after another took it.
    """

    runs: tuple[Spec, ...] = (Spec(),)
    profile: frozenset[str] = frozenset({"connection"})
    weather: frozenset[str] = frozenset()
    attempts: int = 2
    operations: int = 1
    budget: Budget = NO_BUDGET
    cancel_in_two: bool = False
    slow_owners: bool = False
    rules: Rules = RULES


def put(items: tuple[T, ...], place: int, item: T) -> tuple[T, ...]:
    """Return `items` with `item` at `place`."""
    return (*items[:place], item, *items[place + 1 :])


def start(setting: Setting) -> World:
    """Return the world before anything has happened: one earlier turn, every run queued."""
    return World(
        revision=0,
        cancel_generation=0,
        attempt_generation=0,
        active=NOBODY,
        slot=NOBODY,
        head=0,
        session=0,
        messages=(Message("root", NOBODY, NOBODY),),
        runs=tuple(Run() for _ in setting.runs),
        operations=(),
        calls=(),
        nodes=(Node(), Node()),
        budget=setting.budget,
    )


def line(world: World, leaf: int) -> list[int]:
    """Return `leaf` and its ancestors, leaf first."""
    found = []
    while leaf != NOBODY:
        found.append(leaf)
        leaf = world.messages[leaf].parent
    return found
