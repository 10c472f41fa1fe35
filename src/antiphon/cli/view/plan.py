"""A plan on the screen: what the model saw, what it cost, what was left out, what moved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from antiphon.cli.view.text import Ink, count, short, size, table
from antiphon.core.knowledge.retrieval import RetrievalStatus, Searched
from antiphon.core.planning.trace import BlockKind, LeftOut, Prefix, PromptTrace, Reason
from antiphon.core.telling.explanation import PlanTold

BAR: Final = 40
"""Cells of the bar that shows the window."""

NAMES: Final = {
    BlockKind.SYSTEM_POLICY: "instructions",
    BlockKind.TOOL_GUIDANCE: "tools",
    BlockKind.STABLE_CONTEXT: "stable context",
    BlockKind.TRANSCRIPT: "the talk",
    BlockKind.DYNAMIC_CONTEXT: "found for it",
}

SOURCES: Final = {
    BlockKind.SYSTEM_POLICY: "text",
    BlockKind.TOOL_GUIDANCE: "tool",
    BlockKind.STABLE_CONTEXT: "block",
    BlockKind.TRANSCRIPT: "message",
    BlockKind.DYNAMIC_CONTEXT: "block",
}

MEANINGS: Final = {
    Reason.BRANCH: "the last dispatch was on another branch",
    Reason.DELETION: "messages were deleted",
    Reason.TRUNCATION: "older turns are left out",
    Reason.COMPACTION: "older turns became a checkpoint",
    Reason.INSTRUCTIONS: "the instructions changed",
    Reason.TOOLS: "the tools changed",
    Reason.CONTEXT: "memories or stable context changed",
    Reason.MODEL: "another model was asked",
    Reason.OPTIONS: "options of the request changed",
    Reason.ADAPTER: "another version of the adapter wrote it",
    Reason.BUDGET: "there was no room for it",
    Reason.STATUS: "never committed",
}


def plan_page(told: PlanTold, ink: Ink) -> list[str]:
    """Return a plan for people, in the order in which its blocks stand in the request."""
    trace = told.trace
    rows = [
        (
            NAMES[block.kind],
            f"{block.tokens:>9,}",
            count(block.sources, SOURCES[block.kind]),
            "may be cached" if block.cacheable else "changes every time",
        )
        for block in trace.blocks
    ]
    rows.append(("all of it", f"{trace.total_tokens:>9,}", "tokens", _counted(trace)))
    page = [f"  {row}".rstrip() for row in table(rows)]
    page[-1] = ink(page[-1], "bold")
    searched = [_searched(search, ink) for search in told.retrieval]
    return [*page, "", *(f"  {row}" for row in (*_facts(trace, ink), *searched))]


def _searched(search: Searched, ink: Ink) -> str:
    hit = search.status is RetrievalStatus.HIT
    why = f" ({search.reason})" if search.reason else ""
    best = f", best {search.best_score:.3g}" if search.best_score is not None else ""
    found = f"{search.used} of {count(search.candidates, 'candidate')} used{best}"
    return f"searched {search.source}: {ink(f'{search.status}{why}', 'good' if hit else 'warn')}, {found}"


def _counted(trace: PromptTrace) -> str:
    if trace.counted_by != "estimate":
        return f"counted by {trace.counted_by}"
    return f"estimated, times {trace.factor_permille / 1000:.2f}"


def _facts(trace: PromptTrace, ink: Ink) -> Iterator[str]:
    if trace.window is not None:
        yield _bar(trace, ink)
    if trace.output_reduced_from is not None:
        yield ink(
            f"the answer may have {trace.output_tokens:,} tokens: {trace.output_reduced_from:,} "
            "were asked for, and more is not free",
            "warn",
        )
    for gone in trace.left_out:
        yield ink(f"left out: {_gone(gone)}", "warn")
    if trace.compaction not in (None, "made"):
        yield ink(f"older talk was not compacted: {trace.compaction}", "warn")
    if trace.selection.checkpoint is not None:
        yield f"a checkpoint stands for what came before {short(trace.selection.start or '')}"
    if trace.prefix is not None:
        yield _prefix(trace.prefix, ink)
    else:
        yield ink("no dispatch before it in its session to compare with", "dim")


def _bar(trace: PromptTrace, ink: Ink) -> str:
    window = trace.window or 1
    used = min(BAR, -(-trace.total_tokens * BAR // window))
    reserved = min(BAR - used, (trace.output_tokens or 0) * BAR // window)
    share = trace.total_tokens * 100 / window
    style = "bad" if share > 90 else "warn" if share > 75 else "good"
    drawn = (
        ink("█" * used, style)
        + ink("▒" * reserved, "dim")
        + ink("·" * (BAR - used - reserved), "dim")
    )
    beside = f", {trace.output_tokens:,} kept for the answer" if trace.output_tokens else ""
    return f"{drawn}  {share:.1f} % of {window:,}{beside}"


def _gone(gone: LeftOut) -> str:
    what = count(gone.count, "message" if gone.reason is not Reason.BUDGET else "block")
    cost = f", {gone.tokens:,} tokens" if gone.tokens is not None else ""
    between = f" ({short(gone.first)} to {short(gone.last)})" if gone.first and gone.last else ""
    return f"{what}{cost}{between}: {MEANINGS[gone.reason]}"


def _prefix(prefix: Prefix, ink: Ink) -> str:
    share = prefix.matched_bytes * 100 / max(1, prefix.last_bytes)
    told = f"of the last dispatch {size(prefix.matched_bytes)} still match, {share:.1f} %"
    if not prefix.moved_by:
        return told
    return ink(f"{told}: {', '.join(MEANINGS[reason] for reason in prefix.moved_by)}", "warn")
