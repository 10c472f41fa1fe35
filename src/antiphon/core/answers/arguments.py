"""What the argument text of a tool call is worth. It is looked at once, when it has ended."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from antiphon.core.digests import MAX_JSON_DEPTH, canonical_json, parse_exact
from antiphon.errors import InvalidInput

HALF_CHARACTER: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""How an escaped half of a character begins. Most have their other half right behind them."""


class Worth(StrEnum):
    """What may become of an argument text."""

    WHOLE = "whole"
    """One JSON object that the ledger can compare and keep exactly."""

    OPEN = "open"
    """No JSON text: cut, or not JSON at all."""

    UNFIT = "unfit"
    """JSON, but no object, or with a key twice, half a character, or nested too deep."""


def worth(text: str) -> Worth:
    """Return what `text` is worth as the arguments of a call.

    Example:
        >>> worth('{"city":"Oslo"}'), worth('{"city":"Os'), worth('"Oslo"')
        (<Worth.WHOLE: 'whole'>, <Worth.OPEN: 'open'>, <Worth.UNFIT: 'unfit'>)
    """
    try:
        value = parse_exact(text)
    except InvalidInput:
        return Worth.UNFIT if _parses(text) else Worth.OPEN
    if isinstance(value, dict) and _is_shallow(value) and _has_whole_characters(value, text):
        return Worth.WHOLE
    return Worth.UNFIT


def _parses(text: str) -> bool:
    try:
        json.loads(text)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


def _is_shallow(value: object) -> bool:
    """Say whether `canonical_json` would take the depth of `value`, without writing it."""
    level: list[object] = [value]
    for _ in range(MAX_JSON_DEPTH + 1):
        level = [inner for outer in level for inner in _inner(outer)]
        if not level:
            return True
    return False


def _inner(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _has_whole_characters(value: object, text: str) -> bool:
    if HALF_CHARACTER.search(text) is None:
        return True
    try:
        canonical_json(value).encode()
    except UnicodeEncodeError:
        return False
    return True
