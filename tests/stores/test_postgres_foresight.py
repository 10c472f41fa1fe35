"""What is foreseen costs no journey, and is compared by the database before anything is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

from antiphon.core.commands import (
    AddMessages,
    BindHandle,
    CancelRun,
    Command,
    CreateConversation,
    SetTitle,
    StartKey,
)
from antiphon.core.dispatch import Denied
from antiphon.core.ids import (
    LOCAL_TENANT,
    ConversationId,
    MessageId,
    OperationId,
    SessionId,
)
from antiphon.stores.postgres import open_postgres, writer
from antiphon.stores.postgres.connections import close_connection, open_connection
from antiphon.stores.postgres.statements import PostgresStatements
from antiphon.stores.postgres.store import PostgresStore
from tests.stores.talk import START_MS, Talk, a_digest, done
from tests.support.postgres import shared_server

pytestmark = [pytest.mark.needs("postgres")]


@pytest.fixture
async def address() -> AsyncIterator[str]:
    server = await asyncio.to_thread(shared_server)
    taken = await asyncio.to_thread(server.database)
    yield taken
    await asyncio.to_thread(server.give_back, taken)


@pytest.fixture
async def store(address: str) -> AsyncIterator[PostgresStore]:
    """A store with one writer, so that what is put together is carried out together."""
    opened = await open_postgres(address, count=1)
    yield opened
    await opened.close()


@pytest.fixture
async def talk(store: PostgresStore) -> Talk:
    return await Talk.begin(store)


async def together(talk: Talk, *commands: Command[Any]) -> list[Any]:
    """Carry out commands as requests of one batch; return what each was answered."""
    *first, last = commands
    waiting: list[Awaitable[Any]] = [talk.store.submit(command) for command in first]
    answer = await talk.store.do(last)
    return [*[await one for one in waiting], answer]


class Journeys:
    """Counts what the writer's connection sends."""

    def __init__(self) -> None:
        self.made = 0


@pytest.fixture
def journeys(monkeypatch: pytest.MonkeyPatch) -> Journeys:
    counted, wait = Journeys(), PostgresStatements.wait

    def counting(db: PostgresStatements, answer: Awaitable[Any]) -> Any:
        counted.made += 1
        return wait(db, answer)

    monkeypatch.setattr(PostgresStatements, "wait", counting)
    monkeypatch.setattr(writer, "left_by", lambda tx: None)
    return counted


@pytest.mark.req("M90")
async def test_a_transaction_of_what_is_known_is_three_journeys_whatever_it_does(
    talk: Talk, journeys: Journeys
) -> None:
    parent: str | None = None
    begun = ended = 0
    for number in range(3):  # the first ones learn what there is, and prepare their statements
        run, operation = f"run_{number}", f"op_{number}"
        asked, said, revision = f"m{number}", f"a{number}", 2 * number
        journeys.made = 0
        *_, attempt = done(
            await talk.store.do_all(
                talk.start(run, asked),
                talk.place(run, parent=parent, revision=revision),
                talk.prepare(run, operation, base=asked, revision=revision + 1, answer=said),
                talk.accept(operation),
            )
        )
        begun, journeys.made = journeys.made, 0
        generation = attempt.generation
        answers = await together(
            talk,
            talk.written(operation, generation),
            talk.opened(operation, generation),
            talk.commit(operation, generation, talk.answer(said)),
        )
        ended, parent = journeys.made, said
        assert not any(isinstance(answer, Denied) for answer in answers)
    assert (begun, ended) == (3, 3)  # begin; lock; all statements with the commit


async def test_a_long_transaction_is_sent_in_parts_and_so_is_never_silent_for_long(
    talk: Talk, journeys: Journeys
) -> None:
    names = [f"m{number}" for number in range(300)]
    parents = [None, *names]
    messages = tuple(
        talk.message(name, parent=parent) for name, parent in zip(names, parents, strict=False)
    )
    journeys.made = 0
    await talk.do(AddMessages(**talk.head(), messages=messages, head=None))
    assert 5 <= journeys.made <= 15  # 600 statements: two scripts that are full, and a last one
    assert [message.id for message in await talk.store.tree(talk.conversation)] == names


@pytest.mark.req("M90")
async def test_what_was_foreseen_wrongly_is_denied_and_its_company_is_kept_once(talk: Talk) -> None:
    await talk.placed()
    await talk.do(talk.prepare("run_1", "op_1", base="m1", revision=1, answer="a1"))
    seen = (await talk.row()).last_event
    await talk.do(
        AddMessages(**talk.head(), messages=(talk.message("m2", parent="m1"),), head=None)
    )
    stale, title, added = await together(
        talk,
        talk.accept("op_1"),
        SetTitle(**talk.head(), title="kept"),
        AddMessages(**talk.head(), messages=(talk.message("m3", parent="m2"),), head=None),
    )
    assert isinstance(stale, Denied)
    assert stale.reason == "revision"
    assert (title.title, added.revision) == ("kept", 3)
    assert (await talk.attempt("op_1")).state == "PREPARED"
    assert [event.seq for event in await talk.store.events(talk.conversation, seen)] == [
        seen + 1,
        seen + 2,
    ]


@pytest.mark.req("M90")
async def test_a_start_that_is_repeated_beside_a_new_one_is_the_run_that_it_was(talk: Talk) -> None:
    first = await talk.answered()
    again, new = await together(talk, talk.start("run_1b", "m1"), talk.start("run_2", "m2"))
    assert (again.id, new.id) == (first.id, "run_2")
    assert [run.id for run in await talk.store.runs(talk.conversation)] == ["run_1", "run_2"]


