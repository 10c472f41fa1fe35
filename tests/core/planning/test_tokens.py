"""Counting where nobody can count: by script, and by what providers reported."""

from __future__ import annotations

import pytest

from antiphon.core.planning.tokens import ESTIMATOR, Calibration, Weight, scaled


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("", 0, 0),
        ("a", 1, 1),
        ("the quick brown fox " * 100, 450, 700),
        ("def f(x): return x[0]\n" * 100, 500, 900),
        ("今天天气很好我们去公园散步吧。" * 50, 700, 1100),
        ("今日は天気がいいので公園を散歩しましょう。" * 50, 900, 1400),
        ("🙂" * 90, 90, 180),
    ],
)
def test_an_estimate_is_near_what_vocabularies_count_in_every_script(
    text: str, least: int, most: int
) -> None:
    assert least <= ESTIMATOR.count([text]) <= most


def test_every_text_is_counted_by_itself() -> None:
    assert ESTIMATOR.count(["ab", "cd"]) == 2
    assert ESTIMATOR.count(["abcd"]) == 2
    assert ESTIMATOR.count(["half a pair \ud800"]) > 0


def test_a_factor_is_applied_upwards() -> None:
    assert [scaled(n, 1150) for n in (0, 1, 100)] == [0, 2, 115]
    assert scaled(10_000, 840) == 8_400


def test_the_safety_factor_is_learned_from_the_worst_of_the_newest_answers() -> None:
    learning = Calibration()
    assert learning.factor_permille == 1150
    learning.learn(estimated=1000, reported=700)
    learning.learn(estimated=1000, reported=900)
    learning.learn(estimated=1000, reported=800)
    assert learning.factor_permille == 945  # 900 and a twentieth
    for _ in range(Calibration.KEPT):
        learning.learn(estimated=1000, reported=500)
    assert learning.factor_permille == 735


def test_answers_that_say_nothing_teach_nothing_and_no_answer_teaches_too_much() -> None:
    learning = Calibration()
    learning.learn(estimated=10, reported=500)
    learning.learn(estimated=1000, reported=0)
    assert learning.factor_permille == 1150
    learning.learn(estimated=100, reported=10**9)
    assert learning.factor_permille == Calibration.MOST
    assert Calibration(seed=900).factor_permille == 900


def test_weights_add_up_by_kind() -> None:
    both = Weight(system_policy=1, transcript=2) + Weight(tool_guidance=4, transcript=8)
    assert both == Weight(system_policy=1, tool_guidance=4, transcript=10)
    assert both.total == 15
