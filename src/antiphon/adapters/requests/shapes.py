"""The shape that an answer is asked to have, as each form asks for it.

Some forms say it in one option and some in two, some hold the schema as a value and one as text;
a schema goes over as it was written, digit for digit. What a schema may hold is for each provider
to say: it is part of the answer's contract, so nothing of it is ever left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from antiphon.errors import InvalidInput

JSON: Final = "application/json"
NAME: Final = "answer"
"""What a schema is called where its form wants a name and none was given."""

PLACES: Final = {
    "openai-chat": "response_format",
    "openai-responses": "text.format",
    "anthropic": "output_config.format",
    "gemini": "generationConfig.responseJsonSchema",
    "gemini-interactions": "response_format",
    "bedrock": "outputConfig.textFormat",
    "ollama": "format",
}
"""Where each form asks for a schema."""


class _Named(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A schema under a name, as OpenAI's forms and Bedrock's have it."""

    schema: msgspec.Raw = msgspec.Raw(b"")
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class _Chat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str
    json_schema: _Named | None = None


class _Typed(_Named, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    type: str


class _Structure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    json_schema: _Named = msgspec.field(name="jsonSchema")


class _TextFormat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str
    structure: _Structure


class _Mime(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    type: str = "text"
    mime_type: str | None = None
    schema: msgspec.Raw = msgspec.Raw(b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """JSON; of a schema, where there is one. `at` is where it was asked for."""

    at: str
    schema: msgspec.Raw | None = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


def take(
    extra: Mapping[str, msgspec.Raw], form: str
) -> tuple[Shape | None, dict[str, msgspec.Raw]]:
    """Return the shape that these options of `form` ask for, and the options without it.

    Raises:
        InvalidInput: `unsupported_parameter`: it is said in a way that the form does not have.
    """
    holder, _, inner = PLACES[form].partition(".")
    if holder not in extra:
        return None, dict(extra)
    rest = dict(extra)
    try:
        if not inner:
            return _read(form, rest.pop(holder)), rest
        held = msgspec.json.decode(rest[holder], type=dict[str, msgspec.Raw])
        found = held.pop(inner, None)
        shape = None
        if form == "gemini":
            mime = held.pop("responseMimeType", None)
            if found is not None:
                shape = Shape(at=PLACES[form], schema=found)
            elif mime is not None:
                shape = _of_mime(
                    msgspec.json.decode(mime, type=str), "generationConfig.responseMimeType"
                )
        elif found is not None:
            shape = _read(form, found)
    except msgspec.ValidationError as error:
        raise _unsaid(PLACES[form], f"{error}.") from None
    if held:
        rest[holder] = msgspec.Raw(msgspec.json.encode(held))
    else:
        del rest[holder]
    return shape, rest


def _read(form: str, raw: msgspec.Raw) -> Shape | None:
    at, decode = PLACES[form], msgspec.json.decode
    match form:
        case "openai-chat":
            chat = decode(raw, type=_Chat)
            return _of_type(chat.type, chat.json_schema, f"{at}.json_schema", at)
        case "openai-responses":
            typed = decode(raw, type=_Typed)
            return _of_type(typed.type, typed, at, at)
        case "anthropic":
            typed = decode(raw, type=_Typed)
            return _of_type(typed.type, typed, at, at)
        case "bedrock":
            told = decode(raw, type=_TextFormat)
            named = told.structure.json_schema
            text = decode(named.schema, type=str)
            schema = msgspec.Raw(text.encode())
            return _of_type(told.type, msgspec.structs.replace(named, schema=schema), at, at)
        case "gemini-interactions":
            mime = decode(raw, type=_Mime)
            if mime.type != "text":
                raise _unsaid(at, "Only text has a shape.")
            if bytes(mime.schema):
                return Shape(at=at, schema=mime.schema)
            return _of_mime(mime.mime_type, at)
        case _:  # ollama: "json", or the schema itself
            if bytes(raw).lstrip().startswith(b'"'):
                if decode(raw, type=str) not in ("", "json"):
                    raise _unsaid(at, "It is json or a schema.")
                return Shape(at=at) if decode(raw, type=str) else None
            return Shape(at=at, schema=raw)


def _of_type(kind: str, named: _Named | None, at_schema: str, at: str) -> Shape | None:
    if kind == "text":
        return None
    if kind == "json_object":
        return Shape(at=at)
    if kind != "json_schema":
        raise _unsaid(at, "It is text, json_object or json_schema.")
    if named is None or not bytes(named.schema):
        raise _unsaid(at_schema, "There is no schema.")
    return Shape(
        at=at,
        schema=named.schema,
        name=named.name,
        description=named.description,
        strict=named.strict,
    )


def _of_mime(mime: str | None, at: str) -> Shape | None:
    if mime in (None, "text/plain"):
        return None
    if mime != JSON:
        raise _unsaid(at, "It is text/plain or application/json.")
    return Shape(at=at)


def said(shape: Shape, form: str) -> dict[str, object]:
    """Return `shape` as options of `form`, each under the path where it stands.

    Raises:
        InvalidInput: `unsupported_parameter`: this form takes JSON with a schema alone.
    """
    place = PLACES[form]
    match form:
        case "openai-chat" if shape.schema is None:
            return {place: {"type": "json_object"}}
        case "openai-chat":
            return {place: {"type": "json_schema", "json_schema": _named(shape)}}
        case "openai-responses" if shape.schema is None:
            return {place: {"type": "json_object"}}
        case "openai-responses":
            return {place: {"type": "json_schema", **_named(shape)}}
        case "gemini" if shape.schema is None:
            return {"generationConfig.responseMimeType": JSON}
        case "gemini":
            return {"generationConfig.responseMimeType": JSON, place: shape.schema}
        case "gemini-interactions":
            told: dict[str, object] = {"type": "text", "mime_type": JSON}
            return {place: told if shape.schema is None else {**told, "schema": shape.schema}}
        case "ollama":
            return {place: "json" if shape.schema is None else shape.schema}
        case _ if shape.schema is None:
            raise _unsaid(shape.at, f"{form} gives JSON of a schema only; name the schema.")
        case "anthropic":
            return {place: {"type": "json_schema", "schema": shape.schema}}
        case _:  # bedrock: the schema is text, and there is no other way than the strict one
            named = _named(shape)
            named.pop("strict", None)
            named["schema"] = bytes(shape.schema).decode()
            return {place: {"type": "json_schema", "structure": {"jsonSchema": named}}}


def _named(shape: Shape) -> dict[str, object]:
    named: dict[str, object] = {"name": shape.name or NAME, "schema": shape.schema}
    if shape.description is not None:
        named["description"] = shape.description
    if shape.strict is not None:
        named["strict"] = shape.strict
    return named


def _unsaid(at: str, message: str) -> InvalidInput:
    return InvalidInput(message, code="unsupported_parameter", at=at)
