"""Schemas of tools, on their way out and in.

Out, a declaration is JSON Schema with the keywords that Gemini knows. Whatever else it says only
narrows or explains, so leaving it out is safe: arguments are held against the whole schema here
before a tool runs. In, a declaration may also be the older OpenAPI form, which is read as the
JSON Schema that it stands for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

KNOWN: Final = frozenset(
    {"$id", "$defs", "$ref", "$anchor", "type", "format", "title", "description", "enum"}
    | {"items", "prefixItems", "minItems", "maxItems", "minimum", "maximum", "anyOf", "oneOf"}
    | {"properties", "additionalProperties", "required"}
)
NAMED: Final = frozenset({"properties", "$defs"})
LISTS: Final = frozenset({"anyOf", "oneOf", "prefixItems"})
SINGLE: Final = frozenset({"items", "additionalProperties"})

OPENAPI: Final = frozenset(
    {"additionalProperties", "anyOf", "default", "defs", "description", "enum", "example"}
    | {"format", "items", "maxItems", "maxLength", "maxProperties", "maximum", "minItems"}
    | {"minLength", "minProperties", "minimum", "nullable", "pattern", "properties"}
    | {"propertyOrdering", "ref", "required", "title", "type"}
)
"""Everything that the older form knows; the provider refuses any other name in it."""

PARAMETER: Final = re.compile("[a-zA-Z_][a-zA-Z0-9_]{0,63}")
"""How the older form lets a parameter be named."""

COUNTS: Final = frozenset(
    {"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}
)

_encode: Final = msgspec.json.Encoder().encode


def sayable(schema: msgspec.Raw) -> tuple[msgspec.Raw, tuple[str, ...]]:
    """Return `schema` in known keywords, and the others, which were left out.

    What has none of those goes out byte for byte. So does what is no schema: the rules refuse it.
    """
    dropped: set[str] = set()
    try:
        said = _sayable(msgspec.json.decode(schema), dropped)
    except (msgspec.DecodeError, RecursionError):
        return schema, ()
    return (msgspec.Raw(_encode(said)) if dropped else schema), tuple(sorted(dropped))


def _sayable(schema: object, dropped: set[str]) -> object:
    if not isinstance(schema, dict):
        return schema
    said: dict[str, object] = {}
    for name, value in schema.items():
        if "$ref" in schema and not name.startswith("$"):
            dropped.add(f"{name} beside $ref")
        elif name in NAMED and isinstance(value, dict):
            said[name] = {key: _sayable(inner, dropped) for key, inner in value.items()}
        elif name in LISTS and isinstance(value, list):
            said[name] = [_sayable(inner, dropped) for inner in value]
        elif name in SINGLE:
            said[name] = _sayable(value, dropped)
        elif name == "const" and "enum" not in schema:
            said["enum"] = [value]
            dropped.add("const, said as enum")
        elif name in KNOWN:
            said[name] = value
        else:
            dropped.add(name)
    return said


def _amiss(schema: Mapping[str, object]) -> Iterator[str]:
    """Yield where a schema in the older form, known names or not, is refused for what it says."""
    kind, required, properties = (schema.get(k) for k in ("type", "required", "properties"))
    if isinstance(kind, list):
        yield "type"
    if isinstance(kind, str) and kind.upper() == "ARRAY" and "items" not in schema:
        yield "items"
    options = schema.get("enum")
    if isinstance(options, list) and not all(isinstance(option, str) for option in options):
        yield "enum"
    if isinstance(required, list) and isinstance(properties, Mapping):
        yield from (f"required[{n}]" for n, name in enumerate(required) if name not in properties)


def from_openapi(schema: object, unknown: list[str], at: str = "") -> object:
    """Return the JSON Schema that a declaration in the older form stands for.

    Args:
        schema: The declaration's `parameters`.
        unknown: Where places are put of what this form does not have or refuses.
        at: Where `schema` stands.
    """
    if not isinstance(schema, Mapping):
        return schema
    unknown += (f"{at}.{place}" for place in _amiss(schema))
    read: dict[str, object] = {}
    for name, value in schema.items():
        place = f"{at}.{name}"
        if name not in OPENAPI:
            unknown.append(place)
        elif name == "properties" and isinstance(value, Mapping):
            unknown += (f"{place}.{key}" for key in value if PARAMETER.fullmatch(str(key)) is None)
            read[name] = {k: from_openapi(v, unknown, f"{place}.{k}") for k, v in value.items()}
        elif name == "defs" and isinstance(value, Mapping):
            inner = {k: from_openapi(v, unknown, f"{place}.{k}") for k, v in value.items()}
            read["$defs"] = inner
        elif name == "anyOf" and isinstance(value, list):
            read[name] = [from_openapi(v, unknown, f"{place}[{n}]") for n, v in enumerate(value)]
        elif name in SINGLE:
            read[name] = from_openapi(value, unknown, place)
        elif name == "type" and isinstance(value, str):
            word = value.lower()
            read[name] = [word, "null"] if schema.get("nullable") is True else word
        elif name == "ref":
            read["$ref"] = value.replace("/defs/", "/$defs/") if isinstance(value, str) else value
        elif name in COUNTS and isinstance(value, str) and value.isdecimal():
            read[name] = int(value)  # 64-bit numbers are strings on this wire
        elif name == "example":
            read["examples"] = [value]
        elif name not in ("nullable", "propertyOrdering"):
            read[name] = value
    return read
