"""A line that is kept warm: rendered and checked as far as it goes, and what is known about it."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final, TypeAlias

import msgspec

from antiphon.adapters.base import RenderedLine, Rendering, Rested
from antiphon.core.blocks import Message, Role, Status
from antiphon.core.digests import digest
from antiphon.core.ids import Digest, MessageId
from antiphon.core.inputs import InputBlock, Summary
from antiphon.core.listing import Listed
from antiphon.core.manifest import Manifest, Policy
from antiphon.core.manifest import Mapping as Mapped
from antiphon.core.planning.tokens import Counter
from antiphon.core.planning.trace import WHOLE, PromptTrace, Reason, Selection
from antiphon.core.planning.trimming import INSTRUCTING
from antiphon.core.tree import line as visible
from antiphon.engine.dispatch.stretches import STRETCH_BYTES, Before, LineStretch
from antiphon.version import __version__

Beside: TypeAlias = Mapping[MessageId, tuple[InputBlock, ...]]
"""What stands beside messages, by their ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A dispatch that was made on a line: what it was made of and, where that is here, its request."""

    manifest: Manifest
    trace: PromptTrace
    policy: Policy
    deletions: frozenset[MessageId]
    rendering: Rendering | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What stands on a path before the part of it that is sent, as far as anybody asks.

    Attributes:
        at: The message that the part follows; None where nothing is before it.
        told: The instructions among what is before, which are sent whatever is cut.
        gone: How many of the others are left out, from `first` to `last`.
        skipped: What of it no model may see.
    """

    at: MessageId | None = None
    told: tuple[Message, ...] = ()
    gone: int = 0
    first: MessageId | None = None
    last: MessageId | None = None
    skipped: Mapping[Reason, int] = field(default_factory=dict)

    def and_of(
        self, part: Sequence[Message], start: MessageId | None, deletions: frozenset[MessageId]
    ) -> Earlier:
        """Return what stands before `start`, which is on the path in `part`, right after this."""
        cut = next((n for n, message in enumerate(part) if message.id == start), 0)
        if not cut:
            return self
        shown = visible(part[:cut], deletions)
        gone = [message.id for message in shown if message.role not in INSTRUCTING]
        return Earlier(
            at=part[cut - 1].id,
            told=(*self.told, *(m for m in shown if m.role in INSTRUCTING)),
            gone=self.gone + len(gone),
            first=self.first or next(iter(gone), None),
            last=gone[-1] if gone else self.last,
            skipped=collections.Counter(self.skipped) + _unseen(part[:cut], deletions),
        )

    def as_stored(self) -> Before:
        """Return it as a stretch keeps it."""
        return Before(
            at=self.at,
            told=tuple(message.id for message in self.told),
            gone=self.gone,
            first=self.first,
            last=self.last,
            skipped=dict(self.skipped),
        )


