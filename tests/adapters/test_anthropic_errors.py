"""What errors of Anthropic Messages mean: has the provider certainly not carried it out?"""

from __future__ import annotations

import json

import pytest

from antiphon.adapters.anthropic.errors import MAX_MESSAGE_CHARACTERS, classify, stream_failure


def body(kind: str, message: str = "No.", **error: object) -> bytes:
    told = {"type": "error", "error": {"type": kind, "message": message, **error}}
    return json.dumps({**told, "request_id": "req_1"}).encode()


@pytest.mark.parametrize(
    ("status", "kind", "definite", "retryable"),
    [
        (400, "invalid_request_error", True, False),
        (401, "authentication_error", True, False),
        (402, "billing_error", True, False),
        (403, "permission_error", True, False),
        (404, "not_found_error", True, False),
        (408, "timeout_error", True, True),
        (409, "conflict_error", True, True),
        (413, "request_too_large", True, False),
        (422, "invalid_request_error", True, False),
        (429, "rate_limit_error", True, True),
        (500, "api_error", False, True),
        (502, "api_error", False, True),
        (503, "overloaded_error", True, True),
        (504, "timeout_error", False, True),
        (524, "timeout_error", False, True),
        (529, "overloaded_error", True, True),
        (303, "odd", False, False),
    ],
)
def test_a_status_says_whether_the_provider_did_it(
    status: int, kind: str, definite: bool, retryable: bool
) -> None:
    verdict = classify(status, {}, body(kind), now_ms=0)
    assert (verdict.code, verdict.message) == (kind, "No.")
    assert (verdict.definite, verdict.retryable) == (definite, retryable)


@pytest.mark.parametrize(
    ("status", "code"),
    [(529, "overloaded_error"), (429, "rate_limit_error"), (500, "http_500"), (307, "redirected")],
)
@pytest.mark.parametrize("nothing", [b"", b"<html>", b"[]", b'{"error":null}', b'{"error":{}}'])
def test_without_a_readable_body_the_status_speaks(status: int, code: str, nothing: bytes) -> None:
    verdict = classify(status, {}, nothing, now_ms=0)
    assert (verdict.code, verdict.message) == (code, f"The provider answered {status}.")


def test_the_exact_code_goes_before_the_type() -> None:
    told = body("invalid_request_error", details={"error_code": "thread_not_found"})
    assert classify(404, {}, told, now_ms=0).code == "thread_not_found"


def test_the_provider_s_own_word_on_trying_again_is_taken() -> None:
    for word, expected in (("true", True), ("false", False)):
        verdict = classify(429, {"x-should-retry": word, "retry-after": "3"}, b"", now_ms=0)
        assert (verdict.retryable, verdict.retry_after_ms) == (expected, 3000)


def test_a_gateway_that_does_not_know_is_no_refusal() -> None:
    assert not classify(424, {}, body("outcome_unknown"), now_ms=0).definite
    assert not classify(400, {}, body("outcome_unknown"), now_ms=0).definite
    assert not stream_failure({"type": "outcome_unknown"}).definite


def test_a_long_message_is_cut_and_a_code_of_its_own_stays() -> None:
    failed = stream_failure({"type": "api_error", "message": "x" * 5000})
    assert len(failed.message) == MAX_MESSAGE_CHARACTERS + 1
    assert stream_failure(None).code == "provider_error"
