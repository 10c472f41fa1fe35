"""What was sent, made again from what is stored: to the byte, or not at all."""

from __future__ import annotations

import msgspec

from antiphon.adapters.base import Rendering
from antiphon.core.blocks import Message, Status
from antiphon.core.manifest import (
    Manifest,
    QuestionText,
    WireRequest,
)
from antiphon.core.planning.trace import WHOLE, Selection, decode_trace
from antiphon.core.planning.trimming import chosen
from antiphon.core.questions import as_message
from antiphon.core.tree import line as visible
from antiphon.engine.dispatch.beside import checkpoint_beside, inputs_beside
from antiphon.engine.dispatch.target import Target
from antiphon.engine.world import World
from antiphon.errors import DigestMismatch
from antiphon.stores.base import Store

_decode_question = msgspec.json.Decoder(QuestionText).decode


async def messages_sent(world: World, manifest: Manifest) -> list[Message]:
    """Return the messages that a manifest was made of, as they stood then."""
    store = world.store
    if manifest.question_digest:
        conversation = await store.conversation(manifest.conversation)
        asked = _decode_question(await store.content(conversation.tenant, manifest.question_digest))
        return [as_message(manifest.conversation, manifest.operation, asked)]
    path = await store.path(manifest.conversation, manifest.base_leaf)
    deleted = await store.deletions_at(manifest.conversation, manifest.conversation_revision)
    # Its input may have failed since; it was pending when it was sent.
    if path[-1].status is not Status.SUCCESS:
        path[-1] = msgspec.structs.replace(path[-1], status=Status.PENDING)
    return chosen(visible(path, deleted), (await selected(store, manifest)).start)


async def selected(store: Store, manifest: Manifest) -> Selection:
    """Return which part of its path a dispatch was made of."""
    if not manifest.plan_digest:
        return WHOLE
    conversation = await store.conversation(manifest.conversation)
    return decode_trace(await store.content(conversation.tenant, manifest.plan_digest)).selection


async def render_manifest(world: World, manifest: Manifest, target: Target) -> WireRequest:
    """Return the request of a manifest again, as `rendered_again` does."""
    return (await rendered_again(world, manifest, target)).request


async def rendered_again(world: World, manifest: Manifest, target: Target) -> Rendering:
    """Render the request of a manifest again, from the tree and the stored content.

    Raises:
        DigestMismatch: What comes out does not hash to the manifest's request digest, or the
            adapter is another one. It must not be sent, and it is not what was sent.
    """
    adapter = target.adapter
    if adapter.digest != manifest.adapter_digest:
        raise DigestMismatch(
            f"Rendered by {manifest.adapter} version {manifest.adapter_version}; "
            f"this is {adapter.name} version {adapter.version}.",
            code="adapter_mismatch",
            at=manifest.operation,
        )
    line = adapter.line(
        target.policy, target.tools, key=target.key, conversation=manifest.conversation
    )
    messages = await messages_sent(world, manifest)
    conversation = await world.store.conversation(manifest.conversation)
    beside = await inputs_beside(world.store, conversation.tenant, messages)
    selection = await selected(world.store, manifest)
    older = await checkpoint_beside(world.store, conversation.tenant, conversation.id, selection)
    for message in messages:
        inputs = (*older.get(message.id, ()), *beside.get(message.id, ()))
        line.feed(message, inputs=inputs)
    rendering = line.finish()
    if rendering.request_digest != manifest.request_digest:
        raise DigestMismatch(
            "The request does not render to the bytes that were recorded.",
            at=manifest.operation,
        )
    return rendering
