"""How a window is shared between prompt and answer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.planning.budget import Budget


def test_a_window_that_nobody_knows_bounds_nothing() -> None:
    budget = Budget(window=None, output=500)
    assert budget.prompt is None
    assert budget.grant(10**9).fits
    assert budget.grant(10**9).output_tokens == 500


def test_what_is_free_is_window_less_output_less_margin() -> None:
    budget = Budget(window=1000, output=300, margin=50)
    assert budget.prompt == 650
    assert budget.grant(650).output_tokens == 300
    assert budget.grant(650).reduced_from is None


def test_a_reserve_beyond_what_is_free_shrinks_in_steps_and_says_so() -> None:
    budget = Budget(window=1000, output=400, output_minimum=100)
    assert budget.grant(650).output_tokens == 300
    assert budget.grant(650).reduced_from == 400
    assert budget.grant(699).output_tokens == 300
    assert budget.grant(701).output_tokens == 225


def test_it_never_shrinks_below_its_minimum() -> None:
    budget = Budget(window=1000, output=400, output_minimum=100)
    assert budget.grant(900).output_tokens == 100
    over = budget.grant(901)
    assert (over.fits, over.over_tokens, over.output_tokens) == (False, 1, 400)


def test_who_asks_for_less_than_the_minimum_needs_no_more() -> None:
    assert Budget(window=100, output=5, output_minimum=64).grant(95).output_tokens == 5
    assert Budget(window=100, output=0, output_minimum=64).grant(100).fits


def test_an_answer_that_nobody_bounds_needs_the_minimum() -> None:
    budget = Budget(window=1000, output_minimum=64)
    assert budget.grant(936).fits
    assert budget.grant(936).output_tokens is None
    assert budget.grant(937).over_tokens == 1


def test_a_reserve_larger_than_the_window_leaves_half_of_it_to_the_prompt() -> None:
    assert Budget(window=4096, output=20_000).prompt == 2048


@given(
    st.integers(1, 5000), st.one_of(st.none(), st.integers(0, 30_000)), st.integers(1, 300),
    st.integers(0, 50), st.integers(0, 6000),
)  # fmt: skip
def test_prompt_answer_and_margin_always_fit_together(
    window: int, output: int | None, minimum: int, margin: int, prompt: int
) -> None:
    budget = Budget(window=window, output=output, output_minimum=minimum, margin=margin)
    grant = budget.grant(prompt)
    needed = min(minimum, output) if output else (0 if output == 0 else minimum)
    assert grant.fits is (prompt + margin + needed <= window)
    if grant.fits and grant.output_tokens is not None:
        assert prompt + margin + grant.output_tokens <= window
        assert grant.output_tokens >= needed
        assert (grant.reduced_from is None) is (grant.output_tokens == output)
    assert budget.prompt is not None
    assert budget.prompt <= window
