"""The store's protocol: commands in, rows out, and reads that never decide anything.

A read is a snapshot. Whatever is decided on it is compared again inside the transaction of
the command that carries it out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from antiphon.core.blocks import Message
from antiphon.core.commands import Command, Fence
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
from antiphon.stores.knowledge import KnowledgeStore

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How one node is asked by another: where it listens, and what shows that it is a node."""

    address: str
    secret: str = field(repr=False)


class Nodes(Protocol):
    """The processes that work in one database, as one of them sees the others."""

    @property
    def others(self) -> bool:
        """Whether there are other nodes, or were a moment ago."""

    def start(
        self,
        fence: Fence,
        lease_s: float,
        *,
        fenced: Callable[[], None],
        buried: Callable[[Sequence[NodeId]], None],
        told: Callable[[Sequence[ConversationId]], None],
    ) -> None:
        """Keep the lease, bury the dead and pass on word, until `close`.

        What is heard is told on the event loop on which this is called.

        Args:
            fence: The node and epoch whose lease is kept.
            lease_s: How long a lease lasts.
            fenced: Others hold this node for dead: nothing that it does counts any more.
            buried: These nodes are dead; what they worked on may be claimed.
            told: Another node has changed these conversations.
        """

    def close(self) -> None:
        """Give the lease back and stop; blocks."""

    async def claim(self, fence: Fence, now_ms: int, limit: int) -> list[Run]:
        """Take runs over whose owners are gone; return them, and runs that nobody has begun."""

    async def last_events(
        self, conversations: Collection[ConversationId]
    ) -> dict[ConversationId, int]:
        """Return the number of the newest event of each."""

    async def reach(self, node: NodeId) -> Reach | None:
        """Return how a node is asked for previews, if it lives and listens."""


