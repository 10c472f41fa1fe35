"""What the model will see. Here in its simplest honest form: the whole line.

`plan` is pure: the same line, instructions and tools give the same plan in every process.
What is required and does not fit is refused before anything is sent; nothing is trimmed in
silence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from antiphon.core.blocks import Message
from antiphon.core.manifest import Policy, ToolDeclaration


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTrace:
    """One kind of block in the plan, for people: how many, and whether it is cacheable."""

    kind: str
    count: int
    cacheable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPlan:
    """What goes into one dispatch, in order, and the trace that explains it."""

    messages: tuple[Message, ...]
    policy: Policy
    tools: tuple[ToolDeclaration, ...]
    trace: tuple[BlockTrace, ...]


def plan(line: Sequence[Message], policy: Policy, tools: Sequence[ToolDeclaration]) -> PromptPlan:
    """Return the plan for a dispatch of `line`: stable things first, then the talk."""
    trace = (
        BlockTrace(kind="system_policy", count=int(bool(policy.instructions)), cacheable=True),
        BlockTrace(kind="tool_guidance", count=len(tools), cacheable=True),
        BlockTrace(kind="transcript", count=len(line), cacheable=True),
    )
    return PromptPlan(messages=tuple(line), policy=policy, tools=tuple(tools), trace=trace)
