"""G11: a process has just started; what until a conversation of 10,000 messages can go on?"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from antiphon.adapters import registry
from antiphon.core.commands import AddMessages, CreateConversation
from antiphon.core.ids import LOCAL_TENANT, ConversationId, SessionId
from antiphon.engine.dispatch.lines import LineCache
from antiphon.stores.sqlite import open_sqlite
from bench.histories import POLICY, TOOLS
from bench.measure import Figure, cpu_ms, figure, interleaved, note
from bench.talk import Writer, chat_form, turns

LENGTH = 10_000
CONVERSATION = ConversationId("conv_bench")
_adapter = registry.get("openai-chat")


async def figures(*, quick: bool) -> AsyncIterator[Figure]:
    """Yield what a cold read costs beside reading bare rows back."""
    note(f"cold read of {LENGTH} messages")
    with TemporaryDirectory(prefix="bench-") as place:
        ours, floor = Path(place) / "ours.db", Path(place) / "floor.db"
        await _fill_ours(ours)
        _fill_floor(floor)

        async def read() -> None:
            await _read(ours)

        async def ready() -> None:
            await _ready(ours)

        costs = await interleaved(
            {"read": read, "ready": ready, "floor": lambda: _read_floor(floor)},
            2 if quick else 11,
            warm_up=1,
        )
    name, unit = "floor: read every row, json.loads", "CPU ms"
    floor_ms = cpu_ms(costs["floor"])
    yield figure(
        "G11", "cold: opened, read, checked, rendered, ready to dispatch",
        cpu_ms(costs["ready"]), floor_ms, name, unit=unit, at_most=1.5,
    )  # fmt: skip
    yield figure(
        "G11 part", "cold: opened and read as messages", cpu_ms(costs["read"]), floor_ms, name,
        unit=unit, at_most=1.5,
    )  # fmt: skip


async def _fill_ours(db: Path) -> None:
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


async def _ready(db: Path) -> None:
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


def _fill_floor(db: Path) -> None:
    connection = sqlite3.connect(db)
    connection.execute("CREATE TABLE message (id INTEGER PRIMARY KEY, body TEXT)")
    rows = (m for turn in islice(turns(), LENGTH // 4) for m in chat_form(turn))
    connection.executemany(
        "INSERT INTO message (body) VALUES (?)", ((json.dumps(row),) for row in rows)
    )
    connection.commit()
    connection.close()


def _read_floor(db: Path) -> None:
    connection = sqlite3.connect(db)
    rows = connection.execute("SELECT body FROM message ORDER BY id")
    assert len([json.loads(row[0]) for row in rows]) == LENGTH
    connection.close()
