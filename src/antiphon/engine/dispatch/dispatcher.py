"""From an open run to a committed answer: plan, validate, record, send, read, settle.

The order is the promise. Nothing leaves before its manifest is durable and its acceptance
has won; nothing is committed but a whole answer to the base it was asked on; what is not
known is recorded as UNKNOWN before anything else is tried.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from antiphon.adapters.base import Rendering, Resumable
from antiphon.adapters.tool_names import ToolNames
from antiphon.core.assembler import Assembler
from antiphon.core.blocks import Message
from antiphon.core.commands import Accept, Close, Command, Prepare, PutContent, Retry, Supersede
from antiphon.core.dispatch import Denied, State
from antiphon.core.ids import Digest, MessageId, OperationId, TenantId
from antiphon.core.listing import Listed, continued
from antiphon.core.manifest import Manifest, Purpose, WireRequest, manifest_digest
from antiphon.core.records import Attempt, Conversation, Fallback, Run
from antiphon.core.recovery import Rung
from antiphon.core.scheduling import SWITCH_TOOL
from antiphon.engine.dispatch.compacting import NOT_TRIED, Compacted, Compactor
from antiphon.engine.dispatch.exchange import Exchange, Outcome, times_of
from antiphon.engine.dispatch.lines import Planned
from antiphon.engine.dispatch.listing import newest_stored
from antiphon.engine.dispatch.planning import Crowded, Plan
from antiphon.engine.dispatch.resuming import Asked, Resuming
from antiphon.engine.dispatch.settlement import (
    Accepted,
    Again,
    GaveUp,
    Kept,
    Settlement,
    Stepped,
)
from antiphon.engine.dispatch.target import Target, Targets, render_manifest, rendered_again
from antiphon.engine.models import Model
from antiphon.engine.runs.control import Control
from antiphon.engine.runs.entering import Entering
from antiphon.engine.world import World
from antiphon.errors import DigestMismatch, InternalError, InvalidInput, NotFound, SequenceRejected

PREPARE_TRIES: Final = 8


class _Proposed(NamedTuple):
    """A call that may be made: its record, its bytes, and what its mappings add to their list."""

    manifest: Manifest
    plan: Plan
    listed: Listed
    listing: tuple[tuple[Digest, bytes], ...]


class Dispatcher:
    """Makes one model call of a run after the other. One instance serves all conversations."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._targets = Targets(world)
        self._settlement = Settlement(world)
        self._resuming = Resuming(world, self._settlement)
        self._compactor = Compactor(world)

    async def turn(
        self, run: Run, control: Control, *, tools: bool = True, entering: Entering | None = None
    ) -> Stepped:
        """Make one model call and return the run as it then stands.

        It has committed, or ended in error, or was canceled, or its outcome is unknown and
        nothing can be done about it yet. What is `entering` enters the tree first; where it may
        not, nothing is called and the run is returned as it is stored. Only store failures and
        bugs come out as exceptions.
        """
        async with AsyncExitStack() as gates:
            model = self._asked_first(run)
            if model is not None:
                tenant = await self._tenant(run, entering)
                await gates.enter_async_context(
                    self._world.gates.passed(model, tenant, control.until)
                )
                if control.canceled:
                    return Stepped(await self._world.store.run(run.conversation, run.id))
            accepted = await self._begin(run, control, tools=tools, entering=entering)
            return await self._carry_out(accepted, run, control, tools=tools, gates=gates)

    def _asked_first(self, run: Run) -> Model | None:
        """Return the model that the run asks, if there is one and calls to it may have to wait."""
        try:
            model = self._world.settings.models.get(run.options.model)
        except (InvalidInput, NotFound):
            return None  # the run's end will say so
        return model if model.routing.limited else None

    async def _tenant(self, run: Run, entering: Entering | None) -> TenantId:
        if entering is not None:
            return entering.conversation.tenant
        return (await self._world.store.conversation(run.conversation)).tenant

    async def problem(self, run: Run, answer: Message) -> str | None:
        """Return in a sentence why a run's answer is not what was asked for, if it is not."""
        conversation = await self._world.store.conversation(run.conversation)
        expectation = await self._targets.expectation(run, conversation)
        return None if expectation is None else expectation.check.problem(answer.text)

    async def take_up(self, run: Run, control: Control) -> Stepped | None:
        """Read on what another process left UNKNOWN; None where its provider keeps no answer."""
        accepted = await self._left_unknown(run)
        if accepted is None:
            return None
        exchange = self._exchange(accepted)
        kept = Kept(accepted.attempt)
        settled = await self._read_on(accepted, run, kept, exchange, control, saw_cut=False)
        if isinstance(settled, Again):
            accepted_again = await self._accept_again(accepted, settled)
            return await self._carry_out(accepted_again, run, control)
        if isinstance(settled, GaveUp):
            return Stepped(await self._settlement.end(run.id, run.conversation, settled.code))
        return settled if isinstance(settled, Stepped) else Stepped(settled)

    async def _carry_out(
        self,
        accepted: Accepted | Run,
        run: Run,
        control: Control,
        *,
        tools: bool = True,
        gates: AsyncExitStack | None = None,
    ) -> Stepped:
        """Make attempts until one of them is settled, at the run's model or at a fallback.

        With `gates` a fallback may be asked, past its own gate.
        """
        while isinstance(accepted, Accepted):
            exchange = self._exchange(accepted)
            outcome = await self._call(accepted, run, exchange, control)
            goes_on = exchange.position is not None and exchange.handle is not None
            settled = await self._settlement.settle(
                accepted, outcome, exchange.live, goes_on=goes_on
            )
            if isinstance(settled, Kept):
                settled = await self._read_on(
                    accepted, run, settled, exchange, control, saw_cut=True
                )
            elif control.canceled and exchange.handle is not None:
                asked = self._asked(accepted, run, saw_cut=True)
                await self._resuming.stop(asked, exchange.handle)
            if isinstance(settled, Stepped):
                return settled
            if isinstance(settled, Run):
                return Stepped(settled)
            if isinstance(settled, GaveUp):
                if gates is None:
                    ended = await self._settlement.end(run.id, run.conversation, settled.code)
                    return Stepped(ended)
                accepted = await self._fall_back(
                    accepted, run, control, settled, tools=tools, gates=gates
                )
                continue
            await control.pause(settled.wait_ms / 1000)
            accepted = await self._accept_again(accepted, settled)
        return Stepped(accepted)

    # Before the send.

    async def _begin(
        self, run: Run, control: Control, *, tools: bool, entering: Entering | None
    ) -> Accepted | Run:
        """Return an accepted attempt, or the run where it ended before one could be made."""
        store = self._world.store
        if entering is not None:
            at_once = await self._accept_at_once(entering, tools=tools)
            if at_once is not None:
                return at_once
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
            return waiting or await self._accept(run, target, control=control)
        except (SequenceRejected, InvalidInput, NotFound) as refused:
            # The history, the model or its dialect: nothing was recorded, nothing was sent.
            return await self._settlement.end(run.id, run.conversation, refused.code)

    async def _target(self, run: Run, conversation: Conversation, *, tools: bool) -> Target:
        self._world.settings.models.get(run.options.model)
        target = await self._targets.of_run(run, conversation)
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
            target = await self._target(run, conversation, tools=tools)
            accepted = await self._propose(run, conversation, target, entering)
        except (SequenceRejected, InvalidInput, NotFound):
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

    async def _accept(
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
        target, content = plan.target, plan.target.new_content
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
        commands.append(self._acceptance(run, manifest.operation, model))
        done = await world.do_all(*commands)
        if isinstance(done, Denied):
            return None
        plan.warm.listed, plan.warm.behind = proposed.listed, run.options.repairs
        plan.warm.last = Planned(
            manifest=manifest,
            trace=plan.trace,
            policy=target.policy,
            deletions=conversation.deletions,
            rendering=plan.rendering,
        )
        accepted = await self._accepted(
            run, conversation, done[-1], manifest, target, plan.rendering.request, answer, model
        )
        return replace(accepted, trace=plan.trace)

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
        )

    def _acceptance(self, run: Run, operation: OperationId, model: Model) -> Accept:
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
            count=self._world.counts.of(model),
        )
        target, rendering = plan.target, plan.rendering
        mappings = (*run.options.repairs, *rendering.mappings)
        before = plan.warm.listed if plan.warm.behind == run.options.repairs else None
        if before is None:
            before = await newest_stored(
                self._world.store, conversation.tenant, target.key, mappings
            )
        listed, listing = continued(target.key, mappings, before)
        manifest = Manifest(
            operation=OperationId(self._world.new_id("op_")),
            conversation=run.conversation,
            session=run.session,
            run=run.id,
            purpose=Purpose.TURN,
            base_leaf=run.leaf,
            conversation_revision=conversation.revision,
            cancel_generation=conversation.cancel_generation,
            sequence_digest=rendering.sequence_digest,
            adapter=target.adapter.name,
            adapter_version=target.adapter.version,
            adapter_digest=target.adapter.digest,
            provider=target.policy.endpoint,
            model_revision=target.policy.model,
            toolset_digest=target.toolset_digest,
            policy_digest=target.policy_digest,
            request_digest=rendering.request_digest,
            mappings_digest=listed.digest,
            max_output_tokens=target.policy.max_output_tokens,
            linked_to=run.operation,
            plan_digest=plan.digest,
        )
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
        accepted = await self._world.do(self._acceptance(run, attempt.operation, model))
        if isinstance(accepted, Denied):
            await self._world.do(
                Supersede(conversation=run.conversation, now_ms=now_ms, operation=attempt.operation)
            )
            return None
        answer = run.answer or MessageId(self._world.new_id("msg_"))
        return await self._accepted(
            run, conversation, accepted, manifest, target, request, answer, model
        )

    async def _left_unknown(self, run: Run) -> Accepted | None:
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

    async def _fall_back(
        self,
        accepted: Accepted,
        run: Run,
        control: Control,
        gave_up: GaveUp,
        *,
        tools: bool,
        gates: AsyncExitStack,
    ) -> Accepted | Run:
        """Ask the next model in place of one that gave a definite no: a new operation, linked.

        It is asked from the beginning: nothing of what the other had said goes to it.
        """
        store, operation = self._world.store, accepted.attempt.operation
        for fallback in _after(run, accepted.model.name):
            row = await store.run(run.conversation, run.id)
            if not row.open or not self._world.owns(row):
                return row
            conversation = await store.conversation(run.conversation)
            now_ms = self._world.clock.now_ms()
            try:
                model = self._world.settings.models.get(fallback.model)
                target = await self._targets.of_fallback(run, fallback, conversation)
                await gates.enter_async_context(
                    self._world.gates.passed(model, conversation.tenant, control.until)
                )
                await self._world.do(
                    Close(conversation=run.conversation, now_ms=now_ms, operation=operation)
                )
                return await self._accept(row, target if tools else target.without_tools(), model)
            except (SequenceRejected, InvalidInput, NotFound):
                continue  # not for this one: its dialect cannot carry the line
        return await self._settlement.end(run.id, run.conversation, gave_up.code)

    # On the wire.

    def _exchange(self, accepted: Accepted) -> Exchange:
        """Return an exchange of this attempt that has neither sent nor read anything."""
        world, attempt, target = self._world, accepted.attempt, accepted.target
        profile = target.adapter.profile
        # Where another process made the request, what is declared is all that it offers.
        names = world.lines.tool_names(accepted.conversation) or ToolNames(profile, target.tools)
        live = world.broker.open(
            accepted.conversation, accepted.run, attempt.generation, accepted.answer
        )
        return Exchange(
            world,
            target.adapter,
            accepted.conversation,
            attempt,
            manifest_digest=manifest_digest(target.key, accepted.manifest),
            live=live,
            assembler=Assembler(
                tools=target.checks,
                commit_truncated=world.settings.commit_truncated,
                known_call_ids=world.lines.call_ids(accepted.conversation),
                limits=world.settings.limits,
                tool_name_pattern=profile.tool_name_pattern,
                tool_names=names.ours,
                max_output_tokens=target.policy.max_output_tokens,
            ),
            times=times_of(world.settings, accepted.model.routing),
        )

    async def _call(
        self, accepted: Accepted, run: Run, exchange: Exchange, control: Control
    ) -> Outcome:
        try:
            with control.over(exchange):
                return await exchange.run(
                    accepted.request,
                    api_key=_api_key(accepted.model),
                    region=accepted.model.region,
                )
        except BaseException:
            # This task is being ended, or has a bug. The connection is closed by now; that
            # nobody knows the outcome must be recorded before anything else happens.
            shown = exchange.live.shown
            self._world.store.submit(self._settlement.lost(accepted, "interrupted", shown=shown))
            raise

    async def _read_on(
        self,
        accepted: Accepted,
        run: Run,
        kept: Kept,
        exchange: Exchange,
        control: Control,
        *,
        saw_cut: bool,
    ) -> Stepped | Run | Again | GaveUp:
        asked = self._asked(accepted, run, saw_cut=saw_cut)
        settled = await self._resuming.settle(asked, kept, exchange, control)
        if control.canceled and kept.attempt.handle is not None:
            await self._resuming.stop(asked, kept.attempt.handle)
        return settled

    def _asked(self, accepted: Accepted, run: Run, *, saw_cut: bool) -> Asked:
        return Asked(
            accepted=accepted,
            api_key=_api_key(accepted.model),
            fresh=partial(self._exchange, accepted),
            saw_cut=saw_cut,
        )

    async def _accept_again(self, accepted: Accepted, again: Again) -> Accepted | Run:
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
            self._acceptance(run, operation, accepted.model),
        )
        if not isinstance(done, Denied):
            return replace(accepted, attempt=done[-1], resent=accepted.resent + again.after_unknown)
        run = await world.store.run(run.conversation, run.id)
        if not run.open:
            return run
        await world.do(
            Close(conversation=run.conversation, now_ms=world.clock.now_ms(), operation=operation)
        )
        return await self._accept(run, accepted.target, accepted.model)


def _after(run: Run, model: str) -> tuple[Fallback, ...]:
    """Return who may be asked after `model` has given up, in the order of the run's fallbacks."""
    names = [run.options.model, *(other.model for other in run.options.fallbacks)]
    return run.options.fallbacks[names.index(model) :] if model in names else ()


def _api_key(model: Model) -> str | None:
    return model.api_key.reveal() if model.api_key else None
