"""Warm lines: the rendered, validated history of a conversation's active leaf.

A turn in a conversation of any length costs what its new messages cost. The line of the last
dispatch is kept; the next one is usually the same line and a few messages more. If it is not
(another branch, a deletion, another model, another part of the path), the line is made anew from
the store. What the last dispatch on the path was planned by goes on: its beginning is kept, and
what it had weighed is not weighed again. What a checkpoint stands for, or was left out to fit, is
not read again either: of it only is known what has to be said of it.
"""

from __future__ import annotations

import collections
from collections import OrderedDict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from antiphon.adapters.base import Adapter, RenderedLine, Rendering
from antiphon.adapters.tool_names import ToolNames
from antiphon.core.blocks import Message, Role, Status
from antiphon.core.ids import ConversationId, Digest, MessageId
from antiphon.core.inputs import InputBlock, Summary
from antiphon.core.listing import Listed
from antiphon.core.manifest import Manifest, Policy, ToolDeclaration, decode_policy
from antiphon.core.manifest import Mapping as Mapped
from antiphon.core.planning.tokens import PROVIDER, Counter
from antiphon.core.planning.trace import WHOLE, PromptTrace, Reason, Selection, decode_trace
from antiphon.core.planning.trimming import INSTRUCTING, chosen
from antiphon.core.records import Conversation
from antiphon.core.tree import line as visible
from antiphon.engine.dispatch.beside import checkpoint_beside, inputs_beside
from antiphon.engine.vocabularies import counter_of
from antiphon.errors import NotFound, SequenceRejected
from antiphon.stores.base import Store

WARM_LINES: Final = 256

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


NOTHING: Final = Earlier()


@dataclass(slots=True, kw_only=True)
class Warm:
    """A line, how far it goes, and what is known about it.

    `said` counts its messages and `told` those of them that instruct; `dynamic` is what stands
    beside them. `last` is the dispatch that was made on it before, or on the path that it was made
    from.
    """

    line: RenderedLine
    leaf: MessageId
    deletions: frozenset[MessageId]
    adapter: Digest
    policy: Digest
    toolset: Digest
    selection: Selection = WHOLE
    pending: Message | None = None
    said: int = 0
    told: int = 0
    dynamic: list[InputBlock] = field(default_factory=list)
    dynamic_tokens: int = 0
    dynamic_counted: int = 0
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
        return self.dynamic_tokens

    def extend(self, path: Sequence[Message], beside: Beside) -> None:
        """Take what comes next on the path, without what no model may see."""
        self.skip(path)
        for message in visible(path, self.deletions):
            self.feed(message, beside.get(message.id, ()))

    def skip(self, path: Sequence[Message]) -> None:
        """Count what of `path` no model may see; its end may be an input that is still to be said."""
        self.skipped += _unseen(path, self.deletions, leaf=path[-1].id)

    def feed(self, message: Message, inputs: Sequence[InputBlock] = ()) -> None:
        """Take the next message, and what stands beside it."""
        self.line.feed(message, inputs=inputs)
        self.dynamic += [block for block in inputs if not isinstance(block, Summary)]
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


def _may_follow(pending: Message | None, message: Message) -> bool:
    """Whether `message` may follow on a line that ended in `pending` when it was fed.

    An input that was pending then is committed by now; the line believes that only of the answer
    of the input's own run, and another answer (regenerated) has another run.
    """
    return pending is None or (message.role is Role.ASSISTANT and message.run == pending.run)


