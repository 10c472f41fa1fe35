"""How far each tenant's traffic has come, in memory, and which conversations are paused for it.

What is stored decides. This process looks again after a second at most, so a change that another
one made holds here too without a restart.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from antiphon.adapters import registry
from antiphon.adapters.base import Adapter
from antiphon.core.blocks import Message
from antiphon.core.ids import ConversationId, MessageId, TenantId
from antiphon.core.manifest import Policy
from antiphon.core.traffic.rollout import EVERY_MODEL, Rollout
from antiphon.core.traffic.standing import Rollouts, SetRollout
from antiphon.engine.ports import Clock
from antiphon.stores.base import Store

FRESH_MS: Final = 1_000
SEEN: Final = 1024
"""Of how many conversations it is known how far their line was looked through."""

PAUSED: Final = "adapter_too_old"
"""Why a conversation is paused: its pinned adapter does not know what stands in it."""


class RolloutTable:
    """The rollouts of a store, by tenant and model."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[tuple[TenantId, str], Rollout] = {}
        self._read_ms: int | None = None
        self._looking = asyncio.Lock()
        self._made = 0
        self._seen: OrderedDict[ConversationId, tuple[frozenset[str], MessageId]] = OrderedDict()
        self.paused: dict[ConversationId, str] = {}
        """Conversations that wait for another version, each with the kind that is not known."""

    async def refresh(self) -> None:
        """Look at what is stored, unless that was done a moment ago; who comes together looks once."""
        if self._is_fresh():
            return
        async with self._looking:
            if not self._is_fresh():
                now_ms, made = self._clock.now_ms(), self._made
                found = await self._store.answer(Rollouts())
                if made == self._made:  # otherwise it may be older than what was set meanwhile
                    self._take(found)
                self._read_ms = now_ms

    def _is_fresh(self) -> bool:
        return self._read_ms is not None and self._clock.now_ms() - self._read_ms < FRESH_MS

    async def set(self, rollout: Rollout) -> Rollout:
        """Let a rollout hold from now on."""
        done = await self._store.change(SetRollout(rollout=rollout))
        self._made += 1
        self._known[done.tenant, done.model] = done
        return done

    def all(self, tenant: TenantId | None = None) -> list[Rollout]:
        """Return the rollouts of a tenant, or every one."""
        return [one for one in self._known.values() if tenant in (None, one.tenant)]

    def of(self, tenant: TenantId, model: str) -> Rollout | None:
        """Return what holds for a tenant and a model; None where everything is ours."""
        return self._known.get((tenant, model)) or self._known.get((tenant, EVERY_MODEL))

    def adapter(self, tenant: TenantId, model: str, policy: Policy) -> Adapter:
        """Return the adapter that renders for a tenant and a model, at the version that is pinned.

        Raises:
            InvalidInput: `adapter_version_unknown`: this release does not carry that version.
        """
        one = self.of(tenant, model)
        version = one.adapter_version if one is not None else None
        return registry.get(policy.profile, policy.facts, version)

    def unknown_kind(
        self, tenant: TenantId, model: str, profile: str, messages: Iterable[Message]
    ) -> str | None:
        """Return a kind of block in `messages` that the pinned version does not know, if any."""
        known = self.kinds(tenant, model, profile)
        if known is None:
            return None
        kinds = (str(type(b).__struct_config__.tag) for m in messages for b in m.blocks)
        return next((kind for kind in kinds if kind not in known), None)

    def kinds(self, tenant: TenantId, model: str, profile: str) -> frozenset[str] | None:
        """Return the kinds that the pinned version knows; None where it knows all, or none is."""
        one = self.of(tenant, model)
        if one is None or one.adapter_version is None:
            return None
        return registry.kinds_of(profile, one.adapter_version)

    def seen(self, conversation: ConversationId, kinds: frozenset[str]) -> MessageId | None:
        """Return a message whose line was found to hold nothing but `kinds`, if there is one."""
        held, leaf = self._seen.get(conversation, (None, None))
        return leaf if held == kinds else None

    def see(self, conversation: ConversationId, kinds: frozenset[str], leaf: MessageId) -> None:
        """Remember that the line to `leaf` holds nothing but `kinds`: no line ever changes."""
        self._seen[conversation] = (kinds, leaf)
        self._seen.move_to_end(conversation)
        if len(self._seen) > SEEN:
            self._seen.popitem(last=False)

    def _take(self, found: Iterable[Rollout]) -> None:
        self._known = {(one.tenant, one.model): one for one in found}
