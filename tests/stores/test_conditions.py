"""The store's SQL against core's table, on crafted rows: a condition that only one has is a race.

A `World` is a handful of facts. It is written to the rows of a real database and, apart from
that, handed to core as `Facts`; both must answer alike, for every row of the table with every
condition as it should be, and with each one broken in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.core.commands import Fence
from antiphon.core.dispatch import (
    PREDICATES,
    QUESTION_TABLE,
    TABLE,
    Condition,
    Denied,
    Event,
    Facts,
    Row,
    State,
    step,
)
from antiphon.core.ids import (
    ConversationId,
    MessageId,
    NodeId,
    OperationId,
    RunId,
    SessionId,
)
from antiphon.core.manifest import Manifest, Purpose
from antiphon.errors import InternalError
from antiphon.stores.postgres.connections import close_connection, open_connection
from antiphon.stores.postgres.schema import migrate
from antiphon.stores.sql import conditions
from antiphon.stores.sql.packing import pack
from antiphon.stores.sql.places import place
from antiphon.stores.sql.rows import AttemptRow
from antiphon.stores.sql.statements import Statements
from antiphon.stores.sql.transaction import Transaction
from antiphon.stores.sql.transitions import Claim, again, begin, move
from antiphon.stores.sqlite.connections import open_writer
from antiphon.stores.sqlite.statements import SqliteStatements
from tests.stores.talk import a_digest
from tests.support.postgres import shared_server

HERE = place(1, 1)
OLDER = place(1, 2)
OPERATION = OperationId("op_1")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Facts under which every condition holds, but the two that exclude each other."""

    purpose: Purpose = Purpose.TURN
    state: State | None = State.PREPARED
    generation: int = 3
    owner: str | None = "node_a"
    owner_epoch: int = 4
    node_a_epoch: int = 4
    node_b_epoch: int = 9
    deadline_ms: int = 1_000
    handle: str | None = "resp_1"
    sent_again: bool = False
    base_revision: int = 5
    base_cancel_generation: int = 2
    revision: int = 5
    cancel_generation: int = 2
    active_operation: str | None = OPERATION
    number: int = 1
    run_open: bool = True
    unfinished_operation: State | None = None
    open_call: str | None = None
    my_node: str = "node_a"
    my_epoch: int = 4
    my_generation: int = 3
    now_ms: int = 500
    my_request: str = "request"
    line_legal: bool = True
    whole_answer: bool = True
    definite: bool = True
    honours_key: bool = True
    proof: str | None = "connection"
    attempts_allowed: int = 3
    names: str = "run_1"


def facts(world: World) -> Facts:
    """What core is told of `world`."""
    epochs = {"node_a": world.node_a_epoch, "node_b": world.node_b_epoch}
    return Facts(
        state=world.state,
        operation=OPERATION,
        generation=world.generation,
        owner=None if world.owner is None else NodeId(world.owner),
        owner_epoch=world.owner_epoch,
        owner_epoch_current=epochs.get(world.owner or "", 0),
        deadline_ms=world.deadline_ms,
        handle=world.handle,
        sent_again=world.sent_again,
        base_revision=world.base_revision,
        base_cancel_generation=world.base_cancel_generation,
        request_digest=a_digest("request"),
        attempts_made=world.number,
        revision=world.revision,
        cancel_generation=world.cancel_generation,
        active_operation=(
            None if world.active_operation is None else OperationId(world.active_operation)
        ),
        run_open=world.run_open,
        run_idle=(
            world.open_call in (None, "SUCCESS")
            and world.unfinished_operation in (None, State.CLOSED)
        ),
        my_node=NodeId(world.my_node),
        my_epoch=world.my_epoch,
        my_epoch_current=epochs.get(world.my_node, 0),
        my_generation=world.my_generation,
        now_ms=world.now_ms,
        my_request_digest=a_digest(world.my_request),
        line_legal=world.line_legal,
        whole_answer=world.whole_answer,
        definite=world.definite,
        honours_key=world.honours_key,
        proof=world.proof,
        attempts_allowed=world.attempts_allowed,
        names_run=world.names == "run_1",
        beside=world.purpose is not Purpose.TURN,
    )


