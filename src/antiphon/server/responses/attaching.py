"""Files that are kept here, where a request names them: given to the conversation, and looked up in.

A provider does not know our ids. So a part `input_file` that names a file of the tenant's leaves
its message, which says so in its metadata; questions of the conversation are looked up in the file
from then on. Any other id is the provider's own, and is sent as it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import msgspec

from antiphon.adapters.base import Parsed
from antiphon.core.blocks import File, Message, Role, block_id
from antiphon.core.ids import TenantId
from antiphon.engine.engine import Engine
from antiphon.errors import InvalidInput, NotFound
from antiphon.server.responses.output import Json

ATTACHED = "files"
"""What a message's metadata calls the files that it came with."""

OURS = "file_"


async def without_attached(
    engine: Engine, tenant: TenantId, parsed: Parsed
) -> tuple[Parsed, tuple[str, ...]]:
    """Return what was said without the files that are kept here, and which those are.

    Raises:
        InvalidInput: `empty_content`: a message names files and says nothing.
    """
    messages, places, named = [], dict(parsed.places), dict[str, None]()
    for message in parsed.messages:
        own = [name for name in _named(message) if await _is_kept(engine, tenant, name)]
        if own:
            named.update(dict.fromkeys(own))
            message = _without(message, own, places)
        messages.append(message)
    if not named:
        return parsed, ()
    return replace(parsed, messages=tuple(messages), places=places), tuple(named)


def attached_parts(metadata: Mapping[str, str]) -> list[Json]:
    """Return the parts that name the files a message came with."""
    return [
        {"type": "input_file", "file_id": name, "filename": None, "file_data": None}
        for name in metadata.get(ATTACHED, "").split()
    ]


def _named(message: Message) -> Iterable[str]:
    if message.role is Role.USER:
        for block in message.blocks:
            if isinstance(block, File) and block.file_id and block.file_id.startswith(OURS):
                yield block.file_id


async def _is_kept(engine: Engine, tenant: TenantId, name: str) -> bool:
    try:
        await engine.world.store.knowledge.file(tenant, name)
    except NotFound:
        return False
    return True


def _without(message: Message, own: list[str], places: dict[str, str]) -> Message:
    """Return a message without these files; what stays of it is found where it stood."""
    stays = [
        (order, block)
        for order, block in enumerate(message.blocks)
        if not (isinstance(block, File) and block.file_id in own)
    ]
    if not stays:
        raise InvalidInput(
            "A message that brings files says something about them, too: questions are looked up "
            "in them.",
            code="empty_content",
            at=places.get(message.id, message.id),
        )
    stood = {order: block_id(message.id, order) for order, _ in stays}
    places.update(
        {
            block_id(message.id, n): places.get(stood[order], stood[order])
            for n, (order, _) in enumerate(stays)
        }
    )
    return msgspec.structs.replace(
        message,
        blocks=tuple(block for _, block in stays),
        metadata={**message.metadata, ATTACHED: " ".join(dict.fromkeys(own))},
    )
