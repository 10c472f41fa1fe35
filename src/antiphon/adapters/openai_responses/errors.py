"""What errors of OpenAI Responses mean, over HTTP and inside an answer.

The statuses and the shape of an error are those of Chat Completions, at the same provider; what
is said of them here is what only this wire has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from antiphon.adapters.base import HttpVerdict
from antiphon.adapters.openai_chat import errors as chat
from antiphon.core.answers.deltas import Failed

TRANSIENT: Final = frozenset({"conversation_locked"})
"""Refusals with a status of the kind that is final, after which the same request may go through."""

PASSING: Final = frozenset({"server_error", "rate_limit_exceeded", "vector_store_timeout"})
"""Codes of a failed response after which another attempt may fare better."""


def classify(status: int, headers: Mapping[str, str], body: bytes, now_ms: int) -> HttpVerdict:
    """Return what an answer with a status other than 200 means.

    Example:
        >>> busy = b'{"error":{"code":"conversation_locked","message":"Please retry."}}'
        >>> classify(400, {}, busy, now_ms=0).retryable
        True
    """
    verdict = chat.classify(status, headers, body, now_ms)
    return replace(verdict, retryable=True) if verdict.code in TRANSIENT else verdict


def response_failure(error: object) -> Failed:
    """Return what it means that a response has failed, by the provider's own word."""
    failed = chat.stream_failure(error)
    return Failed(
        failed.code, failed.message, retryable=failed.code in PASSING, definite=failed.definite
    )
