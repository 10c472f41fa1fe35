"""Randomness of the machine, and the ids that are made of time and randomness."""

from __future__ import annotations

import random
import secrets
from typing import TYPE_CHECKING, Final

from antiphon.core.ids import sortable

if TYPE_CHECKING:
    from antiphon.engine.ports import Clock, Entropy

RANDOM_BITS: Final = 80
STORE_BYTES: Final = 512


class SystemEntropy:
    """The operating system's generator: an id cannot be guessed from the one before.

    It is asked for a store of bytes at a time, each used once: a system call for every id lets
    go of the interpreter, and on a busy process that costs more than the id.
    """

    def __init__(self) -> None:
        self._unused = b""

    def bits(self, count: int) -> int:
        """Return a number of `count` random bits."""
        size = (count + 7) // 8
        if len(self._unused) < size:
            self._unused = secrets.token_bytes(max(size, STORE_BYTES))
        drawn, self._unused = self._unused[:size], self._unused[size:]
        return int.from_bytes(drawn, "big") >> (8 * size - count)

    def fraction(self) -> float:
        """Return a number from 0 up to, not including, 1."""
        return _SYSTEM.random()


_SYSTEM: Final = random.SystemRandom()


class Ids:
    """Makes ids that sort in the order in which they were made, within one process.

    Between processes they sort by wall time, as far as the machines agree on it. When the clock
    stands still or goes back, time stays where it was and the random part counts up by a random
    step, so that order holds and the next id stays hard to guess.
    """

    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        self._clock = clock
        self._entropy = entropy
        self._last_ms = -1
        self._last_random = 0

    def new_id(self, prefix: str) -> str:
        """Return a new id, such as `msg_` and 26 characters."""
        now_ms = self._clock.now_ms()
        if now_ms > self._last_ms:
            self._last_ms = now_ms
            # The top bit is left free, so that counting up within this millisecond cannot overflow.
            self._last_random = self._entropy.bits(RANDOM_BITS - 1)
        else:
            self._last_random += 1 + self._entropy.bits(RANDOM_BITS // 2)
        return sortable(prefix, self._last_ms, self._last_random)
