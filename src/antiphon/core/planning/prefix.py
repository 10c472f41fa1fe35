"""How much of one body another begins with: what a provider may have cached of it."""

from __future__ import annotations

from collections.abc import Sequence


def common_prefix(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """Return how many bytes two bodies in pieces begin with alike.

    Bodies that grew from one share their pieces, and those are not compared byte by byte.

    Example:
        >>> common_prefix([b"abc", b"de"], [b"ab", b"cdX"])
        4
    """
    shared = place = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine is not theirs:
            break
        shared += len(mine)
        place += 1
    left, right = b"".join(one[place:]), b"".join(other[place:])
    return shared + _alike(left, right)


def _alike(one: bytes, other: bytes) -> int:
    """Return the length of the longest common beginning, by halves: comparing slices is fast."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if one[least:middle] == other[least:middle]:
            least = middle
        else:
            most = middle - 1
    return least
