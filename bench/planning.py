"""Planning a dispatch: warm at any length, cold from a store, and tokens counted a second."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import toktok
from msgspec.structs import replace

from antiphon.adapters import registry
from antiphon.adapters.base import Rendering, render
from antiphon.adapters.weighing import weigh_items
from antiphon.core.blocks import Message
from antiphon.core.ids import LOCAL_TENANT, ConversationId, MessageId, SessionId
from antiphon.core.manifest import Manifest, stored_digest
from antiphon.core.records import Conversation
from antiphon.engine.catalogue.vocabularies import counter_of
from antiphon.engine.dispatch.lines import LineCache
from antiphon.engine.dispatch.planning import Plan, Planner
from antiphon.engine.dispatch.target import Target
from antiphon.engine.dispatch.warm import Planned
from antiphon.engine.settings import Settings
from antiphon.stores.sqlite import open_sqlite
from bench import cold
from bench.histories import POLICY, TOOLS
from bench.measure import Figure, cpu_ms, figure, interleaved, note
from bench.talk import Writer, turns

LENGTHS: Final = (100, 1_000, 10_000)
KEY: Final = b"k" * 32
WINDOW: Final = 10_000_000
HERE: Final = ConversationId("conv_bench")
_adapter = registry.get("openai-chat")
_policy = replace(POLICY, context_window=WINDOW)


def _target() -> Target:
    return Target(
        adapter=_adapter,
        key=KEY,
        policy=_policy,
        policy_digest=stored_digest(KEY, _policy)[0],
        tools=TOOLS,
        toolset_digest=stored_digest(KEY, TOOLS)[0],
        checks={},
    )


class _Path:
    """The one read that planning makes of a store on a warm line: what is new on the path."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = list(messages)

    async def path(
        self,
        _: ConversationId,
        leaf: MessageId,
        *,
        until: MessageId | None = None,
        limit: int | None = None,
    ) -> list[Message]:
        if until is None:
            return self.messages[-limit:] if limit else self.messages
        new: list[Message] = []
        for message in reversed(self.messages):
            if message.id == until:
                break
            new.append(message)
        return new[::-1]

    async def contents(self, *_: object) -> dict[str, bytes]:
        return {}


class _Talk:
    """A conversation of a given length that grows by a turn at each plan."""

    def __init__(self, length: int) -> None:
        self._writer = Writer(HERE, SessionId("sess_bench"))
        said = [m for turn in islice(turns(), length // 4) for m in self._writer.messages(turn)]
        self._store = _Path(said)
        self._lines = LineCache(self._store)  # type: ignore[arg-type]  # the part of it that is asked
        self._more = islice(turns(), length // 4, None)
        self._planner, self._target, self._numbers = Planner(Settings()), _target(), count()

    async def plan(self) -> None:
        """Say a turn more and plan the dispatch of it."""
        self._store.messages += self._writer.messages(next(self._more))
        leaf = self._store.messages[-1].id
        made: Plan = await self._planner.plan(
            self._lines, _row(), leaf, self._target, request_of=_nobody, compaction=""
        )
        made.warm.last = Planned(
            manifest=_Sent(base_leaf=leaf, toolset_digest=self._target.toolset_digest),  # type: ignore[arg-type]
            trace=made.trace,
            policy=_policy,
            deletions=frozenset(),
            rendering=made.rendering,
        )
        made.warm.stored(name for name, _ in made.stretches)
        assert made.trace.total_tokens


class _Sent:
    """What the trace asks of the last manifest."""

    def __init__(self, **fields: object) -> None:
        self.__dict__.update(fields)


def _row() -> Conversation:
    return Conversation(
        id=HERE,
        tenant=LOCAL_TENANT,
        session=SessionId("sess_bench"),
        head=None,
        revision=1,
        cancel_generation=0,
        attempt_generation=0,
        active_operation=None,
        slot=None,
        title=None,
        created_ms=1,
        updated_ms=1,
        last_event=0,
    )


async def _nobody(_: Manifest) -> Rendering | None:
    return None


async def figures(*, quick: bool) -> AsyncIterator[Figure]:
    """Yield what planning costs at each length, beside the shortest, and what counting does."""
    note("plans of 100, 1,000 and 10,000 messages")
    talks = {str(length): _Talk(length) for length in LENGTHS}
    for talk in talks.values():
        await talk.plan()
    costs = await interleaved(
        {name: talk.plan for name, talk in talks.items()}, 5 if quick else 41, times=4
    )
    shortest = cpu_ms(costs["100"])
    for length in LENGTHS[1:]:
        yield figure(
            "plan", f"warm: a turn more on {length:,} messages", cpu_ms(costs[str(length)]),
            shortest, "the same on 100 messages", unit="CPU ms", at_most=1.5,
        )  # fmt: skip
    async for each in _cold(quick=quick):
        yield each
    async for each in _counting():
        yield each


async def _cold(*, quick: bool) -> AsyncIterator[Figure]:
    note(f"a first plan of {cold.LENGTH:,} messages, from a store just opened")
    with TemporaryDirectory(prefix="bench-") as place:
        talked, floor = Path(place) / "talked.db", Path(place) / "floor.db"
        conversation = await cold.fill_talked(talked)
        cold.fill_floor(floor)

        async def planned() -> None:
            store = await open_sqlite(talked)
            row = await store.conversation(conversation)
            assert row.head is not None
            target = await cold.last_target(store, row)
            plan = await Planner(Settings()).plan(
                LineCache(store), row, row.head, target, request_of=_nobody, compaction=""
            )
            assert plan.trace.messages > cold.LENGTH
            await store.close()

        costs = await interleaved(
            {"planned": planned, "floor": lambda: cold.read_floor(floor)},
            2 if quick else 9,
            warm_up=1,
        )
    yield figure(
        "plan", f"cold: {cold.LENGTH:,} messages read, checked, rendered, counted, planned",
        cpu_ms(costs["planned"]), cpu_ms(costs["floor"]),
        cold.FLOOR, unit="CPU ms", at_most=1.5,
    )  # fmt: skip


async def _counting() -> AsyncIterator[Figure]:
    note("tokens counted of 1,000 rendered messages")
    writer = Writer(HERE, SessionId("sess_bench"))
    said = [m for turn in islice(turns(), 250) for m in writer.messages(turn)]
    body = render(_adapter, said, POLICY, TOOLS, key=KEY).request.body
    items = body[body.index(b'"messages":[') + 12 : -2]
    counter, texts = counter_of("gpt-4o"), _Texts()
    weigh_items(items, texts)
    tokens = counter.count(texts.texts)
    costs = await interleaved(
        {
            "ours": lambda: weigh_items(items, counter),
            "library": lambda: toktok.batch_count(texts.texts, "o200k_base", 1),
        },
        101,  # a sample takes five milliseconds
    )
    ours, theirs = (tokens / cpu_ms(costs[name]) * 1_000 for name in ("ours", "library"))
    yield figure(
        "plan", "tokens counted of a rendered body, JSON read included", ours, theirs,
        "toktok.batch_count of its texts", unit="tokens/s", at_least=0.7,
    )  # fmt: skip


class _Texts:
    """Keeps what would be counted."""

    name = "texts"
    exact = True

    def __init__(self) -> None:
        self.texts: list[str] = []

    def count(self, texts: Sequence[str]) -> int:
        self.texts += texts
        return 0
