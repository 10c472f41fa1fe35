"""What must hold when all is over: read from the store alone, and held against what was told.

The expectations are those of the contract's list of invariants, by their numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from typing import Final

from antiphon.core.blocks import Message, Origin, Role, Status
from antiphon.core.commands import Fence
from antiphon.core.dispatch import ACTIVE, State
from antiphon.core.ids import ConversationId, MessageId, NodeId, RunId
from antiphon.core.records import TERMINAL_CALL, Run, RunStatus
from antiphon.engine.dispatch.lines import LineCache
from antiphon.engine.keeping.explain import exact_request
from antiphon.engine.live import Broker
from antiphon.engine.world import World
from antiphon.errors import AntiphonError
from tests.cases.chat_rules import objections
from tests.simulation.answers import Answer
from tests.simulation.clients import Ledger
from tests.simulation.places import Place
from tests.simulation.store import Database
from tests.simulation.tools import AGAIN, Effects
from tests.simulation.upstream import Upstream

UNPLACED: Final = frozenset({"uncommitted_block", "missing_tool_result"})
"""Why an input may have found no place: what it was to follow is not there."""


class Judge:
    """Looks at one history when nothing moves any more."""

    def __init__(
        self,
        database: Database,
        conversations: list[ConversationId],
        ledger: Ledger,
        upstream: Upstream,
        effects: Effects,
        reader: World,
    ) -> None:
        self._store = database.store
        self._conversations = conversations
        self._ledger = ledger
        self._upstream = upstream
        self._effects = effects
        self._world = reader
        self._trees: dict[ConversationId, list[Message]] = {}
        self._nodes: dict[MessageId, Message] = {}
        self._runs: dict[RunId, Run] = {}

    async def broken(self) -> list[str]:
        """Return every promise that this history breaks."""
        for name in self._conversations:
            tree = self._trees[name] = await self._store.tree(name)
            self._nodes |= {message.id: message for message in tree}
            self._runs |= {run.id: run for run in await self._store.runs(name)}
        found = [*self._ledger.broken, *self._upstream.broken, *self._effects.broken]
        for part in (
            self._rows,
            self._acknowledged,
            self._answers,
            self._attempts,
            self._sendings,
            self._calls,
            self._events,
        ):
            found += [problem async for problem in part()]
        return found

    # 7, 15: nothing hangs, and nothing acknowledged is missing or doubled.

    async def _rows(self) -> AsyncIterator[str]:
        for name in self._conversations:
            row = await self._store.conversation(name)
            if row.slot or row.active_operation:
                yield f"{name} is still held by {row.slot} or {row.active_operation}"
        for run in self._runs.values():
            if run.open:
                yield f"{run.id} is left {run.status} ({run.end_code})"

    async def _acknowledged(self) -> AsyncIterator[str]:
        ledger = self._ledger
        for lost in ledger.started.keys() - self._runs.keys():
            yield f"15: {lost} was acknowledged and is lost"
        for sent in ledger.sent:
            said = [m for m in self._nodes.values() if m.text == sent.text and _original(m)]
            if len(said) > 1:
                yield f"15: {sent.text} stands {len(said)} times"
            run = self._runs.get(sent.run) if sent.run else None
            if run is None:
                continue
            asked = await self._store.run_input(run.conversation, run.id)
            if asked is None or asked.text != sent.text:
                yield f"15: {sent.text} was acknowledged, and its run was asked {asked}"
            withdrawn = run.status is RunStatus.CANCELED or run.error_code in UNPLACED
            if not said and not withdrawn:
                yield f"15: {sent.text} was acknowledged and is not in the tree"
        for message, (run_id, text) in ledger.committed.items():
            node = self._nodes.get(message)
            if node is None or (node.text, node.status) != (text, Status.SUCCESS):
                yield f"an answer of {run_id} was told and is lost: {node}"
        for run_id, status in ledger.ended.items():
            if run_id not in self._runs or self._runs[run_id].status is not status:
                yield f"{run_id} was told to be {status}"
        for run_id, committed in ledger.canceled.items():
            if self._runs[run_id].committed != committed:
                yield f"13: {run_id} has committed after its cancel"
        for name, deleted in ledger.deleted.items():
            if deleted - (await self._store.conversation(name)).deletions:
                yield f"a deleted message of {name} is back"
        for (run_id, call_id), text in ledger.answered.items():
            row = self._runs[run_id]
            told = [
                "".join(part.text for part in c.content if hasattr(part, "text"))
                for c in (await self._store.calls(row.conversation, run_id))
                if c.call_id == call_id
            ]
            if told != [text]:
                yield f"the result brought for {call_id} is lost: {told}"

    # 3, 4, 10: what is canonical is whole, once for each base, and stands where it was asked.

    async def _answers(self) -> AsyncIterator[str]:
        for name in self._conversations:
            bases: Counter[int] = Counter()
            committed = 0
            for attempt in await self._store.attempts_in({State.COMMITTED}):
                if attempt.conversation == name:
                    manifest, _ = await self._store.manifest(attempt.operation)
                    bases[manifest.conversation_revision] += 1
                    committed += 1
            for base, times in bases.items():
                if times > 1:
                    yield f"3: {times} answers on base {base} of {name}"
            made = [m for m in self._trees[name] if _canonical(m)]
            if len(made) != committed:
                yield f"3: {name} has {len(made)} answers of {committed} committed attempts"
            for message in made:
                for problem in self._whole(message):
                    yield problem
        used = Counter(m.text for m in self._nodes.values() if _canonical(m))
        for text, times in used.items():
            if times > 1:
                yield f"{text!r} was committed {times} times"

    def _whole(self, message: Message) -> Iterator[str]:
        said: Answer | None = self._upstream.whole.get(message.text)
        if said is None:
            yield f"4: {message.id} says {message.text!r}, which nobody said to its end"
        elif not said.committable:
            yield f"4: {message.id} was committed with finish {said.finish}"
        elif [(c.call_id, c.name) for c in message.calls] != [(i, n) for i, n, _ in said.calls]:
            yield f"5: {message.id} has other calls than were made"

    # 1, 6, 7, 8: attempts and what was received.

    async def _attempts(self) -> AsyncIterator[str]:
        for run in self._runs.values():
            for operation in await self._store.operations(run.conversation, run.id):
                attempts = await self._store.attempts(operation)
                for before, after in pairwise(attempts):
                    follows = before.state is State.FAILED and before.generation < after.generation
                    if after.generation and not follows:
                        yield f"7: {operation} went on from {before.state}"
                if attempts[-1].state in ACTIVE:
                    yield f"{operation} is left {attempts[-1].state}"

    async def _sendings(self) -> AsyncIterator[str]:
        requests: dict[str, bytes] = {}
        said = {m.text for m in self._nodes.values() if m.status is Status.SUCCESS}
        for sending in self._upstream.sendings:
            operation = sending.operation
            if operation not in requests:
                try:
                    manifest, _ = await self._store.manifest(operation)
                    exact = exact_request(self._world, manifest.run, operation)
                    requests[operation] = (await exact).body
                except AntiphonError as error:
                    yield f"8: the request of {operation} cannot be had again: {error}"
                    continue
            if requests[operation] != sending.body:
                yield f"8: {operation} was sent with other bytes than are recorded"
            if b'"messages"' in sending.body:
                for why in objections(sending.body):
                    yield f"2: {operation}: {why}"
            for text in self._upstream.whole:
                if text.encode() in sending.body and text not in said:
                    yield f"4: {operation} held {text!r}, which was never committed"

    # 5, 13: every call has one result, and what may not happen twice did not.

    async def _calls(self) -> AsyncIterator[str]:
        known: dict[str, tuple[str, Status | None]] = {}
        for run in self._runs.values():
            for call in await self._store.calls(run.conversation, run.id):
                message = self._nodes.get(call.message)
                known[call.idempotency_key] = (call.name, message.status if message else None)
                if call.state not in TERMINAL_CALL:
                    yield f"5: {call.call_id} of {run.id} is left {call.state}"
        for name, key in self._effects.done:
            if known.get(key) != (name, Status.SUCCESS):
                yield f"5: {name} ran for a call that was never committed: {known.get(key)}"
        for (name, key), times in Counter(self._effects.done).items():
            if times > 1 and name not in AGAIN:
                yield f"5: {name} was done {times} times under {key}"

    # 9: history only grows, and hashes to what was recorded.

    async def _events(self) -> AsyncIterator[str]:
        for name in self._conversations:
            row = await self._store.conversation(name)
            events = await self._store.events(name, 0, 1_000_000)
            if [event.seq for event in events] != list(range(1, row.last_event + 1)):
                yield f"the events of {name} have gaps"
            if self._ledger.read_to.get(name, 0) > row.last_event:
                yield f"a reader of {name} was told of an event that is gone"


def damage(place: Place) -> list[str]:
    """Return what `antiphon doctor` would say: 9, history hashes to what was recorded."""
    return [
        f"doctor: {problem.code} at {problem.at}: {problem.message}"
        for check in place.checks()
        for problem in check.problems
    ]


def _canonical(message: Message) -> bool:
    return (
        message.role is Role.ASSISTANT
        and message.origin is Origin.MODEL
        and message.status is Status.SUCCESS
    )


def _original(message: Message) -> bool:
    """Whether it is a message that a client sent, and no copy of one."""
    return message.role is Role.USER and message.origin is not Origin.COPIED


READER = Fence(node=NodeId("judge"), epoch=0)


def reader(world: World, database: Database) -> World:
    """Return a world that looks at the real store, with no weather in between."""
    return World(
        store=database.store,
        transport=world.transport,
        clock=world.clock,
        entropy=world.entropy,
        ids=world.ids,
        settings=world.settings,
        broker=Broker(database.store),
        lines=LineCache(database.store),
        fence=READER,
    )
