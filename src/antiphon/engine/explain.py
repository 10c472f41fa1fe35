"""Why an answer is as it is: what was sent, how often, what came back, and the exact bytes."""

from __future__ import annotations

import msgspec

from antiphon.core.blocks import Message
from antiphon.core.ids import Digest, OperationId, RunId
from antiphon.core.manifest import Manifest, WireRequest, manifest_digest
from antiphon.core.records import Attempt, Call, Quarantined, Run
from antiphon.engine.target import Targets, render_manifest
from antiphon.engine.world import World
from antiphon.errors import DigestMismatch, NotFound


class OperationTold(msgspec.Struct, frozen=True, kw_only=True):
    """One intended model call and every try at it."""

    manifest: Manifest
    digest: Digest
    attempts: tuple[Attempt, ...]


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it is stored: nothing here is worked out anew or guessed."""

    run: Run
    input: Message | None
    operations: tuple[OperationTold, ...]
    calls: tuple[Call, ...]
    quarantined: tuple[Quarantined, ...]


async def explain(world: World, run: RunId) -> Explanation:
    """Return everything that is recorded about a run.

    Raises:
        NotFound: There is no run with this id.
    """
    store = world.store
    row = await store.find_run(run)
    operations = []
    for operation in await store.operations(row.conversation, row.id):
        manifest, digest = await store.manifest(operation)
        operations.append(
            OperationTold(
                manifest=manifest,
                digest=digest,
                attempts=tuple(await store.attempts(operation)),
            )
        )
    ours = {told.manifest.operation for told in operations}
    return Explanation(
        run=row,
        input=await store.run_input(row.conversation, row.id),
        operations=tuple(operations),
        calls=tuple(await store.calls(row.conversation, row.id)),
        quarantined=tuple(
            q for q in await store.quarantine(row.conversation) if q.operation in ours
        ),
    )


async def exact_request(
    world: World, run: RunId, operation: OperationId | None = None
) -> WireRequest:
    """Return the request of the run's newest dispatch, or of `operation`, to the byte.

    It is rendered again from what is stored and must hash to what was recorded before it was
    sent; so must the manifest itself.

    Raises:
        NotFound: Nothing was dispatched.
        DigestMismatch: What is stored is not what was recorded.
    """
    store = world.store
    row = await store.find_run(run)
    if operation is None:
        for candidate in reversed(await store.operations(row.conversation, row.id)):
            if any(attempt.generation for attempt in await store.attempts(candidate)):
                operation = candidate
                break
        else:
            raise NotFound("Nothing was dispatched for this run.", at=run)
    manifest, recorded = await store.manifest(operation)
    conversation = await store.conversation(row.conversation)
    if manifest_digest(await store.tenant_key(conversation.tenant), manifest) != recorded:
        raise DigestMismatch("The manifest is not what was recorded.", at=operation)
    target = await Targets(world).of_manifest(manifest, conversation)
    return await render_manifest(world, manifest, target)
