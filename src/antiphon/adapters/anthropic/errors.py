"""What errors of Anthropic Messages mean, over HTTP and inside a stream.

A status says whether the provider has certainly not carried the request out; the error's type
says what was wrong, and its `details.error_code` says it more exactly. The text is for people.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    400: ("invalid_request_error", False),
    401: ("authentication_error", False),
    402: ("billing_error", False),
    403: ("permission_error", False),
    404: ("not_found_error", False),
    405: ("invalid_request_error", False),
    408: ("timeout_error", True),
    409: ("conflict_error", True),
    413: ("request_too_large", False),
    415: ("invalid_request_error", False),
    422: ("invalid_request_error", False),
    429: ("rate_limit_error", True),
    503: ("overloaded_error", True),
    529: ("overloaded_error", True),
}
"""Statuses that are a definite no: our word where the body has none, and whether to try again."""

TRANSIENT: Final = frozenset(
    {"overloaded_error", "rate_limit_error", "api_error", "timeout_error", "conflict_error"}
    | {"compaction_unavailable"}
)
"""Types after which the same request may fare better, whatever comes with them."""

UNKNOWN_CODES: Final = frozenset({"outcome_unknown"})
"""Codes of gateways, ours among them, that pass on that they do not know either."""


class Told(NamedTuple):
    """What an error object says."""

    code: str | None
    message: str


def told(error: object) -> Told:
    """Return code and message of an error object; its `error_code` goes before its type."""
    if not isinstance(error, Mapping):
        return Told(None, _short(error) if isinstance(error, str) else "")
    details, message = error.get("details"), error.get("message")
    exact = details.get("error_code") if isinstance(details, Mapping) else None
    word = next((w for w in (exact, error.get("type")) if isinstance(w, str) and w), None)
    text = message if isinstance(message, str) else ""
    return Told(word and word[:MAX_CODE_CHARACTERS], _short(text))


def stream_failure(error: object) -> Failed:
    """Return what an error inside a 200 means: the provider has given up on this attempt.

    Unless it is a gateway that says that it does not know.
    """
    code, message = told(error)
    return Failed(
        code or "provider_error",
        message or "The provider reported an error in its answer.",
        retryable=code is None or code in TRANSIENT,
        definite=code not in UNKNOWN_CODES,
    )


def classify(status: int, headers: Mapping[str, str], body: bytes, now_ms: int) -> HttpVerdict:
    """Return what an answer with a status other than 200 means.

    Example:
        >>> classify(529, {}, b"", now_ms=0)
        HttpVerdict(definite=True, code='overloaded_error', message='The provider answered 529.', \
retryable=True, retry_after_ms=None)
    """
    said, message = told(_error_of(body))
    meant = REFUSALS.get(status)
    code = said or (f"http_{status}" if meant is None else meant[0])
    # After an unknown outcome this only says that the failure may pass.
    retryable = meant[1] if meant is not None else status >= 500
    if headers.get("x-should-retry") in ("true", "false"):
        retryable = headers["x-should-retry"] == "true"
    return HttpVerdict(
        definite=meant is not None and code not in UNKNOWN_CODES,
        code=code,
        message=message or f"The provider answered {status}.",
        retryable=retryable,
        retry_after_ms=retry_after_ms(headers, now_ms),
    )


def _error_of(body: bytes) -> object:
    try:
        value = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return None
    return value.get("error") if isinstance(value, dict) else None


def _short(message: str) -> str:
    if len(message) <= MAX_MESSAGE_CHARACTERS:
        return message
    return f"{message[:MAX_MESSAGE_CHARACTERS]}…"
