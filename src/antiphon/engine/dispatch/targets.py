"""Finding what a run talks to: by the digests that it and its manifests hold."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import msgspec

from antiphon.adapters import registry
from antiphon.adapters.base import Adapter
from antiphon.core.answers.judging import ANSWER_RETRIED, Expectation
from antiphon.core.answers.schemas import SchemaCheck, compile_schema
from antiphon.core.ids import Digest, OperationId
from antiphon.core.manifest import (
    Manifest,
    ToolDeclaration,
    decode_policy,
    stored_digest,
)
from antiphon.core.records import Conversation, Fallback, Run
from antiphon.core.tools.loop import TOOL_LIMIT
from antiphon.engine.dispatch.target import Target, compiled
from antiphon.engine.world import World
from antiphon.errors import NotFound

_decode_tools = msgspec.json.Decoder(tuple[ToolDeclaration, ...]).decode

KEPT: Final = 1_024
"""Targets that are remembered; a policy or a toolset never changes under its digest."""


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

    async def of_run(
        self,
        run: Run,
        conversation: Conversation,
        brought: Mapping[Digest, bytes] = MappingProxyType({}),
    ) -> Target:
        """Return what `run` talks to; `brought` is content that comes with it, not stored yet.

        Raises:
            InvalidInput: Its dialect is not spoken by this release.
        """
        options = run.options
        return await self._find(
            conversation,
            options.policy_digest,
            options.toolset_digest,
            self._pinned(conversation, options.model),
            brought,
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
        brought: Mapping[Digest, bytes] = MappingProxyType({}),
    ) -> Target:
        store, tenant = self._world.store, conversation.tenant
        key = await store.tenant_key(tenant)
        known = self._known.get((key, policy_digest, toolset_digest, version))
        if known is not None:
            return known
        stored = [
            brought[digest] if digest in brought else await store.content(tenant, digest)
            for digest in (policy_digest, toolset_digest)
        ]
        policy, tools = decode_policy(stored[0]), _decode_tools(stored[1])
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
