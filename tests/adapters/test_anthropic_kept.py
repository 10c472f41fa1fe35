"""Requests held against the thinking that earlier answers had left to be sent back."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.adapters import registry

CLAUDE = registry.get("anthropic")
X = {"role": "user", "content": "x"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "Eq=="}
SECOND = {"type": "thinking", "thinking": "and", "signature": "Er=="}
HIDDEN = {"type": "redacted_thinking", "data": "x"}
CALL = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "1"}]}


def codes(
    content: list[dict[str, Any]], stored: dict[str, Any], *rest: dict[str, Any]
) -> list[tuple[str, str]]:
    """What is said of a request whose message 1 is an answer of this content."""
    messages = [X, {"role": "assistant", "content": content}, *(rest or (RESULT,))]
    parsed = CLAUDE.parse({"messages": messages})
    return [(f.code, f.at) for f in CLAUDE.compare(parsed, stored)]


KEPT = [THOUGHT, HIDDEN, CALL]
FORMS: list[dict[str, Any]] = [
    {"committed_blocks": KEPT},
    {"committed_blocks": {"messages[1]": KEPT}},
    {"committed_blocks": {"messages[1].content": KEPT}},
    {"committed_blocks": [{"role": "assistant", "content": KEPT}]},
    {"committed_blocks": {"role": "assistant", "content": KEPT}},
    {"committed_blocks": {"1": KEPT}},
    {"committed_blocks": {"msg_01Ab": KEPT}},
    {"committed_blocks": [KEPT]},
    {
        "committed_blocks": [
            {"at": f"messages[1].content[{n}]", "block": block} for n, block in enumerate(KEPT)
        ]
    },
]


@pytest.mark.parametrize("stored", FORMS)
def test_thinking_of_the_loop_goes_back_whole_and_as_it_came(stored: dict[str, Any]) -> None:
    assert codes([THOUGHT, HIDDEN, CALL], stored) == []
    missing = [("thinking_missing", "messages[1]")]
    assert codes([CALL], stored) == missing
    assert codes([HIDDEN, CALL], stored) == missing
    other = {**THOUGHT, "thinking": "hm."}
    assert codes([other, HIDDEN, CALL], stored) == [("thinking_modified", "messages[1].content[0]")]
    other = {**THOUGHT, "signature": "Eq="}
    assert codes([other, HIDDEN, CALL], stored) == [("thinking_modified", "messages[1].content[0]")]
    other = {**HIDDEN, "data": "y"}
    assert codes([THOUGHT, other, CALL], stored) == [
        ("thinking_modified", "messages[1].content[1]")
    ]


def test_thinking_in_another_order_is_modified() -> None:
    found = codes([SECOND, THOUGHT, CALL], {"committed_blocks": [THOUGHT, SECOND, CALL]})
    assert {code for code, _ in found} == {"thinking_modified"}


def test_thinking_behind_another_call_than_it_came_behind_is_modified() -> None:
    other = {**CALL, "id": "t2"}
    both = {"role": "user", "content": [{**RESULT["content"][0], "tool_use_id": i} for i in ("t1", "t2")]}  # type: ignore[dict-item]  # fmt: skip
    stored = {"committed_blocks": [THOUGHT, CALL, SECOND, other]}
    assert codes([THOUGHT, CALL, SECOND, other], stored, both) == []
    assert codes([THOUGHT, SECOND, CALL, other], stored, both) == [
        ("thinking_modified", "messages[1].content[1]")
    ]
    assert codes([CALL, THOUGHT], {"committed_blocks": [THOUGHT, CALL]}) == [
        ("thinking_modified", "messages[1].content[1]")
    ]


@pytest.mark.parametrize(
    "blocks", [5, "x", None, [], [5, None], [[5]], {"messages[1]": 5}, [{"type": {}}], {"type": []}]
)
def test_what_holds_no_blocks_says_nothing(blocks: Any) -> None:
    assert codes([CALL], {"committed_blocks": blocks}) == []


def test_thinking_of_an_older_turn_may_be_left_out_whole_and_not_changed() -> None:
    stored = {"committed_blocks": KEPT}
    assert codes([CALL], stored, RESULT, X) == []
    assert codes([HIDDEN, CALL], stored, RESULT, X) == [("thinking_missing", "messages[1]")]
    changed: list[dict[str, Any]] = [{**THOUGHT, "signature": "no"}, HIDDEN, CALL]
    assert codes(changed, stored, RESULT, X) == [("thinking_modified", "messages[1].content[0]")]


def test_state_may_be_kept_by_the_place_of_its_block() -> None:
    stored = {"stored_provider_state": {"messages[1].content[0]": {"signature": "Eq=="}}}
    assert codes([THOUGHT, CALL], stored) == []
    assert codes([{**THOUGHT, "signature": "no"}, CALL], stored) == [
        ("thinking_modified", "messages[1].content[0]")
    ]
    assert codes([CALL], stored) == [("thinking_missing", "messages[1]")]


def test_what_was_kept_of_other_answers_or_by_nobody_says_nothing() -> None:
    other = {**CALL, "id": "t9"}
    assert codes([CALL], {"committed_blocks": [THOUGHT, other]}) == []
    assert codes([CALL], {"committed_blocks": {"messages[7]": KEPT}}) == []
    assert codes([CALL], {}) == codes([CALL], {"committed_blocks": 5}) == []
    assert codes([CALL], {"stored_provider_state": {"messages[0].content[0]": {}}}) == []
