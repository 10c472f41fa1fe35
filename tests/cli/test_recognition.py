"""Whose request is it: the seven forms, what two of them share, and what none of them has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from antiphon.cli.requests.recognition import recognise
from antiphon.errors import InvalidInput

DATA = Path(__file__).parent.parent / "data"
FIXTURES = {
    "anthropic": "anthropic",
    "bedrock_converse": "bedrock",
    "gemini": "gemini",
    "gemini_interactions": "gemini-interactions",
    "ollama_native": "ollama",
    "openai_responses": "openai-responses",
} | dict.fromkeys(
    [
        "azure",
        "deepseek",
        "groq",
        "llamacpp",
        "mistral",
        "ollama_openai",
        "openai_chat",
        "openrouter",
        "qwen_vllm",
    ],
    "openai-chat",
)
X = {"role": "user", "content": "x"}


def said(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": list(parts)}]}


def item(**fields: Any) -> dict[str, Any]:
    return {"input": [fields]}


@pytest.mark.parametrize(("name", "form"), FIXTURES.items())
def test_a_request_that_others_have_checked_is_of_one_form_only(name: str, form: str) -> None:
    request = json.loads((DATA / "fixtures" / "render" / f"{name}.json").read_text("utf-8"))
    found = recognise(request.get("body", request))
    assert (found.form, found.rivals, found.foreign) == (form, (), ())


@pytest.mark.parametrize(
    ("request_", "form", "rivals"),
    [
        # What providers give as their smallest request.
        ({"model": "gpt-6-astra", "messages": [X]}, "openai-chat", ("anthropic", "ollama")),
        ({"model": "gpt-6-astra", "input": "hi", "store": False}, "openai-responses", ("gemini-interactions",)),
        ({"model": "claude-opus-5", "max_tokens": 64, "messages": [X]}, "anthropic", ("openai-chat",)),
        ({"model": "gemini-4-pro", "input": "hi"}, "gemini-interactions", ("openai-responses",)),
        ({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}, "gemini", ()),
        ({"messages": [{"role": "user", "content": [{"text": "hi"}]}]}, "bedrock", ()),
        # One mark is enough.
        ({"messages": [X], "max_completion_tokens": 5}, "openai-chat", ()),
        ({"messages": [X], "system": "x"}, "anthropic", ()),
        ({"messages": [], "system": [{"text": "x"}]}, "bedrock", ()),
        ({"messages": [], "inferenceConfig": {}}, "bedrock", ()),
        ({"messages": [X], "options": {"num_ctx": 5}}, "ollama", ()),
        ({"messages": [X], "keep_alive": "5m"}, "ollama", ()),
        ({"messages": [{**X, "images": ["AA=="]}]}, "ollama", ()),
        ({"messages": [X], "tool_choice": "auto"}, "openai-chat", ()),
        ({"messages": [X], "tool_choice": {"type": "any"}}, "anthropic", ()),
        ({"messages": [{"role": "developer", "content": "x"}, X]}, "openai-chat", ()),
        ({"messages": [{"role": "system", "content": "x"}, X]}, "openai-chat", ("ollama",)),
        (said("user", {"type": "text", "text": "x"}), "openai-chat", ("anthropic",)),
        (said("user", {"type": "image_url", "image_url": {"url": "x"}}), "openai-chat", ()),
        (said("user", {"type": "image", "source": {}}), "anthropic", ()),
        (said("user", {"type": "text", "text": "x", "cache_control": {}}), "anthropic", ()),
        (said("assistant", {"type": "thinking", "thinking": "x", "signature": ""}), "anthropic", ()),
        (said("assistant", {"type": "thinking", "thinking": []}), "openai-chat", ()),
        (said("assistant", {"toolUse": {}}), "bedrock", ()),
        (item(type="function_call", call_id="c", name="f", arguments="{}"), "openai-responses", ()),
        (item(type="function_call", id="c", name="f", arguments={}), "gemini-interactions", ()),
        (item(type="function_result", call_id="c", result="1"), "gemini-interactions", ()),
        (item(type="reasoning", summary=[]), "openai-responses", ()),
        (item(role="user", content="x"), "openai-responses", ()),
        (item(role="model", content="x"), "gemini-interactions", ()),
        (item(type="text", text="x"), "gemini-interactions", ()),
        ({"input": "x", "instructions": "y"}, "openai-responses", ()),
        ({"previous_response_id": "resp_1"}, "openai-responses", ()),
        ({"conversation": "conv_1"}, "openai-responses", ()),
        ({"input": "x", "system_instruction": "y"}, "gemini-interactions", ()),
    ],
)  # fmt: skip
def test_a_form_is_known_by_what_only_it_can_hold(
    request_: dict[str, Any], form: str, rivals: tuple[str, ...]
) -> None:
    found = recognise(request_)
    assert (found.form, found.rivals) == (form, rivals)


@pytest.mark.parametrize(
    ("arguments", "form"), [("{}", "openai-chat"), ({}, "ollama")], ids=["text", "object"]
)
def test_a_call_is_told_by_how_its_arguments_are_written(arguments: object, form: str) -> None:
    call = {"function": {"name": "f", "arguments": arguments}}
    request = {"messages": [X, {"role": "assistant", "content": "", "tool_calls": [call]}]}
    assert recognise(request).form == form


def test_most_marks_win_and_the_others_are_pointed_at() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asks = {"role": "assistant", "content": None, "tool_calls": [call]}
    found = recognise({"messages": [X, asks], "stop_sequences": ["x"]})
    assert (found.form, found.rivals, found.foreign) == ("openai-chat", (), ("stop_sequences",))


@pytest.mark.parametrize("request_", [{}, {"model": "m"}, {"hello": "world"}, {"query": "x"}])
def test_what_holds_nothing_that_was_said_is_no_request(request_: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="--from") as refused:
        recognise(request_)
    assert refused.value.code == "unrecognised"


@pytest.mark.parametrize("value", [None, 5, "x", {}, [], [None, 5, "x", [], {}]])
@pytest.mark.parametrize("field", ["messages", "input", "contents", "tools", "tool_choice"])
def test_nonsense_is_looked_at_without_falling_over(field: str, value: object) -> None:
    assert recognise({"messages": [], field: value}).form
    nested = {"role": value, "content": value, "tool_calls": value, "type": value}
    assert recognise({"messages": [nested], "input": [nested]}).form
