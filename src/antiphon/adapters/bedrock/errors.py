"""What errors of Amazon Bedrock mean, over HTTP and inside a stream.

Every error has a name of its own: over HTTP in a header, in a stream in the frame's. A status,
or the frame, says whether the provider has certainly given up; the name says whether the same
request may fare better. The text is for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from antiphon.adapters.base import HttpVerdict
from antiphon.core.answers.deltas import Failed
from antiphon.core.wire.retry_after import retry_after_ms

MAX_MESSAGE_CHARACTERS: Final = 1000
MAX_CODE_CHARACTERS: Final = 100
TYPE_HEADER: Final = "x-amzn-errortype"

REFUSALS: Final[Mapping[int, tuple[str, bool]]] = {
    # A redirect is not followed, so nothing was carried out. 303 says that it was.
    301: ("redirected", False),
    302: ("redirected", False),
    307: ("redirected", False),
    308: ("redirected", False),
    400: ("ValidationException", False),
    401: ("AccessDeniedException", False),
    402: ("ServiceQuotaExceededException", False),
    403: ("AccessDeniedException", False),
    404: ("ResourceNotFoundException", False),
    405: ("ValidationException", False),
    # The model had begun, and the service has ended it.
    408: ("ModelTimeoutException", True),
    409: ("ConflictException", True),
    413: ("ValidationException", False),
    415: ("ValidationException", False),
    422: ("ValidationException", False),
    424: ("ModelErrorException", True),
    429: ("ThrottlingException", True),
    503: ("ServiceUnavailableException", True),
}
"""Statuses that are a definite no: our word where none is given, and whether to try again."""

PASSING: Final = frozenset(
    {"throttling", "modelstreamerror", "modelerror", "modeltimeout", "modelnotready"}
    | {"internalserver", "serviceunavailable"}
)
"""Names, in lower case and without `Exception`, after which the same request may fare better."""

UNKNOWN_CODES: Final = frozenset({"outcome_unknown"})
"""Codes of gateways, ours among them, that pass on that they do not know either."""


class _Body(msgspec.Struct):
    message: str = ""
    Message: str = ""
    kind: str = msgspec.field(default="", name="__type")
    original: str = msgspec.field(default="", name="originalMessage")


_body: Final = msgspec.json.Decoder(_Body)


def stream_failure(name: str, payload: bytes) -> Failed:
    """Return what an exception inside a stream means: the provider has given up on this attempt."""
    said = _read(payload)
    code = _plain(name) or "provider_error"
    return Failed(
        code,
        _message(said) or "The provider reported an error in its answer.",
        retryable=_passes(code),
        definite=code not in UNKNOWN_CODES,
    )


def classify(status: int, headers: Mapping[str, str], body: bytes, now_ms: int) -> HttpVerdict:
    """Return what an answer with a status other than 200 means.

    Example:
        >>> classify(429, {"x-amzn-errortype": "ThrottlingException:"}, b"", now_ms=0)
        HttpVerdict(definite=True, code='ThrottlingException', message='The provider answered 429.', \
retryable=True, retry_after_ms=None)
    """
    said = _read(body)
    meant = REFUSALS.get(status)
    code = _plain(headers.get(TYPE_HEADER, "")) or _plain(said.kind)
    if meant is None:
        retryable = status >= 500  # after an unknown outcome only: that the failure may pass
    else:
        retryable = _passes(code) or (meant[1] and "quota" not in code.lower())
    return HttpVerdict(
        definite=meant is not None and code not in UNKNOWN_CODES,
        code=code or (f"http_{status}" if meant is None else meant[0]),
        message=_message(said) or f"The provider answered {status}.",
        retryable=retryable,
        retry_after_ms=retry_after_ms(headers, now_ms),
    )


def _plain(name: str) -> str:
    """Return the bare name of an error: services put a namespace before it and an address behind."""
    return name.partition(":")[0].rpartition("#")[2].strip()[:MAX_CODE_CHARACTERS]


def _passes(name: str) -> bool:
    return name.lower().removesuffix("exception") in PASSING


def _read(body: bytes) -> _Body:
    try:
        return _body.decode(body)
    except (ValueError, RecursionError):
        return _Body()


def _message(said: _Body) -> str:
    message = said.message or said.Message or said.original
    if len(message) <= MAX_MESSAGE_CHARACTERS:
        return message
    return f"{message[:MAX_MESSAGE_CHARACTERS]}…"