def claim(world: World) -> Claim:
    """What the caller of the store claims in `world`."""
    return Claim(
        now_ms=world.now_ms,
        fence=Fence(node=NodeId(world.my_node), epoch=world.my_epoch),
        generation=world.my_generation,
        request_digest=a_digest(world.my_request),
        line_legal=world.line_legal,
        whole_answer=world.whole_answer,
        definite=world.definite,
        honours_key=world.honours_key,
        proof=world.proof,
        attempts_allowed=world.attempts_allowed,
        names_run=RunId(world.names),
    )


SETTING: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("INSERT INTO tenant (id, digest_key) VALUES ('local', ?)", (b"key",)),
    (
        """INSERT INTO conversation (number, id, tenant, session, created_ms, updated_ms)
        VALUES (1, 'conv_1', 'local', ?, 0, 0)""",
        (HERE,),
    ),
    ("INSERT INTO session (place, id, active, created_ms) VALUES (?, 'sess_1', 1, 0)", (HERE,)),
    (
        """INSERT INTO message (place, depth, id, kind, status, session, created_ms, blocks, digest,
          path_digest) VALUES (?, 1, 'm1', 'user client user', 'success', ?, 0, ?, ?, ?)""",
        (HERE, HERE, b"[]", b"", b""),
    ),
    (
        """INSERT INTO run (place, id, kind, status, options, at_root, seq, created_ms)
        VALUES (?, 'run_1', 'send', 'pending', ?, 0, 1, 0)""",
        (HERE, b"{}"),
    ),
    ("INSERT INTO node (id, epoch, joined_ms) VALUES ('node_a', 4, 0), ('node_b', 9, 0)", ()),
)

MANIFEST = """
    INSERT INTO manifest (place, operation, run, base_leaf, session, purpose, base_revision,
      base_cancel_generation, sequence_digest, adapter, adapter_version, adapter_digest, provider,
      model_revision, toolset_digest, policy_digest, request_digest, schema, digest)
    VALUES (:place, :operation, :here, :here, :here, :purpose, :revision, :canceled, '', '', 1, '',
      '', '', '', '', :request, 1, '')"""


@dataclass(frozen=True, slots=True)
class Database:
    """Real rows, changed within a transaction that is always undone."""

    statements: Statements
    command: Callable[[str], object]

    @contextmanager
    def undone(self) -> Iterator[Callable[[], Transaction]]:
        """Give a maker of transactions that know nothing yet, and undo what they did."""
        self.command("BEGIN")
        try:
            yield lambda: Transaction(self.statements, lambda: b"key")
        finally:
            self.command("ROLLBACK")


def write(tx: Transaction, world: World) -> None:
    """Write `world` to the rows."""
    tx.execute(
        """UPDATE conversation SET revision = ?, cancel_generation = ?, active_operation = ?,
          attempt_generation = 7""",
        (world.revision, world.cancel_generation, world.active_operation),
    )
    tx.execute("UPDATE node SET epoch = ? WHERE id = 'node_a'", (world.node_a_epoch,))
    tx.execute("UPDATE node SET epoch = ? WHERE id = 'node_b'", (world.node_b_epoch,))
    if not world.run_open:
        tx.execute("UPDATE run SET status = 'error', ended_ms = 1")
    if world.unfinished_operation is not None:
        _manifest(tx, world, OLDER, "op_0")
        tx.execute("UPDATE run SET operation = ?", (OLDER,))
        # Its first attempt failed long ago; only the newest one counts.
        _attempt(tx, OLDER, 1, State.FAILED)
        _attempt(tx, OLDER, 2, world.unfinished_operation)
    if world.open_call is not None:
        tx.execute(
            """INSERT INTO call (place, run, message, call_id, position, name, arguments,
              arguments_digest, generation, runner, read_only, idempotent, state,
              idempotency_key, ended_ms)
            VALUES (?, ?, ?, 'call_1', 0, 'f', '{}', '', 1, 'function', 0, 0, ?, '', ?)""",
            (HERE, HERE, HERE, world.open_call, 1 if world.open_call == "SUCCESS" else None),
        )
    _manifest(tx, world, HERE, OPERATION)
    if world.state is not None:
        tx.execute(
            """INSERT INTO attempt (manifest, number, purpose, generation, state, handle, node,
              epoch, deadline_ms, sent_again, prepared_ms)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)""",
            (
                HERE,
                world.number,
                world.purpose,
                world.generation,
                world.state,
                world.handle,
                world.owner,
                world.owner_epoch,
                world.deadline_ms,
                world.sent_again,
            ),
        )