NOTHING: Final = Earlier()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Where a line rested, what it told there, and how much stood on it and `beside` it."""

    at: MessageId
    rested: Rested
    said: int
    told: int
    skipped: dict[Reason, int]
    beside: int


@dataclass(slots=True, kw_only=True)
class Warm:
    """A line, how far it goes, and what is known about it.

    `said` counts its messages and `told` those of them that instruct; `dynamic` is what stands
    beside them. `last` is the dispatch that was made on it before, or on the path that it was made
    from. `stretches` are the names of what of it is stored as it was rendered, and `unstored` is
    what is to be.
    """

    line: RenderedLine
    leaf: MessageId | None  # None before anything stands on it
    deletions: frozenset[MessageId]
    adapter: Digest
    policy: Digest
    toolset: Digest
    selection: Selection = WHOLE
    pending: Message | None = None
    newest: MessageId | None = None  # the last of its messages
    said: int = 0
    told: int = 0
    dynamic: list[InputBlock] = field(default_factory=list)
    dynamic_tokens: int = 0
    dynamic_counted: int = 0
    sources_before: int = 0  # how many stand beside what was read as it was rendered
    tokens_before: int = 0
    stretches: tuple[Digest, ...] = ()
    unstored: list[Rest] = field(default_factory=list)
    earlier: Earlier = NOTHING
    stopped_at: int = 0  # how long it was when nothing of it could be compacted
    skipped: collections.Counter[Reason] = field(default_factory=collections.Counter)
    listed: Listed | None = None  # how far its mappings are stored, once that is known
    behind: tuple[Mapped, ...] = ()  # what stands in that list before those of the line
    last: Planned | None = None

    def dynamic_context(self, counter: Counter) -> int:
        """Return what stands beside its messages, in tokens; what was counted stays counted."""
        new = [block.text for block in self.dynamic[self.dynamic_counted :]]
        self.dynamic_tokens += counter.count(new)
        self.dynamic_counted += len(new)
        return self.tokens_before + self.dynamic_tokens

    @property
    def sources(self) -> int:
        """How many blocks stand beside its messages."""
        return self.sources_before + len(self.dynamic)

    def extend(self, path: Sequence[Message], beside: Beside) -> None:
        """Take what comes next on the path, without what no model may see."""
        for _ in self.extending(path, beside):
            pass

    def extending(self, path: Sequence[Message], beside: Beside) -> Iterator[Message]:
        """Take what comes next on the path, and yield each message once it is taken."""
        ahead = iter(path)
        for message in visible(path, self.deletions):
            if message.role is Role.USER and self.newest is not None:
                self._rest(self.newest, message, ahead)
            self.feed(message, beside.get(message.id, ()))
            yield message
        # The end of the path may be an input that is still to be said.
        self.skipped += _unseen(ahead, self.deletions, leaf=path[-1].id)

    def _rest(self, at: MessageId, message: Message, ahead: Iterator[Message]) -> None:
        """Let the line tell of itself between `at` and `message`, where much has come since it did."""
        rested = self.line.rested(STRETCH_BYTES)
        if rested is None:
            return
        self.skipped += _unseen(takewhile(lambda m: m.id != message.id, ahead), self.deletions)
        self.unstored.append(
            Rest(
                at=at,
                rested=rested,
                said=self.said,
                told=self.told,
                skipped=dict(self.skipped),
                beside=len(self.dynamic),
            )
        )

    def bound_to(self, key: bytes) -> Digest:
        """Return the digest of all that decides what it is, beside its messages."""
        made_by = (__version__, self.adapter, self.policy, self.toolset)
        seen = (self.selection, sorted(self.deletions))
        return digest(key, "line", msgspec.json.encode((made_by, seen)))

    def to_store(self, key: bytes, counter: Counter) -> tuple[tuple[Digest, bytes], ...]:
        """Return name and stored form of what it has told of itself and is not stored yet."""
        found: list[tuple[Digest, bytes]] = []
        if self.unstored:
            bound, before = self.bound_to(key), self.earlier.as_stored()
            for rest in self.unstored:
                beside = counter.count([block.text for block in self.dynamic[: rest.beside]])
                stretch = LineStretch(
                    after=(*self.stretches, *(name for name, _ in found)),
                    bound=bound,
                    at=rest.at,
                    rested=rest.rested,
                    said=rest.said,
                    told=rest.told,
                    skipped=rest.skipped,
                    sources=self.sources_before + rest.beside,
                    beside_tokens=self.tokens_before + beside,
                    before=before,
                )
                found.append(stretch.stored(key))
        return tuple(found)

    def stored(self, names: Iterable[Digest]) -> None:
        """Note that what was to be stored is, by these names."""
        self.stretches = (*self.stretches, *names)
        self.unstored.clear()

    def resume(
        self, names: Iterable[Digest], stretches: Sequence[LineStretch], last: Message
    ) -> None:
        """Stand where these stretches end, in their `last` message; to be asked of a new one."""
        self.line.resume([stretch.rested for stretch in stretches], last)
        self.stretches, newest = tuple(names), stretches[-1]
        self.said, self.told, self.newest = newest.said, newest.told, last.id
        self.skipped = collections.Counter(newest.skipped)
        self.sources_before, self.tokens_before = newest.sources, newest.beside_tokens

    def feed(self, message: Message, inputs: Sequence[InputBlock] = ()) -> None:
        """Take the next message, and what stands beside it."""
        self.line.feed(message, inputs=inputs)
        self.dynamic += [block for block in inputs if not isinstance(block, Summary)]
        self.newest = message.id
        self.pending = message if message.status is Status.PENDING else None
        self.said += 1
        self.told += message.role in INSTRUCTING


def _unseen(
    path: Iterable[Message], deletions: frozenset[MessageId], leaf: MessageId | None = None
) -> collections.Counter[Reason]:
    found: collections.Counter[Reason] = collections.Counter()
    for message in path:
        if message.id in deletions:
            found[Reason.DELETION] += 1
        elif message.status is not Status.SUCCESS and message.id != leaf:
            found[Reason.STATUS] += 1
    return found