async def test_what_is_refused_in_a_batch_leaves_nothing_behind(talk: Talk) -> None:
    await talk.placed()
    taken = AddMessages(
        **talk.head(),
        messages=(talk.message("m2", parent="m1"), talk.message("m3", parent="nowhere")),
        head=None,
    )
    with pytest.raises(Exception, match="parent"):
        await asyncio.gather(talk.store.submit(taken), talk.store.do(talk.start("run_2", "m4")))
    assert [message.id for message in await talk.store.tree(talk.conversation)] == ["m1"]
    assert (await talk.run("run_2")).input == "m4"


@pytest.mark.req("M89", "M90")
async def test_what_another_process_changed_beside_the_conversations_row_is_read_anew(
    talk: Talk, address: str
) -> None:
    attempt = await talk.accepted()
    await talk.do(talk.written("op_1", attempt.generation))

    def bind(handle: str) -> BindHandle:
        return BindHandle(
            **talk.head(),
            operation=OperationId("op_1"),
            generation=attempt.generation,
            manifest_digest=digest,
            handle=handle,
        )

    manifest, digest = await talk.store.manifest(OperationId("op_1"))
    assert manifest.base_leaf == MessageId("m1")
    other = await open_postgres(address)
    try:
        done(await other.do(bind("theirs")))
        assert await talk.denied(bind("ours")) == "handle"
    finally:
        await other.close()


async def test_nothing_is_swallowed_by_a_transaction_that_begins(address: str) -> None:
    def begun() -> None:
        db = open_connection(address)
        db.execute("DELETE FROM run WHERE id = ?", ("run_1",))
        try:
            with pytest.raises(RuntimeError):
                db.begin()
        finally:
            close_connection(db)

    await asyncio.to_thread(begun)


@pytest.mark.req("M90")
async def test_a_text_that_is_half_a_character_costs_nobody_else_what_he_wrote(talk: Talk) -> None:
    await talk.answered()
    kept = talk.store.submit(SetTitle(**talk.head(), title="kept"))
    half = talk.store.submit(SetTitle(**talk.head(), title="half \ud83d"))
    assert not isinstance(await talk.store.do(talk.start("run_2", "m2")), Denied)
    await kept
    with pytest.raises(UnicodeEncodeError):
        await half
    assert (await talk.row()).title == "kept"


@pytest.mark.req("M139")
async def test_a_key_that_comes_to_two_nodes_at_once_starts_one_run(
    store: PostgresStore, talk: Talk, address: str
) -> None:
    """Each node foresees that its own is the first."""
    other = await open_postgres(address)
    there = Talk(other, talk.fence, ConversationId("conv_2"), SessionId("sess_2"))
    try:
        await there.do(
            CreateConversation(**there.head(), tenant=LOCAL_TENANT, session=there.session)
        )
        for one in (talk, there):  # nothing is taken away for having been made in vain
            await one.do(AddMessages(**one.head(), messages=(one.message("m0"),), head=None))
        for number in range(12):
            key = StartKey(
                scope="me",
                key=f"key {number}",
                body_digest=a_digest("body"),
                expires_ms=START_MS + 86_400_000,
            )
            told = await asyncio.gather(
                *(
                    one.store.do(one.start(f"run_{one.conversation}_{number}_{time}", key=key))
                    for one in (talk, there)
                    for time in range(2)
                )
            )
            assert len({done(run).id for run in told}) == 1
            cancel = CancelRun(
                conversation=done(told[0]).conversation,
                now_ms=talk.now_ms,
                run=done(told[0]).id,
                reason="user",
            )
            done(await store.do(cancel))
        assert (
            len(await store.runs(talk.conversation)) + len(await store.runs(there.conversation))
            == 12
        )
    finally:
        await other.close()


FULL = """
CREATE FUNCTION antiphon.full() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN RAISE 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
CREATE TRIGGER no_room BEFORE INSERT ON antiphon.{} EXECUTE FUNCTION antiphon.full()
"""


@pytest.mark.req("M90")
@pytest.mark.parametrize("table", ["message", "event", "run"])
async def test_what_the_database_has_no_room_for_is_told_to_whom_it_concerns(
    talk: Talk, address: str, table: str
) -> None:
    """Requests go together: the failure of one comes as the answer to another's question."""
    await talk.placed()
    name = address.rpartition("/")[2]
    # Another process was at work: all of it is to be read anew, so that some statements go early.
    touched = "UPDATE antiphon.conversation SET last_event = last_event;"
    await asyncio.to_thread(shared_server().sql, touched + FULL.format(table), name)
    commands: list[Command[Any]] = [
        AddMessages(**talk.head(), messages=(talk.message("m2", parent="m1"),), head=None),
        talk.start("run_2", "m4"),
        SetTitle(**talk.head(), title="kept"),
        AddMessages(**talk.head(), messages=(talk.message("m3", parent="m1"),), head=None),
        talk.start("run_3", "m5"),
    ]
    waiting = [talk.store.submit(command) for command in commands[:-1]]
    told = await asyncio.gather(*waiting, talk.store.do(commands[-1]), return_exceptions=True)
    await asyncio.to_thread(shared_server().sql, "DROP FUNCTION antiphon.full() CASCADE", name)
    tree = {message.id for message in await talk.store.tree(talk.conversation)}
    runs = {run.id for run in await talk.store.runs(talk.conversation)}
    well = [not isinstance(one, Exception | Denied) for one in told]
    there = ["m2" in tree, "run_2" in runs, (await talk.row()).title == "kept", "m3" in tree]
    assert well == [*there, "run_3" in runs], told
