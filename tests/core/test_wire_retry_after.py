"""Retry-After in the forms that providers send."""

from __future__ import annotations

import pytest

from antiphon.core.wire.retry_after import retry_after_ms

NOON_MS = 1_795_953_600_000  # Sun, 29 Nov 2026 12:00:00 GMT


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2000),
        ({"retry-after": "0.25"}, 250),
        ({"retry-after": " 3 "}, 3000),
        ({"retry-after": "0"}, 0),
        ({"retry-after-ms": "1500"}, 1500),
        ({"retry-after-ms": "12.5", "retry-after": "60"}, 12),
        ({"retry-after-ms": "soon", "retry-after": "60"}, 60_000),
        ({"retry-after": "Sun, 29 Nov 2026 12:00:07 GMT"}, 7000),
        ({"retry-after": "29 Nov 2026 12:01:00 GMT"}, 60_000),
        ({"retry-after": "Sun, 29 Nov 2026 11:00:00 GMT"}, 0),
        ({"retry-after": "Sun, 31 Feb 2026 12:00:00 GMT"}, None),
        ({"retry-after": "Sun, 29 Foo 2026 12:00:00 GMT"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "9" * 22}, 10**15),  # never, and not at once
        ({"retry-after": "later"}, None),
        ({"retry-after": ""}, None),
    ],
)
def test_the_wait_is_read_or_left_out(headers: dict[str, str], expected: int | None) -> None:
    assert retry_after_ms(headers, NOON_MS) == expected
