"""Before the send: from an open run to an attempt that has won its acceptance.

A run is planned, its request validated and rendered, and the record of the call made durable in the
transaction that accepts it. What is returned here may send its bytes; nothing else may. Where the
world has moved meanwhile, all of it is done again on what stands there now.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from msgspec import structs

from antiphon.adapters.base import Rendering, Resumable
from antiphon.core.commands import Accept, Close, Command, Prepare, PutContent, Retry, Supersede
from antiphon.core.dispatch import Denied, State
from antiphon.core.ids import Digest, MessageId, OperationId
from antiphon.core.listing import Listed, continued
from antiphon.core.manifest import Manifest, Purpose, WireRequest, manifest_digest
from antiphon.core.planning.trace import PromptTrace
from antiphon.core.records import Attempt, Conversation, Run
from antiphon.core.recovery import Rung
from antiphon.core.sessions.scheduling import SWITCH_TOOL
from antiphon.engine.catalogue.models import Model
from antiphon.engine.dispatch.again import render_manifest, rendered_again
from antiphon.engine.dispatch.compacting import NOT_TRIED, Compacted, Compactor
from antiphon.engine.dispatch.listing import newest_stored
from antiphon.engine.dispatch.planning import Crowded, Plan
from antiphon.engine.dispatch.settlement import Accepted, Again, Settlement
from antiphon.engine.dispatch.target import Target
from antiphon.engine.dispatch.targets import Targets
from antiphon.engine.dispatch.warm import Planned
from antiphon.engine.runs.control import Control
from antiphon.engine.runs.entering import Entering, NotAtOnce, Start
from antiphon.engine.world import World
from antiphon.errors import DigestMismatch, InternalError, InvalidInput, NotFound, SequenceRejected

PREPARE_TRIES: Final = 8


async def _not_at_once(_: Rendering) -> int | None:
    """Ask no provider to count while somebody waits for word that a run is started."""
    raise NotAtOnce


class _Proposed(NamedTuple):
    """A call that may be made: its record, its bytes, and what its mappings add to their list."""

    manifest: Manifest
    plan: Plan
    listed: Listed
    listing: tuple[tuple[Digest, bytes], ...]


class Acceptance:
    """Prepares model calls and has them accepted. One instance serves all conversations."""

    def __init__(self, world: World, targets: Targets, settlement: Settlement) -> None:
        self._world = world
        self._targets = targets
        self._settlement = settlement
        self._compactor = Compactor(world)

    async def begin(
        self, run: Run, control: Control, *, tools: bool, entering: Entering | None
    ) -> Accepted | Run:
        """Return an accepted attempt, or the run where it ended before one could be made."""
        store = self._world.store
        if entering is not None:
            at_once = await self._accept_at_once(entering, tools=tools)
            if at_once is not None:
                return at_once
            if entering.start is not None:
                raise NotAtOnce
            entered = [await self._world.do(command) for command in entering.commands]
            run = await store.run(run.conversation, run.id)
            if isinstance(entered[-1], Denied) or not run.open:
                self._world.lines.forget(run.conversation)
                return run
        conversation = await store.conversation(run.conversation)
        try:
            target = await self._target(run, conversation, tools=tools)
            # What enters follows on what this process has just done: nothing lies about then.
            waiting = None
            if run.operation is not None and entering is None:
                waiting = await self._left_prepared(run, target, run.operation)
            return waiting or await self.accept(run, target, control=control)
        except (SequenceRejected, InvalidInput, NotFound) as refused:
            # The history, the model or its dialect: nothing was recorded, nothing was sent.
            return await self._settlement.end(run.id, run.conversation, refused.code)

    async def _target(
        self, run: Run, conversation: Conversation, *, tools: bool, start: Start | None = None
    ) -> Target:
        self._world.settings.models.get(run.options.model)
        brought = {} if start is None else start.contents
        target = await self._targets.of_run(run, conversation, brought)
        on = conversation.scheduling
        if (self._world.settings.scheduling if on is None else on) and not run.switched:
            target = await self._targets.offering(target, SWITCH_TOOL)
        return target if tools else target.without_tools()

    async def _accept_at_once(self, entering: Entering, *, tools: bool) -> Accepted | None:
        """Let it enter and accept the call about it in one transaction.

        None where that may not be: whatever the reason is, it shows when the two are tried one
        after the other.
        """
        run, conversation = entering.run, entering.conversation
        accepted = None
        try:
            target = await self._target(run, conversation, tools=tools, start=entering.start)
            accepted = await self._propose(run, conversation, target, entering)
        except (SequenceRejected, InvalidInput, NotFound, NotAtOnce):
            pass
        except Crowded:
            return None  # it enters, and then what is older becomes a checkpoint
        except BaseException:
            for command in entering.commands[:-1]:
                self._world.store.submit(command)  # what a tool came to is not lost with us
            raise
        if accepted is None:
            self._world.lines.forget(conversation.id)  # it may end in what did not enter
        return accepted

    async def accept(
        self,
        run: Run,
        target: Target,
        model: Model | None = None,
        *,
        control: Control | None = None,
    ) -> Accepted | Run:
        """Prepare and accept; again if the world moved in between. `model` is a fallback.

        Without a `control` nothing is compacted first: the run has been planned once.
        """
        store, compacted = self._world.store, None if control else NOT_TRIED
        for _ in range(PREPARE_TRIES):
            conversation = await store.conversation(run.conversation)
            try:
                accepted = await self._propose(
                    run, conversation, target, model=model, compacted=compacted
                )
            except Crowded as crowded:
                assert control is not None
                compacted = await self._compactor.compact(
                    run, conversation, target, crowded.total_tokens, control
                )
                accepted = None
            if accepted is not None:
                return accepted
            run = await store.run(run.conversation, run.id)
            if not run.open or not self._world.owns(run):
                return run
        return await self._settlement.end(run.id, run.conversation, "conversation_busy")

    async def _propose(
        self,
        run: Run,
        conversation: Conversation,
        target: Target,
        entering: Entering | None = None,
        model: Model | None = None,
        *,
        compacted: Compacted | None = None,
    ) -> Accepted | None:
        """Prepare and accept in one transaction, on these rows; None if they have moved.

        Raises:
            Crowded: Older talk is to be `compacted` first.
        """
        world = self._world
        model = model or world.settings.models.get(run.options.model)
        proposed = await self._proposed(run, conversation, target, model, entering, compacted)
        manifest, plan = proposed.manifest, proposed.plan
        target, content = plan.target, (*plan.target.new_content, *plan.stretches)
        answer = run.answer or MessageId(world.new_id("msg_"))
        now_ms = world.clock.now_ms()
        commands: list[Command[Any]] = [*entering.commands] if entering else []
        if content:
            commands.append(PutContent(conversation=run.conversation, now_ms=now_ms, items=content))
        commands.append(
            PutContent(
                conversation=run.conversation,
                now_ms=now_ms,
                items=(*proposed.listing, (plan.digest, plan.stored)),
                structure=True,
            )
        )
        commands.append(
            Prepare(
                conversation=run.conversation,
                now_ms=now_ms,
                manifest=manifest,
                manifest_digest=manifest_digest(target.key, manifest),
                answer=answer,
            )
        )
        commands.append(self._command(run, manifest.operation, model))
        if entering is not None and entering.start is not None:
            done = await entering.start.and_then(*commands)
        else:
            done = await world.do_all(*commands)
        if isinstance(done, Denied):
            return None
        plan.warm.listed, plan.warm.behind = proposed.listed, run.options.repairs
        plan.warm.stored(name for name, _ in plan.stretches)
        plan.warm.last = Planned(
            manifest=manifest,
            trace=plan.trace,
            policy=target.policy,
            deletions=conversation.deletions,
            rendering=plan.rendering,
        )
        return await self._accepted(
            run,
            conversation,
            done[-1],
            manifest,
            target,
            plan.rendering.request,
            answer,
            model,
            trace=plan.trace,
        )

    async def _accepted(
        self,
        run: Run,
        conversation: Conversation,
        attempt: Attempt,
        manifest: Manifest,
        target: Target,
        request: WireRequest,
        answer: MessageId,
        model: Model,
        *,
        trace: PromptTrace | None = None,
    ) -> Accepted:
        return Accepted(
            run=run.id,
            conversation=run.conversation,
            attempt=attempt,
            manifest=manifest,
            request=request,
            target=target,
            answer=answer,
            max_calls=run.options.max_tool_calls,
            expectation=await self._targets.expectation(run, conversation),
            model=model,
            charged=run.options.key,
            trace=trace,
        )

    def _command(self, run: Run, operation: OperationId, model: Model) -> Accept:
        now_ms = self._world.clock.now_ms()
        length_s = self._world.settings.deadline_s
        if model.routing.total_timeout_s is not None:
            length_s = min(length_s, model.routing.total_timeout_s)
        return Accept(
            conversation=run.conversation,
            now_ms=now_ms,
            operation=operation,
            fence=self._world.fence,
            deadline_ms=now_ms + int(length_s * 1000),
        )

    async def _proposed(
        self,
        run: Run,
        conversation: Conversation,
        target: Target,
        model: Model,
        entering: Entering | None,
        compacted: Compacted | None = None,
    ) -> _Proposed:
        if run.leaf is None or run.session is None:
            raise InternalError("A run is placed before it is dispatched.", at=run.id)
        start = None if entering is None else entering.start
        plan = await self._world.planner.plan(
            self._world.lines,
            conversation,
            run.leaf,
            target,
            entering=None if entering is None else entering.message,
            inputs=() if entering is None else entering.inputs,
            selection=None if compacted is None else compacted.selection,
            compaction=None if compacted is None else compacted.outcome,
            request_of=partial(self._made_before, conversation),
            count=self._world.counts.of(model) if start is None else _not_at_once,
        )
        target, rendering = plan.target, plan.rendering
        mappings = (*run.options.repairs, *rendering.mappings)
        before = plan.warm.listed if plan.warm.behind == run.options.repairs else None
        if before is None:
            before = await newest_stored(
                self._world.store, conversation.tenant, target.key, mappings
            )
        listed, listing = continued(target.key, mappings, before)
        manifest = target.manifest(
            rendering,
            conversation,
            operation=OperationId(self._world.new_id("op_")),
            run=run.id,
            session=run.session,
            base_leaf=run.leaf,
            purpose=Purpose.TURN,
            mappings_digest=listed.digest,
        )
        manifest = structs.replace(manifest, linked_to=run.operation, plan_digest=plan.digest)
        return _Proposed(manifest, plan, listed, listing)

    async def _made_before(
        self, conversation: Conversation, manifest: Manifest
    ) -> Rendering | None:
        """Return an earlier request again; None where this release does not make it any more."""
        try:
            target = await self._targets.of_manifest(manifest, conversation)
            return await rendered_again(self._world, manifest, target)
        except (DigestMismatch, InvalidInput, NotFound, SequenceRejected):
            return None

    async def _left_prepared(
        self, run: Run, target: Target, operation: OperationId
    ) -> Accepted | None:
        """Take up what a process left before it died: an attempt PREPARED or at rest."""
        store = self._world.store
        attempt = (await store.attempts(operation))[-1]
        now_ms = self._world.clock.now_ms()
        if attempt.state is State.FAILED:
            await self._world.do(
                Close(conversation=run.conversation, now_ms=now_ms, operation=attempt.operation)
            )
            return None
        if attempt.state is not State.PREPARED:
            return None
        manifest, _ = await store.manifest(attempt.operation)
        conversation = await store.conversation(run.conversation)
        if (target.policy_digest, target.adapter.digest) != (
            manifest.policy_digest,
            manifest.adapter_digest,
        ):  # a fallback was asked, or another version is pinned by now
            target = await self._targets.of_manifest(manifest, conversation)
        if target.adapter.digest != manifest.adapter_digest:
            raise InvalidInput(
                "This call was prepared by another version of its adapter, and was not sent.",
                code="adapter_mismatch",
                at=manifest.operation,
            )
        request = await render_manifest(self._world, manifest, target)
        model = self._model_of(run, manifest)
        accepted = await self._world.do(self._command(run, attempt.operation, model))
        if isinstance(accepted, Denied):
            await self._world.do(
                Supersede(conversation=run.conversation, now_ms=now_ms, operation=attempt.operation)
            )
            return None
        answer = run.answer or MessageId(self._world.new_id("msg_"))
        return await self._accepted(
            run, conversation, accepted, manifest, target, request, answer, model
        )

    async def left_unknown(self, run: Run) -> Accepted | None:
        """Return the attempt that a run was left UNKNOWN with, where its provider keeps the answer."""
        store = self._world.store
        if run.operation is None or run.answer is None:
            return None
        attempt = (await store.attempts(run.operation))[-1]
        if attempt.state is not State.UNKNOWN or attempt.handle is None:
            return None
        manifest, _ = await store.manifest(attempt.operation)
        conversation = await store.conversation(run.conversation)
        target = await self._targets.of_manifest(manifest, conversation)
        keeps = Rung.HANDLE in target.adapter.recovery
        if not keeps or not isinstance(target.adapter, Resumable):
            return None
        request = target.adapter.resume(target.policy, attempt.handle, after=None)
        model = self._model_of(run, manifest)
        accepted = await self._accepted(
            run, conversation, attempt, manifest, target, request, run.answer, model
        )
        return replace(accepted, resent=attempt.number - 1)

    def _model_of(self, run: Run, manifest: Manifest) -> Model:
        """Return who was asked by a manifest of this run: its model, or one of its fallbacks."""
        models = self._world.settings.models
        for name in (run.options.model, *(other.model for other in run.options.fallbacks)):
            model = models.get(name)
            if (model.base_url, model.model) == (manifest.provider, manifest.model_revision):
                return model
        return models.get(run.options.model)

    async def again(self, accepted: Accepted, again: Again) -> Accepted | Run:
        """Open the next attempt of the same manifest, with the same bytes."""
        world, operation = self._world, accepted.attempt.operation
        run = await world.store.run(accepted.conversation, accepted.run)
        if not run.open:
            return run
        done = await world.do_all(
            Retry(
                conversation=run.conversation,
                now_ms=world.clock.now_ms(),
                operation=operation,
                attempts_allowed=world.settings.retries + 1,
            ),
            self._command(run, operation, accepted.model),
        )
        if not isinstance(done, Denied):
            return replace(accepted, attempt=done[-1], resent=accepted.resent + again.after_unknown)
        run = await world.store.run(run.conversation, run.id)
        if not run.open:
            return run
        await world.do(
            Close(conversation=run.conversation, now_ms=world.clock.now_ms(), operation=operation)
        )
        return await self.accept(run, accepted.target, accepted.model)
