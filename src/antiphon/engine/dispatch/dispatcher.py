"""From an open run to a committed answer: plan, validate, record, send, read, settle.

The order is the promise. Nothing leaves before its manifest is durable and its acceptance
has won; nothing is committed but a whole answer to the base it was asked on; what is not
known is recorded as UNKNOWN before anything else is tried.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial

from antiphon.adapters.naming.tool_names import ToolNames
from antiphon.core.answers.assembler import Assembler
from antiphon.core.blocks import Message
from antiphon.core.commands import Close
from antiphon.core.ids import TenantId
from antiphon.core.manifest import manifest_digest
from antiphon.core.records import Fallback, Run
from antiphon.engine.catalogue.models import Model
from antiphon.engine.dispatch.acceptance import Acceptance
from antiphon.engine.dispatch.exchange import Exchange, Outcome, times_of
from antiphon.engine.dispatch.resuming import Asked, Resuming
from antiphon.engine.dispatch.settlement import (
    Accepted,
    Again,
    GaveUp,
    Kept,
    Settlement,
    Stepped,
)
from antiphon.engine.dispatch.targets import Targets
from antiphon.engine.runs.control import Control
from antiphon.engine.runs.entering import Entering, NotAtOnce
from antiphon.engine.world import World
from antiphon.errors import InvalidInput, NotFound, SequenceRejected


class Dispatcher:
    """Makes one model call of a run after the other. One instance serves all conversations."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._targets = Targets(world)
        self._settlement = Settlement(world)
        self._acceptance = Acceptance(world, self._targets, self._settlement)
        self._resuming = Resuming(world, self._settlement)

    async def turn(
        self, run: Run, control: Control, *, tools: bool = True, entering: Entering | None = None
    ) -> Stepped:
        """Make one model call and return the run as it then stands.

        It has committed, or ended in error, or was canceled, or its outcome is unknown and
        nothing can be done about it yet. What is `entering` enters the tree first; where it may
        not, nothing is called and the run is returned as it is stored. Only store failures and
        bugs come out as exceptions.

        Raises:
            NotAtOnce: The run was to be started with it, and is not started.
        """
        async with AsyncExitStack() as gates:
            model = self._asked_first(run)
            if model is not None:
                if entering is not None and entering.start is not None:
                    raise NotAtOnce
                tenant = await self._tenant(run, entering)
                await gates.enter_async_context(
                    self._world.gates.passed(model, tenant, control.until)
                )
                if control.canceled:
                    return Stepped(await self._world.store.run(run.conversation, run.id))
            accepted = await self._acceptance.begin(run, control, tools=tools, entering=entering)
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
        accepted = await self._acceptance.left_unknown(run)
        if accepted is None:
            return None
        exchange = self._exchange(accepted)
        kept = Kept(accepted.attempt)
        settled = await self._read_on(accepted, run, kept, exchange, control, saw_cut=False)
        if isinstance(settled, Again):
            accepted_again = await self._acceptance.again(accepted, settled)
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
            accepted = await self._acceptance.again(accepted, settled)
        return Stepped(accepted)

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
                return await self._acceptance.accept(
                    row, target if tools else target.without_tools(), model
                )
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
            manifest_digest=partial(manifest_digest, target.key, accepted.manifest),
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


def _after(run: Run, model: str) -> tuple[Fallback, ...]:
    """Return who may be asked after `model` has given up, in the order of the run's fallbacks."""
    names = [run.options.model, *(other.model for other in run.options.fallbacks)]
    return run.options.fallbacks[names.index(model) :] if model in names else ()


def _api_key(model: Model) -> str | None:
    return model.api_key.reveal() if model.api_key else None
