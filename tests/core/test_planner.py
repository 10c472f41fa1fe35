"""The plan of a dispatch, in its simplest honest form."""

from __future__ import annotations

import pytest

from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.planner import plan
from antiphon.core.tree import line
from tests.core.test_tree import TALK, node


def test_a_plan_is_the_whole_line_in_its_order_and_says_what_it_holds() -> None:
    policy, tools = Policy(model="m", instructions="Be brief."), (ToolDeclaration(name="clock"),)
    made = plan(TALK, policy, tools)
    assert (made.messages, made.policy, made.tools) == (tuple(TALK), policy, tools)
    assert [(t.kind, t.count, t.cacheable) for t in made.trace] == [
        ("system_policy", 1, True),
        ("tool_guidance", 1, True),
        ("transcript", 5, True),
    ]
    assert plan(TALK, policy, tools) == made


@pytest.mark.req("M32", "M25")
def test_what_was_said_what_is_seen_and_whose_goal_it_is_are_three_things() -> None:
    history = [*TALK, node("aside", "u1"), node("deleted", "u2")]
    seen = plan(line([*TALK, history[-1]], {history[-1].id}), Policy(model="m"), ())
    # The context leaves things out; the history keeps them, and neither knows a session's goal.
    assert [m.id for m in seen.messages] == [m.id for m in TALK]
    assert {m.id for m in history} - {m.id for m in seen.messages} == {"aside", "deleted"}
    assert all(m.session is None for m in history)
