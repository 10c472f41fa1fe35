"""Tokens: who counts them, and how many there are where nobody can count.

A counter knows texts and nothing of requests: what of a rendered request is text that its model
reads, `antiphon.adapters.weighing` says. A counter that is not exact is scaled by a factor that
was learned from what providers reported; the factor is applied to sums, so that counts which are
kept stay right when it moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

TOKENS_A_MESSAGE: Final = 3
"""What stands around a message beside its role and text, in the form that OpenAI documents."""

TOKENS_A_REPLY: Final = 3
"""What stands behind the last message, where the answer begins."""

PERMILLE: Final = 1000

PROVIDER: Final = "provider"
"""Who counted, where the provider itself was asked."""

HIGH: Final = bytes(range(128, 256))


class Counter(Protocol):
    """Counts tokens of texts. The same texts always have the same count."""

    @property
    def name(self) -> str:
        """Which vocabulary it counts by, as the trace tells it."""

    @property
    def exact(self) -> bool:
        """Whether it is the model's own way to count."""

    def count(self, texts: Sequence[str]) -> int:
        """Return the tokens of all `texts` together, each counted by itself."""


class Estimator:
    """Counts by the length of a text in its script, where a model's vocabulary is not known.

    Latin text has about four characters to a token and code three; a character of Chinese or
    Japanese is about one token, and has three bytes. What it says is meant to be scaled.

    Example:
        >>> Estimator().count(["The quick brown fox jumps over the lazy dog.", "敏捷的棕色狐狸"])
        20
    """

    name: Final = "estimate"
    exact: Final = False

    def count(self, texts: Sequence[str]) -> int:
        """Return the tokens of all `texts` together, each rounded up."""
        total = 0
        for text in texts:
            if text.isascii():
                total += -(-len(text) * 10 // 36)
            else:
                encoded = text.encode("utf-8", "surrogatepass")
                narrow = len(encoded.translate(None, HIGH))
                total += -(-(narrow * 10 + (len(encoded) - narrow) * 12) // 36)
        return total


ESTIMATOR: Final = Estimator()


class Weight(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a model is shown of a rendered request, in tokens of one counter, by kind of block.

    Example:
        >>> (Weight(transcript=5) + Weight(tool_guidance=2)).total
        7
    """

    system_policy: int = 0
    tool_guidance: int = 0
    transcript: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.system_policy + self.tool_guidance + self.transcript

    def times(self, factor_permille: int) -> Weight:
        """Return it with every part multiplied, each rounded up."""
        return Weight(
            system_policy=scaled(self.system_policy, factor_permille),
            tool_guidance=scaled(self.tool_guidance, factor_permille),
            transcript=scaled(self.transcript, factor_permille),
        )

    def to(self, total: int) -> Weight:
        """Return it in the same proportions, so that all of it comes to `total`.

        Example:
            >>> Weight(system_policy=1, transcript=2).to(10)
            Weight(system_policy=3, tool_guidance=0, transcript=7)
        """
        own = max(self.total, 1)
        system, tools = (part * total // own for part in (self.system_policy, self.tool_guidance))
        return Weight(system_policy=system, tool_guidance=tools, transcript=total - system - tools)

    def __add__(self, other: Weight) -> Weight:
        return Weight(
            system_policy=self.system_policy + other.system_policy,
            tool_guidance=self.tool_guidance + other.tool_guidance,
            transcript=self.transcript + other.transcript,
        )


NOTHING: Final = Weight()


def scaled(tokens: int, factor_permille: int) -> int:
    """Return `tokens` times the factor, rounded up.

    Example:
        >>> scaled(10, 1150)
        12
    """
    return -(-tokens * factor_permille // PERMILLE)


class Calibration:
    """Learns how far an estimator is from what providers report, for one model.

    The factor is that of the worst of the newest answers and a little more: an estimate that is
    too low costs a refused request, one that is too high a few messages. It begins with a margin
    that nobody has confirmed yet.

    Example:
        >>> learning = Calibration()
        >>> learning.factor_permille
        1150
        >>> for _ in range(3):
        ...     learning.learn(estimated=1000, reported=800)
        >>> learning.factor_permille
        840
    """

    BEGINS: Final = 1150
    MARGIN: Final = 1050
    LEAST, MOST = 700, 4000
    KEPT: Final = 16
    TOO_FEW: Final = 64
    """An answer about fewer tokens says more about what stands around messages than about text."""

    __slots__ = ("_newest", "_seed")

    def __init__(self, seed: int = BEGINS) -> None:
        self._seed = seed
        self._newest: list[int] = []

    @property
    def factor_permille(self) -> int:
        """What sums are to be multiplied by, in thousandths."""
        if not self._newest:
            return self._seed
        return self._bounded(max(self._newest) * self.MARGIN // PERMILLE)

    def learn(self, *, estimated: int, reported: int) -> None:
        """Take in what a provider reported for a request that was estimated before it was sent."""
        if estimated < self.TOO_FEW or reported <= 0:
            return
        self._newest.append(self._bounded(-(-reported * PERMILLE // estimated)))
        del self._newest[: -self.KEPT]

    def _bounded(self, permille: int) -> int:
        return max(self.LEAST, min(self.MOST, permille))
