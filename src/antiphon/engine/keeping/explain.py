"""Why an answer is as it is: what was sent, how often, what came back, and the exact bytes."""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.core.blocks import Role
from antiphon.core.digests import digest
from antiphon.core.dispatch import State
from antiphon.core.events import Durable, RunChanged, decode_event
from antiphon.core.ids import OperationId, RunId
from antiphon.core.knowledge.retrieval import Searched
from antiphon.core.manifest import Manifest, Purpose, WireRequest, manifest_digest
from antiphon.core.planning.trace import PromptTrace, decode_trace
from antiphon.core.records import (
    LATE_TOOL_RESULT,
    OPEN_RUN,
    Attempt,
    Conversation,
    LateResult,
    Quarantined,
)
from antiphon.core.telling.explanation import Explanation, OperationTold, PlanTold
from antiphon.engine.dispatch.again import messages_sent, render_manifest, rendered_again
from antiphon.engine.dispatch.listing import told_mappings
from antiphon.engine.dispatch.targets import Targets
from antiphon.engine.knowledge.searching import beside_message
from antiphon.engine.world import World
from antiphon.errors import DigestMismatch, Erased, NotFound
from antiphon.stores.base import Store

NEAR: Final = 64
"""How far back from a dispatch's leaf the message is looked for that it answers."""


async def told(world: World, operation: OperationId) -> OperationTold:
    """Return everything that is recorded about one operation.

    Raises:
        NotFound: There is none with this id.
        DigestMismatch: What its profile changed is not what was recorded.
    """
    store = world.store
    manifest, digest = await store.manifest(operation)
    conversation = await store.conversation(manifest.conversation)
    attempts = tuple(await store.attempts(operation))
    return OperationTold(
        manifest=manifest,
        digest=digest,
        mappings=await told_mappings(store, conversation.tenant, manifest.mappings_digest),
        attempts=attempts,
        answer=await _answer(store, conversation, attempts[-1]),
    )


async def _answer(store: Store, conversation: Conversation, attempt: Attempt) -> str | None:
    """Return what was answered to a question beside the turn, while it is not erased."""
    if attempt.answer is None or conversation.erased_ms is not None:
        return None
    return (await store.content(conversation.tenant, attempt.answer)).decode()


async def explain(world: World, run: RunId) -> Explanation:
    """Return everything that is recorded about a run.

    Raises:
        NotFound: There is no run with this id.
        DigestMismatch: What a profile changed is not what was recorded.
    """
    store = world.store
    row = await store.find_run(run)
    turns = await store.operations(row.conversation, row.id)
    beside = await store.questions(row.conversation, row.id)
    operations = [await told(world, operation) for operation in sorted([*turns, *beside])]
    ours = {one.manifest.operation for one in operations}
    return Explanation(
        run=row,
        input=await store.run_input(row.conversation, row.id),
        operations=tuple(operations),
        calls=tuple(await store.calls(row.conversation, row.id)),
        quarantined=tuple(
            q
            for q in await store.quarantine(row.conversation)
            if q.operation in ours or _run_of(q) == row.id
        ),
    )


def _run_of(quarantined: Quarantined) -> RunId | None:
    """Return the run of a tool's result that came too late; no operation brought that."""
    if quarantined.reason != LATE_TOOL_RESULT:
        return None
    return msgspec.json.decode(quarantined.data, type=LateResult).run


async def history(world: World, run: RunId) -> list[Durable]:
    """Return what happened to a run, in its order: from its start to its end, or until now.

    Raises:
        NotFound: There is no run with this id.
    """
    row = await world.store.find_run(run)
    told: list[Durable] = []
    seq = row.seq - 1
    while rows := await world.store.events(row.conversation, seq):
        for stored in rows:
            if stored.run != run:
                continue
            event = decode_event(stored.data)
            told.append(Durable(seq=stored.seq, at_ms=stored.at_ms, event=event))
            if isinstance(event, RunChanged) and event.status not in OPEN_RUN:
                return told
        seq = rows[-1].seq
    return told


