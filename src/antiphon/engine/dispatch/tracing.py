"""The trace of a plan: what was sent by kind, what was not, and what the prefix came to."""

from __future__ import annotations

from collections.abc import Iterator

from antiphon.adapters.base import Rendering
from antiphon.core.ids import Digest
from antiphon.core.manifest import Policy
from antiphon.core.planning.budget import Budget, Grant
from antiphon.core.planning.prefix import common_prefix
from antiphon.core.planning.tokens import Counter, Weight, scaled
from antiphon.core.planning.trace import (
    CACHEABLE,
    BlockKind,
    BlockTrace,
    LeftOut,
    Prefix,
    PromptTrace,
    Reason,
)
from antiphon.engine.dispatch.target import Target
from antiphon.engine.dispatch.warm import Planned, Warm


def traced(
    target: Target,
    warm: Warm,
    rendering: Rendering,
    weight: Weight,
    *,
    sealed: Weight,
    counter: Counter,
    counted_by: str,
    factor_permille: int,
    budget: Budget,
    grant: Grant,
    stretch: Digest | None,
) -> PromptTrace:
    """Return what is to be said of a request on `warm`, and of the dispatch before it."""
    stable = counter.count([block.text for block in target.policy.context])
    dynamic = warm.dynamic_context(counter)
    return PromptTrace(
        total_tokens=weight.total,
        counted_by=counted_by,
        factor_permille=factor_permille,
        window=budget.window,
        margin_tokens=budget.margin if budget.window is not None else 0,
        output_tokens=grant.output_tokens,
        output_reduced_from=grant.reduced_from,
        blocks=tuple(
            _blocks(
                target,
                warm,
                weight,
                scaled(stable, factor_permille),
                scaled(dynamic, factor_permille),
            )
        ),
        messages=warm.said,
        left_out=tuple(_left_out(warm)),
        selection=warm.selection,
        prefix=_prefix(target, warm, rendering),
        sealed=sealed,
        stretch=stretch,
    )


def _blocks(
    target: Target, warm: Warm, weight: Weight, stable: int, dynamic: int
) -> Iterator[BlockTrace]:
    policy, said = target.policy, weight.transcript - stable - dynamic
    for kind, tokens, sources in (
        (BlockKind.SYSTEM_POLICY, weight.system_policy, bool(policy.instructions) + warm.told),
        (BlockKind.TOOL_GUIDANCE, weight.tool_guidance, len(target.tools)),
        (BlockKind.STABLE_CONTEXT, stable, len(policy.context)),
        (BlockKind.TRANSCRIPT, said, warm.said - warm.told),
        (BlockKind.DYNAMIC_CONTEXT, dynamic, warm.sources),
    ):
        if sources or tokens:
            yield BlockTrace(kind=kind, tokens=tokens, cacheable=kind in CACHEABLE, sources=sources)


def _left_out(warm: Warm) -> Iterator[LeftOut]:
    earlier, compacted = warm.earlier, warm.selection.checkpoint is not None
    if earlier.gone:
        reason = Reason.COMPACTION if compacted else Reason.TRUNCATION
        yield LeftOut(reason=reason, count=earlier.gone, first=earlier.first, last=earlier.last)
    for reason, number in sorted(warm.skipped.items()):
        yield LeftOut(reason=reason, count=number)


def _prefix(target: Target, warm: Warm, rendering: Rendering) -> Prefix | None:
    """Compare two bodies. What is still open at the end of one may grow: that is no move."""
    last = warm.last.rendering if warm.last is not None else None
    if warm.last is None or last is None:
        return None
    matched = common_prefix(last.request.chunks, rendering.request.chunks)
    moved = matched < last.closed.sealed_bytes
    return Prefix(
        last_bytes=sum(map(len, last.request.chunks)),
        matched_bytes=matched,
        moved_by=tuple(_movers(target, warm, warm.last)) if moved else (),
    )


def _movers(target: Target, warm: Warm, last: Planned) -> list[Reason]:
    """Return what is not as it was for the last dispatch; if nothing is, it was on another branch."""
    before, was = last.manifest, last.trace.selection
    told = sum(b.sources for b in last.trace.blocks if b.kind is BlockKind.SYSTEM_POLICY)
    found = [
        *([Reason.ADAPTER] if target.adapter.digest != before.adapter_digest else ()),
        *_of_policy(target.policy, last.policy),
        *([Reason.TOOLS] if target.toolset_digest != before.toolset_digest else ()),
        *([Reason.COMPACTION] if warm.selection.checkpoint != was.checkpoint else ()),
        *([Reason.TRUNCATION] if warm.selection.start != was.start else ()),
        *([Reason.DELETION] if warm.deletions != last.deletions else ()),
    ]
    if not found and told != bool(target.policy.instructions) + warm.told:
        found = [
            Reason.INSTRUCTIONS
        ]  # that came in the talk, and were moved to where they may stand
    return found or [Reason.BRANCH]


def _of_policy(policy: Policy, was: Policy) -> Iterator[Reason]:
    if (policy.model, policy.profile, policy.endpoint, policy.facts) != (
        was.model,
        was.profile,
        was.endpoint,
        was.facts,
    ):
        yield Reason.MODEL
    if policy.instructions != was.instructions:
        yield Reason.INSTRUCTIONS
    if policy.context != was.context:
        yield Reason.CONTEXT
    if _options(policy) != _options(was):
        yield Reason.OPTIONS


def _options(policy: Policy) -> tuple[object, ...]:
    return (
        policy.max_output_tokens,
        policy.tool_choice,
        policy.parallel_tool_calls,
        policy.temperature,
        policy.stream,
        policy.extra,
    )
