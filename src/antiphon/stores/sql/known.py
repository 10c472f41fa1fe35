"""What a writer knows of the conversations it works on, so that it need not ask again.

While no other connection changes these rows, what the writer has read or written stays true until
it changes it itself: in a file always, and in a shared database while the conversation is locked.
`Transaction` is the only one that writes here, in the same step in which it writes the table. Where
a request is undone, its conversations are forgotten whole, and read anew when they are needed.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from antiphon.core.commands import Fence
from antiphon.core.ids import (
    CallId,
    ConversationId,
    Digest,
    MessageId,
    OperationId,
    RunId,
    TenantId,
)
from antiphon.stores.sql.call_rows import CallRow
from antiphon.stores.sql.places import span
from antiphon.stores.sql.rows import AttemptRow, ConversationRow, RunRow

CONVERSATIONS: Final = 1024
NODES: Final = 32
CONTENTS: Final = 64
"""How many conversations are known, and of each the newest nodes and the names of contents."""


NUMBERED: Final = ("response", "run", "message", "manifest", "call", "quarantine")
"""The tables whose rows are numbered within their conversation, beside its sessions and events."""


class Node(NamedTuple):
    """What a child needs to know of its parent."""

    place: int
    depth: int
    path_digest: Digest
    session: int


class Known:
    """One conversation's rows that are at work; None where they have not been asked for."""

    __slots__ = (
        "attempts",
        "calls",
        "contents",
        "deletions",
        "inputs",
        "last",
        "nodes",
        "row",
        "runs",
    )

    def __init__(self, row: ConversationRow) -> None:
        self.row = row
        self.runs: dict[RunId, RunRow] | None = None
        """The runs that have not ended: all of them."""
        self.inputs: dict[int, bytes | None] = {}
        """The inputs that wait in open runs, by the places of these."""
        self.attempts: dict[OperationId, AttemptRow] = {}
        """The newest attempts of operations that are not finished."""
        self.calls: dict[RunId, dict[CallId, CallRow]] = {}
        """The whole ledger of a run, oldest first."""
        self.contents: set[Digest] = set()
        """Content that is stored and noted to be needed here, so that it stays: some of it."""
        self.deletions: frozenset[MessageId] | None = None
        self.nodes: OrderedDict[MessageId, Node] = OrderedDict()
        self.last: dict[str, int] = {}
        """The place of the newest row in a table."""


class Knowledge:
    """All that the writer knows."""

    def __init__(self) -> None:
        self.keys: dict[TenantId, bytes] = {}
        self.fence: Fence | None = None
        """The fence under which this process works, while nobody else can have made it stale."""
        self._known: OrderedDict[int, Known] = OrderedDict()
        self._numbers: dict[ConversationId, int] = {}

    def of(self, conversation: ConversationId) -> Known | None:
        """Return what is known of a conversation, which is needed now."""
        number = self._numbers.get(conversation)
        if number is None:
            return None
        self._known.move_to_end(number)
        return self._known[number]

    def at(self, number: int) -> Known | None:
        """Return what is known of the conversation of this number."""
        return self._known.get(number)

    def learn(self, row: ConversationRow) -> Known:
        """Begin to know a conversation."""
        known = self._known[row.number] = Known(row)
        self._numbers[row.id] = row.number
        return known

    def born(self, row: ConversationRow) -> Known:
        """Begin to know a conversation that was inserted just now, with its first session."""
        known = self.learn(row)
        known.runs, known.deletions = {}, frozenset()
        known.last = dict.fromkeys(NUMBERED, span(row.number)[0])
        known.last["session"] = row.session
        return known

    def adopt(self, known: Known) -> None:
        """Know what was known before, and is as true as it was."""
        self._known[known.row.number] = known
        self._numbers[known.row.id] = known.row.number

    def forget(self, number: int) -> None:
        """Know nothing of this conversation any more."""
        known = self._known.pop(number, None)
        if known is not None:
            del self._numbers[known.row.id]

    def trim(self) -> None:
        """Forget what has not been needed for longest; between transactions only."""
        while len(self._known) > CONVERSATIONS:
            self.forget(next(iter(self._known)))

    def clear(self) -> None:
        """Forget everything."""
        self.keys.clear()
        self.fence = None
        self._known.clear()
        self._numbers.clear()
