"""Findings: why a sequence may not be sent; repairs: what would make it legal. Data."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec


class Severity(StrEnum):
    """How bad a finding is. Only `error` refuses; `note` is shown and sent all the same."""

    ERROR = "error"
    NOTE = "note"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One rule that one block breaks.

    Attributes:
        code: Stable reason code, one of `GRAPH_CODES` or `PROFILE_CODES`.
        at: The place as the reader knows it: `messages[3].content[0]`, or a block id.
        message: One sentence that says what is wrong and what would help.
        position: Index of the block in the sequence, for ordering.
        call_ids: The calls that it is about.
    """

    code: str
    at: str
    message: str
    position: int = 0
    severity: Severity = Severity.ERROR
    call_ids: tuple[str, ...] = ()


class Change(StrEnum):
    """What was done to one message or block."""

    RESULT_ADDED = "result_added"
    RESULT_REMOVED = "result_removed"
    RESULT_MOVED = "result_moved"
    CALL_REMOVED = "call_removed"
    CALL_RENAMED = "call_renamed"
    MESSAGE_REMOVED = "message_removed"


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """One change, where it was made, and the reason code of the rule that asked for it."""

    change: Change
    reason: str
    at: str
    call_id: str = ""


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return `findings` by position, then severity; the first is the reason for a refusal."""
    return tuple(sorted(findings, key=lambda f: (f.position, f.severity is not Severity.ERROR)))


GRAPH_CODES: Final = (
    "empty_sequence",
    "content_erased",
    "unknown_block_kind",
    "message_id_conflict",
    "duplicate_call_id",
    "missing_tool_result",
    "orphan_tool_result",
    "duplicate_tool_result",
    "result_before_call",
    "tool_mismatch",
    "arguments_mismatch",
    "generation_mismatch",
    "unclosed_arguments",
    "uncommitted_block",
    "foreign_branch",
    "dangling_leaf",
    "trust_violation",
    "cycle",
    "missing_parent",
    "foreign_parent",
    "malformed_item",
    "unknown_profile",
    "unknown_tool",
    "bad_option",
)
"""Rules that hold for every provider."""

PROFILE_CODES: Final = (
    "role_unsupported",
    "system_not_first",
    "role_order",
    "must_start_with_user",
    "must_end_with_user",
    "empty_content",
    "block_not_allowed",
    "image_in_tool_result",
    "result_not_adjacent",
    "result_order",
    "response_count_mismatch",
    "item_order",
    "bad_call_id",
    "call_id_too_long",
    "bad_tool_name",
    "schema_unsupported",
    "tool_config_missing",
    "lost_signature",
    "lost_reasoning",
    "thinking_missing",
    "thinking_modified",
    "reasoning_unpaired",
    "foreign_reasoning",
    "too_many_blocks",
    "over_window",
)
"""Rules that one dialect has; each profile names those that hold for it."""
