"""What is remembered, and instructions that have a name: written down, told, taken away.

A run keeps what stood when it was started. What is written later counts from the next one on, and
its policy's digest says that something changed.
"""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.core.ids import ConversationId, TenantId
from antiphon.core.knowledge.kept import Instructions, Remembered, RememberedKind
from antiphon.engine.texts import storable
from antiphon.engine.world import World
from antiphon.errors import InvalidInput

LONGEST_KEY: Final = 200
LONGEST_TEXT: Final = 20_000
MOST_KEPT: Final = 200
"""For one conversation, or for all of a tenant's: every request carries them."""


class Memories:
    """What is remembered for tenants and conversations."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def remember(self, tenant: TenantId, one: Remembered) -> Remembered:
        """Keep a text under its key, in place of what was there.

        Raises:
            InvalidInput: `bad_key`; `empty_content`; `text_too_long`; `too_many_memories`.
            NotFound: There is no such conversation.
        """
        _check(one.key, one.text)
        kept = await self.kept(tenant, one.conversation, only=True)
        new = all((k.kind, k.key) != (one.kind, one.key) for k in kept)
        if new and len(kept) >= MOST_KEPT:
            raise InvalidInput(
                f"At most {MOST_KEPT} texts are kept here; forget one first.",
                code="too_many_memories",
                at=one.key,
            )
        now_ms = self._world.clock.now_ms()
        with storable(one.key):
            return await self._world.store.knowledge.remember(
                tenant, msgspec.structs.replace(one, updated_ms=now_ms)
            )

    async def forget(
        self,
        tenant: TenantId,
        key: str,
        *,
        kind: RememberedKind = RememberedKind.MEMORY,
        conversation: ConversationId | None = None,
    ) -> None:
        """Take a text away. Raises `NotFound`."""
        await self._world.store.knowledge.forget(tenant, kind, key, conversation)

    async def kept(
        self, tenant: TenantId, conversation: ConversationId | None, *, only: bool = False
    ) -> list[Remembered]:
        """Return what is kept for a tenant and one of its conversations, or for the one `only`."""
        return await self._world.store.knowledge.remembered(tenant, conversation, only=only)

    async def write_instructions(
        self, tenant: TenantId, name: str, text: str, owner: str
    ) -> Instructions:
        """Write the next version of instructions; the same text again is the same version.

        Raises:
            InvalidInput: `bad_key`; `empty_content`; `text_too_long`.
            Conflict: `not_the_owner`.
        """
        _check(name, text)
        if "@" in name:
            raise InvalidInput("The sign @ stands before a version.", code="bad_key", at=name)
        now_ms = self._world.clock.now_ms()
        with storable(name):
            return await self._world.store.knowledge.write_instructions(
                tenant, name, text, owner, now_ms
            )


def _check(key: str, text: str) -> None:
    if not 0 < len(key) <= LONGEST_KEY or not key.isprintable() or "/" in key:
        raise InvalidInput(
            f"A key is 1 to {LONGEST_KEY} characters that can be seen, without a slash.",
            code="bad_key",
            at=key[:80],
        )
    if not text.strip():
        raise InvalidInput("There is nothing to keep.", code="empty_content", at=key)
    if len(text) > LONGEST_TEXT:
        raise InvalidInput(
            f"What is kept has at most {LONGEST_TEXT} characters; give longer texts as a file.",
            code="text_too_long",
            at=key,
        )
    if "\0" in text:
        raise InvalidInput("No text holds the character 0.", code="bad_content", at=key)