class Store(Protocol):
    """Durable state of many conversations. Every method may raise `StoreError`."""

    @property
    def nodes(self) -> Nodes | None:
        """The other processes that may change it at the same time; None where there can be none."""

    def on_events(self, listener: Callable[[list[StoredEvent]], None]) -> None:
        """Call `listener` on the event loop with the events of each durable transaction."""

    async def do(self, command: Command[R]) -> R | Denied:
        """Carry out one command in one transaction; it is durable when this returns.

        Raises:
            NotDurable: Nothing of it was kept.
            NotFound: It names a conversation, run or operation that does not exist.
        """

    async def do_all(self, *commands: Command[Any]) -> tuple[Any, ...] | Denied:
        """Carry out several commands as one transaction: all, or none and the first denial."""

    def submit(self, command: Command[R]) -> Awaitable[R | Denied]:
        """Queue a command without waiting; later ones of this process come after it."""

    async def join(self, node: NodeId, address: str | None, now_ms: int) -> Fence:
        """Register this process as `node` under a new epoch; older epochs of it are stale."""

    async def addresses(self) -> dict[NodeId, str]:
        """Return where processes that joined said that they listen."""

    async def keys(self) -> list[Key]:
        """Return every key of principals, revoked ones too, in the order they were made."""

    async def add_key(self, key: Key) -> Key:
        """Keep a new key."""

    async def revoke_key(self, key: str, now_ms: int) -> Key:
        """Take a key's power away, for good. Raises `NotFound`."""

    async def change(self, change: Change[R]) -> R:
        """Carry out a change that belongs to no conversation; it is durable when this returns."""

    async def answer(self, question: Question[R]) -> R:
        """Answer a question about what belongs to no conversation."""

    async def tenant_key(self, tenant: TenantId) -> bytes:
        """Return the tenant's digest key, made at first use."""

    async def conversation(self, conversation: ConversationId) -> Conversation:
        """Return the row. Raises `NotFound`."""

    async def conversations(
        self,
        tenant: TenantId,
        *,
        limit: int = 50,
        before: ConversationId | None = None,
        words: str | None = None,
    ) -> list[Conversation]:
        """Return conversations by last change, newest first; with `words` those that hold them."""

    async def unerased(self, tenant: TenantId, before_ms: int) -> list[ConversationId]:
        """Return those that are not erased and did not change since, deleted ones included."""

    async def sessions(
        self, conversation: ConversationId, newest: int | None = None
    ) -> list[Session]:
        """Return the sessions in their order, all or the newest of them."""

    async def session(self, conversation: ConversationId, session: SessionId) -> Session:
        """Return one session. Raises `NotFound`."""

    async def message(self, conversation: ConversationId, message: MessageId) -> Message:
        """Return one message with its status. Raises `NotFound`."""

    async def has_message(self, tenant: TenantId, message: MessageId) -> bool:
        """Return whether any conversation of the tenant holds a message of this id."""

    async def homes(self, tenant: TenantId, message: MessageId) -> list[ConversationId]:
        """Return the tenant's conversations that hold a message of this id, at most two."""

    async def path(
        self,
        conversation: ConversationId,
        leaf: MessageId,
        *,
        until: MessageId | None = None,
        limit: int | None = None,
    ) -> list[Message]:
        """Return the ancestors of `leaf` and itself, root first, deleted ones included.

        With `until`, only what comes after that ancestor; with `limit`, only the newest so
        many. The caller applies deletions: `Conversation.deletions`, or `deletions_at`.
        """

    async def deletions_at(
        self, conversation: ConversationId, revision: int
    ) -> frozenset[MessageId]:
        """Return what was deleted when the conversation stood at `revision`."""

    async def tree(self, conversation: ConversationId) -> list[Message]:
        """Return every message, in the order in which they came."""

    async def excerpt(
        self, conversation: ConversationId, leaf: MessageId | None, newest: int
    ) -> tuple[list[Message], bool]:
        """Return the newest messages of the line to `leaf`, and every alternative to one of them.

        What follows `leaf` is there too. A conversation of no more than `newest` messages comes
        whole, and then the second value says so. In the order in which they came.
        """

    async def children(
        self, conversation: ConversationId, parent: MessageId | None
    ) -> list[Message]:
        """Return the children of `parent` (None: the roots) in the order they came."""

    async def run(self, conversation: ConversationId, run: RunId) -> Run:
        """Return the row. Raises `NotFound`."""

    async def find_run(self, run: RunId) -> Run:
        """Return the row by the run's id alone. Raises `NotFound`."""

    async def runs(
        self, conversation: ConversationId, statuses: Iterable[RunStatus] | None = None
    ) -> list[Run]:
        """Return runs in the order they were started."""

    async def open_runs(self) -> list[Run]:
        """Return every run of every conversation that has not ended, oldest first."""

    async def open_statuses(
        self, conversations: Iterable[ConversationId]
    ) -> dict[ConversationId, set[RunStatus]]:
        """Return the statuses of the runs that have not ended, for those that have such runs."""

    async def run_input(self, conversation: ConversationId, run: RunId) -> Message | None:
        """Return the input of a run, whether it is placed or still waits in it."""

    async def response(self, tenant: TenantId, response: ResponseId) -> Response:
        """Return the row, deleted or not. Raises `NotFound`, also for another tenant's."""

    async def responses(self, conversation: ConversationId, run: RunId) -> list[Response]:
        """Return the responses of a run in the order in which they began."""

    async def response_of_key(
        self, scope: str, key: str, now_ms: int
    ) -> tuple[Response, Digest] | None:
        """Return what was begun under a start key and the digest of its body, if anything was."""

    async def unstored(self) -> list[Response]:
        """Return the responses that are not to be stored and whose conversation still is."""

    async def operations(self, conversation: ConversationId, run: RunId) -> list[OperationId]:
        """Return the run's operations in the order they were prepared."""

    async def questions(self, conversation: ConversationId, run: RunId) -> list[OperationId]:
        """Return what was asked beside the run's turns, in the order it was prepared."""

    async def manifest(self, operation: OperationId) -> tuple[Manifest, Digest]:
        """Return a manifest and the digest recorded with it. Raises `NotFound`."""

    async def attempts(self, operation: OperationId) -> list[Attempt]:
        """Return the operation's attempts, first to last."""

    async def attempts_in(self, states: Iterable[State]) -> list[Attempt]:
        """Return the attempts of all conversations that stand in one of `states`."""

    async def calls(
        self, conversation: ConversationId, run: RunId, message: MessageId | None = None
    ) -> list[Call]:
        """Return ledger rows of a run, or of one of its messages, in the calls' order."""

    async def content(self, tenant: TenantId, digest: Digest) -> bytes:
        """Return stored content. Raises `NotFound`."""

    async def contents(self, tenant: TenantId, digests: Sequence[Digest]) -> dict[Digest, bytes]:
        """Return what is stored under those of `digests` that there is anything under."""

    async def stored(self, tenant: TenantId, digests: Sequence[Digest]) -> frozenset[Digest]:
        """Return those of `digests` under which there is content."""

    async def events(
        self, conversation: ConversationId, after: int, limit: int = 1000
    ) -> list[StoredEvent]:
        """Return durable events with a number above `after`."""

    def events_at_hand(self, conversation: ConversationId, after: int) -> list[StoredEvent] | None:
        """Return all of them without waiting, or None where the database has to be asked."""

    async def quarantine(self, conversation: ConversationId) -> list[Quarantined]:
        """Return what was put aside, oldest first."""

    async def quarantined(self) -> dict[str, int]:
        """Return how much was put aside in all conversations, by reason."""

    async def examined(self) -> list[Check]:
        """Return what an examination of all that is stored has found. Slow: it reads everything."""

    @property
    def knowledge(self) -> KnowledgeStore:
        """What is kept for tenants beside their conversations."""

    async def close(self) -> None:
        """Finish what was queued, then let go of the database."""
