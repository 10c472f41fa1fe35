"""Tool schemas: compiled once, asked about every call's arguments.

The library behind it is loaded at the first question, since most processes that import the
core never ask one. References are never fetched: a schema that points outside itself is a
schema that fits nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from antiphon.core.digests import NO_KEY, canonical_json, digest, parse_exact
from antiphon.core.ids import Digest
from antiphon.errors import InvalidInput

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

MAX_PROBLEM_CHARACTERS: Final = 500

COMPILED: Final = 256
"""How many schemas are kept compiled: to judge one by the rules of its draft costs milliseconds."""


class Misfit(NamedTuple):
    """The first thing about a value that does not fit: its place, the rule, and a sentence."""

    at: str
    rule: str
    message: str


class SchemaCheck:
    """The argument schema of one tool.

    Attributes:
        digest: Digest of the schema's meaning; the spelling of its JSON does not count.
    """

    __slots__ = ("_meaning", "digest")

    def __init__(self, meaning: str, schema_digest: Digest) -> None:
        self.digest = schema_digest
        self._meaning = meaning

    def problem(self, arguments: str) -> str | None:
        """Return one sentence on why `arguments` do not fit, or None where they do.

        A schema that cannot be used at all fits nothing, and the sentence says so: running a
        tool on arguments that nobody could check is the worse mistake.
        """
        try:
            value = parse_exact(arguments)
        except InvalidInput as error:
            return error.message.rstrip(".")
        found = self._misfit(value)
        if found is None:
            return None
        return _short(f"{found.at}: {found.message}" if found.at else found.message)

    def misfit(self, text: str) -> Misfit | None:
        """Return where `text` does not fit, and by which rule, or None where it does."""
        try:
            value = parse_exact(text)
        except InvalidInput as error:
            return Misfit(at="", rule="json", message=error.message)
        return self._misfit(value)

    def _misfit(self, value: object) -> Misfit | None:
        from jsonschema.exceptions import SchemaError, best_match
        from referencing.exceptions import Unresolvable

        try:
            error = best_match(_validator(self._meaning).iter_errors(value))  # type: ignore[arg-type]  # what JSON holds, as this library reads it
        except SchemaError as broken:
            return _broken(f"the schema itself is not valid: {broken.message}")
        except Unresolvable as dangling:
            return _broken(f"the schema itself refers to nothing: {dangling}")
        if error is None:
            return None
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.path)
        return Misfit(
            at=_short(where.lstrip(".")), rule=str(error.validator), message=error.message
        )


def compile_schema(
    parameters: bytes | str | msgspec.Raw | Mapping[str, Any], key: bytes = NO_KEY
) -> SchemaCheck:
    """Return the check for a tool's `parameters`, a JSON Schema as JSON text or as a value.

    Raises:
        InvalidInput: It is not JSON, or neither an object nor a boolean.
    """
    if isinstance(parameters, Mapping):
        document: object = parameters
        meaning = canonical_json(dict(parameters))
    else:
        text = parameters if isinstance(parameters, str) else bytes(parameters).decode()
        meaning = canonical_json(parse_exact(text))
        document = json.loads(text)
    if not isinstance(document, Mapping | bool):
        raise InvalidInput("A tool's schema is a JSON object.", code="schema_unsupported")
    return SchemaCheck(meaning, digest(key, "schema", meaning.encode()))


@lru_cache(maxsize=COMPILED)
def _validator(meaning: str) -> Validator:
    """Return the compiled schema, which every turn that declares it may use again.

    Raises:
        SchemaError: It breaks the rules of its own draft; 2020-12 where it names none.
    """
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft202012Validator, validator_for
    from referencing import Registry

    from antiphon.core.answers.exact import exactly

    document = parse_exact(meaning)
    known = validator_for(document, default=Draft202012Validator)  # type: ignore[arg-type]  # a schema
    kind = exactly(known)
    # As `check_schema` does, which knows no numbers but ints and floats.
    for error in kind(kind.META_SCHEMA, format_checker=kind.FORMAT_CHECKER).iter_errors(document):  # type: ignore[arg-type]  # a schema
        raise SchemaError.create_from(error)
    # An empty registry: the library's default one would fetch what a `$ref` names.
    compiled: Validator = kind(document, registry=Registry())  # type: ignore[arg-type]  # a schema
    return compiled


def _broken(message: str) -> Misfit:
    return Misfit(at="", rule="$schema", message=message)


def _short(sentence: str) -> str:
    if len(sentence) <= MAX_PROBLEM_CHARACTERS:
        return sentence
    return f"{sentence[:MAX_PROBLEM_CHARACTERS]}…"
