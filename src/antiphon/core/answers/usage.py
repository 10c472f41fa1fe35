"""What answers took: tokens as their providers counted them, and what these cost.

Providers count what a cache gave in two ways, inside the input and beside it. Here it is inside,
so that counts of different providers can be added and compared.
"""

from __future__ import annotations

import msgspec

from antiphon.core.answers.deltas import Usage


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Money, in millionths of its unit, at the prices of a day.

    Attributes:
        micros: Millionths of `currency`: small sums add up without rounding.
        currency: Which money it is.
        prices_of: The day of the bundled table of prices; None where the configuration named them.
    """

    micros: int
    currency: str = "USD"
    prices_of: str | None = None


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """What one answer took, or several.

    Attributes:
        input_tokens: All that the model was given, from a cache or not.
        output_tokens: All that it said, what it thought included.
        cached_tokens: What of the input a cache gave.
        cache_write_tokens: What of the input was put into a cache, at a price of its own.
        reasoning_tokens: What of the output was thinking.
        cost: What it cost; None where nobody knows what its tokens cost.
    """

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost: Cost | None = None


def used(usage: Usage, cost: Cost | None = None) -> Used:
    """Return what an answer took; what its provider did not count is nothing.

    Example:
        >>> used(Usage(input=10, output=5, cached=90, cache_apart=True)).input_tokens
        100
    """
    return Used(
        input_tokens=usage.whole_input or 0,
        output_tokens=usage.output or 0,
        cached_tokens=usage.cached or 0,
        cache_write_tokens=usage.cache_write or 0,
        reasoning_tokens=usage.reasoning or 0,
        cost=cost,
    )


def together(one: Used | None, other: Used) -> Used:
    """Return what both took; before the first there was nothing."""
    if one is None:
        return other
    return Used(
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cached_tokens=one.cached_tokens + other.cached_tokens,
        cache_write_tokens=one.cache_write_tokens + other.cache_write_tokens,
        reasoning_tokens=one.reasoning_tokens + other.reasoning_tokens,
        cost=added(one.cost, other.cost),
    )


def added(one: Cost | None, other: Cost | None) -> Cost | None:
    """Return both together: unknown as soon as one is, at the newest prices that were asked.

    Example:
        >>> added(Cost(micros=2, prices_of="2026-11-30"), Cost(micros=3)).micros
        5
    """
    if one is None or other is None:
        return None
    days = [cost.prices_of for cost in (one, other) if cost.prices_of is not None]
    return Cost(micros=one.micros + other.micros, prices_of=max(days, default=None))
