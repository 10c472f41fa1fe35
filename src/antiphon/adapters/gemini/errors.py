"""What errors of Gemini mean, over HTTP and inside a stream.

Google's errors have a status word beside their number, and details with a type each: how long to
wait, which quota is used up, why a key is refused. The text is for people.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from antiphon.adapters.base import HttpVerdict
from antiphon.core.answers.deltas import Failed
from antiphon.core.wire.retry_after import retry_after_ms

MAX_MESSAGE_CHARACTERS: Final = 1000
MAX_CODE_CHARACTERS: Final = 100

REFUSALS: Final[Mapping[int, tuple[str, bool]]] = {
    # A redirect is not followed, so nothing was carried out. 303 says that it was.
    301: ("redirected", False),
    302: ("redirected", False),
    307: ("redirected", False),
    308: ("redirected", False),
    400: ("INVALID_ARGUMENT", False),
    401: ("UNAUTHENTICATED", False),
    402: ("PAYMENT_REQUIRED", False),
    403: ("PERMISSION_DENIED", False),
    404: ("NOT_FOUND", False),
    405: ("INVALID_ARGUMENT", False),
    408: ("REQUEST_TIMEOUT", True),
    409: ("ABORTED", True),
    413: ("PAYLOAD_TOO_LARGE", False),
    415: ("INVALID_ARGUMENT", False),
    422: ("INVALID_ARGUMENT", False),
    429: ("RESOURCE_EXHAUSTED", True),
    503: ("UNAVAILABLE", True),
    529: ("UNAVAILABLE", True),
}
"""Statuses that are a definite no: our word where the body has none, and whether to try again."""

TRANSIENT: Final = frozenset(
    {
        "GATEWAY_TIMEOUT",
        "ABORTED",
        "DEADLINE_EXCEEDED",
        "INTERNAL",
        "RESOURCE_EXHAUSTED",
        "UNAVAILABLE",
        "UNKNOWN",
    }
)
"""Words after which the same request may fare better, unless a quota is used up for the day."""

UNKNOWN_CODES: Final = frozenset({"DEADLINE_EXCEEDED", "GATEWAY_TIMEOUT", "OUTCOME_UNKNOWN"})
"""Codes that say that nobody knows: time ran out somewhere, or a gateway passes that on."""

OVER_WINDOW: Final = re.compile(r"token count.*exceeds the maximum number of tokens", re.I | re.S)
SECONDS: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s", re.ASCII)


class Told(NamedTuple):
    """What an error object says."""

    code: str | None
    message: str
    retry_after_ms: int | None = None
    used_up: bool = False


def told(error: object) -> Told:
    """Return what an error object says; a reason that is exact goes before the status word."""
    if not isinstance(error, Mapping):
        return Told(None, _short(error) if isinstance(error, str) else "")
    message = error.get("message")
    text = message if isinstance(message, str) else ""
    details = list(_details(error.get("details")))
    words = [
        error.get("status"),
        error.get("code"),
        *(d.get("reason") for d in details if _is(d, "ErrorInfo")),
    ]
    word = next((w for w in words if isinstance(w, str) and w), None)
    if "API_KEY_INVALID" in words:
        word = "API_KEY_INVALID"  # told as INVALID_ARGUMENT, like any other mistake
    elif OVER_WINDOW.search(text):
        word = "over_window"
    return Told(
        word and word[:MAX_CODE_CHARACTERS],
        _short(text),
        retry_after_ms=next((ms for d in details if (ms := _delay_ms(d)) is not None), None),
        used_up=any(_per_day(detail) for detail in details),
    )


def stream_failure(error: object) -> Failed:
    """Return what an error inside a 200 means: the provider has given up on this attempt.

    Unless it says that time ran out, or is a gateway that does not know.
    """
    code, message, _, used_up = told(error)
    return Failed(
        code or "provider_error",
        message or "The provider reported an error in its answer.",
        retryable=(code is None or code.upper() in TRANSIENT) and not used_up,
        definite=code is None or code.upper() not in UNKNOWN_CODES,
    )


def classify(status: int, headers: Mapping[str, str], body: bytes, now_ms: int) -> HttpVerdict:
    """Return what an answer with a status other than 200 means.

    Example:
        >>> classify(503, {}, b"", now_ms=0)
        HttpVerdict(definite=True, code='UNAVAILABLE', message='The provider answered 503.', \
retryable=True, retry_after_ms=None)
    """
    said, message, delay_ms, used_up = told(_error_of(body))
    meant = REFUSALS.get(status)
    code = said or (f"http_{status}" if meant is None else meant[0])
    # After an unknown outcome this only says that the failure may pass.
    retryable = meant[1] if meant is not None else status >= 500
    asked = retry_after_ms(headers, now_ms)
    return HttpVerdict(
        definite=meant is not None and code.upper() not in UNKNOWN_CODES,
        code=code,
        message=message or f"The provider answered {status}.",
        retryable=retryable and not used_up,
        retry_after_ms=delay_ms if asked is None else asked,
    )


def _details(value: object) -> Iterator[Mapping[str, object]]:
    for detail in value if isinstance(value, list) else ():
        if isinstance(detail, dict):
            yield detail


def _is(detail: Mapping[str, object], kind: str) -> bool:
    return str(detail.get("@type", "")).endswith(f".{kind}")


def _delay_ms(detail: Mapping[str, object]) -> int | None:
    """Return how long `RetryInfo` asks to wait; it is seconds, such as `"13.5s"`."""
    match = (
        SECONDS.fullmatch(str(detail.get("retryDelay", ""))) if _is(detail, "RetryInfo") else None
    )
    return None if match is None else round(float(match[1]) * 1000)


def _per_day(detail: Mapping[str, object]) -> bool:
    """Whether a quota of the day is used up: no wait of ours would help."""
    if not _is(detail, "QuotaFailure"):
        return False
    return any("PerDay" in str(v.get("quotaId", "")) for v in _details(detail.get("violations")))


def _error_of(body: bytes) -> object:
    try:
        value = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, list) and value:
        value = value[0]  # where a stream without events was asked for
    return value.get("error") if isinstance(value, dict) else None


def _short(message: str) -> str:
    if len(message) <= MAX_MESSAGE_CHARACTERS:
        return message
    return f"{message[:MAX_MESSAGE_CHARACTERS]}…"
