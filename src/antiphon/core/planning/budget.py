"""How many tokens a prompt may have, and how many are left for the answer.

The window holds both. What the answer is to have is reserved first; where the prompt leaves less,
the reserve shrinks, but never below its minimum: then the prompt is over the window and nothing is
sent. A window that nobody knows bounds nothing: the provider will say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STEP_NUMERATOR: Final = 3
STEP_DENOMINATOR: Final = 4
"""A reserve shrinks to three quarters at a time: it stands in the request before the history, and
every other value there moves all that follows."""

MOST_RESERVED: Final = 2
"""At most one part in so many of a window is kept free for the answer when the prompt is trimmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a prompt of a given size comes to.

    Attributes:
        output_tokens: What the answer may have; None where nobody bounds it.
        reduced_from: What had been asked for it, where it had to shrink.
        over_tokens: By how much the prompt is too large to be sent; 0 where it fits.
    """

    output_tokens: int | None
    reduced_from: int | None = None
    over_tokens: int = 0

    @property
    def fits(self) -> bool:
        """Whether the prompt may be sent."""
        return self.over_tokens == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What one model can hold, and how it is shared.

    Attributes:
        window: Tokens of prompt and answer together; None where nobody knows.
        output: What the answer is asked under; None leaves that to the provider.
        output_minimum: Least that is kept free for the answer.
        margin: Kept free in any case, against counts that are too low.
    """

    window: int | None
    output: int | None = None
    output_minimum: int = 64
    margin: int = 0

    @property
    def prompt(self) -> int | None:
        """Most that a prompt is trimmed to: the window less output and margin, and half at least."""
        if self.window is None:
            return None
        free = self.window - self.margin
        wanted = self._least if self.output is None else self.output
        return max(0, free - max(self._least, min(wanted, free // MOST_RESERVED)))

    @property
    def _least(self) -> int:
        """The minimum, or less where less was asked for."""
        if self.output is None:
            return self.output_minimum
        return min(self.output_minimum, self.output)

    def grant(self, prompt_tokens: int) -> Grant:
        """Return whether a prompt of so many tokens fits, and what is left for the answer.

        Example:
            >>> Budget(window=4096, output=20000).grant(3).output_tokens
            3558
            >>> Budget(window=4096, output=20000).grant(4090).over_tokens
            58
        """
        if self.window is None:
            return Grant(output_tokens=self.output)
        free = self.window - self.margin - prompt_tokens
        least = self._least
        if free < least:
            return Grant(output_tokens=self.output, over_tokens=least - free)
        if self.output is None or self.output <= free:
            return Grant(output_tokens=self.output)
        shrunk = self.output
        while shrunk > free:
            shrunk = shrunk * STEP_NUMERATOR // STEP_DENOMINATOR
        return Grant(output_tokens=max(shrunk, least), reduced_from=self.output)
