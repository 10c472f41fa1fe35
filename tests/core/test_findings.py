"""Findings: their order decides the reason, and their codes are those of the contract."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.rules.findings import GRAPH_CODES, PROFILE_CODES, Finding, Severity, ordered

# Written again by hand: codes are public, they may be added and never renamed.
GRAPH = """
    empty_sequence unknown_block_kind message_id_conflict duplicate_call_id missing_tool_result orphan_tool_result
    duplicate_tool_result result_before_call tool_mismatch arguments_mismatch generation_mismatch unclosed_arguments
    uncommitted_block foreign_branch dangling_leaf trust_violation cycle missing_parent foreign_parent malformed_item
"""
PROFILE = """
    role_unsupported system_not_first role_order must_start_with_user must_end_with_user empty_content
    block_not_allowed image_in_tool_result result_not_adjacent result_order response_count_mismatch item_order
    bad_call_id call_id_too_long bad_tool_name schema_unsupported tool_config_missing lost_signature lost_reasoning
    thinking_missing thinking_modified reasoning_unpaired foreign_reasoning too_many_blocks over_window
"""

findings = st.lists(
    st.builds(
        Finding,
        code=st.sampled_from(["cycle", "role_order", "bad_call_id"]),
        at=st.sampled_from("abc"),
        message=st.just("Why."),
        position=st.integers(0, 3),
        severity=st.sampled_from(Severity),
    ),
    max_size=8,
)


def test_every_code_of_the_contract_is_there() -> None:
    assert set(GRAPH.split()) <= set(GRAPH_CODES)
    assert set(PROFILE.split()) <= set(PROFILE_CODES)
    codes = GRAPH_CODES + PROFILE_CODES
    assert len(codes) == len(set(codes)), "a code stands twice"


@given(found=findings)
def test_findings_stand_by_place_then_by_how_bad_they_are_and_else_as_they_came(
    found: list[Finding],
) -> None:
    rank = {Severity.ERROR: 0, Severity.NOTE: 1}
    expected: list[Finding] = []
    for position in range(4):
        for severity in sorted(rank, key=rank.__getitem__):
            expected += [f for f in found if f.position == position and f.severity is severity]
    assert list(ordered(found)) == expected


def test_a_finding_does_not_change() -> None:
    finding = Finding(code="cycle", at="msg_1", message="Why.")
    assert finding.severity is Severity.ERROR
    with pytest.raises(AttributeError):
        finding.code = "other"  # type: ignore[misc]  # what is tested
    assert msgspec.json.decode(msgspec.json.encode(finding), type=Finding) == finding
