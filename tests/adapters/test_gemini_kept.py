"""Requests held against the signatures that earlier answers had left to be sent back."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.adapters import registry

X = {"role": "user", "parts": [{"text": "x"}]}
CALL = {"functionCall": {"name": "f", "args": {"a": 1}}}
OTHER = {"functionCall": {"name": "g", "args": {}}}
RESULTS = {
    "role": "user",
    "parts": [{"functionResponse": {"name": n, "response": {}}} for n in ("f", "g")],
}
SIGNED = {**CALL, "thoughtSignature": "c2ln"}


def found(
    parts: list[dict[str, Any]], stored: dict[str, Any], *rest: dict[str, Any], **facts: Any
) -> list[tuple[str, str]]:
    """What is said of a request whose content 1 is an answer of these parts."""
    adapter = registry.get("gemini", facts)
    contents = [X, {"role": "model", "parts": parts}, *(rest or (RESULTS,))]
    parsed = adapter.parse({"contents": contents})
    return [(f.code, f.at) for f in adapter.compare(parsed, stored)]


FORMS: list[dict[str, Any]] = [
    {"stored_provider_state": {"messages[1].parts[0]": {"thoughtSignature": "c2ln"}}},
    {"stored_provider_state": {"contents[1].parts[0]": {"thought_signature": "c2ln"}}},
    {"committed_blocks": [SIGNED, OTHER]},
    {"committed_blocks": [{"role": "model", "parts": [SIGNED, OTHER]}]},
    {"committed_blocks": {"contents[1]": [SIGNED]}},
]
LOST = [("lost_signature", "contents[1].parts[0]")]


@pytest.mark.req("M48")
@pytest.mark.parametrize("stored", FORMS)
def test_a_signature_goes_back_on_its_part_as_it_came(stored: dict[str, Any]) -> None:
    assert found([SIGNED, OTHER], stored) == []
    assert found([CALL, OTHER], stored) == LOST
    assert found([{**CALL, "thoughtSignature": "c2lo"}, OTHER], stored) == LOST
    assert found([CALL, {**OTHER, "thoughtSignature": "c2ln"}], stored) == LOST


def test_a_call_with_an_id_is_known_by_it() -> None:
    kept = {"functionCall": {"id": "7", "name": "f", "args": {}}, "thoughtSignature": "c2ln"}
    sent = {"functionCall": {"id": "7", "name": "f", "args": {"changed": True}}}
    assert found([sent, OTHER], {"committed_blocks": [kept]}) == LOST


@pytest.mark.parametrize("part", [{"text": "so"}, {"text": ""}])
def test_a_signed_text_is_missed_too(part: dict[str, Any]) -> None:
    stored = {"stored_provider_state": {"contents[1].parts[0]": {"thoughtSignature": "c2ln"}}}
    signed = {**part, "thoughtSignature": "c2ln"}
    assert found([signed, CALL, OTHER], stored) == []
    assert found([part, CALL, OTHER], stored) == LOST


def test_older_turns_and_models_that_do_not_mind_miss_nothing() -> None:
    stored = FORMS[0]
    assert found([CALL, OTHER], stored, RESULTS, X) == []
    assert found([CALL, OTHER], stored, thought_signatures="none") == []


def test_what_the_rule_says_is_not_said_twice() -> None:
    assert found([CALL, OTHER], FORMS[0], thought_signatures="first_call_of_each_step") == []
    other = {**CALL, "thoughtSignature": "no"}
    assert found([other, OTHER], FORMS[0], thought_signatures="first_call_of_each_step") == LOST


def test_what_was_kept_of_other_answers_or_by_nobody_says_nothing() -> None:
    nothing: list[dict[str, Any]] = [
        {},
        {"committed_blocks": 5},
        {"committed_blocks": [{**OTHER, "thoughtSignature": "x", "functionCall": {"name": "h"}}]},
        {"stored_provider_state": {"contents[9].parts[0]": {"thoughtSignature": "c2ln"}}},
        {"stored_provider_state": {"contents[1].parts[0]": 5}},
    ]
    for stored in nothing:
        assert found([CALL, OTHER], stored) == []
