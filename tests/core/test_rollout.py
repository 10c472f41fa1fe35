"""Rollout: which way a request goes, and in what two requests differ."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.core.ids import TenantId
from antiphon.core.traffic.rollout import Kind, Rollout, Stage, Way, compare, way


def goes(stage: Stage, *, tools: bool, share: int = 100, bucket: int = 0) -> Way:
    rollout = Rollout(tenant=TenantId("acme"), model="m", stage=stage, share=share)
    return way(rollout, tools=tools, bucket=bucket)


@pytest.mark.req("M99", "M100", "M101")
@pytest.mark.parametrize(
    ("stage", "plain", "with_tools"),
    [
        (Stage.OFF, Way.OLD, Way.OLD),
        (Stage.SHADOW, Way.SHADOWED, Way.SHADOWED),
        (Stage.WITHOUT_TOOLS, Way.OURS, Way.SHADOWED),
        (Stage.TOOLS, Way.OURS, Way.OURS),
    ],
)
def test_each_stage_takes_what_it_says(stage: Stage, plain: Way, with_tools: Way) -> None:
    assert goes(stage, tools=False) is plain
    assert goes(stage, tools=True) is with_tools


def test_beyond_its_share_the_stage_before_holds() -> None:
    assert goes(Stage.SHADOW, tools=False, share=10, bucket=9) is Way.SHADOWED
    assert goes(Stage.SHADOW, tools=False, share=10, bucket=10) is Way.OLD
    assert goes(Stage.TOOLS, tools=True, share=50, bucket=60) is Way.SHADOWED
    assert goes(Stage.TOOLS, tools=False, share=50, bucket=60) is Way.OURS
    assert goes(Stage.OFF, tools=False, share=0, bucket=99) is Way.OLD


def differs(old: Any, ours: Any) -> list[tuple[Kind, str]]:
    found = compare(json.dumps(old).encode(), json.dumps(ours).encode())
    return sorted((one.kind, one.cause) for one in found)


def test_the_same_bytes_differ_in_nothing_and_the_same_json_in_its_spelling_only() -> None:
    assert compare(b'{"a":1}', b'{"a":1}') == ()
    (one,) = compare(b'{"a": 1,"b":2}', b'{"b":2,"a":1}')
    assert (one.kind, one.cause) == (Kind.BYTES, "spelling")


def test_differences_are_grouped_by_their_place_without_its_numbers() -> None:
    old = {"messages": [{"role": "developer", "content": "x"}, {"role": "developer"}], "n": 1}
    ours = {"messages": [{"role": "system", "content": "x"}, {"role": "system"}], "stream": True}
    assert differs(old, ours) == [
        (Kind.ADDED, "stream"),
        (Kind.CHANGED, "messages[].role"),
        (Kind.REMOVED, "n"),
    ]
    assert differs({"messages": [1, 2]}, {"messages": [1]}) == [(Kind.REMOVED, "messages[]")]
    assert differs({"a": 1}, {"a": "1"}) != []


def test_a_number_that_is_spelled_otherwise_is_another_number() -> None:
    assert compare(b'{"a":1.0}', b'{"a":1}')[0].kind is Kind.CHANGED
    assert compare(b'{"a":1}', b'{"a":"1"}')[0].kind is Kind.CHANGED


def test_examples_name_the_place_and_never_what_somebody_said() -> None:
    secret = "the launch code is 1234"
    old = {"messages": [{"content": secret, "tool_calls": [{"arguments": secret}]}], "top_p": 0.5}
    ours: dict[str, Any] = {"messages": [{"content": "x", "tool_calls": []}], "top_p": 1}
    found = compare(json.dumps(old).encode(), json.dumps(ours).encode())
    assert found
    assert all("launch" not in one.example for one in found)
    by_cause = {one.cause: one.example for one in found}
    assert by_cause["messages[].content"].startswith("messages[0].content: ")
    assert by_cause["top_p"] == "top_p: 0.5 -> 1"
