"""How long a provider asks to wait, from its response headers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# By hand: `strptime` reads the names of months in the language of the process.
DATE: Final = re.compile(
    r"(?:\w{3}, )?(\d{1,2})[ -](\w{3})[ -](\d{4}) (\d\d):(\d\d):(\d\d) GMT", re.ASCII
)


def retry_after_ms(headers: Mapping[str, str], now_ms: int) -> int | None:
    """Return the milliseconds to wait, or None where nobody said or it cannot be read.

    `retry-after-ms` goes before `retry-after`, which is seconds or an HTTP date. The answer is
    never negative, and not bounded: how long is too long is the caller's to say.

    Example:
        >>> retry_after_ms({"retry-after": "1.5"}, now_ms=0)
        1500
    """
    exact = _number(headers.get("retry-after-ms"))
    if exact is not None:
        return round(exact)
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None:
        return round(seconds * 1000)
    at_ms = None if value is None else _date_ms(value.strip())
    return None if at_ms is None else max(0, at_ms - now_ms)


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return min(value, 1e12) if math.isfinite(value) and value >= 0 else None


def _date_ms(text: str) -> int | None:
    match = DATE.fullmatch(text)
    if match is None or match[2] not in MONTHS:
        return None
    day, year, hour, minute, second = (int(match[n]) for n in (1, 3, 4, 5, 6))
    try:
        at = datetime(year, MONTHS.index(match[2]) + 1, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return int(at.timestamp()) * 1000
