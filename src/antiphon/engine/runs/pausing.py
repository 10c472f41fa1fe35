"""Whether a run has to wait for another version of its adapter, and why.

A version that was rolled back to may not know what stands on the line. It is not told of it in
other words, and nothing is sent.
"""

from __future__ import annotations

from msgspec.structs import replace

from antiphon.core.records import OPEN_RUN, Conversation, Pause, Run, RunStatus
from antiphon.core.tree import line as visible
from antiphon.engine.world import World
from antiphon.errors import InvalidInput, NotFound


async def pause_of(world: World, run: Run, conversation: Conversation) -> Pause | None:
    """Return why `run` has to wait, or None where it may go on."""
    rollouts, store = world.rollouts, world.store
    await rollouts.refresh()
    tenant, model = conversation.tenant, run.options.model
    try:
        profile = world.settings.models.get(model).profile
    except (InvalidInput, NotFound):
        return None  # its end will say so
    kinds = rollouts.kinds(tenant, model, profile)
    if kinds is None:
        return None
    leaf = run.leaf or run.asked_parent or conversation.head
    seen = rollouts.seen(conversation.id, kinds)  # on another branch it stops nothing
    path = [] if leaf is None else await store.path(conversation.id, leaf, until=seen)
    waiting = None if run.leaf else await store.run_input(conversation.id, run.id)
    line = [*visible(path, conversation.deletions), *([waiting] if waiting is not None else [])]
    kind = rollouts.unknown_kind(tenant, model, profile, line)
    one = rollouts.of(tenant, model)
    if kind is None or one is None or one.adapter_version is None:
        if leaf is not None:
            rollouts.see(conversation.id, kinds, leaf)
        return None
    return Pause(run=run.id, model=model, adapter_version=one.adapter_version, block_kind=kind)


async def paused(world: World, conversation: Conversation) -> Conversation:
    """Return the conversation with why it is paused, on whichever node it is asked for."""
    await world.rollouts.refresh()
    if not any(one.adapter_version is not None for one in world.rollouts.all(conversation.tenant)):
        return conversation
    runs = await world.store.runs(conversation.id, OPEN_RUN)
    first = next((run for run in runs if run.id == conversation.slot), None) or next(
        (run for run in runs if run.status is RunStatus.QUEUED), None
    )
    if first is None or first.status not in (RunStatus.QUEUED, RunStatus.PENDING):
        return conversation
    pause = await pause_of(world, first, conversation)
    return conversation if pause is None else replace(conversation, paused=pause)