SAID = Manifest(
    operation=OPERATION,
    conversation=ConversationId("conv_1"),
    session=SessionId("sess_1"),
    run=RunId("run_1"),
    purpose=Purpose.TURN,
    base_leaf=MessageId("m1"),
    conversation_revision=5,
    cancel_generation=2,
    sequence_digest=a_digest("sequence"),
    adapter="a",
    adapter_version=1,
    adapter_digest=a_digest("adapter"),
    provider="p",
    model_revision="m",
    toolset_digest=a_digest("toolset"),
    policy_digest=a_digest("policy"),
    request_digest=a_digest("request"),
)


def _manifest(tx: Transaction, world: World, at: int, operation: str) -> None:
    tx.execute(
        MANIFEST,
        {
            "place": at,
            "operation": operation,
            "here": HERE,
            "purpose": world.purpose if at == HERE else Purpose.TURN,
            "revision": world.base_revision,
            "canceled": world.base_cancel_generation,
            "request": pack(a_digest("request")),
        },
    )


def _attempt(tx: Transaction, manifest: int, number: int, state: State) -> None:
    tx.execute(
        "INSERT INTO attempt (manifest, number, purpose, state, prepared_ms) VALUES (?, ?, 'turn', ?, 0)",
        (manifest, number, state),
    )


def carry_out(tx: Transaction, world: World, event: Event) -> State | Denied:
    """What the store answers in `world`: the state it moved to, or why it did not."""
    write(tx, world)
    mine = claim(world)
    answer: object
    if event is Event.PREPARE:
        said = msgspec.structs.replace(SAID, purpose=world.purpose)
        answer = begin(tx, AttemptRow.unborn(said, b"", HERE, HERE, HERE), mine)
    else:
        attempt = tx.newest_attempt(HERE)
        assert attempt is not None
        answer = (
            again(tx, attempt, mine) if event is Event.RETRY else move(tx, attempt, event, mine)
        )
    now = tx.one("SELECT state FROM attempt WHERE manifest = ? ORDER BY number DESC", (HERE,))
    if isinstance(answer, Denied):
        assert (None if now is None else now[0]) == world.state, "a denied event moved the attempt"
        return answer
    assert now is not None
    return State(now[0])


def table_says(world: World, event: Event) -> State | Denied:
    answer = step(facts(world), event)
    return answer.target if isinstance(answer, Row) else answer


Change = dict[str, Any]

BOTH = (
    *((Purpose.TURN, row) for row in TABLE),
    *((Purpose.DECISION, row) for row in QUESTION_TABLE),
)
"""Every row: of turns, and of questions beside them."""


def each(only: Iterable[int] = range(18)) -> pytest.MarkDecorator:
    """Run a test for every row of these numbers."""
    return pytest.mark.parametrize(
        ("purpose", "row"),
        [
            pytest.param(purpose, row, id=f"{purpose}-{row.number}-{row.event}-{row.target}")
            for purpose, row in BOTH
            if row.number in only
        ],
    )


BROKEN: dict[Condition, tuple[Change, ...]] = {
    Condition.RUN_OPEN: ({"run_open": False},),
    Condition.RUN_IDLE: (
        {"unfinished_operation": State.PREPARED},
        {"unfinished_operation": State.UNKNOWN},
        {"unfinished_operation": State.FAILED},
        {"open_call": "PENDING"},
        {"open_call": "UNKNOWN"},
    ),
    Condition.LINE_LEGAL: ({"line_legal": False},),
    Condition.REVISION: ({"revision": 6}, {"revision": 4}),
    Condition.CANCEL_GENERATION: ({"cancel_generation": 3}, {"cancel_generation": 1}),
    Condition.FENCE_MOVED: ({"revision": 5, "cancel_generation": 2},),
    Condition.NO_ACTIVE_OPERATION: (
        {"active_operation": "op_9"},
        {"active_operation": OPERATION},
    ),
    Condition.ACTIVE_OPERATION: ({"active_operation": "op_9"}, {"active_operation": None}),
    Condition.CALLER_CURRENT: (
        {"my_epoch": 3},
        {"my_epoch": 5},
        {"my_node": "node_c", "my_epoch": 4},
        {"my_node": "node_c", "my_epoch": 0},
        {"my_node": "node_b"},
    ),
    Condition.GENERATION: (
        {"my_generation": 2},
        {"my_generation": 4},
        {"my_generation": 0, "generation": 0},
    ),
    Condition.OWNER: (
        {"my_node": "node_b"},
        {"my_node": "node_b", "my_epoch": 9},
        {"my_epoch": 5},
        {"my_epoch": 3},
        {"owner": None, "owner_epoch": 0, "my_epoch": 0},
    ),
    Condition.OWNER_OR_GONE: (
        {"my_node": "node_b", "my_epoch": 9},
        {"my_node": "node_b"},
        {"my_epoch": 3},
        {"my_generation": 2},
        {"my_node": "node_b", "now_ms": 999},
    ),
    Condition.FIRST_SENDING: ({"sent_again": True},),
    Condition.SENT_AGAIN: ({"sent_again": False},),
    Condition.WHOLE_ANSWER: ({"whole_answer": False},),
    Condition.DEFINITE: ({"definite": False},),
    Condition.HANDLE: ({"handle": None},),
    Condition.HONOURS_KEY: ({"honours_key": False},),
    Condition.BEFORE_DEADLINE: ({"now_ms": 1_000}, {"now_ms": 1_001}),
    Condition.SAME_BYTES: ({"my_request": "another request"},),
    Condition.PROOF: ({"proof": None},),
    Condition.ATTEMPTS_LEFT: ({"attempts_allowed": 1}, {"number": 3}),
    Condition.NAMES_RUN: ({"names": "run_2"},),
}
"""Ways in which a condition fails, each with as little else changed as can be."""

