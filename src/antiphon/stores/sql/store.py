"""The store over SQL: commands go to writers, questions to readers or to what is remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from antiphon.core.blocks import Message
from antiphon.core.commands import Command, Fence, GiveFile
from antiphon.core.dispatch import Denied, State
from antiphon.core.ids import (
    ConversationId,
    Digest,
    MessageId,
    NodeId,
    OperationId,
    ResponseId,
    RunId,
    SessionId,
    TenantId,
)
from antiphon.core.manifest import Manifest
from antiphon.core.records import (
    OPEN_RUN,
    Attempt,
    Call,
    Conversation,
    Quarantined,
    Response,
    Run,
    RunStatus,
    Session,
    StoredEvent,
)
from antiphon.core.telling.examination import Check
from antiphon.core.traffic.keys import Key
from antiphon.core.traffic.standing import Change, Question
from antiphon.errors import StoreError
from antiphon.stores.base import Nodes
from antiphon.stores.knowledge import KnowledgeStore
from antiphon.stores.sql import keys, reads, standing
from antiphon.stores.sql.examine import examined
from antiphon.stores.sql.knowledge import SqlKnowledge
from antiphon.stores.sql.paths import read_path
from antiphon.stores.sql.readers import Readers
from antiphon.stores.sql.recent import News, Recent
from antiphon.stores.sql.registry import carry_out
from antiphon.stores.sql.statements import Statements
from antiphon.stores.sql.transaction import Transaction
from antiphon.stores.sql.writer import Request

R = TypeVar("R")
T = TypeVar("T")


class Writing(Protocol):
    """A writer, or several that share the conversations among them."""

    def put(self, request: Request) -> None:
        """Queue a request; called on the loop."""

    def nudge(self) -> None:
        """Let what was queued linger no longer."""

    def stop(self) -> None:
        """Take no more requests; what was queued is still carried out."""

    def join(self) -> None:
        """After `stop`: wait until all is carried out; blocks."""


class SqlStore:
    """A `Store` on a database. Open it with `open_sqlite` or `open_postgres`."""

    def __init__(
        self,
        writer: Writing | None,
        readers: Readers,
        release: Callable[[], None] = lambda: None,
        *,
        recent: Recent | None = None,
    ) -> None:
        self._writer = writer
        self._readers = readers
        self._release = release
        self._recent = recent or Recent(conversations=0)
        self._keys: dict[TenantId, bytes] = {}
        self._listeners: list[Callable[[list[StoredEvent]], None]] = []
        self._knowledge = SqlKnowledge(readers.read, self._put, alone=recent is not None)

    @property
    def knowledge(self) -> KnowledgeStore:
        """What is kept for tenants beside their conversations."""
        return self._knowledge

    @property
    def nodes(self) -> Nodes | None:
        """The other processes that may change it at the same time; None where there can be none."""
        return None

    # Commands.

    def on_events(self, listener: Callable[[list[StoredEvent]], None]) -> None:
        """Call `listener` on the event loop with the events of each durable transaction."""
        self._listeners.append(listener)

    def publish(self, news: News) -> None:
        """Learn what a transaction has left, then tell every listener of its events."""
        self._recent.take(news)
        if news.events:
            for listener in self._listeners:
                listener(list(news.events))

    async def do(self, command: Command[R]) -> R | Denied:
        """Carry out one command in one transaction; it is durable when this returns."""
        return cast(
            "R | Denied", await self._put(partial(carry_out, command=command), command.conversation)
        )

    async def do_all(self, *commands: Command[Any]) -> tuple[Any, ...] | Denied:
        """Carry out several commands as one transaction: all, or none and the first denial."""

        def work(tx: Transaction) -> tuple[Any, ...] | Denied:
            results = []
            for command in commands:
                result = carry_out(tx, command)
                if isinstance(result, Denied):
                    return result
                results.append(result)
            return tuple(results)

        about = dict.fromkeys(command.conversation for command in commands)
        try:
            return cast("tuple[Any, ...] | Denied", await self._put(work, *about))
        finally:
            if any(type(command) is GiveFile for command in commands):
                self._knowledge.changed()

    def submit(self, command: Command[R]) -> Awaitable[R | Denied]:
        """Queue a command without waiting; later ones of this process come after it."""
        work = partial(carry_out, command=command)
        future = self._put(work, command.conversation, waits=False)
        return _Submitted(future, self._writable().nudge)

    def _put(
        self, work: Callable[[Transaction], Any], *about: ConversationId, waits: bool = True
    ) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._writable().put(Request(work, future, waits, about))
        return future

    def write(self, work: Callable[[Transaction], Any]) -> Awaitable[Any]:
        """Do work in a transaction that is about no conversation, or locks what it is about."""
        return self._put(work)

    async def ask(self, question: Callable[[Statements], T]) -> T:
        """Return the answer to a question of the database's own."""
        return await self._readers.read(question)

    def _writable(self) -> Writing:
        if self._writer is None:
            raise StoreError("This store was opened for reading only.", code="read_only")
        return self._writer

    async def join(self, node: NodeId, address: str | None, now_ms: int) -> Fence:
        """Register this process as `node` under a new epoch; older epochs of it are stale."""

        def work(tx: Transaction) -> Fence:
            forget_keys(tx, now_ms)
            return tx.join(node, address, now_ms)

        return cast("Fence", await self._put(work))

    async def addresses(self) -> dict[NodeId, str]:
        """Return where processes that joined said that they listen."""
        return await self._readers.read(reads.addresses)

    async def keys(self) -> list[Key]:
        """Return every key of principals, revoked ones too, in the order they were made."""
        return await self._readers.read(keys.read)

    async def add_key(self, key: Key) -> Key:
        """Keep a new key."""
        return cast("Key", await self._put(lambda tx: keys.add(tx, key)))

    async def revoke_key(self, key: str, now_ms: int) -> Key:
        """Take a key's power away, for good. Raises `NotFound`."""
        return cast("Key", await self._put(lambda tx: keys.revoke(tx, key, now_ms)))

    async def change(self, change: Change[R]) -> R:
        """Carry out a change that belongs to no conversation; it is durable when this returns."""
        return cast("R", await self._put(lambda tx: standing.change(tx, change)))

    async def answer(self, question: Question[R]) -> R:
        """Answer a question about what belongs to no conversation."""
        return cast("R", await self._readers.read(partial(standing.answer, question=question)))

    async def tenant_key(self, tenant: TenantId) -> bytes:
        """Return the tenant's digest key, made at first use."""
        key = self._keys.get(tenant)
        if key is None:
            if self._writer is None:
                key = await self._readers.read(partial(reads.tenant_key, tenant=tenant))
            else:
                key = cast("bytes", await self._put(lambda tx: tx.tenant_key(tenant)))
            self._keys[tenant] = key
        return key

    # Questions.

    async def conversation(self, conversation: ConversationId) -> Conversation:
        """Return the row. Raises `NotFound`."""
        known = self._recent.standing(conversation)
        if known is not None:
            return known.conversation
        return await self._readers.read(lambda db: reads.conversation(db, conversation))

    async def conversations(
        self,
        tenant: TenantId,
        *,
        limit: int = 50,
        before: ConversationId | None = None,
        words: str | None = None,
    ) -> list[Conversation]:
        """Return conversations by last change, newest first; with `words` those that hold them."""
        return await self._readers.read(
            lambda db: reads.conversations(db, tenant, limit, before, words)
        )

    async def unerased(self, tenant: TenantId, before_ms: int) -> list[ConversationId]:
        """Return those that are not erased and did not change since, deleted ones included."""
        return await self._readers.read(lambda db: reads.unerased(db, tenant, before_ms))

    async def sessions(
        self, conversation: ConversationId, newest: int | None = None
    ) -> list[Session]:
        """Return the sessions in their order, all or the newest of them."""
        return await self._readers.read(lambda db: reads.sessions(db, conversation, newest))

    async def session(self, conversation: ConversationId, session: SessionId) -> Session:
        """Return one session. Raises `NotFound`."""
        return await self._readers.read(lambda db: reads.session(db, conversation, session))

    async def message(self, conversation: ConversationId, message: MessageId) -> Message:
        """Return one message with its status. Raises `NotFound`."""
        known = self._recent.message(conversation, message)
        if known is not None:
            return known
        return await self._readers.read(lambda db: reads.message(db, conversation, message))

    async def has_message(self, tenant: TenantId, message: MessageId) -> bool:
        """Return whether any conversation of the tenant holds a message of this id."""
        return await self._readers.read(lambda db: reads.has_message(db, tenant, message))

    async def homes(self, tenant: TenantId, message: MessageId) -> list[ConversationId]:
        """Return the tenant's conversations that hold a message of this id, at most two."""
        return await self._readers.read(lambda db: reads.homes(db, tenant, message))

    async def path(
        self,
        conversation: ConversationId,
        leaf: MessageId,
        *,
        until: MessageId | None = None,
        limit: int | None = None,
    ) -> list[Message]:
        """Return the ancestors of `leaf` and itself, root first, deleted ones included."""
        known = self._recent.path(conversation, leaf, until, limit)
        if known is not None:
            return known

        def question(db: Statements) -> list[Message]:
            number = reads.number(db, conversation)
            return read_path(db, number, conversation, leaf, until, limit)

        return await self._readers.read(question)

    async def deletions_at(
        self, conversation: ConversationId, revision: int
    ) -> frozenset[MessageId]:
        """Return what was deleted when the conversation stood at `revision`."""
        return await self._readers.read(lambda db: reads.deletions_at(db, conversation, revision))

    async def tree(self, conversation: ConversationId) -> list[Message]:
        """Return every message, in the order in which they came."""
        return await self._readers.read(lambda db: reads.tree(db, conversation))

    async def excerpt(
        self, conversation: ConversationId, leaf: MessageId | None, newest: int
    ) -> tuple[list[Message], bool]:
        """Return the newest messages of a line and what stands beside them; whether that is all."""
        return await self._readers.read(lambda db: reads.excerpt(db, conversation, leaf, newest))

    async def children(
        self, conversation: ConversationId, parent: MessageId | None
    ) -> list[Message]:
        """Return the children of `parent` (None: the roots) in the order they came."""
        return await self._readers.read(lambda db: reads.children(db, conversation, parent))

    async def run(self, conversation: ConversationId, run: RunId) -> Run:
        """Return the row. Raises `NotFound`."""
        known = self._recent.run(conversation, run)
        if known is not None:
            return known
        return await self._readers.read(lambda db: reads.run(db, conversation, run))

    async def find_run(self, run: RunId) -> Run:
        """Return the row by the run's id alone. Raises `NotFound`."""
        return await self._readers.read(lambda db: reads.run(db, None, run))

    async def runs(
        self, conversation: ConversationId, statuses: Iterable[RunStatus] | None = None
    ) -> list[Run]:
        """Return runs in the order they were started."""
        known = self._recent.standing(conversation)
        if known is not None and statuses is not None:
            wanted = frozenset(statuses)
            if wanted <= OPEN_RUN:
                return [run for run in known.runs if run.status in wanted]
            statuses = wanted
        return await self._readers.read(lambda db: reads.runs(db, conversation, statuses))

    async def open_runs(self) -> list[Run]:
        """Return every run of every conversation that has not ended, oldest first."""
        return await self._readers.read(reads.open_runs)

    async def open_statuses(
        self, conversations: Iterable[ConversationId]
    ) -> dict[ConversationId, set[RunStatus]]:
        """Return the statuses of the runs that have not ended, for those that have such runs."""
        return await self._readers.read(lambda db: reads.open_statuses(db, list(conversations)))

    async def run_input(self, conversation: ConversationId, run: RunId) -> Message | None:
        """Return the input of a run, whether it is placed or still waits in it."""
        known = self._recent.input(conversation, run)
        if known is not None:
            return known
        return await self._readers.read(lambda db: reads.run_input(db, conversation, run))

    async def response(self, tenant: TenantId, response: ResponseId) -> Response:
        """Return the row, deleted or not. Raises `NotFound`, also for another tenant's."""
        return await self._readers.read(lambda db: reads.response(db, tenant, response))

    async def responses(self, conversation: ConversationId, run: RunId) -> list[Response]:
        """Return the responses of a run in the order in which they began."""
        return await self._readers.read(lambda db: reads.responses(db, conversation, run))

    async def response_of_key(
        self, scope: str, key: str, now_ms: int
    ) -> tuple[Response, Digest] | None:
        """Return what was begun under a start key and the digest of its body, if anything was."""
        return await self._readers.read(lambda db: reads.response_of_key(db, scope, key, now_ms))

    async def unstored(self) -> list[Response]:
        """Return the responses that are not to be stored and whose conversation still is."""
        return await self._readers.read(reads.unstored)

    async def operations(self, conversation: ConversationId, run: RunId) -> list[OperationId]:
        """Return the run's operations in the order they were prepared."""
        return await self._readers.read(lambda db: reads.operations(db, conversation, run))

    async def questions(self, conversation: ConversationId, run: RunId) -> list[OperationId]:
        """Return what was asked beside the run's turns, in the order it was prepared."""
        return await self._readers.read(lambda db: reads.questions(db, conversation, run))

    async def manifest(self, operation: OperationId) -> tuple[Manifest, Digest]:
        """Return a manifest and the digest recorded with it. Raises `NotFound`."""
        return await self._readers.read(lambda db: reads.manifest(db, operation))

    async def attempts(self, operation: OperationId) -> list[Attempt]:
        """Return the operation's attempts, first to last."""
        return await self._readers.read(lambda db: reads.attempts(db, operation))

    async def attempts_in(self, states: Iterable[State]) -> list[Attempt]:
        """Return the attempts of all conversations that stand in one of `states`."""
        return await self._readers.read(lambda db: reads.attempts_in(db, states))

    async def calls(
        self, conversation: ConversationId, run: RunId, message: MessageId | None = None
    ) -> list[Call]:
        """Return ledger rows of a run, or of one of its messages, in the calls' order."""
        known = self._recent.calls(conversation, run, message)
        if known is not None:
            return known
        return await self._readers.read(lambda db: reads.calls(db, conversation, run, message))

    async def content(self, tenant: TenantId, digest: Digest) -> bytes:
        """Return stored content. Raises `NotFound`."""
        return await self._readers.read(lambda db: reads.content(db, tenant, digest))

    async def contents(self, tenant: TenantId, digests: Sequence[Digest]) -> dict[Digest, bytes]:
        """Return what is stored under those of `digests` that there is anything under."""
        return await self._readers.read(lambda db: reads.contents(db, tenant, digests))

    async def stored(self, tenant: TenantId, digests: Sequence[Digest]) -> frozenset[Digest]:
        """Return those of `digests` under which there is content."""
        return await self._readers.read(lambda db: reads.stored(db, tenant, digests))

    async def events(
        self, conversation: ConversationId, after: int, limit: int = 1000
    ) -> list[StoredEvent]:
        """Return durable events with a number above `after`."""
        known = self.events_at_hand(conversation, after)
        if known is not None:
            return known[:limit]
        return await self._readers.read(lambda db: reads.events(db, conversation, after, limit))

    def events_at_hand(self, conversation: ConversationId, after: int) -> list[StoredEvent] | None:
        """Return all of them without waiting, or None where the database has to be asked."""
        return self._recent.events(conversation, after)

    async def quarantine(self, conversation: ConversationId) -> list[Quarantined]:
        """Return what was put aside, oldest first."""
        return await self._readers.read(lambda db: reads.quarantine(db, conversation))

    async def quarantined(self) -> dict[str, int]:
        """Return how much was put aside in all conversations, by reason."""
        return await self._readers.read(reads.quarantined)

    async def examined(self) -> list[Check]:
        """Return what an examination of all that is stored has found. Slow: it reads everything."""
        return await self._readers.read(examined)

    async def close(self) -> None:
        """Finish what was queued, then let go of the database."""
        if self._writer is not None:
            self._writer.stop()
        await asyncio.get_running_loop().run_in_executor(None, self._close)
        self._recent = Recent(conversations=0)  # a closed store answers nothing, from memory either

    def _close(self) -> None:
        # The last connection to go takes the log into the file, and a reader's may not write.
        self._readers.close()
        if self._writer is not None:
            self._writer.join()
        self._release()


def forget_keys(tx: Transaction, now_ms: int) -> None:
    """Forget the keys of requests that are repeated no more."""
    tx.execute("DELETE FROM start_key WHERE expires_ms <= ?", (now_ms,))
    tx.execute("DELETE FROM response_key WHERE expires_ms <= ?", (now_ms,))


class _Submitted(Awaitable[T]):
    """The answer to a command that was queued; waiting for it makes the writer hurry."""

    def __init__(self, future: asyncio.Future[T], hurry: Callable[[], None]) -> None:
        self._future = future
        self._hurry = hurry

    def __await__(self) -> Generator[Any, None, T]:
        if not self._future.done():
            self._hurry()
        return self._future.__await__()