class LineCache:
    """Keeps the newest line of each of the conversations used last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._warm: OrderedDict[ConversationId, Warm] = OrderedDict()

    async def line(
        self,
        conversation: Conversation,
        leaf: MessageId,
        *,
        adapter: Adapter,
        policy: Policy,
        tools: Sequence[ToolDeclaration],
        policy_digest: Digest,
        toolset_digest: Digest,
        key: bytes,
        entering: Message | None = None,
        inputs: tuple[InputBlock, ...] = (),
        goes_on: bool = False,
        selection: Selection | None = None,
    ) -> Warm:
        """Return the rendered line that ends in `leaf`, ready to be finished.

        The caller must not feed it: it is shared with the next dispatch. `entering` is a leaf
        that is about to be stored, with the `inputs` beside it; where it then is not, the caller
        forgets the line. Where it `goes_on`, in a copy, the leaf is fed as it stands now, not as
        it stood when it was sent. `selection` is the part of the path that it is made of; by
        default that of the last dispatch on it.
        """
        warm = self._warm.get(conversation.id)
        last = warm.last if warm is not None else None
        if (
            warm is not None
            and warm.adapter == adapter.digest
            and warm.policy == policy_digest
            and warm.toolset == toolset_digest
            and warm.deletions == conversation.deletions
            and selection in (None, warm.selection)
        ):
            self._warm.move_to_end(conversation.id)
            if warm.leaf == leaf and not (goes_on and warm.pending):
                return warm
            new, beside = await self._read(conversation, leaf, entering, inputs, until=warm.leaf)
            if new and new[0].parent == warm.leaf and _may_follow(warm.pending, new[0]):
                warm.extend(new, beside)
                warm.leaf = leaf
                return warm
        if selection is None and last is not None:
            selection = last.trace.selection
        earlier, part = await self._part(conversation, leaf, entering, warm, selection)
        path = [*earlier.told, *visible(part, conversation.deletions)]
        last = last or await last_planned(self._store, conversation, path)
        begun = Warm(
            line=adapter.line(policy, tools, key=key, conversation=conversation.id),
            leaf=leaf,
            deletions=conversation.deletions,
            adapter=adapter.digest,
            policy=policy_digest,
            toolset=toolset_digest,
            skipped=collections.Counter(earlier.skipped),
            last=last,
        )
        if selection is None:
            selection = last.trace.selection if last is not None else WHOLE
        sent = chosen(path, selection.start)
        if any(message.id == selection.start for message in path):  # it may have been deleted
            begun.earlier = earlier.and_of(part, selection.start, conversation.deletions)
        beside = await self._beside(conversation, sent, entering, inputs)
        older = await checkpoint_beside(
            self._store, conversation.tenant, conversation.id, selection
        )
        for message, inputs_of in older.items():
            beside = {**beside, message: (*inputs_of, *beside.get(message, ()))}
        begun.skip(part)
        if begun.earlier.gone:
            begun.selection = selection
        self._begin(begun, sent, beside, adapter, policy)
        self._keep(conversation.id, begun)
        return begun

    def _begin(
        self,
        warm: Warm,
        sent: Sequence[Message],
        beside: Beside,
        adapter: Adapter,
        policy: Policy,
    ) -> None:
        """Feed a line that is empty with what of its path is sent."""
        last = warm.last
        again = (
            last is not None
            and last.manifest.adapter_digest == adapter.digest
            and (last.manifest.policy_digest, last.manifest.toolset_digest)
            == (warm.policy, warm.toolset)
            and last.trace.selection == warm.selection
        )
        for message in sent:
            warm.feed(message, beside.get(message.id, ()))
            if again and last is not None and message.id == last.manifest.base_leaf:
                warm.last = _resumed(warm, last, policy)

    def keep(
        self,
        conversation: Conversation,
        line: RenderedLine,
        leaf: MessageId,
        *,
        adapter: Digest,
        policy_digest: Digest,
        toolset_digest: Digest,
        said: Sequence[Message] = (),
    ) -> None:
        """Take over a line that somebody else rendered, of committed messages up to `leaf`.

        The caller must not feed it any more.
        """
        self._keep(
            conversation.id,
            Warm(
                line=line,
                leaf=leaf,
                deletions=conversation.deletions,
                adapter=adapter,
                policy=policy_digest,
                toolset=toolset_digest,
                said=len(said),
                told=sum(message.role in INSTRUCTING for message in said),
            ),
        )

    def _keep(self, conversation: ConversationId, warm: Warm) -> None:
        self._warm[conversation] = warm
        self._warm.move_to_end(conversation)
        while len(self._warm) > WARM_LINES:
            self._warm.popitem(last=False)

    async def _path(
        self,
        conversation: ConversationId,
        leaf: MessageId,
        entering: Message | None,
        *,
        until: MessageId | None = None,
    ) -> list[Message]:
        if entering is None:
            return await self._store.path(conversation, leaf, until=until)
        if entering.parent is None or entering.parent == until:
            return [entering]
        return [*await self._store.path(conversation, entering.parent, until=until), entering]

    async def _read(
        self,
        conversation: Conversation,
        leaf: MessageId,
        entering: Message | None,
        inputs: tuple[InputBlock, ...],
        *,
        until: MessageId | None = None,
    ) -> tuple[list[Message], Beside]:
        """Return the path to `leaf`, and what stands beside the messages of it."""
        path = await self._path(conversation.id, leaf, entering, until=until)
        return path, await self._beside(conversation, path, entering, inputs)

    async def _beside(
        self,
        conversation: Conversation,
        messages: Iterable[Message],
        entering: Message | None,
        inputs: tuple[InputBlock, ...],
    ) -> Beside:
        stored = [message for message in messages if message is not entering]
        beside = await inputs_beside(self._store, conversation.tenant, stored)
        return {**beside, entering.id: inputs} if entering and inputs else beside

    async def _part(
        self,
        conversation: Conversation,
        leaf: MessageId,
        entering: Message | None,
        warm: Warm | None,
        selection: Selection | None,
    ) -> tuple[Earlier, list[Message]]:
        """Return the path to `leaf` from what `warm` knows of its beginning on, or all of it.

        All of it where it leads elsewhere, or where what is selected begins before that.
        """
        if warm is not None and warm.earlier.at and warm.deletions == conversation.deletions:
            earlier, start = warm.earlier, selection.start if selection is not None else None
            part = await self._path(conversation.id, leaf, entering, until=earlier.at)
            follows = bool(part) and part[0].parent == earlier.at
            if follows and any(message.id == start for message in part):
                return earlier, part
        return NOTHING, await self._path(conversation.id, leaf, entering)

    async def sent(
        self, conversation: Conversation, leaf: MessageId, entering: Message | None
    ) -> tuple[list[Message], Selection]:
        """Return what is sent of the line that ends in `leaf`, and what it was selected by."""
        warm = self._warm.get(conversation.id)
        selection = warm.selection if warm is not None else WHOLE
        earlier, part = await self._part(conversation, leaf, entering, warm, selection)
        path = [*earlier.told, *visible(part, conversation.deletions)]
        return chosen(path, selection.start), selection

    def call_ids(self, conversation: ConversationId) -> Container[str]:
        """Return the ids of the calls on the conversation's newest line."""
        warm = self._warm.get(conversation)
        return warm.line.call_ids if warm is not None else ()

    def tool_names(self, conversation: ConversationId) -> ToolNames | None:
        """Return how the tools of the conversation's newest line are named, if it is here."""
        warm = self._warm.get(conversation)
        return warm.line.tool_names if warm is not None else None

    def stop_compacting(self, conversation: ConversationId) -> None:
        """Remember that nothing of the conversation's line can be compacted as it stands."""
        warm = self._warm.get(conversation)
        if warm is not None:
            warm.stopped_at = warm.said

    def last(self, conversation: ConversationId) -> Planned | None:
        """Return the last dispatch on the conversation's newest line, if that is here."""
        warm = self._warm.get(conversation)
        return warm.last if warm is not None else None

    def forget(self, conversation: ConversationId) -> None:
        """Drop the conversation's line: the next dispatch makes it anew."""
        self._warm.pop(conversation, None)