STILL_WELL: tuple[Change, ...] = (
    {},
    {"now_ms": 999},
    {"unfinished_operation": State.CLOSED},
    {"open_call": "SUCCESS"},
    {"my_node": "node_b", "my_epoch": 9, "now_ms": 1_000},  # a stranger, but the time is over
    {"my_node": "node_b", "my_epoch": 9, "node_a_epoch": 5},  # a stranger, but the owner is gone
    {"attempts_allowed": 2},
)
"""Other worlds in which a row may well be taken; the borders of the conditions."""


def at_home(purpose: Purpose, row: Row, source: State | None) -> World:
    """A world in which every condition of `row` holds."""
    changes: Change = {"purpose": purpose, "state": source}
    if Condition.NO_ACTIVE_OPERATION in row.conditions:
        changes["active_operation"] = None
    if Condition.FENCE_MOVED in row.conditions:
        changes["revision"] = 6
    if Condition.SENT_AGAIN in row.conditions:
        changes["sent_again"] = True
    return World(**changes)


def cases(only: Condition | None = None) -> Iterator[tuple[str, World, Event]]:
    """Every row and state it leaves from, whole, and with each condition broken."""
    for purpose, row in BOTH:
        if only is not None and only not in row.conditions:
            continue
        for source in sorted(row.sources, key=str):
            world = at_home(purpose, row, source)
            name = f"row {row.number} {row.event} from {source}"
            for change in STILL_WELL:
                yield f"{name} {change}", replace(world, **change), row.event
            for condition in row.conditions:
                for change in BROKEN[condition]:
                    yield (
                        f"{name} without {condition} {change}",
                        replace(world, **change),
                        row.event,
                    )


@pytest.fixture(
    scope="module",
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.needs("postgres"))],
)
def database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    if request.param == "sqlite":
        path: Path = tmp_path_factory.mktemp("conditions") / "a.db"
        connection = open_writer(path, synchronous="OFF")
        found = Database(SqliteStatements(connection), connection.execute)
        close: Callable[[], object] = connection.close
    else:
        db = open_connection(shared_server().database())
        db.script("SET idle_in_transaction_session_timeout = 0")
        migrate(db)
        found = Database(db, db.script)
        close = partial(close_connection, db)
    for statement, values in SETTING:
        found.statements.execute(statement, values)
    found.statements.one("SELECT 1")  # what was held back is there before anything is undone
    yield found
    close()


@pytest.fixture
def answer(database: Database) -> Callable[[World, Event], State | Denied]:
    """Asks the store, and leaves the database as it was."""

    def ask(world: World, event: Event) -> State | Denied:
        with database.undone() as transaction:
            return carry_out(transaction(), world, event)

    return ask


@pytest.mark.req("M52", "M61", "M66", "M90")
@each()
def test_store_and_table_agree_on_every_row_with_every_condition_broken(
    purpose: Purpose, row: Row, answer: Callable[[World, Event], State | Denied]
) -> None:
    taken = 0
    for name, world, event in cases():
        if (world.purpose, event) == (purpose, row.event):
            said = answer(world, event)
            assert said == table_says(world, event), name
            taken += said == row.target
    assert taken, "no case takes this row: its worlds are wrong"


