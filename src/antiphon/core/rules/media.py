"""Images, sound and files that a block holds itself: base64, in any spelling that is still one."""

from __future__ import annotations

import binascii
import re
from typing import Final

from antiphon.core.blocks import Audio, File, Image

MEDIA: Final[frozenset[type]] = frozenset({Image, Audio, File})

_LENIENT: Final = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
"""Both alphabets, padded or not: servers differ in which of them they take."""


def unreadable(block: Image | Audio | File) -> bool:
    """Return whether a block holds data that nobody could decode.

    Example:
        >>> [unreadable(Audio(data=data, format="wav")) for data in ("UklGRg==", "UklGRg", "?", "")]
        [False, False, True, True]
    """
    data = block.data
    if data is None:
        return False
    try:
        binascii.a2b_base64(data, strict_mode=True)  # at the speed of memory, which most pass
    except ValueError:
        plain = "".join(data.split())  # some encoders break lines
        return _LENIENT.fullmatch(plain) is None or len(plain.rstrip("=")) % 4 == 1
    return not data