async def exact_request(
    world: World, run: RunId, operation: OperationId | None = None
) -> WireRequest:
    """Return the request of the run's newest dispatch, or of `operation`, to the byte.

    It is rendered again from what is stored and must hash to what was recorded before it was
    sent; so must the manifest itself.

    Raises:
        NotFound: Nothing was dispatched.
        Erased: What it was made of is gone for good; its digest stays.
        DigestMismatch: What is stored is not what was recorded.
    """
    store = world.store
    if operation is None:
        operation = (await newest_sent(world, run)).operation
    manifest, recorded = await store.manifest(operation)
    conversation = await store.conversation(manifest.conversation)
    if manifest_digest(await store.tenant_key(conversation.tenant), manifest) != recorded:
        raise DigestMismatch("The manifest is not what was recorded.", at=operation)
    _require_content(manifest, conversation)
    target = await Targets(world).of_manifest(manifest, conversation)
    return await render_manifest(world, manifest, target)


async def newest_sent(world: World, run: RunId) -> Manifest:
    """Return the manifest of the newest turn of a run of which a byte may have left.

    What was asked beside the turn is not meant: it is found by its own id.

    Raises:
        NotFound: Nothing was dispatched.
    """
    store = world.store
    row = await store.find_run(run)
    for operation in reversed(await store.operations(row.conversation, row.id)):
        attempts = await store.attempts(operation)
        if attempts[-1].purpose is Purpose.TURN and any(map(may_have_left, attempts)):
            return (await store.manifest(operation))[0]
    raise NotFound("Nothing was dispatched for this run.", at=run)


def _require_content(manifest: Manifest, conversation: Conversation) -> None:
    """Refuse to look for what was erased. Raises `Erased`."""
    if conversation.erased_ms is not None:
        raise Erased(
            "The conversation was erased, and with it what this request was made of. "
            f"Its digest was {manifest.request_digest}.",
            at=manifest.operation,
        )


def may_have_left(attempt: Attempt) -> bool:
    """Return whether a byte of it may have left: accepted, and not known to have stayed here."""
    stayed = attempt.written_ms is None and attempt.state in (State.FAILED, State.CLOSED)
    return attempt.generation > 0 and (not stayed or attempt.proof is not None)


async def verified_request(world: World, manifest: Manifest) -> WireRequest:
    """Return the request of a manifest to the byte, its digest verified.

    Raises:
        DigestMismatch: What is stored is not what was recorded, or is gone.
        Erased: It is gone, since somebody wanted it so.
    """
    try:
        return await exact_request(world, manifest.run, manifest.operation)
    except NotFound as missing:
        problem = missing.message
    raise DigestMismatch(
        f"A part of what was sent is not stored any more: {problem}",
        code="content_missing",
        at=manifest.operation,
    )


async def plan_told(world: World, manifest: Manifest) -> PlanTold:
    """Return the plan of a dispatch, and what was looked up for the message that it answers.

    Raises:
        Erased: What it was made of is gone.
        DigestMismatch: The plan is not what was recorded.
    """
    trace = await planned(world, manifest)
    conversation = await world.store.conversation(manifest.conversation)
    near = await world.store.path(manifest.conversation, manifest.base_leaf, limit=NEAR)
    asked = next((message for message in reversed(near) if message.role is Role.USER), None)
    searched: tuple[Searched, ...] = ()
    if asked is not None and not manifest.question_digest:
        searched = (await beside_message(world, conversation.tenant, asked)).searched
    return PlanTold(operation=manifest.operation, trace=trace, retrieval=searched)


async def planned(world: World, manifest: Manifest) -> PromptTrace:
    """Return the plan of a dispatch, as it was stored with it.

    One of the first release has none: then its request is made again, and weighed as it is.

    Raises:
        Erased: What it was made of is gone.
        DigestMismatch: The plan is not what was recorded.
    """
    store = world.store
    conversation = await store.conversation(manifest.conversation)
    _require_content(manifest, conversation)
    key = await store.tenant_key(conversation.tenant)
    if manifest.plan_digest:
        stored = await store.content(conversation.tenant, manifest.plan_digest)
        if digest(key, "plan", stored) != manifest.plan_digest:
            raise DigestMismatch("The plan is not what was recorded.", at=manifest.operation)
        return decode_trace(stored)
    target = await Targets(world).of_manifest(manifest, conversation)
    rendering = await rendered_again(world, manifest, target)
    sent = await messages_sent(world, manifest)
    return world.planner.explained_late(target, rendering, sent)