def test_every_condition_has_a_case_that_breaks_it_alone() -> None:
    # The worlds above are only as good as this: a condition that is never false proves nothing.
    for purpose, row in BOTH:
        for source in row.sources:
            world = at_home(purpose, row, source)
            assert row.fails(facts(world)) is None, (row.number, source)
            for condition in row.conditions:
                broken = [replace(world, **change) for change in BROKEN[condition]]
                assert all(not PREDICATES[condition](facts(w)) for w in broken), condition


@pytest.mark.parametrize("source", list(State))
@pytest.mark.parametrize("event", [event for event in Event if event is not Event.PREPARE])
def test_a_state_without_a_row_is_left_alone(
    event: Event, source: State, answer: Callable[[World, Event], State | Denied]
) -> None:
    for table, purpose in ((TABLE, Purpose.TURN), (QUESTION_TABLE, Purpose.TITLE)):
        if any(row.event is event and source in row.sources for row in table):
            continue
        if purpose is not Purpose.TURN and event is Event.RETRY:
            continue  # no command tries a question again, so no function of the store does
        for change in ({}, {"revision": 6}, {"sent_again": True}, {"active_operation": None}):
            world = World(purpose=purpose, state=source, **change)
            assert answer(world, event) == Denied("state")


EFFECTS: dict[int, Change] = {
    2: {"active": OPERATION, "given": 8, "generation": 8, "owner": ("node_b", 9)},
    3: {},
    4: {},
    5: {"handle": "resp_2"},
    6: {"active": None, "revision": 6},
    7: {"active": None},
    8: {"active": None},
    9: {},
    10: {"owner": ("node_b", 9), "again": 1},
    11: {"owner": ("node_b", 9), "again": 1},
    12: {"again": 1},
    13: {"active": None, "revision": 6},
    14: {"active": None, "proof": "connection"},
    16: {},
    17: {"active": None},
}
"""What each row changes beside the state, written down again by hand."""


QUESTION_EFFECTS: dict[int, Change] = {
    **{number: {} for number in EFFECTS},
    2: {"given": 8, "generation": 8, "owner": ("node_b", 9)},
    5: {"handle": "resp_2"},
}
"""A question takes nothing and gives nothing back."""


@pytest.mark.req("M53", "M62")
@each(EFFECTS)
def test_a_row_changes_what_the_contract_says_and_nothing_else(
    purpose: Purpose, row: Row, database: Database
) -> None:
    effects = EFFECTS if purpose is Purpose.TURN else QUESTION_EFFECTS
    for source in row.sources:
        stranger: Change = {"my_node": "node_b", "my_epoch": 9}
        world = at_home(purpose, row, source)
        if Condition.OWNER not in row.conditions and row.event is not Event.LOST:
            world = replace(world, **stranger)
        if row.event is Event.OPENED:
            world = replace(world, handle=None)
        before = {
            "active": world.active_operation,
            "given": 7,
            "revision": world.revision,
            "canceled": world.cancel_generation,
            "generation": world.generation,
            "owner": (world.owner, world.owner_epoch),
            "handle": world.handle,
            "again": int(world.sent_again),
            "proof": None,
        }
        with database.undone() as transaction:
            tx = transaction()
            write(tx, world)
            attempt = tx.newest_attempt(HERE)
            assert attempt is not None
            moved = move(
                tx, attempt, row.event, msgspec.structs.replace(claim(world), handle="resp_2")
            )
            assert not isinstance(moved, Denied), (row.number, source)
            tx.flush()
            c = tx.one(
                "SELECT active_operation, attempt_generation, revision, cancel_generation "
                "FROM conversation"
            )
            now = transaction().newest_attempt(HERE)
        assert c is not None
        assert now == moved.attempt
        assert now is not None
        assert {
            "active": c[0],
            "given": c[1],
            "revision": c[2],
            "canceled": c[3],
            "generation": now.generation,
            "owner": (now.node, now.epoch),
            "handle": now.handle,
            "again": now.sent_again,
            "proof": now.proof,
        } == before | effects[row.number], (row.number, source)


