"""What an id or a piece of one names, and the dispatch behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final, TypeAlias, TypeGuard, assert_never

from antiphon.cli.view.text import harmless
from antiphon.core.blocks import Message, Role
from antiphon.core.ids import LOCAL_TENANT, ConversationId, MessageId, OperationId, RunId
from antiphon.core.manifest import Manifest
from antiphon.core.records import Conversation, Run
from antiphon.core.telling.explanation import OperationTold
from antiphon.engine.keeping.explain import may_have_left, told
from antiphon.engine.world import World
from antiphon.errors import InvalidInput, NotFound

EVERY: Final = 1_000_000_000
"""As many conversations as there are."""

Found: TypeAlias = Conversation | Run | OperationTold | Message


async def find(world: World, name: str) -> Found:
    """Return what `name` names: an id, or the end of one.

    Raises:
        NotFound: Nothing here has this id.
        InvalidInput: `ambiguous`: several end like this.
    """
    store = world.store
    if not name.isascii():
        raise NotFound("Nothing here has this id.", at=harmless(name))
    with suppress(NotFound):
        if name.startswith("run_"):
            return await store.find_run(RunId(name))
        if name.startswith("op_"):
            return await told(world, OperationId(name))
        return await store.conversation(ConversationId(name))
    rows = await store.conversations(LOCAL_TENANT, limit=EVERY)
    for row in rows:
        with suppress(NotFound):
            return await store.message(row.id, MessageId(name))
    ends: list[Conversation | Run | Message] = []
    for row in rows:
        ends += [row] if row.id.endswith(name) else []
        ends += [m for m in await store.tree(row.id) if m.id.endswith(name)]
        ends += [r for r in await store.runs(row.id) if r.id.endswith(name)]
    match ends:
        case [only]:
            return only
        case []:
            raise NotFound("Nothing here has this id.", at=name)
        case several:
            raise InvalidInput(
                f"Several end like this: {', '.join(one.id for one in several[:5])}.",
                code="ambiguous",
                at=name,
            )


async def dispatched(world: World, name: str | None, dispatch: str | None) -> Manifest:
    """Return the manifest of `dispatch`, or of the newest dispatch that `name` had sent.

    Raises:
        NotFound: There is none, or it belongs to something else.
    """
    if dispatch is not None:
        manifest, _ = await world.store.manifest(OperationId(dispatch))
        if name is not None and manifest.operation not in {
            m.operation async for m in _operations(world, await find(world, name))
        }:
            raise NotFound(f"{dispatch} belongs to something else.", at=name)
        return manifest
    async for manifest in _operations(world, await find(world, name or "")):
        if any(may_have_left(a) for a in await world.store.attempts(manifest.operation)):
            return manifest
    raise NotFound("Nothing was sent here.", at=name)


async def _operations(world: World, found: Found) -> AsyncIterator[Manifest]:
    """Yield the operations of what was found, newest first."""
    store = world.store
    match found:
        case OperationTold(manifest=manifest):
            yield manifest
            return
        case Conversation():
            runs = await store.runs(found.id)
        case Run():
            runs = [found]
        case Message():
            runs = [await store.find_run(found.run)] if found.run is not None else []
        case _:
            assert_never(found)
    for row in reversed(runs):
        for name in reversed(await store.operations(row.conversation, row.id)):
            manifest, _ = await store.manifest(name)
            if not _is_answer(found) or manifest.base_leaf == found.parent:
                yield manifest


def _is_answer(found: Found) -> TypeGuard[Message]:
    """Whether it is what one dispatch was answered with: that dispatch is meant, no later one."""
    return isinstance(found, Message) and found.role is Role.ASSISTANT
