"""Exact counts of the models whose vocabularies are here; everyone else's are estimated."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from antiphon.adapters import registry
from antiphon.adapters.base import render
from antiphon.core.manifest import Policy
from antiphon.engine.catalogue.vocabularies import VOCABULARIES, counter_of
from tests.support.lines import KEY, line, model, system, user

KNOWN = json.loads((Path(__file__).parents[1] / "data" / "tokens.json").read_text("utf-8"))
"""Counts that another library, tiktoken, gave for the same texts."""


@pytest.mark.parametrize(
    ("name", "vocabulary"),
    [
        ("gpt-4o", "o200k_base"),
        ("gpt-4o-mini-2024-07-18", "o200k_base"),
        ("chatgpt-4o-latest", "o200k_base"),
        ("openai/gpt-4.1", "o200k_base"),
        ("gpt-5.4-mini", "o200k_base"),
        ("o3", "o200k_base"),
        ("o4-mini", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("gpt-35-turbo", "cl100k_base"),
        ("openai/gpt-oss-20b", "o200k_harmony"),
        ("Qwen/Qwen3.5-8B", "qwen3.5"),
        ("claude-sonnet-5", "estimate"),
        ("olmo-2", "estimate"),
        ("gpt-40", "estimate"),
        ("rehearsal", "estimate"),
    ],
)
def test_a_model_is_counted_for_by_its_own_vocabulary(name: str, vocabulary: str) -> None:
    counter = counter_of(name)
    assert (counter.name, counter.exact) == (vocabulary, vocabulary in VOCABULARIES)


@pytest.mark.parametrize("vocabulary", ["o200k_base", "cl100k_base"])
def test_counts_are_those_of_the_providers_own_library(
    vocabulary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(*_: object) -> None:
        raise AssertionError("nothing may be downloaded")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    counter = counter_of({"o200k_base": "gpt-4o", "cl100k_base": "gpt-4"}[vocabulary])
    texts = [case["text"] for case in KNOWN]
    wanted = [case[vocabulary] for case in KNOWN]
    assert [counter.count([text]) for text in texts] == wanted
    assert counter.count(texts * 2) == 2 * sum(wanted)  # more than a few go another way


def test_half_a_character_is_counted_as_one() -> None:
    assert counter_of("gpt-4o").count(["\ud800"]) > 0


@pytest.mark.req("M46")
def test_a_plain_talk_counts_as_its_provider_documents_it() -> None:
    """Three tokens for each message, those of its role and text, and three for the answer."""
    talk = [
        system("You are a helpful assistant."),
        user("Say hello."),
        model("Hello!"),
        user("Bye."),
    ]
    request = render(registry.get("openai-chat"), line(*talk), Policy(model="gpt-4o"), key=KEY)
    counter = counter_of("gpt-4o")
    by_hand = 3 + sum(3 + 1 + counter.count([message.text]) for message in talk)
    assert request.weigh(counter).total == by_hand
