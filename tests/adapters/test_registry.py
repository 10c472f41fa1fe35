"""Which adapter speaks which dialect, and what is said of those that none speaks yet."""

from __future__ import annotations

import msgspec
import pytest

from antiphon.adapters import registry
from antiphon.adapters.base import render
from antiphon.core.blocks import Role
from antiphon.core.manifest import Policy
from antiphon.core.recovery import Rung
from antiphon.errors import InvalidInput, SequenceRejected
from tests.support.lines import KEY, line, model, user

CONTRACT = """openai-chat openai-responses anthropic gemini gemini-interactions bedrock deepseek mistral
    qwen-vllm ollama ollama-openai llamacpp groq openrouter azure"""


def test_every_profile_of_the_contract_has_a_name() -> None:
    assert list(registry.KNOWN) == CONTRACT.split()


@pytest.mark.parametrize("name", CONTRACT.split())
def test_a_profile_is_spoken_or_said_to_be_unavailable(name: str) -> None:
    if name in registry.available():
        adapter = registry.get(name)
        assert (adapter.name, adapter.profile.name) == (name, name)
        assert registry.by_name(adapter.name).digest == adapter.digest
        return
    with pytest.raises(InvalidInput) as caught:
        registry.get(name)
    assert (caught.value.code, caught.value.at, caught.value.exit_code) == (
        "profile_unavailable",
        name,
        2,
    )
    assert "openai-chat" in caught.value.message


def test_a_name_that_is_none_is_told_apart_from_one_that_is_not_spoken() -> None:
    with pytest.raises(InvalidInput) as caught:
        registry.get("openai")
    assert caught.value.code == "unknown_profile"


def test_facts_may_come_as_values_or_as_stored_json() -> None:
    plain = registry.get("openai-chat", {"roles": ["system", "user"], "output_limit": "max_tokens"})
    stored = {
        "roles": msgspec.Raw(b'["system","user"]'),
        "output_limit": msgspec.Raw(b'"max_tokens"'),
    }
    assert registry.get("openai-chat", stored) is plain
    assert plain.profile.roles == {Role.SYSTEM, Role.USER}


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"colour": "red"}, "unknown_fact"),
        ({"store": "yes"}, "bad_fact"),
        ({"roles": 5}, "bad_fact"),
    ],
)
def test_facts_that_cannot_be_are_refused(facts: dict[str, object], code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        registry.get("openai-chat", facts)
    assert caught.value.code == code


@pytest.mark.req("M65")
def test_on_a_wire_without_handles_or_keys_only_a_closed_connection_or_time_is_proof() -> None:
    adapter = registry.get("openai-chat")
    assert adapter.recovery == (Rung.CONNECTION, Rung.DEADLINE)
    assert adapter.closing_ends


@pytest.mark.parametrize("gone", [0, 1])
@pytest.mark.parametrize("name", registry.available())
def test_no_dialect_renders_a_line_over_a_message_that_was_erased(name: str, gone: int) -> None:
    messages = line(user("hello"), model("hi"), user("more"))
    messages[gone] = msgspec.structs.replace(messages[gone], blocks=(), erased=True)
    with pytest.raises(SequenceRejected) as caught:
        render(registry.get(name), messages, Policy(model="m", profile=name), key=KEY)
    assert (caught.value.code, caught.value.at) == ("content_erased", messages[gone].id)
