"""Clients of the simulated process, and what they remember of what they were told.

A client outlives the process that it talks to. What was not acknowledged it does not know to have
happened, and repeats, under the same name; what was acknowledged it never forgets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from antiphon.core.asking import Ask, Output
from antiphon.core.blocks import Message, Role, Status
from antiphon.core.commands import StartKey
from antiphon.core.events import CaughtUp, Durable
from antiphon.core.ids import ConversationId, Digest, MessageId, RunId
from antiphon.core.records import OPEN_RUN, Approval, CallState, Run, Runner, RunStatus
from antiphon.engine.engine import Engine
from antiphon.errors import AntiphonError, InternalError, Refused, StoreError
from antiphon.handles.events import Committed, Ended
from antiphon.handles.run import RunHandle
from antiphon.library import Local
from tests.simulation.chance import Chance

NEVER_MS: Final = 2**60


@dataclass(slots=True, kw_only=True)
class Sent:
    """A message that a client wants to be in a conversation, once."""

    conversation: ConversationId
    text: str
    message: str | None
    key: StartKey | None
    parent: MessageId | None
    run: RunId | None = None
    refused: bool = False


@dataclass(slots=True)
class Ledger:
    """Everything that clients were told, and what was wrong about that at once."""

    sent: list[Sent] = field(default_factory=list)
    started: dict[RunId, ConversationId] = field(default_factory=dict)
    committed: dict[MessageId, tuple[RunId, str]] = field(default_factory=dict)
    ended: dict[RunId, RunStatus] = field(default_factory=dict)
    canceled: dict[RunId, int] = field(default_factory=dict)
    """Runs whose cancel was acknowledged, and how many messages each had committed by then."""
    answered: dict[tuple[RunId, str], str] = field(default_factory=dict)
    deleted: dict[ConversationId, set[MessageId]] = field(default_factory=dict)
    read_to: dict[ConversationId, int] = field(default_factory=dict)
    operations: int = 0
    broken: list[str] = field(default_factory=list)


class Clients:
    """What clients do in one life of the process."""

    def __init__(
        self,
        engine: Engine,
        asks: dict[ConversationId, Ask],
        ledger: Ledger,
        chance: Chance,
        say: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._asks = asks
        self._conversations = list(asks)
        self._ledger = ledger
        self._chance = chance
        self._say = say

    async def work(self, operations: int) -> None:
        """Do so many things, several at a time; then leave."""
        left = iter(range(operations))
        readers = [asyncio.ensure_future(self._read(name)) for name in self._conversations]

        async def client() -> None:
            for _ in left:
                await asyncio.sleep(self._chance.up_to(3.0))
                await self._once()
                self._ledger.operations += 1

        try:
            await asyncio.gather(*(client() for _ in range(3)))
        finally:
            for reader in readers:
                reader.cancel()

    async def repeat_keys(self) -> None:
        """Say once more, in fair weather, what was acknowledged under a key: it is the same run."""
        for sent in [sent for sent in self._ledger.sent if sent.key is not None and sent.run]:
            try:
                await self._sent(sent)
            except AntiphonError as error:
                self._ledger.broken.append(f"15: {sent.text} is not found by its key: {error}")

    async def _once(self) -> None:
        kinds: dict[Callable[[], Awaitable[None]], float] = {
            self._send: 30,
            self._repeat: 24,
            self._keyed: 14,
            self._regenerate: 8,
            self._edit: 6,
            self._cancel: 18,
            self._bring: 18,
            self._watch: 12,
            self._look: 4,
            self._delete: 3,
            self._keep: 3,
        }
        doing = self._chance.weighed(kinds)
        try:
            await doing()
        except Refused as error:
            self._say(f"client: {doing.__name__} refused: {error.code}")
        except InternalError as error:
            self._ledger.broken.append(f"{doing.__name__}: {error}")
        except AntiphonError as error:
            self._say(f"client: {doing.__name__} failed: {error.code}")

    # Sending.

    async def _send(self) -> None:
        number = len(self._ledger.sent)
        conversation = self._chance.one_of(self._conversations)
        parent = None
        if self._chance.of_hundred(15):
            found = await self._message(conversation, Role.ASSISTANT)
            parent = found.id if found else None
        sent = Sent(
            conversation=conversation,
            text=f"word {number}",
            message=f"m{number}",
            key=None,
            parent=parent,
        )
        self._ledger.sent.append(sent)
        await self._sent(sent)

    async def _keyed(self) -> None:
        number = len(self._ledger.sent)
        digest = Digest(f"{number:064x}")
        key = StartKey(scope="c", key=f"k{number}", body_digest=digest, expires_ms=NEVER_MS)
        conversation = self._chance.one_of(self._conversations)
        sent = Sent(
            conversation=conversation, text=f"word {number}", message=None, key=key, parent=None
        )
        self._ledger.sent.append(sent)
        await self._sent(sent)

    async def _repeat(self) -> None:
        """Say again what perhaps did not arrive, or what did: it is the same run."""
        open_ones = [sent for sent in self._ledger.sent if not sent.refused]
        if open_ones:
            await self._sent(self._chance.one_of(open_ones[-5:]))

    async def _sent(self, sent: Sent) -> None:
        try:
            run = await self._engine.send(
                sent.conversation,
                sent.text,
                self._asks[sent.conversation],
                parent=sent.parent,
                message=sent.message,
                key=sent.key,
            )
        except Refused as error:
            if sent.run is not None and error.code != "foreign_parent":
                self._ledger.broken.append(
                    f"15: {sent.text} was acknowledged, and is refused: {error}"
                )
            sent.refused = sent.run is None
            raise
        if sent.run not in (None, run.id):
            self._ledger.broken.append(f"15: {sent.text} started a second run {run.id}")
        sent.run = run.id
        self._acknowledged(run)

    def _acknowledged(self, run: Run) -> None:
        self._ledger.started[run.id] = run.conversation
        self._say(f"client: told of {run.id}")

    async def _regenerate(self) -> None:
        conversation = self._chance.one_of(self._conversations)
        message = await self._message(conversation, Role.ASSISTANT, Role.USER)
        if message is not None:
            ask = self._asks[conversation]
            self._acknowledged(await self._engine.regenerate(conversation, message.id, ask))

    async def _edit(self) -> None:
        conversation = self._chance.one_of(self._conversations)
        message = await self._message(conversation, Role.USER)
        if message is not None:
            number = len(self._ledger.sent)
            text, ask = f"word {number}", self._asks[conversation]
            sent = Sent(
                conversation=conversation, text=text, message=f"m{number}", key=None, parent=None
            )
            sent.refused = True  # nobody repeats it: where it belongs is not ours to say
            self._ledger.sent.append(sent)
            run = await self._engine.edit(conversation, message.id, text, ask, message=sent.message)
            sent.run = run.id
            self._acknowledged(run)

    # What goes on.

    async def _cancel(self) -> None:
        run = await self._run(OPEN_RUN)
        if run is None:
            return
        row = await self._engine.cancel(run.conversation, run.id, reason="client")
        if row.status is RunStatus.CANCELED:
            self._ledger.canceled.setdefault(run.id, row.committed)
        self._ledger.ended.setdefault(run.id, row.status)
        self._say(f"client: told that {run.id} is {row.status}")

    async def _bring(self) -> None:
        """Bring what waiting runs wait for: outputs, agreement, or what became of a call."""
        run = await self._run({RunStatus.WAITING})
        if run is None:
            return
        store, verdicts = self._engine.world.store, self._engine.verdicts
        calls = [c for c in await store.calls(run.conversation, run.id) if c.state.value != "ERROR"]
        outputs: dict[str, str | Output] = {}
        for call in calls:
            if call.state is CallState.UNKNOWN:
                output = Output(text="told later")
                await verdicts.resolve(run.conversation, run.id, call.call_id, output)
            elif call.approval is Approval.NEEDED and call.state is CallState.PENDING:
                if self._chance.of_hundred(70):
                    await verdicts.approve(run.conversation, run.id, call.call_id)
                else:
                    await verdicts.refuse(run.conversation, run.id, call.call_id)
            elif call.runner is Runner.CLIENT and call.state is CallState.PENDING:
                outputs[call.call_id] = f"brought for {call.call_id}"
        if outputs:
            await self._engine.answer(run.conversation, run.id, outputs)
            for call_id, text in outputs.items():
                self._ledger.answered[run.id, call_id] = str(text)
            self._say(f"client: told that {list(outputs)} were taken")

    async def _watch(self) -> None:
        """Follow a run to its end, for a while."""
        if not self._ledger.started:
            return
        name = self._chance.one_of(list(self._ledger.started)[-6:])
        backend = Local(self._engine)
        run = RunHandle(backend, await backend.run(name))
        try:
            async with asyncio.timeout(self._chance.up_to(30.0)):
                async for event in run.events():
                    match event:
                        case Committed(message=message):
                            self._say(f"client: told of {message.id} of {name}")
                            self._ledger.committed[message.id] = (name, message.text)
                        case Ended(status=status):
                            self._say(f"client: told that {name} has ended: {status}")
                            if self._ledger.ended.setdefault(name, status) is not status:
                                self._ledger.broken.append(f"{name} ended twice: {status}")
                        case _:
                            pass
        except TimeoutError:
            pass

    # The tree.

    async def _look(self) -> None:
        conversation = self._chance.one_of(self._conversations)
        message = await self._message(conversation, Role.ASSISTANT)
        if message is not None:
            await self._engine.move_head(conversation, message.id)

    async def _delete(self) -> None:
        conversation = self._chance.one_of(self._conversations)
        message = await self._message(conversation, Role.ASSISTANT, Role.USER)
        if message is not None:
            await self._engine.delete(conversation, [message.id])
            self._ledger.deleted.setdefault(conversation, set()).add(message.id)
            self._say(f"client: told that {message.id} is deleted")

    async def _keep(self) -> None:
        conversation = self._chance.one_of(self._conversations)
        tree = await self._engine.world.store.tree(conversation)
        canceled = [m for m in tree if m.status is Status.CANCELED and m.role is Role.ASSISTANT]
        if canceled:
            await self._engine.keep(conversation, self._chance.one_of(canceled).id)

    async def _message(self, conversation: ConversationId, *roles: Role) -> Message | None:
        tree = await self._engine.world.store.tree(conversation)
        found = [m for m in tree if m.role in roles and m.status is Status.SUCCESS]
        return self._chance.one_of(found[-6:]) if found else None

    async def _run(self, statuses: set[RunStatus] | frozenset[RunStatus]) -> Run | None:
        conversation = self._chance.one_of(self._conversations)
        found = await self._engine.world.store.runs(conversation, statuses)
        return self._chance.one_of(found) if found else None

    # Reading.

    async def _read(self, conversation: ConversationId) -> None:
        """Read every durable event, from where the last life of the reader stopped."""
        ledger = self._ledger
        while True:
            try:
                async for item in self._engine.follow(
                    conversation, ledger.read_to.get(conversation, 0)
                ):
                    if isinstance(item, Durable):
                        before = ledger.read_to.get(conversation, 0)
                        if item.seq != before + 1:
                            ledger.broken.append(f"event {item.seq} came after {before}")
                        ledger.read_to[conversation] = item.seq
                    elif isinstance(item, CaughtUp):
                        await asyncio.sleep(0)
            except StoreError as error:
                self._say(f"client: a reader was dropped: {error.code}")
            except AntiphonError as error:
                ledger.broken.append(f"a reader was told {error}")
            await asyncio.sleep(1.0)
