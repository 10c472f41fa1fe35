"""A queue that serves whoever waits in turn, so that nobody who asks much keeps others waiting."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Tickets of several parties: each party's in their order, the parties by turns.

    Example:
        >>> queue = FairQueue[int]()
        >>> for party, ticket in [("a", 1), ("a", 2), ("a", 3), ("b", 4)]:
        ...     queue.push(party, ticket)
        >>> [queue.pop() for _ in range(4)]
        [1, 4, 2, 3]
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def of(self, party: str) -> int:
        """Return how many tickets of this party wait."""
        return len(self._waiting.get(party, ()))

    def push(self, party: str, ticket: T) -> None:
        """Let a ticket wait; a party that had none waits behind the others."""
        self._waiting.setdefault(party, deque()).append(ticket)

    def pop(self) -> T:
        """Return the next ticket; its party's turn comes again behind the others'.

        Raises:
            IndexError: Nobody waits.
        """
        if not self._waiting:
            raise IndexError("Nobody waits.")
        party, tickets = next(iter(self._waiting.items()))
        ticket = tickets.popleft()
        del self._waiting[party]
        if tickets:
            self._waiting[party] = tickets
        return ticket

    def drop(self, party: str, ticket: T) -> None:
        """Let a ticket wait no longer, if it still does."""
        tickets = self._waiting.get(party)
        if tickets is None or ticket not in tickets:
            return
        tickets.remove(ticket)
        if not tickets:
            del self._waiting[party]
