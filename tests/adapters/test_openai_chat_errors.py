"""HTTP errors of OpenAI Chat Completions: what is a definite no, and what nobody knows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.adapters.openai_chat.errors import (
    MAX_CODE_CHARACTERS,
    MAX_MESSAGE_CHARACTERS,
    classify,
)


def error(**fields: Any) -> bytes:
    return json.dumps({"error": fields}).encode()


@pytest.mark.parametrize(
    "status", [301, 302, 307, 308, 400, 401, 402, 403, 404, 405, 413, 415, 422, 424]
)
def test_a_refusal_is_definite_and_the_same_request_is_never_sent_again(status: int) -> None:
    verdict = classify(status, {}, b"", 0)
    assert verdict.definite
    assert not verdict.retryable


@pytest.mark.parametrize("status", [408, 409, 425, 429, 498, 503, 529])
def test_a_refusal_for_now_is_definite_and_may_be_tried_again(status: int) -> None:
    verdict = classify(status, {}, b"", 0)
    assert verdict.definite
    assert verdict.retryable


@pytest.mark.parametrize("status", [500, 501, 502, 504, 505, 520, 522, 524, 599])
def test_after_a_failure_of_server_or_proxy_nobody_knows(status: int) -> None:
    verdict = classify(status, {}, error(message="m", type="server_error"), 0)
    assert not verdict.definite
    assert verdict.code == "server_error"


@pytest.mark.parametrize("status", [100, 201, 202, 204, 206, 303, 304, 418, 499])
def test_a_status_that_is_not_understood_is_no_definite_no(status: int) -> None:
    verdict = classify(status, {}, b"", 0)
    assert not verdict.definite
    assert verdict.code == f"http_{status}"
    assert not verdict.retryable


@pytest.mark.parametrize(
    ("status", "body", "code", "retryable"),
    [
        (
            429,
            error(code="insufficient_quota", type="insufficient_quota"),
            "insufficient_quota",
            False,
        ),
        (429, error(code="rate_limit_exceeded", type="tokens"), "rate_limit_exceeded", True),
        (429, error(code="429", message="m"), "rate_limit_exceeded", True),
        (400, error(code="context_length_exceeded"), "context_length_exceeded", False),
        (
            400,
            error(code=400, type="exceed_context_size_error"),
            "exceed_context_size_error",
            False,
        ),
        (400, error(code=None, type="invalid_request_error"), "invalid_request_error", False),
        (400, error(code="tool_use_failed", type="invalid_request_error"), "tool_use_failed", True),
        (400, error(code="content_filter", innererror={"code": "X"}), "content_filter", False),
        (404, error(code="model_not_found"), "model_not_found", False),
        (401, error(code="invalid_api_key"), "invalid_api_key", False),
        (402, error(code=402, message="credits"), "payment_required", False),
        (503, error(code=503, message="no provider"), "overloaded", True),
        (
            400,
            b'{"object":"error","message":"m","type":"BadRequestError","code":400}',
            "BadRequestError",
            False,
        ),
        (
            400,
            b'[{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"m"}}]',
            "invalid_request_error",
            False,
        ),
        (
            422,
            b'{"detail":[{"loc":["body"],"msg":"field required"}]}',
            "invalid_request_error",
            False,
        ),
        (404, b'{"detail":"Not Found"}', "not_found", False),
        (400, b'{"error":"bad"}', "invalid_request_error", False),
        (429, b"<html>slow down</html>", "rate_limit_exceeded", True),
        (429, b"\xff\xfe", "rate_limit_exceeded", True),
        (429, b"7", "rate_limit_exceeded", True),
        (500, b"", "http_500", True),
    ],
)
def test_the_providers_own_code_comes_first(
    status: int, body: bytes, code: str, retryable: bool
) -> None:
    verdict = classify(status, {}, body, 0)
    assert (verdict.code, verdict.retryable) == (code, retryable)


def test_a_gateway_that_does_not_know_is_believed() -> None:
    verdict = classify(424, {"x-should-retry": "false"}, error(code="outcome_unknown"), 0)
    assert not verdict.definite
    assert verdict.code == "outcome_unknown"
    assert not verdict.retryable


@pytest.mark.parametrize(
    ("status", "header", "retryable"),
    [(503, "false", False), (400, "true", True), (429, "maybe", True), (500, "false", False)],
)
def test_the_provider_may_say_whether_to_try_again(
    status: int, header: str, retryable: bool
) -> None:
    assert classify(status, {"x-should-retry": header}, b"", 0).retryable is retryable


def test_no_header_makes_an_empty_account_full() -> None:
    verdict = classify(429, {"x-should-retry": "true"}, error(code="insufficient_quota"), 0)
    assert not verdict.retryable


def test_the_wait_is_passed_on() -> None:
    assert classify(429, {"retry-after": "2"}, b"", 0).retry_after_ms == 2000
    assert classify(529, {"retry-after-ms": "70"}, b"", 0).retry_after_ms == 70
    assert classify(429, {}, b"", 0).retry_after_ms is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (error(message="Too fast.", type="t"), "Too fast."),
        (b'{"error":"Too fast."}', "Too fast."),
        (b'{"detail":"Too fast."}', "Too fast."),
        (b"<html>", "The provider answered 429."),
        (error(message=7), "The provider answered 429."),
    ],
)
def test_the_message_is_the_providers_or_says_the_status(body: bytes, message: str) -> None:
    assert classify(429, {}, body, 0).message == message


def test_a_long_message_is_cut() -> None:
    assert (
        len(classify(429, {}, error(message="x" * 9999), 0).message) == MAX_MESSAGE_CHARACTERS + 1
    )


def test_no_body_however_odd_is_a_fault_of_ours() -> None:
    for body in (b"[" * 100_000, error(code="9" * 10_000), error(code=[], type={}), b"[[]]", b"{}"):
        assert classify(429, {}, body, 0).definite
    assert len(classify(429, {}, error(code="x" * 999), 0).code) == MAX_CODE_CHARACTERS
