"""Options in the words of another form: said, left out and listed, or refused; never lost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.adapters.registry import available, form_of, get
from antiphon.adapters.requests import options
from antiphon.adapters.requests.conversion import convert
from antiphon.core.manifest import Policy
from antiphon.errors import InvalidInput, SequenceRejected
from tests.support.published_types import problems

FORMS = sorted({form for spelling in options.SPELLINGS for form in spelling})


def translated(source: str, target: str, **extra: Any) -> tuple[dict[str, Any], list[str]]:
    raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in extra.items()}
    said, mappings = options.translate(Policy(model="m", extra=raw), source, target)
    return {n: msgspec.json.decode(v) for n, v in said.items()}, [m.rule for m in mappings]


@pytest.mark.parametrize(
    ("source", "target", "given", "said"),
    [
        ("openai-chat", "anthropic", {"stop": "END"}, {"stop_sequences": ["END"]}),
        ("anthropic", "openai-chat", {"stop_sequences": ["a", "b"]}, {"stop": ["a", "b"]}),
        ("openai-chat", "anthropic", {"top_p": 0.5}, {"top_p": 0.5}),
        ("openai-chat", "openai-responses", {"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}}),
        ("openai-responses", "openai-chat", {"reasoning": {"effort": "low"}}, {"reasoning_effort": "low"}),
        ("openai-chat", "ollama", {"seed": 5, "stop": "x"}, {"options": {"seed": 5, "stop": ["x"]}}),
        ("openai-chat", "groq", {}, {}),
    ],
)  # fmt: skip
def test_what_both_forms_can_say_is_said_in_the_words_of_the_other(
    source: str, target: str, given: dict[str, Any], said: dict[str, Any]
) -> None:
    assert translated(source, target, **given)[0] == said


def test_what_only_steers_cost_or_bookkeeping_is_left_out_and_listed() -> None:
    assert translated("openai-chat", "anthropic", user="u", store=True) == (
        {},
        ["option_dropped", "option_dropped"],
    )


@pytest.mark.parametrize(
    ("given", "at"),
    [
        ({"logit_bias": {"1": 5}}, "logit_bias"),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, "reasoning"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
    ],
)
def test_what_shapes_the_answer_and_cannot_be_said_is_refused(
    given: dict[str, Any], at: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        translated("openai-chat", "anthropic", **given)
    assert (refused.value.code, refused.value.at) == ("unsupported_parameter", at)


def test_of_an_object_of_options_the_one_that_cannot_be_said_is_named() -> None:
    with pytest.raises(InvalidInput) as refused:
        translated(
            "openai-responses", "openai-chat", reasoning={"effort": "low", "summary": "auto"}
        )
    assert refused.value.at == "reasoning.summary"


@pytest.mark.parametrize("form", FORMS)
def test_within_a_form_options_are_passed_on_as_they_are(form: str) -> None:
    given = {"anything": {"at": ["all"]}}
    assert translated(form, form, **given) == (given, [])


def test_within_a_form_a_dialect_is_spared_what_is_incidental_and_refuses_the_rest() -> None:
    policy = Policy(model="m", extra={"store": msgspec.Raw(b"false"), "seed": msgspec.Raw(b"5")})
    listed = frozenset({"seed", "stop"})
    said, mappings = options.translate(policy, "openai-chat", "openai-chat", listed)
    assert (list(said), [(m.rule, m.block) for m in mappings]) == (
        ["seed"],
        [("option_dropped", "store")],
    )
    parsed = get("openai-chat").parse(
        {"messages": [{"role": "user", "content": "x"}], "seed": 5, "store": False}
    )
    assert convert(parsed, get("groq"), source="openai-chat", model="m").mappings != ()
    with pytest.raises(InvalidInput) as refused:
        convert(parsed, get("mistral"), source="openai-chat", model="m")
    assert refused.value.at == "seed"


@pytest.mark.parametrize("spelling", options.SPELLINGS, ids=lambda s: next(iter(s.values())))
def test_no_word_of_a_form_means_two_things(spelling: dict[str, str]) -> None:
    for form, word in spelling.items():
        meanings = [s for s in options.SPELLINGS if s.get(form) == word]
        assert meanings == [spelling]


@pytest.mark.parametrize("profile", available())
def test_every_dialect_converts_the_smallest_request(profile: str) -> None:
    parsed = get("openai-chat").parse({"messages": [{"role": "user", "content": "x"}]})
    assert convert(parsed, get(profile), source="openai-chat", model="m").mappings == ()
    assert form_of(profile) in {form_of(name) for name in available()}


def test_places_are_those_of_what_was_parsed() -> None:
    chat = get("openai-chat")
    audio = {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}
    user = {"role": "user", "content": [{"type": "text", "text": "x"}, audio]}
    parsed = chat.parse({"messages": [user]})
    with pytest.raises(SequenceRejected) as rejected:
        convert(parsed, get("anthropic"), source="openai-chat", model="m")
    assert rejected.value.at == "messages[0].content[1]"
    broken = chat.parse({"messages": [5]})
    with pytest.raises(SequenceRejected):
        convert(broken, chat, source="openai-chat", model="m")


SAMPLED: dict[str, dict[str, Any]] = {
    "openai-chat": {"messages": [{"role": "user", "content": "x"}], "top_p": 0.5, "stop": ["END"]},
    "anthropic": {"messages": [{"role": "user", "content": "x"}], "top_p": 0.5, "stop_sequences": ["END"]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "x"}]}], "generationConfig": {"topP": 0.5, "stopSequences": ["END"]}},
    "gemini-interactions": {"input": "x", "generation_config": {"top_p": 0.5, "stop_sequences": ["END"]}},
    "bedrock": {"messages": [{"role": "user", "content": [{"text": "x"}]}], "inferenceConfig": {"topP": 0.5, "stopSequences": ["END"]}},
    "ollama": {"messages": [{"role": "user", "content": "x"}], "options": {"top_p": 0.5, "stop": ["END"]}},
}  # fmt: skip


@pytest.mark.parametrize("target", SAMPLED)
@pytest.mark.parametrize("source", SAMPLED)
def test_sampling_goes_from_every_form_to_every_other(source: str, target: str) -> None:
    parsed = get(source).parse(SAMPLED[source])
    there = convert(parsed, get(target), source=source, model="m")
    read = get(target).parse(msgspec.json.decode(there.request.body))
    wanted = get(target).parse(SAMPLED[target])
    said = {name: msgspec.json.decode(raw) for name, raw in read.policy.extra.items()}
    for name, raw in wanted.policy.extra.items():
        assert said[name] == msgspec.json.decode(raw)


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SHAPED: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "messages": [{"role": "user", "content": "x"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}},
    },
    "openai-responses": {
        "input": "x",
        "text": {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA}},
    },
    "anthropic": {
        "messages": [{"role": "user", "content": "x"}],
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    },
    "gemini": {
        "contents": [{"role": "user", "parts": [{"text": "x"}]}],
        "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA},
    },
    "gemini-interactions": {
        "input": "x",
        "response_format": {"type": "text", "mime_type": "application/json", "schema": SCHEMA},
    },
    "bedrock": {
        "messages": [{"role": "user", "content": [{"text": "x"}]}],
        "outputConfig": {"textFormat": {"type": "json_schema", "structure": {
            "jsonSchema": {"name": "answer", "schema": msgspec.json.encode(SCHEMA).decode()}}}},
    },
    "ollama": {"messages": [{"role": "user", "content": "x"}], "format": SCHEMA},
}  # fmt: skip


@pytest.mark.parametrize("target", SHAPED)
@pytest.mark.parametrize("source", SHAPED)
def test_the_shape_of_an_answer_goes_from_every_form_to_every_other(
    source: str, target: str
) -> None:
    parsed = get(source).parse(SHAPED[source])
    there = convert(parsed, get(target), source=source, model="m")
    body = msgspec.json.decode(there.request.body)
    for name, value in SHAPED[target].items():
        if name not in ("messages", "input", "contents"):
            assert body[name] == value
    assert problems(target, there.request.body) == []
    if source != target:
        assert "option_respelled" in [mapping.rule for mapping in there.mappings]


JSON_MODE: dict[str, dict[str, Any]] = {
    "openai-chat": {"response_format": {"type": "json_object"}},
    "openai-responses": {"text": {"format": {"type": "json_object"}}},
    "gemini": {"generationConfig": {"responseMimeType": "application/json"}},
    "gemini-interactions": {"response_format": {"type": "text", "mime_type": "application/json"}},
    "ollama": {"format": "json"},
}


@pytest.mark.parametrize("source", JSON_MODE)
@pytest.mark.parametrize("target", FORMS)
def test_json_without_a_schema_goes_where_there_is_such_a_mode(source: str, target: str) -> None:
    if target in JSON_MODE:
        assert translated(source, target, **JSON_MODE[source])[0] == JSON_MODE[target]
        return
    with pytest.raises(InvalidInput) as caught:
        translated(source, target, **JSON_MODE[source])
    assert caught.value.code == "unsupported_parameter"


def test_a_schema_goes_over_digit_for_digit() -> None:
    raw = msgspec.Raw(b'{"const":12345678901234567890.10}')
    said, _ = options.translate(Policy(model="m", extra={"format": raw}), "ollama", "anthropic")
    assert bytes(raw) in bytes(said["output_config"])


@pytest.mark.parametrize(
    ("source", "given", "at"),
    [
        ("openai-chat", {"response_format": {"type": "xml"}}, "response_format"),
        ("openai-chat", {"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ("openai-responses", {"text": {"format": {"type": "grammar"}}}, "text.format"),
        ("anthropic", {"output_config": {"format": {"type": "json_schema"}}}, "output_config.format"),
        ("gemini", {"generationConfig": {"responseMimeType": "text/x.enum"}}, "generationConfig.responseMimeType"),
        ("gemini-interactions", {"response_format": {"type": "audio"}}, "response_format"),
        ("ollama", {"format": "yaml"}, "format"),
    ],
)  # fmt: skip
def test_a_shape_that_nobody_else_has_is_refused_with_its_place(
    source: str, given: dict[str, Any], at: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        translated(source, next(form for form in FORMS if form != source), **given)
    assert (caught.value.code, caught.value.at) == ("unsupported_parameter", at)


def test_what_stands_beside_the_shape_is_said_or_refused_as_ever() -> None:
    said, _ = translated(
        "openai-responses", "openai-chat", text={"format": {"type": "text"}, "verbosity": "low"}
    )
    assert said == {"verbosity": "low"}
    with pytest.raises(InvalidInput) as caught:
        translated("anthropic", "ollama", output_config={"effort": "low"})
    assert caught.value.at == "output_config"
