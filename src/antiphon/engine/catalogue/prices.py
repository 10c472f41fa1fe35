"""What tokens cost: a table with its date, and what the configuration says of a model instead.

Prices are in dollars for a million tokens, which is millionths of a dollar for one. They are
what the providers listed on the day; a contract of one's own stands in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from antiphon.core.answers.deltas import Usage

AS_OF: Final = "2026-11-30"


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dollars for a million tokens.

    Input that a cache gave, or that was put into one, has its own price where one is known.
    """

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None

    def micros(self, usage: Usage) -> int:
        """Return what an answer cost, in millionths of a dollar.

        Example:
            >>> Price(input=2.5, output=10.0, cached=1.25).micros(Usage(input=100, output=10, cached=40))
            300
        """
        given = usage.whole_input or 0
        cached = min(usage.cached or 0, given)
        written = min(usage.cache_write or 0, given - cached)
        kept = self.input if self.cached is None else self.cached
        keeping = self.input if self.cache_write is None else self.cache_write
        fresh = given - cached - written
        made = usage.output or 0
        return round(fresh * self.input + cached * kept + written * keeping + made * self.output)


def _at(given: float, made: float, cached: float) -> Price:
    return Price(input=given, output=made, cached=cached)


def _claude(given: float, made: float, cached: float) -> Price:
    """Return the price of a model whose caches are written at five quarters of its input's."""
    return Price(input=given, output=made, cached=cached, cache_write=given * 1.25)


PRICES: Final[Mapping[str, Price]] = MappingProxyType(
    {
        "claude-haiku-4-5": _claude(1.0, 5.0, 0.1),
        "claude-haiku-5-5": _claude(0.1, 0.5, 0.01),
        "claude-opus-4-5": _claude(5.0, 25.0, 0.5),
        "claude-opus-4-8": _claude(5.0, 25.0, 0.5),
        "claude-opus-5": _claude(5.0, 25.0, 0.5),
        "claude-opus-5-5": _claude(4.0, 20.0, 0.2),
        "claude-sonnet-4-5": _claude(3.0, 15.0, 0.3),
        "claude-sonnet-4-6": _claude(3.0, 15.0, 0.3),
        "claude-sonnet-5": _claude(2.0, 10.0, 0.2),
        "claude-sonnet-5-5": _claude(2.0, 10.0, 0.1),
        "codestral-latest": _at(0.3, 0.9, 0.03),
        "deepseek-chat": _at(0.28, 0.42, 0.028),
        "deepseek-reasoner": _at(0.28, 0.42, 0.028),
        "gemini-2.5-flash": _at(0.3, 2.5, 0.03),
        "gemini-2.5-flash-lite": _at(0.1, 0.4, 0.01),
        "gemini-3.5-flash": _at(1.5, 9.0, 0.15),
        "gemini-3.8-flash": _at(0.75, 3.75, 0.075),
        "gpt-4.1": _at(2.0, 8.0, 0.5),
        "gpt-4.1-mini": _at(0.4, 1.6, 0.1),
        "gpt-4o": _at(2.5, 10.0, 1.25),
        "gpt-4o-mini": _at(0.15, 0.6, 0.075),
        "gpt-5": _at(1.25, 10.0, 0.125),
        "gpt-5-mini": _at(0.25, 2.0, 0.025),
        "gpt-5-nano": _at(0.05, 0.4, 0.005),
        "gpt-5.1": _at(1.25, 10.0, 0.125),
        "gpt-5.2": _at(1.75, 14.0, 0.175),
        "gpt-5.4": _at(2.5, 15.0, 0.25),
        "gpt-5.4-mini": _at(0.75, 4.5, 0.075),
        "gpt-5.4-nano": _at(0.2, 1.25, 0.02),
        "gpt-5.5": _at(5.0, 30.0, 0.5),
        "gpt-5.6": _at(4.0, 20.0, 0.4),
        "mistral-large-latest": _at(0.5, 1.5, 0.05),
        "mistral-medium-latest": _at(1.5, 7.5, 0.15),
        "mistral-small-latest": _at(0.15, 0.6, 0.015),
        "o3": _at(2.0, 8.0, 0.5),
        "o4-mini": _at(1.1, 4.4, 0.275),
        "openai/gpt-oss-120b": _at(0.15, 0.6, 0.075),
        "openai/gpt-oss-20b": _at(0.075, 0.3, 0.0375),
    }
)
"""By the names that providers have for their models."""
