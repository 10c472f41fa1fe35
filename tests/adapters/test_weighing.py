"""Requests are weighed as they leave, in every dialect, and what was weighed is not read again."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from antiphon.adapters import registry
from antiphon.adapters.base import render
from antiphon.adapters.weighing import (
    IMAGE_TOKENS,
    weigh_ending,
    weigh_head,
    weigh_items,
)
from antiphon.core.blocks import Image, Message
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.planning.tokens import ESTIMATOR
from antiphon.engine.catalogue.vocabularies import counter_of
from tests.support.everywhere import DIALECTS, TALK, TOOLS
from tests.support.lines import KEY, PNG, answer, asks, line, model, user


class Words:
    """Counts words: easy to do by hand."""

    name = "words"
    exact = True

    def __init__(self) -> None:
        self.seen: list[str] = []

    def count(self, texts: Sequence[str]) -> int:
        self.seen += texts
        return sum(len(text.split()) for text in texts)


def policy(dialect: str, **options: object) -> Policy:
    return Policy(model="m-1", profile=dialect, endpoint="http://127.0.0.1:1", **options)  # type: ignore[arg-type]


@pytest.mark.req("M46")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_line_that_grows_weighs_what_it_weighs_when_it_is_made_anew(dialect: str) -> None:
    adapter = registry.get(dialect)
    growing = adapter.line(policy(dialect, instructions="Be brief."), TOOLS, key=KEY)
    weighed = 0
    for count, message in enumerate(TALK, start=1):
        growing.feed(message)
        if count in (1, 5, 7):
            anew = render(
                adapter, TALK[:count], policy(dialect, instructions="Be brief."), TOOLS, key=KEY
            )
            weighed = growing.finish().weigh(ESTIMATOR).total
            assert weighed == anew.weigh(ESTIMATOR).total
    assert weighed > IMAGE_TOKENS


@pytest.mark.req("M46")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_instructions_tools_and_talk_are_weighed_apart(dialect: str) -> None:
    bare = render(registry.get(dialect), TALK, policy(dialect), TOOLS, key=KEY).weigh(ESTIMATOR)
    told = policy(dialect, instructions="Be brief and kind, always. " * 20)
    longer = render(registry.get(dialect), TALK, told, TOOLS, key=KEY).weigh(ESTIMATOR)
    assert longer.system_policy - bare.system_policy > 100
    assert longer.transcript == bare.transcript
    assert longer.tool_guidance == bare.tool_guidance
    wordy = (TOOLS[0], ToolDeclaration(name="find_it", description="Finds a thing. " * 40))
    more = render(registry.get(dialect), TALK, policy(dialect), wordy, key=KEY).weigh(ESTIMATOR)
    assert more.tool_guidance - bare.tool_guidance > 100
    assert more.transcript == bare.transcript


def test_what_was_weighed_is_not_read_again() -> None:
    words = Words()
    growing = registry.get("openai-chat").line(policy("openai-chat"), (), key=KEY)
    first, second, third = line(user("old words"), model("so old"), user("new ones"))
    growing.feed(first)
    growing.feed(second)
    growing.finish().weigh(words)
    words.seen.clear()
    growing.feed(third)
    assert growing.finish().weigh(words).transcript == 3 + 3 * 3 + 3 + 6
    assert words.seen == ["user", "new ones"]


def test_a_weight_that_is_believed_is_not_counted() -> None:
    words = Words()
    growing = registry.get("openai-chat").line(policy("openai-chat"), (), key=KEY)
    first, second, third = line(user("old words"), model("so old"), user("new ones"))
    growing.feed(first)
    growing.feed(second)
    body = growing.finish().closed.body
    body.believe(words, body.weigh(Words()))
    growing.feed(third)
    growing.finish().weigh(words)
    assert words.seen == ["user", "new ones"]


def test_another_counter_counts_everything_anew() -> None:
    class Ones(Words):
        name = "ones"

        def count(self, texts: Sequence[str]) -> int:
            return len(texts)

    growing = registry.get("openai-chat").line(policy("openai-chat"), (), key=KEY)
    growing.feed(line(user("four words of text"))[0])
    made = growing.finish()
    assert made.weigh(Words()).total == 3 + 3 + 1 + 4
    assert made.weigh(Ones()).total == 3 + 3 + 1 + 1
    assert made.weigh(Words()).total == 3 + 3 + 1 + 4


def test_a_long_body_is_weighed_the_same_from_its_joined_pieces() -> None:
    adapter = registry.get("openai-chat")
    talk: list[Message] = line(*(user(f"{n} " * 900) for n in range(60)))
    growing = adapter.line(policy("openai-chat"), (), key=KEY)
    for message in talk:
        growing.feed(message)
        growing.finish().weigh(ESTIMATOR)
    whole = render(adapter, talk, policy("openai-chat"), key=KEY)
    assert len(whole.request.chunks) > 1
    assert growing.finish().weigh(ESTIMATOR) == whole.weigh(ESTIMATOR)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_media_cost_what_media_cost_and_not_the_letters_that_carry_them(dialect: str) -> None:
    large = Image(media_type="image/png", data=PNG + "A" * 400_000)
    adapter = registry.get(dialect)
    small = render(adapter, line(user("See.")), policy(dialect), key=KEY).weigh(ESTIMATOR)
    seen = render(adapter, line(user("See.", large)), policy(dialect), key=KEY).weigh(ESTIMATOR)
    assert IMAGE_TOKENS <= seen.total - small.total <= IMAGE_TOKENS + 20


@pytest.mark.parametrize("dialect", DIALECTS)
def test_arguments_and_results_of_tools_are_counted(dialect: str) -> None:
    from tests.support.lines import call

    long = json.dumps({"text": "word " * 8_000})
    talk = line(user(), asks(call("c", "look", long)), answer("c", "found " * 4_000), user("ok"))
    weight = render(registry.get(dialect), talk, policy(dialect), TOOLS, key=KEY).weigh(ESTIMATOR)
    assert weight.transcript > (8_000 * 5 + 4_000 * 6) // 4


def test_what_only_steers_the_provider_costs_nothing() -> None:
    words = Words()
    head = b'{"model":"a b c","temperature":0.5,"stop":["x y"],"messages":['
    assert weigh_head(head, words).total == 0
    form = b'{"response_format":{"type":"json_object"},"messages":['
    assert weigh_head(form, words).tool_guidance == 1
    piece = b',{"role":"tool","tool_call_id":"x y z","content":"one two"}'
    assert weigh_items(piece, words).transcript == 3 + 1 + 2
    assert weigh_ending(b"]}", words).total == 0
    closing = b'],"toolConfig":{"tools":["a b"]}}'
    assert weigh_ending(closing, words).tool_guidance == 2


@pytest.mark.parametrize("option", ["text", "generationConfig", "generation_config"])
def test_an_option_of_another_form_than_expected_weighs_nothing(option: str) -> None:
    head = json.dumps({option: "a text", "messages": []}).removesuffix("]}").encode()
    assert weigh_head(head, Words()).total == 0


def test_what_is_written_as_most_is_weighs_what_it_weighs_in_any_other_form() -> None:
    """A member that steers the provider costs nothing, and only keeps a form from being the usual."""
    asked = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
    items: list[dict[str, object]] = [
        {"role": "user", "content": "What is it?"},
        {"role": "assistant", "content": None, "tool_calls": [asked, asked]},
        {"role": "tool", "tool_call_id": "c1", "content": "A lamp. " * 400},
        {"role": "assistant", "content": "It is that."},
    ]
    usual = json.dumps(items)[1:-1].encode()
    other = json.dumps([{**item, "index": n} for n, item in enumerate(items)])[1:-1].encode()
    for counter in (counter_of("gpt-4o"), ESTIMATOR):
        assert weigh_items(usual, counter) == weigh_items(other, counter)


def test_a_text_that_looks_like_a_file_is_counted_as_the_text_that_it_is() -> None:
    said = json.dumps({"role": "tool", "tool_call_id": "c1", "content": "QUJD" * 1_000}).encode()
    assert weigh_items(said, ESTIMATOR).total > 1_000
