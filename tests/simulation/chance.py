"""Everything that is left to chance, from one seed, in the order in which it is asked for."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Chance:
    """A seeded source of decisions; also the engine's `Entropy`."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def of_hundred(self, often: float) -> bool:
        """Say yes so often, of a hundred times. What never happens costs no draw."""
        return often > 0 and self._random.random() * 100 < often

    def up_to(self, most: float) -> float:
        return self._random.random() * most

    def below(self, number: int) -> int:
        return self._random.randrange(number)

    def one_of(self, things: Sequence[T]) -> T:
        return things[self._random.randrange(len(things))]

    def weighed(self, things: dict[T, float]) -> T:
        return self._random.choices(list(things), list(things.values()))[0]

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    # The engine's port.

    def bits(self, count: int) -> int:
        return self._random.getrandbits(count)

    def fraction(self) -> float:
        return self._random.random()
