"""What a provider is asked to count: the request itself, without what only steers the answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.adapters import registry
from antiphon.adapters.base import render
from antiphon.adapters.counting import asked_to_count, count_of
from antiphon.core.manifest import Policy, ToolDeclaration
from tests.support.lines import KEY, user

TOOL = ToolDeclaration(name="look", description="Looks.")


def asked(dialect: str) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
    """Return both addresses and both bodies: the request's, and the question's about it."""
    policy = Policy(
        profile=dialect,
        model="m-1",
        endpoint="https://up.invalid",
        instructions="Be kind.",
        max_output_tokens=50,
        temperature=0.5,
    )
    request = render(registry.get(dialect), [user("Hi", id="a")], policy, (TOOL,), key=KEY).request
    question = asked_to_count(dialect, request)
    assert question is not None
    assert (question.method, question.headers) == (request.method, request.headers)
    return request.url, question.url, json.loads(request.body), json.loads(question.body)


def test_anthropic_is_asked_at_its_counting_endpoint_without_what_steers_the_answer() -> None:
    url, counting, body, question = asked("anthropic")
    assert counting == url + "/count_tokens"
    assert question == {
        name: body[name] for name in ("model", "messages", "system", "tools") if name in body
    }
    assert "max_tokens" in body
    assert "max_tokens" not in question


def test_responses_are_asked_at_input_tokens() -> None:
    url, counting, body, question = asked("openai-responses")
    assert counting == url + "/input_tokens"
    assert {"stream", "max_output_tokens", "temperature", "store"}.isdisjoint(question)
    assert {name: body[name] for name in question} == question
    assert {"model", "input", "instructions", "tools"} <= set(question)


def test_gemini_is_asked_with_the_whole_request_and_the_name_of_its_model() -> None:
    url, counting, body, question = asked("gemini")
    assert url.endswith("/models/m-1:streamGenerateContent?alt=sse")
    assert counting == url.replace("streamGenerateContent?alt=sse", "countTokens")
    assert question == {"generateContentRequest": {"model": "models/m-1", **body}}


def test_llamacpp_is_asked_with_the_request_as_it_is() -> None:
    url, counting, body, question = asked("llamacpp")
    assert counting == url + "/input_tokens"
    assert question == body


def test_a_dialect_without_such_an_endpoint_is_not_asked() -> None:
    policy = Policy(profile="openai-chat", model="m-1", endpoint="https://up.invalid")
    made = render(registry.get("openai-chat"), [user("Hi", id="a")], policy, (), key=KEY)
    assert asked_to_count("openai-chat", made.request) is None


@pytest.mark.parametrize(
    ("answer", "count"),
    [
        (b'{"input_tokens": 14}', 14),
        (b'{"object": "response.input_tokens", "input_tokens": 9}', 9),
        (b'{"totalTokens": 31, "cachedContentTokenCount": 4}', 31),
        (b'{"input_tokens": 0}', None),
        (b'{"input_tokens": "14"}', None),
        (b"{}", None),
        (b"<html>", None),
    ],
)
def test_a_count_is_a_number_or_there_is_none(answer: bytes, count: int | None) -> None:
    assert count_of(answer) == count
