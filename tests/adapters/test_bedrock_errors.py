"""What errors of Bedrock mean: has the provider certainly not carried it out?"""

from __future__ import annotations

import json

import pytest
from botocore.session import Session

from antiphon.adapters.bedrock.errors import MAX_MESSAGE_CHARACTERS, classify

NAMED = "x-amzn-errortype"


@pytest.mark.parametrize(
    ("status", "name", "definite", "retryable"),
    [
        (400, "ValidationException", True, False),
        (403, "AccessDeniedException", True, False),
        (404, "ResourceNotFoundException", True, False),
        (408, "ModelTimeoutException", True, True),
        (424, "ModelErrorException", True, True),
        (429, "ThrottlingException", True, True),
        (429, "ModelNotReadyException", True, True),
        (429, "ServiceQuotaExceededException", True, False),
        (500, "InternalServerException", False, True),
        (503, "ServiceUnavailableException", True, True),
        (502, "BadGateway", False, True),
        (504, "GatewayTimeout", False, True),
        (400, "ThrottlingException", True, True),
        (303, "odd", False, False),
    ],
)
def test_a_status_says_whether_the_provider_did_it_and_a_name_whether_it_passes(
    status: int, name: str, definite: bool, retryable: bool
) -> None:
    body = json.dumps({"message": "No."}).encode()
    verdict = classify(status, {NAMED: name}, body, now_ms=0)
    assert (verdict.code, verdict.message) == (name, "No.")
    assert (verdict.definite, verdict.retryable) == (definite, retryable)


def test_every_error_of_the_service_model_but_its_own_fault_is_a_definite_no() -> None:
    operation = Session().get_service_model("bedrock-runtime").operation_model("ConverseStream")
    assert len(operation.error_shapes) > 5
    for shape in operation.error_shapes:
        status = shape.metadata["error"]["httpStatusCode"]
        verdict = classify(status, {NAMED: shape.name}, b"{}", now_ms=0)
        assert verdict.definite is (status != 500), shape.name


@pytest.mark.parametrize(
    ("headers", "body", "code"),
    [
        ({NAMED: "ThrottlingException:http://internal.amazon.com/coral/x/"}, b"{}", "ThrottlingException"),
        ({}, b'{"__type":"com.amazon.coral.service#UnrecognizedClientException"}', "UnrecognizedClientException"),
        ({}, b"{}", "AccessDeniedException"),
        ({}, b"<html>", "AccessDeniedException"),
    ],
)  # fmt: skip
def test_a_name_is_bare_wherever_it_was_found(
    headers: dict[str, str], body: bytes, code: str
) -> None:
    assert classify(403, headers, body, now_ms=0).code == code


def test_what_says_nothing_of_itself_is_named_by_its_status() -> None:
    assert classify(500, {}, b"", now_ms=0).code == "http_500"
    assert classify(307, {}, b"", now_ms=0).code == "redirected"
    assert classify(429, {}, b"oops", now_ms=0).message == "The provider answered 429."


def test_a_message_is_found_under_either_spelling_and_is_not_endless() -> None:
    told = classify(403, {}, b'{"Message":"Expired."}', now_ms=0)
    assert told.message == "Expired."
    long = json.dumps({"message": "x" * 5000}).encode()
    assert len(classify(400, {}, long, now_ms=0).message) == MAX_MESSAGE_CHARACTERS + 1


def test_a_gateway_that_does_not_know_is_believed() -> None:
    assert not classify(503, {NAMED: "outcome_unknown"}, b"", now_ms=0).definite


def test_the_wait_that_is_asked_for_is_passed_on() -> None:
    assert classify(429, {"retry-after": "2"}, b"", now_ms=0).retry_after_ms == 2000
