"""Several processes in one database: who may change it, who takes over, and who was first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest

from antiphon.core.commands import Accept, Fence, SetTitle, StartKey, StartRun
from antiphon.core.dispatch import Condition, Denied, State
from antiphon.core.ids import ConversationId, NodeId, OperationId, RunId
from antiphon.core.records import Attempt, Run, RunKind, RunStatus
from antiphon.errors import StoreError
from antiphon.stores.postgres import open_postgres
from antiphon.stores.postgres.store import PostgresStore
from tests.stores.talk import DEADLINE_MS, Talk, a_digest
from tests.support.postgres import Server, shared_server

pytestmark = [pytest.mark.needs("postgres")]

PATIENCE_S = 30.0
LEASE_S = 1.0


@dataclass(slots=True)
class Heard:
    """What a node was told by its store."""

    fenced: asyncio.Event = field(default_factory=asyncio.Event)
    buried: asyncio.Queue[Sequence[NodeId]] = field(default_factory=asyncio.Queue)
    told: asyncio.Queue[Sequence[ConversationId]] = field(default_factory=asyncio.Queue)


@dataclass(slots=True)
class Cluster:
    """Stores that share a database, as many processes would."""

    server: Server
    address: str
    stores: list[PostgresStore] = field(default_factory=list)

    async def open(self) -> PostgresStore:
        self.stores.append(await open_postgres(self.address))
        return self.stores[-1]

    async def sql(self, statement: str) -> str:
        name = self.address.rpartition("/")[2]
        return await asyncio.to_thread(self.server.sql, statement, name)

    def listen(self, store: PostgresStore, fence: Fence) -> Heard:
        heard = Heard()
        store.nodes.start(
            fence,
            LEASE_S,
            fenced=heard.fenced.set,
            buried=heard.buried.put_nowait,
            told=heard.told.put_nowait,
        )
        return heard


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    server = await asyncio.to_thread(shared_server)
    cluster = Cluster(server, await asyncio.to_thread(server.database))
    yield cluster
    for store in cluster.stores:
        await store.close()
    await asyncio.to_thread(server.give_back, cluster.address)


async def beside(cluster: Cluster, talk: Talk, node: str) -> Talk:
    """The same conversation, as another process has it in hand."""
    store = await cluster.open()
    fence = await store.join(NodeId(node), None, talk.now_ms)
    return Talk(store, fence, talk.conversation, talk.session, talk.now_ms, talk.key)


@pytest.mark.req("M53", "M61")
async def test_of_many_nodes_that_accept_a_dispatch_exactly_one_wins(cluster: Cluster) -> None:
    store = await cluster.open()
    others = [
        await beside(cluster, await Talk.begin(store), f"node_{number}") for number in range(3)
    ]
    for number in range(8):
        talk = await Talk.begin(store, f"conv_{number}")
        run, operation = f"run_{number}", f"op_{number}"
        await talk.do(talk.start(run, "m1"))
        await talk.do(talk.place(run, parent=None, revision=0))
        await talk.do(talk.prepare(run, operation, base="m1", revision=1, answer="a1"))
        done = await asyncio.gather(
            *(
                other.store.do(
                    Accept(
                        **talk.head(),
                        operation=OperationId(operation),
                        fence=other.fence,
                        deadline_ms=DEADLINE_MS,
                    )
                )
                for other in others
            )
        )
        (attempt,) = [answer for answer in done if isinstance(answer, Attempt)]
        assert attempt.state is State.DISPATCHING
        assert [type(answer) for answer in done].count(Denied) == 2


@pytest.mark.req("M90")
async def test_one_key_starts_one_run_however_many_nodes_get_the_request(cluster: Cluster) -> None:
    talk = await Talk.begin(await cluster.open())
    others = [await beside(cluster, talk, f"node_{number}") for number in range(3)]
    homes = [await Talk.begin(other.store, f"conv_of_{other.fence.node}") for other in others]
    for home in homes:  # an empty conversation goes again when its first run is a repetition
        await home.do(home.start(f"first_of_{home.conversation}", "m1"))
    for number in range(10):
        key = StartKey(
            scope="me POST /", key=f"k{number}", body_digest=a_digest("body"), expires_ms=1 << 50
        )
        starts = [
            home.store.do(
                StartRun(
                    **home.head(),
                    run=RunId(f"run_{number}_of_{home.conversation}"),
                    kind=RunKind.SEND,
                    options=home.start("r", "m").options,
                    input=None,
                    asked_parent=None,
                    key=key,
                )
            )
            for home in homes
        ]
        runs = await asyncio.gather(*starts)
        assert len({run.id for run in runs if isinstance(run, Run)}) == 1, runs
        assert all(isinstance(run, Run) for run in runs)


@pytest.mark.req("M67")
async def test_what_is_known_is_what_stands_there_after_another_node_has_written(
    cluster: Cluster,
) -> None:
    talk = await Talk.begin(await cluster.open())
    other = await beside(cluster, talk, "node_b")
    for number in range(5):
        await talk.do(SetTitle(**talk.head(), title=f"mine {number}"))
        await other.do(SetTitle(**other.head(), title=f"theirs {number}"))
        assert (await talk.row()).title == f"theirs {number}"
    await other.answered()
    assert [m.id for m in await talk.store.tree(talk.conversation)] == ["m1", "a1"]
    await talk.do(talk.start("run_2", "m2"))
    await talk.do(talk.place("run_2", parent="a1", revision=2))
    assert [m.id for m in await other.store.tree(talk.conversation)] == ["m1", "a1", "m2"]


@pytest.mark.req("M56", "M68")
async def test_whose_lease_has_ended_is_buried_and_changes_nothing_any_more(
    cluster: Cluster,
) -> None:
    talk = await Talk.begin(await cluster.open())
    await talk.do(talk.start("run_1", "m1"))
    await talk.do(talk.place("run_1", parent=None, revision=0))
    other = await beside(cluster, talk, "node_b")
    heard = cluster.listen(cluster.stores[1], other.fence)
    await cluster.sql("UPDATE antiphon.node SET lease_until_ms = 1 WHERE id = 'node_of_conv_1'")
    async with asyncio.timeout(PATIENCE_S):
        assert await heard.buried.get() == [talk.fence.node]
    with pytest.raises(StoreError) as caught:
        await talk.store.do(SetTitle(**talk.head(), title="too late"))
    assert caught.value.code == "node_fenced"
    claimed = await cluster.stores[1].nodes.claim(other.fence, talk.now_ms, 10)
    assert [(run.id, run.node, run.epoch) for run in claimed] == [("run_1", "node_b", 1)]
    assert await cluster.stores[1].nodes.claim(other.fence, talk.now_ms, 10) == []
    assert (await other.row()).title is None
    again = await talk.store.join(talk.fence.node, None, talk.now_ms)
    assert again.epoch == talk.fence.epoch + 2
    stale = await talk.store.do(talk.prepare("run_1", "op_1", base="m1", revision=1, answer="a1"))
    assert isinstance(stale, Attempt)
    denied = await talk.store.do(talk.accept("op_1"))
    assert denied == Denied(Condition.CALLER_CURRENT)


@pytest.mark.req("M56")
async def test_a_node_that_renews_its_lease_is_not_buried_and_hears_when_it_was(
    cluster: Cluster,
) -> None:
    talk = await Talk.begin(await cluster.open())
    other = await beside(cluster, talk, "node_b")
    mine = cluster.listen(cluster.stores[0], talk.fence)
    theirs = cluster.listen(cluster.stores[1], other.fence)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2 * LEASE_S):
            await theirs.buried.get()
    await cluster.sql("UPDATE antiphon.node SET epoch = epoch + 1 WHERE id = 'node_of_conv_1'")
    async with asyncio.timeout(PATIENCE_S):
        await mine.fenced.wait()


@pytest.mark.req("M68")
async def test_two_nodes_that_claim_at_the_same_time_take_different_runs(cluster: Cluster) -> None:
    store = await cluster.open()
    talks = [await Talk.begin(store, f"conv_{number}") for number in range(12)]
    for talk in talks:
        run = f"run_of_{talk.conversation}"
        await talk.do(talk.start(run, "m1"))
        await talk.do(talk.place(run, parent=None, revision=0))
    await cluster.sql("UPDATE antiphon.node SET epoch = epoch + 1")
    two = [await beside(cluster, talks[0], f"node_{number}") for number in range(2)]
    taken = await asyncio.gather(
        *(
            store.nodes.claim(talk.fence, talk.now_ms, 6)
            for store, talk in zip(cluster.stores[1:], two, strict=True)
        )
    )
    names = [run.id for runs in taken for run in runs]
    left = await cluster.stores[1].nodes.claim(two[0].fence, talks[0].now_ms, 100)
    assert len(names) == len(set(names))
    assert len({*names, *(run.id for run in left)}) == 12
    assert all(run.status is RunStatus.PENDING for runs in taken for run in runs)


async def test_a_node_hears_where_another_has_changed_something(cluster: Cluster) -> None:
    talk = await Talk.begin(await cluster.open())
    other = await beside(cluster, talk, "node_b")
    cluster.listen(cluster.stores[0], talk.fence)
    theirs = cluster.listen(cluster.stores[1], other.fence)
    async with asyncio.timeout(PATIENCE_S):
        while not cluster.stores[0].nodes.others:  # noqa: ASYNC110 - its thread has to look once
            await asyncio.sleep(0.05)
        await talk.do(talk.start("run_1", "m1"))
        assert talk.conversation in await theirs.told.get()
    assert (await cluster.stores[1].nodes.last_events([talk.conversation])) == {
        talk.conversation: (await talk.row()).last_event
    }
