"""What stands before the talk: instructions that have a name, and what is remembered."""

from __future__ import annotations

import msgspec

from antiphon.core.ids import ConversationId, TenantId
from antiphon.core.knowledge.kept import Instructions, as_inputs
from antiphon.core.manifest import Policy
from antiphon.engine.world import World
from antiphon.errors import NotFound


async def with_knowledge(
    world: World,
    tenant: TenantId,
    policy: Policy,
    named: str | None,
    conversation: ConversationId | None,
) -> Policy:
    """Return `policy` with the `named` instructions and what is remembered, as they stand now.

    Raises:
        NotFound: `no_such_instructions`.
    """
    if named is not None:
        found = await find_instructions(world, tenant, named)
        texts = [found.text, *([policy.instructions] if policy.instructions else [])]
        policy = msgspec.structs.replace(
            policy,
            instructions="\n\n".join(texts),
            instructions_from=f"{found.name}@{found.version}",
        )
    if conversation is None:
        return policy
    remembered = await world.store.knowledge.remembered(tenant, conversation)
    if not remembered:
        return policy
    return msgspec.structs.replace(policy, context=as_inputs(remembered, tenant))


async def find_instructions(world: World, tenant: TenantId, named: str) -> Instructions:
    """Return the instructions that `name` or `name@version` means. Raises `NotFound`."""
    name, at, version = named.rpartition("@")
    if not at:
        return await world.store.knowledge.instructions(tenant, named)
    if not version.isdecimal() or len(version) > 9:
        raise NotFound("There is no such version.", code="no_such_instructions", at=named)
    return await world.store.knowledge.instructions(tenant, name, int(version))
