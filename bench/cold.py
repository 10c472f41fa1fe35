"""G11: a process has just started; what until a conversation of 10,000 messages can go on?

Where the conversation was talked in before, what was rendered then is read as it was rendered. One
that was brought (imported, or by a client) and that no model has seen yet is read message by
message, once.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from antiphon.adapters import registry
from antiphon.core.commands import AddMessages, CreateConversation
from antiphon.core.ids import LOCAL_TENANT, ConversationId, SessionId
from antiphon.core.manifest import ToolDeclaration, decode_policy
from antiphon.core.records import Conversation
from antiphon.engine.dispatch.lines import LineCache
from antiphon.engine.dispatch.target import Target
from antiphon.stores.base import Store
from antiphon.stores.sqlite import open_sqlite
from bench import durable
from bench.histories import POLICY, TOOLS
from bench.measure import Figure, cpu_ms, figure, interleaved, note
from bench.talk import Writer, chat_form, turns

LENGTH = 10_000
CONVERSATION = ConversationId("conv_bench")
FLOOR = "floor: read every row, json.loads"
_adapter = registry.get("openai-chat")


async def figures(*, quick: bool) -> AsyncIterator[Figure]:
    """Yield what a cold read costs beside reading bare rows back."""
    note(f"cold read of {LENGTH} messages")
    with TemporaryDirectory(prefix="bench-") as place:
        talked, brought, floor = (
            Path(place) / f"{name}.db" for name in ("talked", "ours", "floor")
        )
        conversation = await fill_talked(talked)
        await _fill_brought(brought)
        fill_floor(floor)

        async def read() -> None:
            await _read(brought)

        async def first() -> None:
            await _first(brought)

        async def again() -> None:
            await _again(talked, conversation)

        costs = await interleaved(
            {"again": again, "first": first, "read": read, "floor": lambda: read_floor(floor)},
            2 if quick else 11,
            warm_up=1,
        )
    for goal, what, name in (
        ("G11", "cold: opened, read, checked, rendered, ready to dispatch", "again"),
        ("G11 part", "cold: the same where no model has seen it yet", "first"),
        ("G11 part", "cold: opened and read as messages", "read"),
    ):
        yield figure(
            goal, what, cpu_ms(costs[name]), cpu_ms(costs["floor"]), FLOOR, unit="CPU ms",
            at_most=1.5,
        )  # fmt: skip


async def fill_talked(db: Path) -> ConversationId:
    """Make a conversation of this length in which a model was asked, and return its id."""
    async with durable.ours(db, LENGTH) as turn:
        await turn()
    store = await open_sqlite(db)
    [row] = await store.conversations(LOCAL_TENANT)
    await store.close()
    return row.id


async def last_target(store: Store, row: Conversation) -> Target:
    """Return what was talked to last, by what is stored of it."""
    assert row.head is not None
    run = (await store.message(row.id, row.head)).run
    assert run is not None
    manifest, _ = await store.manifest((await store.operations(row.id, run))[-1])
    policy = decode_policy(await store.content(row.tenant, manifest.policy_digest))
    tools = await store.content(row.tenant, manifest.toolset_digest)
    return Target(
        adapter=registry.get(policy.profile, policy.facts),
        key=await store.tenant_key(row.tenant),
        policy=policy,
        policy_digest=manifest.policy_digest,
        tools=msgspec.json.decode(tools, type=tuple[ToolDeclaration, ...]),
        toolset_digest=manifest.toolset_digest,
        checks={},
    )


async def _again(db: Path, conversation: ConversationId) -> None:
    store = await open_sqlite(db)
    row = await store.conversation(conversation)
    assert row.head is not None
    target = await last_target(store, row)
    warm = await LineCache(store).line(
        row,
        row.head,
        adapter=target.adapter,
        policy=target.policy,
        tools=target.tools,
        policy_digest=target.policy_digest,
        toolset_digest=target.toolset_digest,
        key=target.key,
    )
    assert warm.said == LENGTH + 4
    assert warm.stretches
    await store.close()


async def _fill_brought(db: Path) -> None:
    store = await open_sqlite(db)
    await store.do(
        CreateConversation(
            conversation=CONVERSATION,
            now_ms=1,
            tenant=LOCAL_TENANT,
            session=SessionId("sess_bench"),
        )
    )
    writer = Writer(CONVERSATION, SessionId("sess_bench"))
    messages = [m for turn in islice(turns(), LENGTH // 4) for m in writer.messages(turn)]
    await store.do(
        AddMessages(conversation=CONVERSATION, now_ms=2, messages=tuple(messages), head=writer.leaf)
    )
    await store.close()


async def _read(db: Path) -> None:
    store = await open_sqlite(db)
    row = await store.conversation(CONVERSATION)
    assert row.head is not None
    assert len(await store.path(CONVERSATION, row.head)) == LENGTH
    await store.close()


async def _first(db: Path) -> None:
    store = await open_sqlite(db)
    row = await store.conversation(CONVERSATION)
    assert row.head is not None
    line = await LineCache(store).line(
        row,
        row.head,
        adapter=_adapter,
        policy=POLICY,
        tools=TOOLS,
        policy_digest=row.id,  # type: ignore[arg-type] # any two digests will do
        toolset_digest=row.id,  # type: ignore[arg-type] # the same
        key=await store.tenant_key(row.tenant),
    )
    assert not line.line.open_calls
    await store.close()


def fill_floor(db: Path) -> None:
    """Store as many messages as bare rows."""
    connection = sqlite3.connect(db)
    connection.execute("CREATE TABLE message (id INTEGER PRIMARY KEY, body TEXT)")
    rows = (m for turn in islice(turns(), LENGTH // 4) for m in chat_form(turn))
    connection.executemany(
        "INSERT INTO message (body) VALUES (?)", ((json.dumps(row),) for row in rows)
    )
    connection.commit()
    connection.close()


def read_floor(db: Path) -> None:
    """Read them back."""
    connection = sqlite3.connect(db)
    rows = connection.execute("SELECT body FROM message ORDER BY id")
    assert len([json.loads(row[0]) for row in rows]) == LENGTH
    connection.close()
