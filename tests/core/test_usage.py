"""What answers took: caches counted inside the input, sums of money that are not known."""

from __future__ import annotations

import pytest

from antiphon.core.answers.deltas import Usage
from antiphon.core.answers.usage import Cost, Used, added, together, used
from antiphon.engine.catalogue.models import Model, Routing
from antiphon.engine.catalogue.prices import AS_OF, PRICES, Price

INSIDE = Usage(input=100, output=20, cached=60, cache_write=10, reasoning=5)
APART = Usage(input=30, output=20, cached=60, cache_write=10, reasoning=5, cache_apart=True)


def model(name: str, price: Price | None = None) -> Model:
    return Model(
        name="m",
        profile="openai-chat",
        model=name,
        base_url="http://up.invalid/v1",
        routing=Routing(price=price),
    )


@pytest.mark.parametrize("usage", [INSIDE, APART], ids=["inside", "beside"])
def test_whatever_way_a_provider_counts_its_cache_the_same_answer_took_the_same(
    usage: Usage,
) -> None:
    assert used(usage) == Used(
        input_tokens=100,
        output_tokens=20,
        cached_tokens=60,
        cache_write_tokens=10,
        reasoning_tokens=5,
    )
    price = Price(input=10.0, output=100.0, cached=1.0, cache_write=12.0)
    assert price.micros(usage) == 30 * 10 + 60 * 1 + 10 * 12 + 20 * 100


def test_what_a_cache_gives_costs_as_much_as_the_rest_where_nobody_named_its_price() -> None:
    assert Price(input=3.0, output=0.0).micros(APART) == 300


def test_a_cost_says_of_which_day_its_prices_are_or_that_the_operator_named_them() -> None:
    known = model("gpt-4o").cost(Usage(input=1_000_000, output=0))
    assert known == Cost(micros=2_500_000, currency="USD", prices_of=AS_OF)
    own = model("gpt-4o", Price(input=1.0, output=1.0)).cost(Usage(input=7, output=1))
    assert own == Cost(micros=8, prices_of=None)


@pytest.mark.parametrize(
    ("name", "usage"),
    [("nobody-knows", INSIDE), ("gpt-4o", Usage()), ("gpt-4o", Usage(input=5))],
    ids=["no price", "nothing counted", "half counted"],
)
def test_what_nobody_knows_is_no_sum_of_nothing(name: str, usage: Usage) -> None:
    assert model(name).cost(usage) is None


def test_a_sum_is_unknown_as_soon_as_a_part_of_it_is() -> None:
    one, two = Cost(micros=1, prices_of="2026-11-30"), Cost(micros=2, prices_of="2027-01-31")
    assert added(one, two) == Cost(micros=3, prices_of="2027-01-31")
    assert added(one, None) is None
    assert added(None, two) is None
    half = Used(input_tokens=1, output_tokens=2, cached_tokens=1, reasoning_tokens=1, cost=one)
    assert together(None, half) == half
    assert together(half, half) == Used(
        input_tokens=2,
        output_tokens=4,
        cached_tokens=2,
        reasoning_tokens=2,
        cost=Cost(micros=2, prices_of="2026-11-30"),
    )


def test_what_a_cache_is_given_costs_five_quarters_at_the_one_provider_that_asks_for_it() -> None:
    dearer = {name for name, price in PRICES.items() if price.cache_write is not None}
    assert dearer == {name for name in PRICES if name.startswith("claude-")}
    assert all(PRICES[name].cache_write == PRICES[name].input * 1.25 for name in dearer)