async def last_planned(
    store: Store, conversation: Conversation, path: Sequence[Message]
) -> Planned | None:
    """Return the newest dispatch on a path that has a plan: that of its newest answer."""
    on_path = {message.id for message in path}
    asked = next((m.run for m in reversed(path) if m.role is Role.ASSISTANT and m.run), None)
    if asked is None:
        return None
    for operation in reversed(await store.operations(conversation.id, asked)):
        manifest, _ = await store.manifest(operation)
        if manifest.base_leaf in on_path and manifest.plan_digest:
            try:
                stored = await store.content(conversation.tenant, manifest.plan_digest)
                policy = await store.content(conversation.tenant, manifest.policy_digest)
            except NotFound:
                return None
            return Planned(
                manifest=manifest,
                trace=decode_trace(stored),
                policy=decode_policy(policy),
                deletions=await store.deletions_at(conversation.id, manifest.conversation_revision),
            )
    return None


def _resumed(warm: Warm, last: Planned, policy: Policy) -> Planned:
    """Take over what was weighed, where the line stands as it stood for the last dispatch."""
    try:
        made = warm.line.finish()
    except SequenceRejected:
        return last  # its last message was pending then, and did not become what it was to be
    if made.request_digest != last.manifest.request_digest:
        return last
    counter = counter_of(policy.model)
    if last.trace.counted_by in (counter.name, PROVIDER):
        made.closed.body.believe(counter, last.trace.sealed)
    return replace(last, rendering=made)
