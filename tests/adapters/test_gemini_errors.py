"""What errors of Gemini mean: has the provider certainly not carried it out, and when may one ask again?"""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.adapters.gemini.errors import MAX_MESSAGE_CHARACTERS, classify, stream_failure

TYPE = "type.googleapis.com/google.rpc."


def error(status: str, message: str = "No.", *details: dict[str, Any]) -> dict[str, Any]:
    return {"code": 400, "message": message, "status": status, "details": list(details)}


def body(status: str, message: str = "No.", *details: dict[str, Any]) -> bytes:
    return json.dumps({"error": error(status, message, *details)}).encode()


def retry(delay: str) -> dict[str, Any]:
    return {"@type": TYPE + "RetryInfo", "retryDelay": delay}


def quota(name: str) -> dict[str, Any]:
    return {"@type": TYPE + "QuotaFailure", "violations": [{"quotaId": name}]}


@pytest.mark.parametrize(
    ("status", "word", "definite", "retryable"),
    [
        (400, "INVALID_ARGUMENT", True, False),
        (400, "FAILED_PRECONDITION", True, False),
        (401, "UNAUTHENTICATED", True, False),
        (403, "PERMISSION_DENIED", True, False),
        (404, "NOT_FOUND", True, False),
        (408, "REQUEST_TIMEOUT", True, True),
        (409, "ABORTED", True, True),
        (413, "PAYLOAD_TOO_LARGE", True, False),
        (429, "RESOURCE_EXHAUSTED", True, True),
        (500, "INTERNAL", False, True),
        (502, "BAD_GATEWAY", False, True),
        (503, "UNAVAILABLE", True, True),
        (504, "DEADLINE_EXCEEDED", False, True),
        (524, "X", False, True),
        (303, "X", False, False),
    ],
)
def test_a_status_says_whether_the_provider_did_it(
    status: int, word: str, definite: bool, retryable: bool
) -> None:
    for told in (body(word), b"[" + body(word) + b"]"):
        verdict = classify(status, {}, told, now_ms=0)
        assert (verdict.code, verdict.message) == (word, "No.")
        assert (verdict.definite, verdict.retryable) == (definite, retryable)


@pytest.mark.parametrize(
    ("status", "code"),
    [(503, "UNAVAILABLE"), (429, "RESOURCE_EXHAUSTED"), (500, "http_500"), (307, "redirected")],
)
@pytest.mark.parametrize("nothing", [b"", b"<html>", b"[]", b"[5]", b'{"error":null}', b"{}"])
def test_without_a_readable_body_the_status_speaks(status: int, code: str, nothing: bytes) -> None:
    verdict = classify(status, {}, nothing, now_ms=0)
    assert (verdict.code, verdict.message) == (code, f"The provider answered {status}.")


@pytest.mark.req("M139")
@pytest.mark.parametrize(
    ("delay", "ms"), [("13s", 13_000), ("0.5s", 500), ("13", None), ("", None), ("-1s", None)]
)
def test_how_long_to_wait_stands_in_the_details(delay: str, ms: int | None) -> None:
    told = body("RESOURCE_EXHAUSTED", "No.", {"@type": TYPE + "Help"}, retry(delay))
    assert classify(429, {}, told, now_ms=0).retry_after_ms == ms


def test_a_header_goes_before_the_details() -> None:
    told = body("RESOURCE_EXHAUSTED", "No.", retry("13s"))
    assert classify(429, {"retry-after": "2"}, told, now_ms=0).retry_after_ms == 2000


def test_a_quota_of_the_day_is_not_waited_for() -> None:
    day = quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier")
    minute = quota("GenerateContentInputTokensPerModelPerMinute")
    assert not classify(429, {}, body("RESOURCE_EXHAUSTED", "No.", day), now_ms=0).retryable
    assert classify(429, {}, body("RESOURCE_EXHAUSTED", "No.", minute), now_ms=0).retryable
    assert not stream_failure(error("RESOURCE_EXHAUSTED", "No.", day)).retryable


def test_a_bad_key_and_a_full_window_are_told_apart_from_other_mistakes() -> None:
    key = {"@type": TYPE + "ErrorInfo", "reason": "API_KEY_INVALID"}
    assert classify(400, {}, body("INVALID_ARGUMENT", "No.", key), now_ms=0).code == "API_KEY_INVALID"  # fmt: skip
    full = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
    assert classify(400, {}, body("INVALID_ARGUMENT", full), now_ms=0).code == "over_window"


def test_time_that_ran_out_inside_an_answer_is_no_refusal() -> None:
    assert not stream_failure(error("DEADLINE_EXCEEDED")).definite
    assert not stream_failure(error("outcome_unknown")).definite
    assert stream_failure(error("INTERNAL")).definite


def test_a_long_message_is_cut_and_an_error_without_words_has_ours() -> None:
    assert len(stream_failure(error("INTERNAL", "x" * 5000)).message) == MAX_MESSAGE_CHARACTERS + 1
    assert (stream_failure(None).code, stream_failure("gone").message) == ("provider_error", "gone")
