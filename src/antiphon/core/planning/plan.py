"""The plan of a prompt: what goes in, in which order, within which budget, and why.

Pure: the same line, slots and budget give the same plan in every process. Required comes first,
then what has the higher priority, each in the order in which it was given; of the talk the newest
turns are kept in one piece. What is required and does not fit is refused before anything is sent:
nothing is trimmed in silence, and nothing at all unless the caller lets it be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from antiphon.core.ids import MessageId
from antiphon.core.planning.budget import Budget, Grant
from antiphon.core.planning.trace import (
    CACHEABLE,
    ORDER,
    BlockKind,
    BlockTrace,
    LeftOut,
    PromptTrace,
    Reason,
    Selection,
)
from antiphon.core.planning.trimming import INSTRUCTING, Candidate, cut
from antiphon.core.rules.findings import Finding

TRANSCRIPT_PRIORITY: Final = 0
"""Where older turns stand among the slots: behind those of no priority at all, before lower ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A block that may stand in a prompt beside the talk.

    Attributes:
        id: Its own name.
        tokens: What it costs.
        priority: The higher is kept first where not all fits.
        required: Whether the dispatch is refused rather than made without it.
    """

    kind: BlockKind
    id: str
    tokens: int
    priority: int = 0
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPlan:
    """What goes into one dispatch, and the trace that explains it.

    `kept` are messages in the order of the line, `slots` the others in the order in which they
    stand. Where the `grant` is over the window nothing may be sent.
    """

    kept: tuple[MessageId, ...]
    slots: tuple[Slot, ...]
    grant: Grant
    trace: PromptTrace

    @property
    def fits(self) -> bool:
        """Whether it may be sent."""
        return self.grant.fits


def select(slots: Iterable[Slot], budget: int | None) -> tuple[Slot, ...]:
    """Return what is kept of `slots`: all that is required, and by priority what still fits.

    They come back in the order in which they are chosen; slots of the same priority keep theirs.

    Example:
        >>> a, b = (Slot(kind=BlockKind.DYNAMIC_CONTEXT, id=name, tokens=6) for name in "ab")
        >>> [slot.id for slot in select([a, b], 10)]
        ['a']
    """
    kept, used = [], 0
    for slot in sorted(slots, key=lambda slot: (not slot.required, -slot.priority)):
        if slot.required or budget is None or used + slot.tokens <= budget:
            kept.append(slot)
            used += slot.tokens
    return tuple(kept)


def plan(
    line: Sequence[Candidate],
    slots: Sequence[Slot] = (),
    budget: Budget | None = None,
    *,
    trim: bool = True,
    keep_last: int | None = None,
    counted_by: str = "given",
) -> PromptPlan:
    """Return the plan for a dispatch of `line` with `slots` beside it.

    Args:
        line: What was said, root first, as it costs.
        slots: Instructions, tools and reference material.
        budget: What the model can hold; None bounds nothing.
        trim: Whether anything may be left out to make it fit; otherwise it fits or it does not.
        keep_last: Most messages of the line that are kept, moved to the beginning of a turn.
        counted_by: Who counted, for the trace.
    """
    budget = budget or Budget(window=None)
    room = budget.prompt if trim else None
    newest = cut(line, messages=1)
    floor = sum(m.tokens for m in (*line[newest:], *_staying(line[:newest])))
    before = [s for s in slots if s.required or s.priority >= TRANSCRIPT_PRIORITY]
    after = [s for s in slots if not (s.required or s.priority >= TRANSCRIPT_PRIORITY)]
    kept = select(before, None if room is None else room - floor)
    left = None if room is None else room - sum(slot.tokens for slot in kept)
    start = cut(line, tokens=left, messages=keep_last)
    sent = (*_staying(line[:start]), *line[start:])
    said = sum(message.tokens for message in sent)
    kept += select(after, None if left is None else left - said)
    ordered = sorted(kept, key=lambda slot: ORDER.index(slot.kind))
    total = said + sum(slot.tokens for slot in kept)
    grant = budget.grant(total)
    dropped = [slot for slot in slots if slot not in kept]
    gone = [message for message in line[:start] if not message.stays]
    trace = PromptTrace(
        total_tokens=total,
        counted_by=counted_by,
        blocks=_blocks(sent, ordered),
        messages=len(sent),
        window=budget.window,
        margin_tokens=budget.margin,
        output_tokens=grant.output_tokens,
        output_reduced_from=grant.reduced_from,
        left_out=(*_left_out(Reason.TRUNCATION, gone), *_left_out(Reason.BUDGET, dropped)),
        selection=Selection(start=line[start].id if start else None),
    )
    return PromptPlan(
        kept=tuple(message.id for message in sent), slots=tuple(ordered), grant=grant, trace=trace
    )


def over_window(at: str, total_tokens: int, grant: Grant, window: int) -> Finding:
    """Return why a prompt may not be sent."""
    return Finding(
        code="over_window",
        at=at,
        message=f"The request has {total_tokens} tokens, {grant.over_tokens} more than the model's window of "
        f"{window} leaves beside the answer. Shorten it, let older turns be left out (truncation: auto), or "
        "choose a model that holds more.",
    )


def _staying(line: Iterable[Candidate]) -> list[Candidate]:
    return [message for message in line if message.stays]


def _blocks(sent: Sequence[Candidate], slots: Sequence[Slot]) -> tuple[BlockTrace, ...]:
    tokens = dict.fromkeys(ORDER, 0)
    sources = dict.fromkeys(ORDER, 0)
    for message in sent:
        told = message.role in INSTRUCTING
        kind = BlockKind.SYSTEM_POLICY if told else BlockKind.TRANSCRIPT
        tokens[kind] += message.tokens
        sources[kind] += 1
    for slot in slots:
        tokens[slot.kind] += slot.tokens
        sources[slot.kind] += 1
    return tuple(
        BlockTrace(
            kind=kind, tokens=tokens[kind], cacheable=kind in CACHEABLE, sources=sources[kind]
        )
        for kind in ORDER
        if sources[kind]
    )


def _left_out(reason: Reason, gone: Sequence[Candidate] | Sequence[Slot]) -> list[LeftOut]:
    if not gone:
        return []
    tokens = sum(one.tokens for one in gone)
    return [
        LeftOut(reason=reason, count=len(gone), tokens=tokens, first=gone[0].id, last=gone[-1].id)
    ]
