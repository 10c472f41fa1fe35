"""What a run talks to, and its requests rendered again from what is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from antiphon.adapters import registry
from antiphon.adapters.base import Adapter, Rendering
from antiphon.core.blocks import Message, Status
from antiphon.core.ids import Digest, OperationId
from antiphon.core.judging import ANSWER_RETRIED, Expectation
from antiphon.core.loop import TOOL_LIMIT
from antiphon.core.manifest import (
    Manifest,
    Policy,
    QuestionText,
    ToolDeclaration,
    WireRequest,
    decode_policy,
    stored_digest,
)
from antiphon.core.planning.trace import WHOLE, Selection, decode_trace
from antiphon.core.planning.trimming import chosen
from antiphon.core.questions import as_message
from antiphon.core.records import Conversation, Fallback, Run
from antiphon.core.scheduling import SWITCH_TOOL
from antiphon.core.schemas import SchemaCheck, compile_schema
from antiphon.core.tree import line as visible
from antiphon.engine.dispatch.beside import checkpoint_beside, inputs_beside
from antiphon.engine.world import World
from antiphon.errors import DigestMismatch, NotFound
from antiphon.stores.base import Store

_decode_question = msgspec.json.Decoder(QuestionText).decode
_decode_tools = msgspec.json.Decoder(tuple[ToolDeclaration, ...]).decode

KEPT = 1_024
"""Targets that are remembered; a policy or a toolset never changes under its digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The adapter, and everything that shapes a run's requests beside its history.

    `new_content` is what is not stored yet and has to be before a manifest names it.
    """

    adapter: Adapter
    key: bytes
    policy: Policy
    policy_digest: Digest
    tools: tuple[ToolDeclaration, ...]
    toolset_digest: Digest
    checks: Mapping[str, SchemaCheck]
    new_content: tuple[tuple[Digest, bytes], ...] = ()

    @property
    def switches(self) -> bool:
        """Whether the model is offered to begin a new session."""
        return SWITCH_TOOL in self.tools

    def without_tools(self) -> Target:
        """Return the target for a last answer, in which the model may call nothing.

        Declarations stay: some providers refuse tool history without them.
        """
        if not self.tools:
            return self
        return self._asked(msgspec.structs.replace(self.policy, tool_choice="none"))

    def with_output(self, tokens: int | None) -> Target:
        """Return the target for an answer of at most so many tokens."""
        if tokens == self.policy.max_output_tokens:
            return self
        return self._asked(msgspec.structs.replace(self.policy, max_output_tokens=tokens))

    def _asked(self, policy: Policy) -> Target:
        digest, stored = stored_digest(self.key, policy)
        return replace(
            self,
            policy=policy,
            policy_digest=digest,
            new_content=(*self.new_content, (digest, stored)),
        )


async def adapter_of(world: World, manifest: Manifest) -> Adapter:
    """Return the adapter of a manifest, with the facts that it was made with where they are kept."""
    conversation = await world.store.conversation(manifest.conversation)
    try:
        stored = await world.store.content(conversation.tenant, manifest.policy_digest)
    except NotFound:
        return registry.by_name(manifest.adapter)
    policy = decode_policy(stored)
    return registry.get(policy.profile, policy.facts, _carried(manifest))


def _carried(manifest: Manifest) -> int | None:
    """Return the version that a manifest was made by, where it is an older one that is here."""
    known = manifest.adapter_version in registry.versions(manifest.adapter)
    return manifest.adapter_version if known else None


async def is_beyond(world: World, operation: OperationId) -> bool:
    """Say whether a newer release made this operation: its dialect or version is unknown here.

    What it means, and what may safely be done about it, only that release can say.
    """
    manifest, _ = await world.store.manifest(operation)
    known = manifest.adapter in registry.available() and (
        manifest.adapter_version <= registry.versions(manifest.adapter)[-1]
    )
    return not known


class Targets:
    """Finds targets by their digests, and remembers them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._schemas: dict[Digest, SchemaCheck] = {}
        self._known: dict[tuple[bytes, Digest, Digest, int | None], Target] = {}

    async def of_run(self, run: Run, conversation: Conversation) -> Target:
        """Return what `run` talks to.

        Raises:
            InvalidInput: Its dialect is not spoken by this release.
        """
        options = run.options
        return await self._find(
            conversation,
            options.policy_digest,
            options.toolset_digest,
            self._pinned(conversation, options.model),
        )

    def _pinned(self, conversation: Conversation, model: str) -> int | None:
        rollout = self._world.rollouts.of(conversation.tenant, model)
        return None if rollout is None else rollout.adapter_version

    async def expectation(self, run: Run, conversation: Conversation) -> Expectation | None:
        """Return what the run's answer has to fit, where anything was asked for."""
        asked = run.options.answer_schema
        if asked is None:
            return None
        check = self._schemas.get(asked)
        if check is None:
            stored = await self._world.store.content(conversation.tenant, asked)
            check = compile_schema(stored)
            await asyncio.to_thread(check.problem, "{}")
            if len(self._schemas) >= KEPT:
                self._schemas.clear()
            self._schemas[asked] = check
        # Once, and only where a model call is left for it.
        left = run.options.max_model_calls - run.committed
        again = run.end_code not in (ANSWER_RETRIED, TOOL_LIMIT) and left > 1
        retry = run.options.retry_answer and again
        return Expectation(check=check, retry=retry)

    async def of_fallback(self, run: Run, fallback: Fallback, conversation: Conversation) -> Target:
        """Return what `run` talks to where its model gave up.

        Raises:
            InvalidInput: Its dialect is not spoken by this release.
        """
        return await self._find(
            conversation,
            fallback.policy_digest,
            run.options.toolset_digest,
            self._pinned(conversation, fallback.model),
        )

    async def offering(self, target: Target, tool: ToolDeclaration) -> Target:
        """Return `target` with a tool of our own beside its others, which come first.

        It stays as it is where it has a tool of that name.
        """
        if any(tool.name == other.name for other in target.tools):
            return target
        tools = (*target.tools, tool)
        digest, stored = stored_digest(target.key, tools)
        version = target.adapter.version
        known = self._known.get((target.key, target.policy_digest, digest, version))
        if known is None:
            known = replace(
                target, tools=tools, toolset_digest=digest, checks=await compiled(tools)
            )
            self._keep(known, version)
        return replace(known, new_content=((digest, stored),))

    async def of_manifest(self, manifest: Manifest, conversation: Conversation) -> Target:
        """Return what a manifest was made for."""
        return await self._find(
            conversation, manifest.policy_digest, manifest.toolset_digest, _carried(manifest)
        )

    async def _find(
        self,
        conversation: Conversation,
        policy_digest: Digest,
        toolset_digest: Digest,
        version: int | None,
    ) -> Target:
        store = self._world.store
        key = await store.tenant_key(conversation.tenant)
        known = self._known.get((key, policy_digest, toolset_digest, version))
        if known is not None:
            return known
        policy = decode_policy(await store.content(conversation.tenant, policy_digest))
        tools = _decode_tools(await store.content(conversation.tenant, toolset_digest))
        target = Target(
            adapter=registry.get(policy.profile, policy.facts, version),
            key=key,
            policy=policy,
            policy_digest=policy_digest,
            tools=tools,
            toolset_digest=toolset_digest,
            checks=await compiled(tools),
        )
        self._keep(target, version)
        return target

    def _keep(self, target: Target, version: int | None) -> None:
        if len(self._known) >= KEPT:
            self._known.clear()
        self._known[target.key, target.policy_digest, target.toolset_digest, version] = target


async def compiled(tools: tuple[ToolDeclaration, ...]) -> Mapping[str, SchemaCheck]:
    """Return the argument checks of a toolset, compiled off the event loop."""
    checks = {tool.name: compile_schema(tool.parameters) for tool in tools}
    for check in checks.values():
        # The first question loads the schema library and compiles.
        await asyncio.to_thread(check.problem, "{}")
    return checks


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
