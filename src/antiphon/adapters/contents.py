"""What several dialects say alike about a block."""

from __future__ import annotations

from antiphon.core.blocks import Block, Refusal, Text, ToolResult


def is_blank(block: Block) -> bool:
    """Whether a block is text that says nothing: many wires refuse it."""
    return isinstance(block, (Text, Refusal)) and not block.text.strip()


def failure(result: ToolResult) -> str:
    """Return how a result that is no success begins, for a model to read."""
    return f"[{result.outcome} {result.code}]" if result.code else f"[{result.outcome}]"
