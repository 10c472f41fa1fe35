"""Warm lines: the rendered, validated history of a conversation's active leaf.

A turn in a conversation of any length costs what its new messages cost. The line of the last
dispatch is kept; the next one is usually the same line and a few messages more. If it is not
(another branch, a deletion, another model), the line is made anew from the store.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from antiphon.adapters.base import Adapter, RenderedLine
from antiphon.adapters.tool_names import ToolNames
from antiphon.core.blocks import Message, Role, Status
from antiphon.core.ids import ConversationId, Digest, MessageId
from antiphon.core.inputs import InputBlock
from antiphon.core.listing import Listed
from antiphon.core.manifest import Mapping as Mapped
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.records import Conversation
from antiphon.core.tree import line as visible
from antiphon.engine.dispatch.beside import inputs_beside
from antiphon.stores.base import Store

WARM_LINES: Final = 256


@dataclass(slots=True)
class _Warm:
    line: RenderedLine
    leaf: MessageId
    pending: Message | None
    deletions: frozenset[MessageId]
    adapter: Digest
    policy: Digest
    toolset: Digest
    listed: Listed | None = None  # how far its mappings are stored, once that is known
    behind: tuple[Mapped, ...] = ()  # what stands in that list before those of the line


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
        self._warm: OrderedDict[ConversationId, _Warm] = OrderedDict()

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
    ) -> RenderedLine:
        """Return the rendered line that ends in `leaf`, ready to be finished.

        The caller must not feed it: it is shared with the next dispatch. `entering` is a leaf
        that is about to be stored, with the `inputs` beside it; where it then is not, the caller
        forgets the line. Where it `goes_on`, in a copy, the leaf is fed as it stands now, not as
        it stood when it was sent.
        """
        warm = self._warm.get(conversation.id)
        if (
            warm is not None
            and warm.adapter == adapter.digest
            and warm.policy == policy_digest
            and warm.toolset == toolset_digest
            and warm.deletions == conversation.deletions
        ):
            self._warm.move_to_end(conversation.id)
            if warm.leaf == leaf and not (goes_on and warm.pending):
                return warm.line
            new, beside = await self._read(conversation, leaf, entering, inputs, until=warm.leaf)
            if new and new[0].parent == warm.leaf and _may_follow(warm.pending, new[0]):
                return self._grow(warm, visible(new, conversation.deletions), beside, leaf)
        path, beside = await self._read(conversation, leaf, entering, inputs)
        warm = _Warm(
            line=adapter.line(policy, tools, key=key, conversation=conversation.id),
            leaf=leaf,
            pending=None,
            deletions=conversation.deletions,
            adapter=adapter.digest,
            policy=policy_digest,
            toolset=toolset_digest,
        )
        self._keep(conversation.id, warm)
        return self._grow(warm, visible(path, conversation.deletions), beside, leaf)

    def keep(
        self,
        conversation: Conversation,
        line: RenderedLine,
        leaf: MessageId,
        *,
        adapter: Digest,
        policy_digest: Digest,
        toolset_digest: Digest,
    ) -> None:
        """Take over a line that somebody else rendered, of committed messages up to `leaf`.

        The caller must not feed it any more.
        """
        self._keep(
            conversation.id,
            _Warm(
                line=line,
                leaf=leaf,
                pending=None,
                deletions=conversation.deletions,
                adapter=adapter,
                policy=policy_digest,
                toolset=toolset_digest,
            ),
        )

    def _keep(self, conversation: ConversationId, warm: _Warm) -> None:
        self._warm[conversation] = warm
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
    ) -> tuple[list[Message], Mapping[MessageId, tuple[InputBlock, ...]]]:
        """Return the path to `leaf`, and what stands beside the messages of it."""
        path = await self._path(conversation.id, leaf, entering, until=until)
        stored = [message for message in path if message is not entering]
        beside = await inputs_beside(self._store, conversation.tenant, stored)
        return path, {**beside, entering.id: inputs} if entering and inputs else beside

    @staticmethod
    def _grow(
        warm: _Warm,
        messages: Sequence[Message],
        beside: Mapping[MessageId, tuple[InputBlock, ...]],
        leaf: MessageId,
    ) -> RenderedLine:
        for message in messages:
            warm.line.feed(message, inputs=beside.get(message.id, ()))
            warm.pending = message if message.status is Status.PENDING else None
        warm.leaf = leaf
        return warm.line

    def call_ids(self, conversation: ConversationId) -> Container[str]:
        """Return the ids of the calls on the conversation's newest line."""
        warm = self._warm.get(conversation)
        return warm.line.call_ids if warm is not None else ()

    def tool_names(self, conversation: ConversationId) -> ToolNames | None:
        """Return how the tools of the conversation's newest line are named, if it is here."""
        warm = self._warm.get(conversation)
        return warm.line.tool_names if warm is not None else None

    def listed(
        self, conversation: ConversationId, line: RenderedLine, behind: tuple[Mapped, ...] = ()
    ) -> Listed | None:
        """Return how far the mappings of this line, `behind` others, are stored, if that is known."""
        warm = self._warm.get(conversation)
        known = warm is not None and warm.line is line and warm.behind == behind
        return warm.listed if warm is not None and known else None

    def note_listed(
        self,
        conversation: ConversationId,
        line: RenderedLine,
        listed: Listed,
        behind: tuple[Mapped, ...] = (),
    ) -> None:
        """Remember how far they are stored now: a line's list only grows."""
        warm = self._warm.get(conversation)
        if warm is not None and warm.line is line:
            warm.listed, warm.behind = listed, behind

    def forget(self, conversation: ConversationId) -> None:
        """Drop the conversation's line: the next dispatch makes it anew."""
        self._warm.pop(conversation, None)
