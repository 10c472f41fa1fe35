"""What a strict tool's schema may not say, dialect by dialect."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.adapters import registry
from antiphon.core.rules.strict_schemas import strict_problems

CLAUDE = registry.get("anthropic").profile
CLOSED = {"type": "object", "additionalProperties": False}


def problems(**properties: Any) -> list[str]:
    return list(strict_problems(CLAUDE, {**CLOSED, "properties": properties}))


def test_a_closed_schema_of_plain_words_is_fine_and_needs_not_require_everything() -> None:
    nested = {**CLOSED, "properties": {"b": {"type": "string", "format": "uuid", "enum": ["x"]}}}
    union = {"anyOf": [{"type": "null"}, {"type": "integer"}]}
    assert problems(a={"type": "array", "items": nested}, c=union, minimum={"type": "string"}) == []


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "object"}, ".a has to say additionalProperties: false in a strict tool"),
        ({"properties": {}}, ".a has to say additionalProperties: false in a strict tool"),
        ({"type": "integer", "minimum": 1}, ".a says minimum, which a strict tool may not"),
        ({"not": {"type": "null"}}, ".a says not, which a strict tool may not"),
        ({"type": "array", "items": {"pattern": "x"}}, ".a.items says pattern, which a strict tool may not"),
        ({"anyOf": [{}, {"maxLength": 5}]}, ".a.anyOf[1] says maxLength, which a strict tool may not"),
        ({"$defs": {"d": {"minItems": 1}}}, ".a.$defs.d says minItems, which a strict tool may not"),
        ({"type": "string", "format": "color"}, ".a has the format color; a strict tool may have date, "
         "date-time, duration, email, hostname, ipv4, ipv6, time, uri, uuid"),
    ],
)  # fmt: skip
def test_what_the_decoder_of_anthropic_does_not_know_is_named_with_its_place(
    schema: dict[str, Any], says: str
) -> None:
    assert problems(a=schema) == [says]


def test_a_dialect_that_enforces_nothing_refuses_nothing() -> None:
    assert list(strict_problems(registry.get("llamacpp").profile, {"minimum": 1})) == []


def test_a_list_of_required_fields_may_hold_anything_at_all() -> None:
    openai = registry.get("openai-chat").profile
    schema = {**CLOSED, "properties": {"a": {}, "b": {}}, "required": [["a"], {}, None, "b"]}
    assert list(strict_problems(openai, schema)) == ["the root has to require a in a strict tool"]