def mutants() -> Iterator[tuple[str, Condition, str]]:
    """Each condition dropped, and each half-forgotten in the ways that people forget."""
    for condition in Condition:
        yield f"{condition} dropped", condition, "1 = 1"
        yield f"{condition} always false", condition, "1 = 0"
    epoch_of = "coalesce((SELECT n.epoch FROM node AS n WHERE n.id = {}), 0)"
    owner = "a.node = :my_node AND a.epoch = :my_epoch AND a.generation = :my_generation"
    gone = f"a.epoch <> {epoch_of.format('a.node')}"
    unfinished = """NOT EXISTS (SELECT 1 FROM attempt AS x WHERE x.manifest = r.operation
        AND x.state NOT IN ('COMMITTED', 'CANCELED', 'CLOSED'))"""
    open_calls = "NOT EXISTS (SELECT 1 FROM call AS x WHERE x.run = r.place AND x.ended_ms IS NULL)"
    for condition, forgotten in (
        (Condition.REVISION, "c.revision >= m.base_revision"),
        (Condition.REVISION, "c.revision <= m.base_revision"),
        (Condition.CANCEL_GENERATION, "c.cancel_generation >= m.base_cancel_generation"),
        (Condition.CANCEL_GENERATION, "c.cancel_generation <= m.base_cancel_generation"),
        (Condition.FENCE_MOVED, "c.cancel_generation <> m.base_cancel_generation"),
        (Condition.NO_ACTIVE_OPERATION, "c.active_operation IS DISTINCT FROM m.operation"),
        (
            Condition.NO_ACTIVE_OPERATION,
            "(c.active_operation IS NULL OR c.active_operation = m.operation)",
        ),
        (Condition.ACTIVE_OPERATION, "c.active_operation IS NOT NULL"),
        (Condition.CALLER_CURRENT, f":my_epoch = {epoch_of.format(':my_node')}"),
        (Condition.CALLER_CURRENT, f":my_epoch >= {epoch_of.format(':my_node')}"),
        (
            Condition.CALLER_CURRENT,
            f"(:my_epoch > 0 AND :my_epoch <= {epoch_of.format(':my_node')})",
        ),
        (Condition.CALLER_CURRENT, ":my_epoch = a.epoch"),
        (Condition.GENERATION, "a.generation = :my_generation"),
        (Condition.GENERATION, "a.generation >= :my_generation"),
        (Condition.GENERATION, "a.generation <= :my_generation"),
        (Condition.OWNER, "a.node = :my_node"),
        (Condition.OWNER, "a.epoch = :my_epoch"),
        (Condition.OWNER, "(a.node IS NOT DISTINCT FROM :my_node AND a.epoch <= :my_epoch)"),
        (Condition.OWNER_OR_GONE, f"({gone} OR :now_ms >= a.deadline_ms)"),
        (Condition.OWNER_OR_GONE, f"(({owner}) OR :now_ms >= a.deadline_ms)"),
        (Condition.OWNER_OR_GONE, f"(({owner}) OR {gone})"),
        (Condition.OWNER_OR_GONE, f"(({owner}) OR {gone} OR :now_ms > a.deadline_ms)"),
        (Condition.OWNER_OR_GONE, f"(a.node = :my_node OR {gone} OR :now_ms >= a.deadline_ms)"),
        (
            Condition.OWNER_OR_GONE,
            f"((a.node = :my_node AND a.epoch = :my_epoch) OR {gone} OR :now_ms >= a.deadline_ms)",
        ),
        (Condition.BEFORE_DEADLINE, ":now_ms <= a.deadline_ms"),
        (Condition.ATTEMPTS_LEFT, "a.number <= :attempts_allowed"),
        (Condition.RUN_IDLE, f"{unfinished} AND {open_calls}"),
        (Condition.RUN_IDLE, unfinished),
        (Condition.RUN_IDLE, open_calls),
    ):
        yield f"{condition} as {' '.join(forgotten.split())}", condition, forgotten


# These try the tests above, and one database is enough for that.
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("condition", "fragment"), [pytest.param(c, f, id=name) for name, c, f in mutants()]
)
def test_a_condition_forgotten_in_the_sql_is_noticed(
    condition: Condition,
    fragment: str,
    answer: Callable[[World, Event], State | Denied],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.setitem(conditions.CONDITIONS, condition, fragment)
    request.addfinalizer(conditions.update.cache_clear)
    conditions.update.cache_clear()
    for _, world, event in cases(condition):
        try:
            said = answer(world, event)
        except InternalError:
            return  # the store asked the table, which says that nothing forbids this
        if said != table_says(world, event):
            return
    pytest.fail("this mutant behaves like the table")
