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
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from antiphon.adapters.base import Adapter, RenderedLine
from antiphon.adapters.naming.tool_names import ToolNames
from antiphon.core.blocks import Message, Role
from antiphon.core.ids import ConversationId, Digest, MessageId
from antiphon.core.inputs import InputBlock
from antiphon.core.manifest import Policy, ToolDeclaration, decode_policy
from antiphon.core.planning.tokens import PROVIDER
from antiphon.core.planning.trace import WHOLE, Selection, decode_trace
from antiphon.core.planning.trimming import INSTRUCTING, chosen
from antiphon.core.records import Conversation
from antiphon.core.tree import line as visible
from antiphon.engine.catalogue.vocabularies import counter_of
from antiphon.engine.dispatch.beside import checkpoint_beside, inputs_beside
from antiphon.engine.dispatch.stretches import LineStretch, read_stretches
from antiphon.engine.dispatch.warm import NOTHING, Beside, Earlier, Planned, Warm
from antiphon.errors import NotFound, SequenceRejected
from antiphon.stores.base import Store

WARM_LINES: Final = 256

NEWEST: Final = 16
"""So many messages before a leaf are looked through for the last dispatch, before all are read."""


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

        def empty(last: Planned | None) -> Warm:
            return Warm(
                line=adapter.line(policy, tools, key=key, conversation=conversation.id),
                leaf=leaf,
                deletions=conversation.deletions,
                adapter=adapter.digest,
                policy=policy_digest,
                toolset=toolset_digest,
                last=last,
            )

        begun = None
        if warm is None:
            last = await self._newest_planned(conversation, leaf, entering)
            if last is not None and selection in (None, last.trace.selection):
                begun = await self._gone_on(
                    empty(last), leaf, last, policy, conversation, entering, inputs, key
                )
        if begun is None:
            begun = await self._read_anew(
                empty(last), leaf, policy, conversation, entering, inputs, warm, selection
            )
        self._keep(conversation.id, begun)
        return begun

    async def _newest_planned(
        self, conversation: Conversation, leaf: MessageId, entering: Message | None
    ) -> Planned | None:
        """Return the last dispatch on the path to `leaf`, if it is among what is newest there."""
        newest = await self._path(conversation.id, leaf, entering, limit=NEWEST)
        return await last_planned(
            self._store, conversation, visible(newest, conversation.deletions)
        )

    async def _gone_on(
        self,
        begun: Warm,
        leaf: MessageId,
        last: Planned,
        policy: Policy,
        conversation: Conversation,
        entering: Message | None,
        inputs: tuple[InputBlock, ...],
        key: bytes,
    ) -> Warm | None:
        """Let an empty line go on from what is stored of the `last` one as it was rendered.

        None where that is not to be had, or where it does not come to what was sent then.
        """
        begun.selection = last.trace.selection
        if last.trace.stretch is None or not _made_alike(begun, last):
            return None
        names, stretches = await read_stretches(
            self._store, conversation.tenant, key, last.trace.stretch, begun.bound_to(key)
        )
        if not stretches:
            return None
        newest = stretches[-1]
        path = await self._path(conversation.id, leaf, entering, until=newest.at)
        ended = await self._store.message(conversation.id, newest.at)
        begun.resume(names, stretches, ended)
        begun.earlier = await self._before(conversation.id, newest)
        beside = await self._beside(conversation, path, entering, inputs)
        self._extend(begun, path, beside, policy)
        return begun if begun.last is not None and begun.last.rendering is not None else None

    async def _before(self, conversation: ConversationId, stretch: LineStretch) -> Earlier:
        before = stretch.before
        told = [await self._store.message(conversation, message) for message in before.told]
        return Earlier(
            at=before.at,
            told=tuple(told),
            gone=before.gone,
            first=before.first,
            last=before.last,
            skipped=before.skipped,
        )

    async def _read_anew(
        self,
        begun: Warm,
        leaf: MessageId,
        policy: Policy,
        conversation: Conversation,
        entering: Message | None,
        inputs: tuple[InputBlock, ...],
        warm: Warm | None,
        selection: Selection | None,
    ) -> Warm:
        """Feed an empty line with what of its path is to be sent, read from the store."""
        earlier, part = await self._part(conversation, leaf, entering, warm, selection)
        path = [*earlier.told, *visible(part, begun.deletions)]
        begun.last = last = begun.last or await last_planned(self._store, conversation, path)
        if selection is None:
            selection = last.trace.selection if last is not None else WHOLE
        sent = chosen(path, selection.start)
        if any(message.id == selection.start for message in path):  # it may have been deleted
            begun.earlier = earlier.and_of(part, selection.start, begun.deletions)
            part = [*_from(part, selection.start)]
        beside = await self._beside(conversation, sent, entering, inputs)
        older = await checkpoint_beside(
            self._store, conversation.tenant, conversation.id, selection
        )
        for message, inputs_of in older.items():
            beside = {**beside, message: (*inputs_of, *beside.get(message, ()))}
        if begun.earlier.gone:
            begun.selection = selection
        begun.skipped = collections.Counter(begun.earlier.skipped)
        for instruction in begun.earlier.told:
            begun.feed(instruction, beside.get(instruction.id, ()))
        self._extend(begun, part, beside, policy)
        return begun

    def _extend(self, begun: Warm, path: Sequence[Message], beside: Beside, policy: Policy) -> None:
        """Feed a line with `path`, and take over what is known where its last dispatch was made."""
        last = begun.last
        again = last is not None and _made_alike(begun, last)
        for message in begun.extending(path, beside):
            if again and last is not None and message.id == last.manifest.base_leaf:
                begun.last = _resumed(begun, last, policy)

    def keep(
        self,
        conversation: Conversation,
        line: RenderedLine,
        leaf: MessageId | None,
        *,
        adapter: Digest,
        policy_digest: Digest,
        toolset_digest: Digest,
        said: Sequence[Message] = (),
    ) -> None:
        """Take over a line that somebody else rendered, of committed messages up to `leaf`, if any.

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
        limit: int | None = None,
    ) -> list[Message]:
        read = partial(self._store.path, conversation, until=until, limit=limit)
        if entering is None:
            return await read(leaf)
        if entering.parent is None or entering.parent == until:
            return [entering]
        return [*await read(entering.parent), entering]

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


def _made_alike(warm: Warm, last: Planned) -> bool:
    """Whether a line is made as that of the `last` dispatch was, as far as that goes."""
    manifest = last.manifest
    return (
        manifest.adapter_digest == warm.adapter
        and (manifest.policy_digest, manifest.toolset_digest) == (warm.policy, warm.toolset)
        and last.trace.selection == warm.selection
    )


def _from(path: Sequence[Message], start: MessageId | None) -> Sequence[Message]:
    """Return what of `path` begins with `start`."""
    return path[next((n for n, message in enumerate(path) if message.id == start), 0) :]


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
