"""From a run that is to be dispatched to a request that fits, with the trace that explains it.

On a warm line only what is new is counted. Where it does not fit, older turns are left out if the
caller lets them be; otherwise nothing is sent. The plan is stored by its digest with the manifest,
so that the same part of the path is rendered when the request is made again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from antiphon.adapters.base import Rendering
from antiphon.core.blocks import Message
from antiphon.core.ids import Digest, MessageId
from antiphon.core.inputs import InputBlock
from antiphon.core.manifest import Manifest, Policy
from antiphon.core.planning.budget import Budget, Grant
from antiphon.core.planning.compaction import due
from antiphon.core.planning.plan import over_window
from antiphon.core.planning.tokens import PERMILLE, PROVIDER, Calibration, Counter, Weight
from antiphon.core.planning.trace import PromptTrace, Selection, encode_trace
from antiphon.core.planning.trimming import INSTRUCTING, candidate, cut, turns
from antiphon.core.records import Conversation
from antiphon.core.rules.findings import Finding
from antiphon.engine.catalogue.vocabularies import counter_of
from antiphon.engine.dispatch.counting import Count, nobody_counts
from antiphon.engine.dispatch.lines import LineCache
from antiphon.engine.dispatch.target import Target
from antiphon.engine.dispatch.tracing import traced
from antiphon.engine.dispatch.warm import Planned, Warm
from antiphon.engine.settings import Settings
from antiphon.errors import SequenceRejected

TRIES: Final = 8
"""How often a cut is moved on where the request still does not fit: what messages cost is a guide."""

TRIMMED_TO: Final = 75
"""Percent of its room that a line is cut to, so that not every turn after moves the prefix again."""

SMALLEST_PART: Final = 16
"""Of a window the margin, and the least of an answer, are at most one part in so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """A request, what it costs, and what its model has left beside it."""

    rendering: Rendering
    weight: Weight
    total_tokens: int
    grant: Grant
    counted_by: str
    factor_permille: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be sent, and why: the trace as it is stored, by its digest."""

    target: Target
    warm: Warm
    rendering: Rendering
    trace: PromptTrace
    digest: Digest
    stored: bytes
    stretches: tuple[tuple[Digest, bytes], ...]
    """What of its line is to be stored as it was rendered."""


class Crowded(Exception):
    """A request fills so much of the window that older talk is to become a checkpoint first."""

    def __init__(self, total_tokens: int) -> None:
        super().__init__(total_tokens)
        self.total_tokens = total_tokens


class Planner:
    """Plans dispatches. It knows what was learned about counting, and nothing of any run."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._learned: dict[tuple[str, str], Calibration] = {}

    # How much.

    def factor(self, policy: Policy, counter: Counter) -> int:
        """Return what a count for this model is multiplied by, in thousandths."""
        if counter.exact:
            return PERMILLE
        learned = self._learned.get((policy.endpoint, policy.model))
        return learned.factor_permille if learned else Calibration.BEGINS

    def learn(self, policy: Policy, trace: PromptTrace, reported: int | None) -> None:
        """Take in how many tokens a provider says that a planned request had."""
        if not reported:
            return
        estimated = trace.total_tokens * PERMILLE // trace.factor_permille
        known = self._calibration(policy, trace.factor_permille)
        known.learn(estimated=estimated, reported=reported)

    def _calibration(self, policy: Policy, factor_permille: int) -> Calibration:
        return self._learned.setdefault(
            (policy.endpoint, policy.model), Calibration(factor_permille)
        )

    def budget(self, policy: Policy) -> Budget:
        """Return how the window of a model is shared."""
        part = (policy.context_window or 0) // SMALLEST_PART
        return Budget(
            window=policy.context_window,
            output=policy.max_output_tokens,
            output_minimum=min(self._settings.min_output_tokens, part),
            margin=min(self._settings.context_margin_tokens, part),
        )

    def weighed(self, policy: Policy, rendering: Rendering) -> Weighed:
        """Return what a request costs, and whether its model can hold it."""
        counter = counter_of(policy.model)
        factor = self.factor(policy, counter)
        weight = rendering.weigh(counter).times(factor)
        return Weighed(
            rendering=rendering,
            weight=weight,
            total_tokens=weight.total,
            grant=self.budget(policy).grant(weight.total),
            counted_by=counter.name,
            factor_permille=factor,
        )

    async def measured(self, policy: Policy, rendering: Rendering, count: Count) -> Weighed:
        """Return what a request costs; by its provider's own `count` where an estimate is too near.

        What the provider says is learned from, as what it reports of an answer is.
        """
        found, percent = self.weighed(policy, rendering), self._settings.count_at_percent
        exact = counter_of(policy.model).exact
        if exact or not due(found.total_tokens, policy.context_window, percent):
            return found
        told = await count(rendering)
        if told is None:
            return found
        own = rendering.weigh(counter_of(policy.model))
        self._calibration(policy, found.factor_permille).learn(estimated=own.total, reported=told)
        return replace(
            found,
            weight=own.to(told),
            total_tokens=told,
            grant=self.budget(policy).grant(told),
            counted_by=PROVIDER,
            factor_permille=max(1, told * PERMILLE // own.total),
        )

    async def admit(self, policy: Policy, rendering: Rendering, at: str, count: Count) -> None:
        """Refuse a request that could not be sent, where nothing may be left out of it.

        Raises:
            SequenceRejected: `over_window`.
        """
        if policy.context_window is not None and policy.truncation == "disabled":
            found = await self.measured(policy, rendering, count)
            if not found.grant.fits:
                raise SequenceRejected([_over(at, policy, found)])

    # What.

    async def plan(
        self,
        lines: LineCache,
        conversation: Conversation,
        leaf: MessageId,
        wanted: Target,
        *,
        entering: Message | None = None,
        inputs: tuple[InputBlock, ...] = (),
        selection: Selection | None = None,
        compaction: str | None = None,
        request_of: Callable[[Manifest], Awaitable[Rendering | None]],
        count: Count = nobody_counts,
    ) -> Plan:
        """Return the request for the line that ends in `leaf`, as it is to be sent.

        Args:
            lines: Where the conversation's line is kept warm.
            conversation: Its row.
            leaf: Where the line ends.
            wanted: What the run talks to.
            entering: The leaf, where it is not stored yet.
            inputs: What stands beside it.
            selection: The part of the path that is to be sent; by default that of the last
                dispatch on it.
            compaction: What came of compacting it; None where that was not tried yet.
            request_of: Makes an earlier dispatch again; asked where its request is not here, and
                something has moved since.
            count: Asks the provider what a request costs.

        Raises:
            SequenceRejected: It may not be sent: `over_window` where its model cannot hold it.
            Crowded: Older talk is to become a checkpoint first.
        """
        target = _as_before(wanted, lines.last(conversation.id))
        found: Weighed | None = None
        for _ in range(TRIES):
            warm = await _line(lines, conversation, leaf, target, entering, inputs, selection)
            found = await self.measured(wanted.policy, warm.line.finish(), count)
            if compaction is None and self._crowded(wanted.policy, warm, found.total_tokens):
                raise Crowded(found.total_tokens)
            if not found.grant.fits:
                sent, _ = await lines.sent(conversation, leaf, entering)
                selection = self._shorter(sent, wanted.policy, warm, found)
                continue
            fitting = wanted.with_output(found.grant.output_tokens)
            if fitting.policy_digest == target.policy_digest:
                return await self._explained(wanted, target, warm, found, compaction, request_of)
            target, selection = fitting, warm.selection
        assert found is not None
        raise SequenceRejected([_over(leaf, wanted.policy, found)])

    def _crowded(self, policy: Policy, warm: Warm, total_tokens: int) -> bool:
        """Whether older talk is to become a checkpoint before a request of so many tokens."""
        settings = self._settings
        if not policy.compact or not due(
            total_tokens, policy.context_window, settings.compact_at_percent
        ):
            return False
        return not warm.stopped_at or warm.said >= warm.stopped_at + settings.compact_keep

    def _shorter(
        self, sent: Sequence[Message], policy: Policy, warm: Warm, found: Weighed
    ) -> Selection:
        """Return a smaller part of what is sent, by what the request has too much.

        Raises:
            SequenceRejected: `over_window`: nothing may be left out, or nothing more can be.
        """
        leaf, room = sent[-1].id, self.budget(policy).prompt
        if policy.truncation == "disabled" or room is None:
            raise SequenceRejected([_over(leaf, policy, found)])
        counter = counter_of(policy.model)
        factor = self.factor(policy, counter)
        line = [candidate(message, counter, factor) for message in sent]
        begun = next((n for n, m in enumerate(sent) if m.id == warm.selection.start), 0)
        beside = found.total_tokens - sum(message.tokens for message in line)
        start = cut(line, tokens=room * TRIMMED_TO // 100 - beside)
        if start <= begun:  # the guide was too low: the next turn goes too
            start = next((place for place in turns(line) if place > begun), 0)
        if not start:
            raise SequenceRejected([_over(leaf, policy, found)])
        return Selection(start=sent[start].id, checkpoint=warm.selection.checkpoint)

    async def _explained(
        self,
        wanted: Target,
        target: Target,
        warm: Warm,
        found: Weighed,
        compaction: str | None,
        request_of: Callable[[Manifest], Awaitable[Rendering | None]],
    ) -> Plan:
        last = warm.last
        if last is not None and last.rendering is None:
            warm.last = replace(last, rendering=await request_of(last.manifest))
        stretches = warm.to_store(target.key, counter_of(wanted.policy.model))
        trace = self._trace(wanted.policy, target, warm, found, stretches)
        if compaction:
            trace = msgspec.structs.replace(trace, compaction=compaction)
        digest, stored = encode_trace(target.key, trace)
        return Plan(
            target=target,
            warm=warm,
            rendering=found.rendering,
            trace=trace,
            digest=digest,
            stored=stored,
            stretches=stretches,
        )

    def _trace(
        self,
        policy: Policy,
        target: Target,
        warm: Warm,
        found: Weighed,
        stretches: Sequence[tuple[Digest, bytes]] = (),
    ) -> PromptTrace:
        counter = counter_of(policy.model)
        return traced(
            target,
            warm,
            found.rendering,
            found.weight,
            sealed=found.rendering.closed.body.weigh(counter),
            counter=counter,
            counted_by=found.counted_by,
            factor_permille=found.factor_permille,
            budget=self.budget(policy),
            grant=found.grant,
            stretch=next(
                (n for n in reversed((*warm.stretches, *(n for n, _ in stretches)))), None
            ),
        )

    def explained_late(
        self, target: Target, rendering: Rendering, line: Sequence[Message]
    ) -> PromptTrace:
        """Return the plan of a request that was made without one, of all of `line`."""
        warm = Warm(
            line=target.adapter.line(target.policy, (), key=target.key),
            leaf=line[-1].id,
            deletions=frozenset(),
            adapter=target.adapter.digest,
            policy=target.policy_digest,
            toolset=target.toolset_digest,
            said=len(line),
            told=sum(message.role in INSTRUCTING for message in line),
        )
        return self._trace(target.policy, target, warm, self.weighed(target.policy, rendering))


async def _line(
    lines: LineCache,
    conversation: Conversation,
    leaf: MessageId,
    target: Target,
    entering: Message | None,
    inputs: tuple[InputBlock, ...],
    selection: Selection | None,
) -> Warm:
    return await lines.line(
        conversation,
        leaf,
        adapter=target.adapter,
        policy=target.policy,
        tools=target.tools,
        policy_digest=target.policy_digest,
        toolset_digest=target.toolset_digest,
        key=target.key,
        entering=entering,
        inputs=inputs,
        selection=selection,
    )


def _as_before(wanted: Target, last: Planned | None) -> Target:
    """Return the target with the answer as short as it had to be the last time."""
    if last is None or last.trace.output_reduced_from is None:
        return wanted
    if last.trace.output_reduced_from != wanted.policy.max_output_tokens:
        return wanted
    return wanted.with_output(last.trace.output_tokens)


def _over(at: str, policy: Policy, found: Weighed) -> Finding:
    assert policy.context_window is not None
    return over_window(at, found.total_tokens, found.grant, policy.context_window)
