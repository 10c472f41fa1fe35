"""What the newest transactions left: the rows that the next question is most likely about.

Only the writer changes rows, and it reads them once more before it commits. Until the next
transaction about the same conversation nothing else can be true of it, so these questions
need neither a thread nor the file. A reader's answer is never kept: it may be older than the
commit that has just been told.

It holds what is at work, not what there is. A question that it cannot answer is a question
for the readers.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from antiphon.core.blocks import Message, Status
from antiphon.core.ids import ConversationId, MessageId, RunId
from antiphon.core.records import Call, Conversation, Run, RunStatus, StoredEvent
from antiphon.stores.sql.commands.runs import waiting_input
from antiphon.stores.sql.transaction import Erased, Settled, Transaction

CONVERSATIONS: Final = 1024
NEWEST: Final = 64
"""How many conversations are held, and the newest messages and events of each. None are held
where other processes write too: what was true here may not be true any more."""


class Standing(NamedTuple):
    """A conversation as one transaction left it, with its open runs.

    `calls` are the ledger rows of each open run, `inputs` those that still wait in theirs.
    """

    conversation: Conversation
    runs: tuple[Run, ...]
    calls: Mapping[RunId, tuple[Call, ...]]
    inputs: Mapping[RunId, Message]


def standing(tx: Transaction, conversation: ConversationId) -> Standing | None:
    """Read how a conversation stands; None where there is none with this id."""
    row = tx.find_conversation(conversation)
    if row is None:
        return None
    runs = tx.open_runs(row)
    calls = {run.id: tx.calls_of_run(row, run) if run.committed else () for run in runs}
    inputs = {run.id: waiting_input(tx, run) for run in runs if run.status == RunStatus.QUEUED}
    return Standing(
        row.record(tx.deletions(row.number)),
        tuple(run.record(conversation) for run in runs),
        {run: tuple(row.call for row in rows) for run, rows in calls.items()},
        {run: message for run, message in inputs.items() if message is not None},
    )


class News(NamedTuple):
    """What one transaction has changed, for those on the event loop who follow it."""

    events: Sequence[StoredEvent] = ()
    messages: Sequence[Message | Settled | Erased] = ()
    standings: Mapping[ConversationId, Standing | None] = MappingProxyType({})


def news_of(tx: Transaction) -> News:
    """Return what a transaction that is about to be committed has changed."""
    standings = {conversation: standing(tx, conversation) for conversation in tx.touched}
    return News(tx.events, tx.messages, standings)


class _Held:
    """One conversation: how it stands, its newest messages by their ids, its newest events."""

    __slots__ = ("events", "messages", "standing")

    def __init__(self) -> None:
        self.standing: Standing | None = None
        self.messages: OrderedDict[MessageId, Message] = OrderedDict()
        self.events: deque[StoredEvent] = deque(maxlen=NEWEST)


class Recent:
    """Answers from memory what the newest transactions have shown. Lives on the event loop."""

    def __init__(self, conversations: int = CONVERSATIONS) -> None:
        self._conversations = conversations
        self._held: OrderedDict[ConversationId, _Held] = OrderedDict()

    def take(self, news: News) -> None:
        """Learn what a transaction has left, once it is durable."""
        for change in news.messages:
            if change.conversation is None:
                continue  # files and texts are not held here
            messages = self._of(change.conversation).messages
            if isinstance(change, Message):
                messages[change.id] = change
                if len(messages) > NEWEST:
                    messages.popitem(last=False)
            elif isinstance(change, Erased):
                messages.clear()
            elif (old := messages.get(change.message)) and old.status is Status.PENDING:
                messages[change.message] = msgspec.structs.replace(
                    old, status=change.status, error_code=change.error_code
                )
        for event in news.events:
            self._of(event.conversation).events.append(event)
        for conversation, new in news.standings.items():
            if new is None:  # a repeated start took its empty conversation away again
                self._held.pop(conversation, None)
            else:
                self._of(conversation).standing = new
                self._held.move_to_end(conversation)
        while len(self._held) > self._conversations:
            self._held.popitem(last=False)

    def _of(self, conversation: ConversationId) -> _Held:
        held = self._held.get(conversation)
        if held is None:
            held = self._held[conversation] = _Held()
        return held

    def standing(self, conversation: ConversationId) -> Standing | None:
        """Return how a conversation stands, or None where that is not known here."""
        held = self._held.get(conversation)
        return None if held is None else held.standing

    def run(self, conversation: ConversationId, run: RunId) -> Run | None:
        """Return a run that is open, or None."""
        known = self.standing(conversation)
        return known and next((row for row in known.runs if row.id == run), None)

    def calls(
        self, conversation: ConversationId, run: RunId, message: MessageId | None
    ) -> list[Call] | None:
        """Return the ledger rows of an open run, or of one of its messages, or None."""
        known = self.standing(conversation)
        if known is None or run not in known.calls:
            return None
        calls = known.calls[run]
        if message is None:
            return list(calls)
        return [call for call in calls if call.message == message]

    def input(self, conversation: ConversationId, run: RunId) -> Message | None:
        """Return the input of an open run, whether it waits or stands in the tree, or None."""
        known, row = self.standing(conversation), self.run(conversation, run)
        if known is None or row is None or row.input is None:
            return None
        return known.inputs.get(run) or self.message(conversation, row.input)

    def events(self, conversation: ConversationId, after: int) -> list[StoredEvent] | None:
        """Return the events after number `after`, or None where they reach further back."""
        held = self._held.get(conversation)
        if held is None or not held.events or held.events[0].seq > after + 1:
            return None
        return [event for event in held.events if event.seq > after]

    def message(self, conversation: ConversationId, message: MessageId) -> Message | None:
        """Return a message, or None where it is not held."""
        held = self._held.get(conversation)
        return None if held is None else held.messages.get(message)

    def path(
        self,
        conversation: ConversationId,
        leaf: MessageId,
        until: MessageId | None,
        limit: int | None,
    ) -> list[Message] | None:
        """Return the line that ends in `leaf`, or None where a part of it is not held."""
        held = self._held.get(conversation)
        if held is None or leaf not in held.messages:
            return None
        line: list[Message] = []
        at: MessageId | None = leaf
        while at is not None and at != until and (limit is None or len(line) < limit):
            message = held.messages.get(at)
            if message is None:
                return None
            line.append(message)
            at = message.parent
        line.reverse()
        return line
