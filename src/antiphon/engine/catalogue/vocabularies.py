"""Who counts for which model: a vocabulary that was bundled, or an estimate.

The vocabularies come inside `toktok-rs` and are read at the first count, which takes the better
part of a second and some 60 MB: an engine reads those of its models when it starts, nothing is
loaded for models that have none, and nothing is ever downloaded.
"""

from __future__ import annotations

import asyncio
import importlib.util
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Final

from antiphon.core.planning.tokens import ESTIMATOR, Counter

VOCABULARIES: Final[Mapping[str, re.Pattern[str]]] = MappingProxyType(
    {
        "o200k_harmony": re.compile(r"gpt-oss"),
        "o200k_base": re.compile(r"(chat)?gpt-4o|gpt-4\.[15]|gpt-[5-9]|o[1-9](-|$)"),
        "cl100k_base": re.compile(r"gpt-(4|3\.5|35)(-|$)"),
        "qwen3.5": re.compile(r"qwen-?3\.5"),
    }
)
"""Which models read by which vocabulary. Models of OpenAI that are to come are taken for like the last."""

FEW: Final = 24
"""Up to here one call for each text is faster than one for all of them."""

NO_LIMIT: Final = 2**31


class Vocabulary:
    """Counts as the model itself does."""

    exact: Final = True

    def __init__(self, name: str) -> None:
        self.name = name

    def count(self, texts: Sequence[str]) -> int:
        """Return the tokens of all `texts` together. Text that looks like a control token is text."""
        import toktok

        try:
            if len(texts) <= FEW:
                return sum(toktok.truncate(text, NO_LIMIT, self.name)[1] for text in texts)
            return sum(toktok.batch_count(texts, self.name, 1))
        except UnicodeEncodeError:
            return self.count([whole(text) for text in texts])


def whole(text: str) -> str:
    """Return `text` as it can be encoded: half a character counts as one that nobody knows."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


@cache
def counter_of(model: str) -> Counter:
    """Return who counts for the model that its provider calls `model`.

    Example:
        >>> counter_of("openai/gpt-5.4-mini").name, counter_of("claude-sonnet-5").name
        ('o200k_base', 'estimate')
    """
    own = model.lower().rpartition("/")[2]
    for name, pattern in VOCABULARIES.items():
        if pattern.match(own) and importlib.util.find_spec("toktok") is not None:
            return Vocabulary(name)
    return ESTIMATOR


async def read_vocabularies(models: Iterable[str]) -> None:
    """Read the vocabularies of `models` now, while nobody waits for an answer."""
    counters = {counter.name: counter for counter in map(counter_of, models) if counter.exact}
    for counter in counters.values():
        await asyncio.to_thread(counter.count, ["a"])
