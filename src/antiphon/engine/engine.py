"""The engine: what the outside may ask of conversations, and the workers that carry it out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from antiphon.core.answers.deltas import Channel
from antiphon.core.asking import Ask, Output
from antiphon.core.blocks import Block, Message, Origin, Role, Status, Text, default_trust
from antiphon.core.commands import (
    AddMessages,
    CancelRun,
    Command,
    CreateConversation,
    DeleteConversation,
    DeleteMessages,
    FinishCall,
    KeepCanceled,
    KeepPartial,
    MoveHead,
    SetMetadata,
    SetTitle,
    StartKey,
    StartRun,
)
from antiphon.core.dispatch import Denied
from antiphon.core.events import StreamItem
from antiphon.core.ids import (
    LOCAL_TENANT,
    CallId,
    ConversationId,
    MessageId,
    RunId,
    SessionId,
    TenantId,
    message_id,
)
from antiphon.core.placement import refuses_new_text
from antiphon.core.records import (
    OPEN_RUN,
    TERMINAL_CALL,
    CallState,
    Conversation,
    Run,
    RunKind,
    RunStatus,
)
from antiphon.core.tools.ledger import text_result
from antiphon.core.traffic.rollout import Rollout
from antiphon.core.tree import with_results
from antiphon.engine.catalogue.vocabularies import read_vocabularies
from antiphon.engine.dispatch.overdue import Overdue
from antiphon.engine.keeping.erasure import Erasure
from antiphon.engine.keeping.looking import back_to, is_answer, parent_of
from antiphon.engine.keeping.sweeping import Sweep
from antiphon.engine.knowledge.files import Files
from antiphon.engine.knowledge.memories import Memories
from antiphon.engine.nodes.neighbours import Neighbours
from antiphon.engine.runs.entering import Start
from antiphon.engine.runs.refusals import carried_out, refusal
from antiphon.engine.runs.startup import recover
from antiphon.engine.runs.terms import terms
from antiphon.engine.runs.verdicts import Verdicts
from antiphon.engine.runs.workers import Workers
from antiphon.engine.sessions.people import Sessions
from antiphon.engine.texts import storable
from antiphon.engine.world import World
from antiphon.errors import Conflict, InvalidInput, NotFound, Refused

R = TypeVar("R")


class Engine:
    """Serves conversations of one store. Open it with `start`, let go with `close`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._workers = Workers(world)
        self._neighbours: Neighbours | None = None
        self.shared: list[Callable[[], Awaitable[None]]] = []
        """Called from time to time where other nodes may change what is held in memory here."""
        self.verdicts = Verdicts(world, self.kick)
        """What people decide about calls: approve, refuse, resolve."""
        self.sessions = Sessions(world, self.kick)
        """What people do about sessions: begin one, undo a switch, turn scheduling on or off."""
        self.erasure = Erasure(world, self._workers.tell_canceled)
        self.files = Files(world)
        self.memories = Memories(world)
        self._overdue = Overdue(world)
        self.sweep = Sweep(world, self.erasure)

    @property
    def failures(self) -> list[BaseException]:
        """What workers have failed with: bugs of ours, or a store that could not be used."""
        return self._workers.failures

    async def start(self) -> None:
        """Settle what a dead process left behind, and take up what can go on."""
        await self.world.rollouts.refresh()
        await read_vocabularies(m.model for m in self.world.settings.models.named.values())
        self.world.functions.on_coming(self._tools_came)
        if self.world.store.nodes is None:
            for conversation in await recover(self.world):
                self.kick(conversation)
        else:
            self._neighbours = Neighbours(
                self.world,
                self.world.store.nodes,
                under_way=lambda: self._workers.under_way,
                kick=self.kick,
                canceled=self._canceled_elsewhere,
                rejoin=self._rejoin,
                refresh=self._refresh,
            )
            self._neighbours.start()
        await self._overdue.start()
        self.sweep.start()
        for response in await self.world.store.unstored():
            # Whoever waited for it is gone, or may be at another node.
            self.erasure.forget_later(response, had=self.world.alone)

    async def drain(self, grace_s: float) -> None:
        """Begin no further run, and wait up to `grace_s` for those that are under way.

        What is started from now on is durable, and waits for the next process.
        """
        await self._workers.drain(grace_s)

    async def close(self) -> None:
        """Stop working. What is in flight is recorded as UNKNOWN; the next start settles it."""
        self._workers.stop()
        self._overdue.close()
        await self.sweep.close()
        await self.erasure.close()
        await self._workers.let_go()
        if self._neighbours is not None:
            await self._neighbours.close()

    # Other nodes.

    async def _canceled_elsewhere(self, conversation: ConversationId, run: RunId) -> None:
        """Let go of a run that another node has canceled; what it had shown is kept for people."""
        preview = self.world.broker.preview(run)
        text = preview.text(Channel.TEXT) if preview is not None else ""
        if text:
            await self.world.store.do(
                KeepPartial(
                    conversation=conversation,
                    now_ms=self.world.clock.now_ms(),
                    run=run,
                    partial=(Text(text=text),),
                    partial_id=MessageId(self.world.new_id("msg_")),
                )
            )
        self._workers.tell_canceled(conversation, [run])

    async def _refresh(self) -> None:
        for refresh in self.shared:
            await refresh()

    async def _rejoin(self) -> None:
        """Let go of everything that was done under an epoch that counts no more."""
        await self._workers.let_go()
        await self.world.rejoin()

    # Workers.

    def _tools_came(self) -> None:
        """Let runs look again that wait for a call which may now be run here."""
        self._workers.beside(self._wake_waiting(), "tools came")

    async def _wake_waiting(self) -> None:
        for run in await self.world.store.open_runs():
            if run.status is RunStatus.WAITING:
                self.kick(run.conversation)

    def kick(self, conversation: ConversationId) -> None:
        """Let the conversation's worker look for work; begin one where there is none."""
        self._workers.kick(conversation)

    async def roll(self, rollout: Rollout) -> Rollout:
        """Let a rollout hold from now on, and what was paused for the one before look again."""
        done = await self.world.rollouts.set(rollout)
        for conversation in list(self.world.rollouts.paused):
            self.kick(conversation)
        return done

    async def idle(self, conversation: ConversationId) -> None:
        """Wait until the conversation's worker has nothing left to do."""
        await self._workers.idle(conversation)

    # Conversations.

    async def create_conversation(
        self,
        *,
        conversation: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, str] | None = None,
        tenant: TenantId = LOCAL_TENANT,
        scheduling: bool | None = None,
    ) -> Conversation:
        """Create a conversation and return its row."""
        return await self._do(
            CreateConversation(
                conversation=ConversationId(conversation or self.world.new_id("conv_")),
                now_ms=self.world.clock.now_ms(),
                tenant=tenant,
                session=SessionId(self.world.new_id("sess_")),
                title=title,
                metadata=tuple((metadata or {}).items()),
                scheduling=scheduling,
            )
        )

    async def add_messages(
        self,
        conversation: ConversationId,
        messages: Sequence[Message],
        head: MessageId | None,
    ) -> Conversation:
        """Create or import messages without a run.

        Raises:
            Conflict: `message_id_conflict` or `conversation_busy`; nothing was added.
        """
        return await self._do(
            AddMessages(
                conversation=conversation,
                now_ms=self.world.clock.now_ms(),
                messages=tuple(messages),
                head=head,
            )
        )

    # Runs.

    async def send(
        self,
        conversation: ConversationId,
        content: str | Sequence[Block],
        ask: Ask,
        *,
        parent: MessageId | None = None,
        message: str | None = None,
        key: StartKey | None = None,
        role: Role = Role.USER,
    ) -> Run:
        """Start a run with a new message. It is durable when this returns.

        Without `parent` the message goes to the last closed point of the head, found when the
        run is placed. With a `message` id of the caller's own, the same call again returns
        the same run.

        Raises:
            Conflict: The id is taken by other content, the key by another body, the queue is
                full, or calls on this line wait for their results (`missing_tool_result`).
            InvalidInput: Empty content, or a malformed id.
            NotFound: Unknown conversation or model; `missing_parent`, or `foreign_parent` for a
                message of another conversation.
        """
        row = await self.world.store.conversation(conversation)
        if parent is not None:
            if ask.steer:
                raise InvalidInput(
                    "A message with a parent of its own begins a branch; it joins no run.",
                    code="bad_option",
                    at="steer",
                )
            await self._require_parent(row, parent)
        not_now = await self._not_now(row, parent)
        blocks = (Text(text=content),) if isinstance(content, str) else tuple(content)
        if not blocks or blocks == (Text(text=""),):
            raise InvalidInput("A message has to have content.", code="empty_content")
        node = Message(
            id=message_id(message) if message else MessageId(self.world.new_id("msg_")),
            conversation=conversation,
            parent=parent,
            role=role,
            blocks=blocks,
            origin=Origin.CLIENT,
            trust=default_trust(role, Origin.CLIENT),
            session=row.session,
            created_ms=self.world.clock.now_ms(),
            status=Status.PENDING,
        )
        return await self._start(row, RunKind.SEND, ask, node, parent, key, not_now=not_now)

    async def edit(
        self,
        conversation: ConversationId,
        edited: MessageId,
        content: str | Sequence[Block],
        ask: Ask,
        *,
        message: str | None = None,
        key: StartKey | None = None,
    ) -> Run:
        """Start a run with a sibling of a user message. The old one and its answers stay."""
        old = await self.world.store.message(conversation, edited)
        if old.role is not Role.USER:
            raise Refused("Only a user message can be edited.", code="not_editable", at=edited)
        row = await self.world.store.conversation(conversation)
        parent = await parent_of(self.world.store, row, old)
        if parent is not None:
            return await self.send(
                conversation, content, ask, parent=parent, message=message, key=key
            )
        blocks = (Text(text=content),) if isinstance(content, str) else tuple(content)
        node = Message(
            id=message_id(message) if message else MessageId(self.world.new_id("msg_")),
            conversation=conversation,
            parent=None,
            role=Role.USER,
            blocks=blocks,
            origin=Origin.CLIENT,
            trust=default_trust(Role.USER, Origin.CLIENT),
            session=row.session,
            created_ms=self.world.clock.now_ms(),
            status=Status.PENDING,
        )
        return await self._start(row, RunKind.SEND, ask, node, None, key, at_root=True)

    async def regenerate(
        self,
        conversation: ConversationId,
        message: MessageId,
        ask: Ask,
        *,
        key: StartKey | None = None,
    ) -> Run:
        """Start a run for another answer beside `message`, or for an input that has none.

        An input whose run failed is copied, since its status has moved once already; the copy
        stands beside it under the same parent.
        """
        row = await self.world.store.conversation(conversation)
        old = await self.world.store.message(conversation, message)
        if old.role is Role.ASSISTANT:
            parent = await parent_of(self.world.store, row, old)
            if parent is None:
                raise Refused("Nothing was asked here.", code="not_regenerable", at=message)
            asked = await self.world.store.message(conversation, parent)
        else:
            asked = old
        if asked.status is Status.ERROR:
            copy = Message(
                id=MessageId(self.world.new_id("msg_")),
                conversation=conversation,
                parent=asked.parent,
                role=asked.role,
                blocks=asked.blocks,
                origin=Origin.COPIED,
                trust=asked.trust,
                session=row.session,
                copied_from=asked.id,
                created_ms=self.world.clock.now_ms(),
                status=Status.PENDING,
            )
            return await self._start(
                row, RunKind.SEND, ask, copy, asked.parent, key, at_root=asked.parent is None
            )
        return await self._start(row, RunKind.REGENERATE, ask, None, asked.id, key)

    async def _require_parent(self, row: Conversation, parent: MessageId) -> None:
        try:
            await self.world.store.message(row.id, parent)
        except NotFound:
            foreign = await self.world.store.has_message(row.tenant, parent)
        else:
            return
        if foreign:
            raise NotFound(
                "The parent belongs to another conversation.", code="foreign_parent", at=parent
            )
        raise NotFound("There is no such parent.", code="missing_parent", at=parent)

    async def _not_now(self, row: Conversation, parent: MessageId | None) -> Conflict | None:
        """Return why new text is refused on this line, if it is."""
        store = self.world.store
        waiting = [
            run
            for run in await store.runs(row.id, {RunStatus.WAITING})
            # Answered in full, it goes on by itself in a moment: new text waits its turn.
            if any(c.state not in TERMINAL_CALL for c in await store.calls(row.id, run.id))
        ]
        leaf = parent or row.head
        if not waiting or leaf is None:
            return None
        line = await back_to(store, row, leaf, is_answer)
        calls = refuses_new_text(line, waiting)
        if not calls:
            return None
        return Conflict(
            "This line waits for the results of tools; bring them, cancel the run, or "
            f"branch above it. Open calls: {', '.join(calls)}.",
            code="missing_tool_result",
            at=calls[0],
        )

    async def _start(
        self,
        row: Conversation,
        kind: RunKind,
        ask: Ask,
        node: Message | None,
        parent: MessageId | None,
        key: StartKey | None,
        *,
        at_root: bool = False,
        not_now: Conflict | None = None,
    ) -> Run:
        """Make the run durable, or return the one that this call repeats.

        A repetition is answered even where a new run would be refused: what was acknowledged
        once is never taken back.
        """
        world = self.world
        kept = await terms(world, row.tenant, ask, row.id)
        now_ms = world.clock.now_ms()
        command = StartRun(
            conversation=row.id,
            now_ms=now_ms,
            run=RunId(world.new_id("run_")),
            kind=kind,
            options=kept.options,
            input=node,
            asked_parent=parent,
            at_root=at_root,
            key=key,
            max_queued=world.settings.max_queued,
            alone=ask.alone,
            refusal=not_now.code if not_now else None,
        )
        with storable(node.id if node is not None else row.id):
            done = await self.start_run(row, kept.stored(row.id, now_ms), command)
        if isinstance(done, Denied):
            if not_now is not None and done.reason == not_now.code:
                raise not_now
            raise refusal(done)
        run: Run = done[1]
        return run

    async def start_run(
        self, row: Conversation, *commands: Command[Any]
    ) -> tuple[Any, ...] | Denied:
        """Carry out commands that start a run and bring what it needs, as one transaction.

        Where it may begin at once, it does in the same one.
        """
        return await self._workers.start(Start(self.world.store, row, commands))

    async def answer(
        self, conversation: ConversationId, run: RunId, outputs: Mapping[str, str | Output]
    ) -> Run:
        """Bring the results of all open calls of a waiting run, each once.

        The same results again change nothing.

        Raises:
            Conflict: `missing_tool_result`, `orphan_tool_result` or `duplicate_tool_result`,
                at the call; nothing was taken.
        """
        store = self.world.store
        calls = {c.call_id: c for c in await store.calls(conversation, run)}
        for call_id in outputs:
            if call_id not in calls:
                raise Conflict(
                    "No call of this run has this id.", code="orphan_tool_result", at=call_id
                )
        missing = [
            c.call_id
            for c in calls.values()
            if c.state not in TERMINAL_CALL and c.call_id not in outputs
        ]
        if missing:
            raise Conflict(
                "Every open call needs its result.", code="missing_tool_result", at=missing[0]
            )
        commands: list[Command[object]] = []
        for call_id, output in outputs.items():
            given = output if isinstance(output, Output) else Output(text=output)
            commands.append(
                FinishCall(
                    conversation=conversation,
                    now_ms=self.world.clock.now_ms(),
                    run=run,
                    call_id=CallId(call_id),
                    state=CallState.ERROR if given.error else CallState.SUCCESS,
                    content=text_result(given.text),
                    code=given.code,
                )
            )
        with storable(run), self._workers.kicked(conversation):
            done = await store.do_all(*commands)
        if isinstance(done, Denied):
            raise refusal(done)
        return await store.run(conversation, run)

    async def cancel(
        self, conversation: ConversationId, run: RunId, *, reason: str = "canceled"
    ) -> Run:
        """Cancel a run, in whatever state it is. For one that has ended nothing changes."""
        preview = self.world.broker.preview(run)
        text = preview.text(Channel.TEXT) if preview is not None else ""
        row = await self._do(
            CancelRun(
                conversation=conversation,
                now_ms=self.world.clock.now_ms(),
                run=run,
                reason=reason,
                partial=(Text(text=text),) if text else (),
                partial_id=MessageId(self.world.new_id("msg_")) if text else None,
                results_id=MessageId(self.world.new_id("msg_")),
            )
        )
        self._workers.tell_canceled(conversation, [run])
        return row

    # The tree.

    async def move_head(self, conversation: ConversationId, head: MessageId | None) -> Conversation:
        """Look at another line."""
        return await self._do(
            MoveHead(conversation=conversation, now_ms=self.world.clock.now_ms(), head=head)
        )

    async def set_title(self, conversation: ConversationId, title: str | None) -> Conversation:
        """Name the conversation."""
        return await self._do(
            SetTitle(conversation=conversation, now_ms=self.world.clock.now_ms(), title=title)
        )

    async def set_metadata(
        self, conversation: ConversationId, metadata: Mapping[str, str]
    ) -> Conversation:
        """Replace the metadata: they are for people and programs, no model sees them."""
        return await self._do(
            SetMetadata(
                conversation=conversation,
                now_ms=self.world.clock.now_ms(),
                metadata=tuple(metadata.items()),
            )
        )

    async def delete_conversation(self, conversation: ConversationId) -> None:
        """Answer for a conversation no longer, and cancel what works in it."""
        running = [run.id for run in await self.world.store.runs(conversation, OPEN_RUN)]
        await self._do(
            DeleteConversation(conversation=conversation, now_ms=self.world.clock.now_ms())
        )
        self.world.lines.forget(conversation)
        self._workers.tell_canceled(conversation, running)

    async def delete(
        self, conversation: ConversationId, messages: Iterable[MessageId]
    ) -> Conversation:
        """Skip messages on every line from now on; a call goes with its results."""
        store = self.world.store
        tree = await store.tree(conversation)
        taken = with_results(frozenset(messages), tree)
        by_id = {message.id: message for message in tree}
        below: list[RunId] = []
        for run in await store.runs(conversation, OPEN_RUN):
            at = run.leaf
            while at is not None and at not in taken:
                at = by_id[at].parent if at in by_id else None
            if at is not None:
                below.append(run.id)
        row = await self._do(
            DeleteMessages(
                conversation=conversation,
                now_ms=self.world.clock.now_ms(),
                messages=tuple(m.id for m in tree if m.id in taken),
                cancel=tuple(below),
            )
        )
        self.world.lines.forget(conversation)
        self._workers.tell_canceled(conversation, below)
        return row

    async def keep(self, conversation: ConversationId, message: MessageId) -> Conversation:
        """Keep the text of a canceled answer as a message of its own."""
        return await self._do(
            KeepCanceled(
                conversation=conversation,
                now_ms=self.world.clock.now_ms(),
                source=message,
                message=MessageId(self.world.new_id("msg_")),
            )
        )

    def follow(
        self, conversation: ConversationId, after: int = 0
    ) -> AsyncGenerator[StreamItem, None]:
        """Yield durable events after number `after`, previews, and what comes, for ever."""
        return self.world.broker.follow(conversation, after)

    async def _do(self, command: Command[R]) -> R:
        return await carried_out(self.world, command)
