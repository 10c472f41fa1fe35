"""Tool schemas: what fits them, what does not, and that nothing is ever fetched."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest

from antiphon.core.answers.schemas import MAX_PROBLEM_CHARACTERS, compile_schema
from antiphon.errors import InvalidInput

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {
            "type": "array",
            "items": {"type": "object", "properties": {"n": {"enum": [1, 2]}}},
        },
    },
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.mark.req("M144")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"city":"Oslo"}', None),
        ('{"city":"Oslo","days":[{"n":1},{"n":2.0}]}', None),
        ("{}", "'city' is a required property"),
        ('{"city":7}', "city: 7 is not of type 'string'"),
        ('{"city":"Oslo","days":[{"n":1},{"n":3}]}', "days[1].n: 3 is not one of [1, 2]"),
        ('{"city":"Oslo","town":"x"}', "'town' was unexpected"),
        ("[]", "[] is not of type 'object'"),
        ('{"city":', "Not JSON"),
        ('{"city":"Oslo","city":"Rome"}', "a key stands twice"),
        ('{"city":NaN}', "NaN is no JSON value"),
        ("[" * 5000 + "]" * 5000, "nested too deep"),
    ],
)
def test_arguments_fit_or_the_sentence_says_where_they_do_not(
    arguments: str, words: str | None
) -> None:
    problem = compile_schema(WEATHER).problem(arguments)
    if words is None:
        assert problem is None
    else:
        assert problem is not None
        assert words in problem


@pytest.mark.req("M144")
@pytest.mark.parametrize(
    ("schema", "fitting", "other"),
    [
        ({"multipleOf": 0.01}, ["19.99", "0", "-3", "1e400", "1" + "0" * 5000], ["19.999", "1e-9"]),
        ({"multipleOf": 3}, ["9e999999999", "1" * 4500], ["1e999999999", "1" * 4501]),
        ({"multipleOf": 2.5}, ["5.00", "1e1", "2500e-3", "-7.5"], ["2.51", "25e-2", "1e-400"]),
        ({"maximum": 0.1}, ["0.1", "-1e400"], ["0.1000000000000000055", "1e400"]),
        ({"maximum": 9007199254740992}, ["9007199254740992.0"], ["9007199254740993.0"]),
        ({"enum": [0.1, 9007199254740993]}, ["0.10", "9007199254740993.0"], ["0.1000000000000000055"]),
        ({"type": "integer"}, ["1e400", "2.0", "1" * 5000], ["1.0000000000000000000001", "1e-400"]),
        ({"type": "number", "uniqueItems": True}, ["1e400"], ["true", '"1"']),
        ({"uniqueItems": True}, ["[0.1,0.1000000000000000055]"], ["[1e400,10e399]"]),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "multipleOf": 0.1}, ["0.3"], ["0.35"]),
        ({"maxLength": 2.0}, ['"ab"'], ['"abc"']),
    ],
)  # fmt: skip
def test_numbers_are_judged_to_the_last_digit(
    schema: dict[str, Any], fitting: list[str], other: list[str]
) -> None:
    check = compile_schema({"properties": {"a": schema}})
    assert [check.problem(f'{{"a":{text}}}') for text in fitting] == [None] * len(fitting)
    problems = [check.problem(f'{{"a":{text}}}') for text in other]
    assert None not in problems
    assert not any("Decimal" in str(problem) for problem in problems)


def test_a_number_in_a_sentence_reads_as_it_was_written() -> None:
    problem = compile_schema({"properties": {"a": {"multipleOf": 0.01}}}).problem('{"a":1.005}')
    assert problem == "a: 1.005 is not a multiple of 0.01"


@pytest.mark.parametrize("spelling", [str, str.encode, lambda text: msgspec.Raw(text.encode())])
def test_a_schema_may_come_as_text_in_any_form(spelling: Any) -> None:
    check = compile_schema(spelling(msgspec.json.encode(WEATHER).decode()))
    assert check.problem('{"city":"Oslo"}') is None
    assert check.problem("{}") is not None
    assert check.digest == compile_schema(WEATHER).digest


def test_the_digest_is_of_the_meaning_and_not_of_the_spelling() -> None:
    assert compile_schema('{"type":"object","maximum":1.0}').digest == (
        compile_schema('{ "maximum" : 1, "type" : "object" }').digest
    )
    assert compile_schema('{"type":"object"}').digest != compile_schema('{"type":"array"}').digest
    assert compile_schema(WEATHER).digest != compile_schema(WEATHER, key=b"tenant").digest


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"properties": {"a": {"$ref": "https://schemas.invalid/a.json"}}},
        {"$ref": "#/$defs/missing"},
    ],
)
def test_a_schema_that_cannot_be_used_fits_nothing_and_says_so(schema: dict[str, Any]) -> None:
    problem = compile_schema(schema).problem('{"a":1}')
    assert problem is not None
    assert problem.startswith("the schema itself")


def test_a_schema_is_read_by_the_draft_that_it_names() -> None:
    draft4 = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "maximum": 3,
        "exclusiveMaximum": True,
    }
    assert compile_schema(draft4).problem("3") is not None
    assert compile_schema({"exclusiveMaximum": 3}).problem("3") is not None


@pytest.mark.parametrize("schema", ["[]", "null", "{", '{"a":1,"a":2}'])
def test_what_is_no_schema_at_all_is_refused_when_it_is_declared(schema: str) -> None:
    with pytest.raises(InvalidInput):
        compile_schema(schema)


def test_a_boolean_is_a_schema() -> None:
    assert compile_schema("true").problem("{}") is None
    assert compile_schema("false").problem("{}") is not None


def test_a_problem_is_one_bounded_sentence() -> None:
    problem = compile_schema({"type": "string"}).problem('{"a":"' + "x" * 10_000 + '"}')
    assert problem is not None
    assert len(problem) == MAX_PROBLEM_CHARACTERS + 1


def test_the_library_is_loaded_only_when_it_is_asked() -> None:
    lines = (
        "import sys",
        "from antiphon.core.answers.assembler import Assembler",
        "from antiphon.core.answers.schemas import compile_schema",
        "check = compile_schema({'type': 'object'})",
        "assert 'jsonschema' not in sys.modules",
        "assert check.problem('{}') is None",
        "assert 'jsonschema' in sys.modules",
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
