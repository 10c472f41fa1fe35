"""What errors of OpenAI Chat Completions mean, over HTTP and inside a stream.

The question is always the same: has the provider certainly not carried the request out? Only
then may another attempt follow by itself. A status that is not listed answers no.
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


class Meant(NamedTuple):
    """A definite no: our word for it where the provider has none, and whether to try again."""

    code: str
    retryable: bool = False


REFUSALS: Final[Mapping[int, Meant]] = {
    # A redirect is not followed, so nothing was carried out. 303 is: it says that it was.
    301: Meant("redirected"),
    302: Meant("redirected"),
    307: Meant("redirected"),
    308: Meant("redirected"),
    400: Meant("invalid_request_error"),
    401: Meant("authentication_error"),
    402: Meant("payment_required"),
    403: Meant("permission_error"),
    404: Meant("not_found"),
    405: Meant("invalid_request_error"),
    406: Meant("invalid_request_error"),
    408: Meant("request_timeout", retryable=True),
    409: Meant("conflict", retryable=True),
    410: Meant("not_found"),
    411: Meant("invalid_request_error"),
    413: Meant("request_too_large"),
    414: Meant("invalid_request_error"),
    415: Meant("invalid_request_error"),
    421: Meant("invalid_request_error"),
    422: Meant("invalid_request_error"),
    424: Meant("failed_dependency"),
    425: Meant("too_early", retryable=True),
    426: Meant("invalid_request_error"),
    428: Meant("invalid_request_error"),
    429: Meant("rate_limit_exceeded", retryable=True),
    431: Meant("request_too_large"),
    451: Meant("permission_error"),
    498: Meant("overloaded", retryable=True),  # Groq: flex capacity
    503: Meant("overloaded", retryable=True),
    529: Meant("overloaded", retryable=True),
}

NEVER_AGAIN: Final = frozenset(
    {
        "account_deactivated",
        "authentication_error",
        "billing_hard_limit_reached",
        "content_filter",
        "content_policy_violation",
        "context_length_exceeded",
        "exceed_context_size_error",
        "insufficient_quota",
        "invalid_api_key",
        "invalid_request_error",
        "model_not_found",
        "permission_error",
        "unsupported_value",
    }
)
"""Codes after which the same request fails again, whatever the status or the stream says."""

SAMPLED: Final = frozenset({"tool_use_failed"})
"""Codes about what the model happened to say: another sample may be well-formed."""

UNKNOWN_CODES: Final = frozenset({"outcome_unknown"})
"""Codes of gateways, ours among them, that pass on that they do not know either."""


class Told(NamedTuple):
    """What an error object says."""

    code: str | None
    message: str


def told(error: object) -> Told:
    """Return code and message of an `error` value in any of the shapes that servers use.

    A code that is a word comes first, then the type; a bare number is the last resort, since
    servers that put the HTTP status there have the word in the type.
    """
    if isinstance(error, str):
        return Told(None, _short(error))
    if not isinstance(error, Mapping):
        return Told(None, "")
    code, kind = error.get("code"), error.get("type")
    message = error.get("message")
    text = message if isinstance(message, str) else ""
    more = error.get("metadata")
    raw = more.get("raw") if isinstance(more, Mapping) else None
    if isinstance(raw, str) and raw:  # OpenRouter: what the provider behind it said
        text = f"{text}: {raw}" if text else raw
    words = [word for word in (code, kind) if isinstance(word, str) and not word.isdecimal()]
    if isinstance(code, int | str) and not isinstance(code, bool):
        words.append(str(code))
    word = next((word for word in words if word), None)
    return Told(word and word[:MAX_CODE_CHARACTERS], _short(text))


def stream_failure(error: object) -> Failed:
    """Return what an error inside a 200 means: the provider has given up on this attempt.

    Unless it is a gateway that says that it does not know.
    """
    code, message = told(error)
    status = REFUSALS.get(int(code)) if code is not None and code.isdecimal() else None
    return Failed(
        code or "provider_error",
        message or "The provider reported an error in its answer.",
        retryable=status.retryable if status is not None else code not in NEVER_AGAIN,
        definite=code not in UNKNOWN_CODES,
    )


def classify(status: int, headers: Mapping[str, str], body: bytes, now_ms: int) -> HttpVerdict:
    """Return what an answer with a status other than 200 means.

    Example:
        >>> classify(429, {"retry-after": "2"}, b"", now_ms=0)
        HttpVerdict(definite=True, code='rate_limit_exceeded', message='The provider answered 429.', \
retryable=True, retry_after_ms=2000)
    """
    said, message = told(_error_of(body))
    meant = REFUSALS.get(status)
    code = f"http_{status}" if meant is None else meant.code
    if said is not None and not said.isdecimal():
        code = said
    definite = meant is not None and code not in UNKNOWN_CODES
    # After an unknown outcome this only says that the failure may pass.
    retryable = meant.retryable if meant is not None else status >= 500
    if said in NEVER_AGAIN:
        retryable = False
    elif said in SAMPLED:
        retryable = True
    elif headers.get("x-should-retry") in ("true", "false"):
        retryable = headers["x-should-retry"] == "true"
    return HttpVerdict(
        definite=definite,
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
    if isinstance(value, list) and len(value) == 1:
        value = value[0]  # Google's compatible endpoint
    if not isinstance(value, dict):
        return None
    if value.get("error") is not None:
        return value["error"]
    if "detail" in value:  # FastAPI, which many servers are built on
        detail = value["detail"]
        return detail if isinstance(detail, str) else msgspec.json.encode(detail).decode()
    return value if "message" in value else None


def _short(message: str) -> str:
    if len(message) <= MAX_MESSAGE_CHARACTERS:
        return message
    return f"{message[:MAX_MESSAGE_CHARACTERS]}…"
