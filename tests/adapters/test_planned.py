"""Whatever a plan leaves out, what it keeps may be sent over every dialect, and it fits."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.adapters import registry
from antiphon.adapters.base import Rendering, render
from antiphon.core.blocks import Message
from antiphon.core.inputs import Summary
from antiphon.core.manifest import Policy
from antiphon.core.planning.budget import Budget
from antiphon.core.planning.plan import Slot, plan
from antiphon.core.planning.tokens import ESTIMATOR
from antiphon.core.planning.trace import BlockKind
from antiphon.core.planning.trimming import candidate, chosen
from antiphon.errors import SequenceRejected
from tests.core.planning.test_trimming import talks
from tests.support.everywhere import DIALECTS, TOOLS
from tests.support.lines import HERE, KEY, user


def sent(dialect: str, messages: list[Message], summary: str = "") -> Rendering | None:
    """Render for a dialect; None where its rules refuse the line."""
    policy = Policy(model="m-1", profile=dialect, endpoint="http://127.0.0.1:1")
    try:
        if not summary:
            return render(registry.get(dialect), messages, policy, TOOLS, key=KEY)
        line = registry.get(dialect).line(policy, TOOLS, key=KEY)
        first = next(m.id for m in messages if m.role.value == "user")
        for message in messages:
            beside = (Summary(id="s", text=summary, scope=HERE),) if message.id == first else ()
            line.feed(message, inputs=beside)
        return line.finish()
    except SequenceRejected:
        return None


@pytest.mark.req("M107")
@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(talks(), st.integers(50, 900), st.text(max_size=30))
def test_what_a_plan_keeps_is_as_legal_as_all_of_it_and_fits(
    dialect: str, said: list[Message], window: int, summary: str
) -> None:
    path = [*said, user("And now?", id="last", parent=said[-1].id)]
    if (whole := sent(dialect, path)) is None:
        return  # not for this dialect, whatever is left out
    tools = Slot(
        kind=BlockKind.TOOL_GUIDANCE,
        id="tools",
        tokens=whole.weigh(ESTIMATOR).tool_guidance,
        required=True,
    )
    line = [candidate(message, ESTIMATOR) for message in path]
    made = plan(line, [tools], Budget(window=window, output=10))
    kept = chosen(path, made.trace.selection.start)
    assert [m.id for m in kept] == list(made.kept)
    rendering = sent(dialect, kept)
    assert rendering is not None
    if made.fits:
        # What messages cost is a guide; what is rendered is near it.
        assert rendering.weigh(ESTIMATOR).total <= window * 1.5
    assert sent(dialect, kept, summary or "s") is not None
    free = plan(line, [tools])
    assert free.kept == tuple(m.id for m in path)
    again = sent(dialect, chosen(path, free.trace.selection.start))
    assert again is not None
    assert again.request_digest == whole.request_digest
