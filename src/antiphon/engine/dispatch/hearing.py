"""What is kept of a provider's own words, where it gave no answer."""

from __future__ import annotations

from antiphon.adapters.base import HttpVerdict
from antiphon.core.answers.answer import Answer
from antiphon.core.answers.said import Said, in_its_words
from antiphon.engine.catalogue.models import Model


def heard(model: Model, told: Answer | HttpVerdict, status: int | None = None) -> Said | None:
    """Return what `model` said in place of an answer, without our key; None where it said nothing.

    Args:
        model: Who was asked.
        told: A refusal, or an answer that may not be committed.
        status: The HTTP status of the refusal.
    """
    message = told.message if isinstance(told, HttpVerdict) else told.error_message
    if not message:
        return None
    key = model.api_key
    return Said(
        message=in_its_words(message, key.reveal() if key else None),
        status=status,
        retryable=told.retryable,
        retry_after_ms=told.retry_after_ms if isinstance(told, HttpVerdict) else None,
    )
