"""JSON Schemas of our types, for the OpenAPI document.

msgspec makes schemas too, but has to write each field's default into them, and some of ours
have no form in JSON.
"""

from __future__ import annotations

import inspect as python
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, TypeAlias

from msgspec import inspect

Schema: TypeAlias = dict[str, Any]

REFERENCE: Final = "#/components/schemas/"


class Schemas:
    """Collects the schemas of types; each struct and enum is described once, under its name."""

    def __init__(self, types: Iterable[Any]) -> None:
        types = list(types)
        self.components: dict[str, Schema] = {}
        self._names: dict[Any, str] = {}
        self._types = dict(zip(map(id, types), inspect.multi_type_info(types), strict=True))

    def of(self, kind: Any) -> Schema:  # noqa: ANN401 - any type that msgspec knows
        """Return the schema of one of the types."""
        return self._schema(self._types[id(kind)])

    def fields(self, kind: Any) -> Schema:  # noqa: ANN401
        """Return the schema of a struct itself, not a reference to it."""
        found = self._types[id(kind)]
        assert isinstance(found, inspect.StructType)
        return self._struct(found)

    def _schema(self, kind: inspect.Type) -> Schema:
        match kind:
            case inspect.Metadata(type=inner, extra_json_schema=more):
                return {**self._schema(inner), **(more or {})}
            case inspect.AnyType() | inspect.RawType():
                return {}
            case inspect.NoneType():
                return {"type": "null"}
            case inspect.LiteralType(values=values):
                return {"enum": list(values)}
            case inspect.EnumType():
                words = [one.value for one in kind.cls]
                return self._component(kind.cls, lambda: {"enum": words})
            case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
                return {"type": "array", "items": self._schema(item), **_length(kind, "Items")}
            case inspect.SetType(item_type=item) | inspect.FrozenSetType(item_type=item):
                return {"type": "array", "items": self._schema(item), "uniqueItems": True}
            case inspect.DictType(value_type=value):
                return {
                    "type": "object",
                    "additionalProperties": self._schema(value),
                    **_length(kind, "Properties"),
                }
            case inspect.UnionType(types=types):
                options = [self._schema(one) for one in types]
                return options[0] if len(options) == 1 else {"anyOf": options}
            case inspect.StructType():
                return self._component(kind.cls, lambda: self._struct(kind))
            case _:
                return _plain(kind)

    def _component(self, cls: type, make: Callable[[], Schema]) -> Schema:
        name = self._names.get(cls)
        if name is None:
            name = cls.__name__
            if name in self.components:
                name = f"{cls.__module__.rpartition('.')[2].title()}{name}"
            self._names[cls] = name
            self.components[name] = {}  # so that what refers to itself ends
            described = python.getdoc(cls)
            self.components[name] = {
                **({"description": described.partition("\n\nAttributes:")[0]} if described else {}),
                **make(),
            }
        return {"$ref": REFERENCE + name}

    def _struct(self, kind: inspect.StructType) -> Schema:
        properties: dict[str, Schema] = {}
        required: list[str] = []
        if kind.tag_field is not None:
            properties[kind.tag_field] = {"const": kind.tag}
            required.append(kind.tag_field)
        for field in kind.fields:
            properties[field.encode_name] = schema = self._schema(field.type)
            if field.required:
                required.append(field.encode_name)
            elif isinstance(field.default, Enum):
                properties[field.encode_name] = {**schema, "default": field.default.value}
            elif isinstance(field.default, str | int | float | None):
                properties[field.encode_name] = {**schema, "default": field.default}
        told: Schema = {"type": "object", "properties": properties, "required": required}
        if kind.forbid_unknown_fields:
            told["additionalProperties"] = False
        return told


def _plain(kind: inspect.Type) -> Schema:
    match kind:
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.IntType():
            return {"type": "integer", **_range(kind)}
        case inspect.FloatType():
            return {"type": "number", **_range(kind)}
        case inspect.StrType():
            return {"type": "string", **_length(kind, "Length"), **_pattern(kind)}
        case inspect.BytesType():
            return {"type": "string", "format": "binary"}
        case _:
            raise TypeError(f"no schema is known for {kind}")


def _range(kind: inspect.IntType | inspect.FloatType) -> Schema:
    words = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
    return {
        word: getattr(kind, name) for name, word in words.items() if getattr(kind, name) is not None
    }


def _length(kind: Any, of: str) -> Schema:  # noqa: ANN401 - whatever has lengths
    found = {f"min{of}": kind.min_length, f"max{of}": kind.max_length}
    return {word: length for word, length in found.items() if length is not None}


def _pattern(kind: inspect.StrType) -> Schema:
    return {} if kind.pattern is None else {"pattern": kind.pattern}


def without_null(schema: Schema) -> Schema:
    """Return the schema of a parameter, which cannot be null: it is left out instead.

    Example:
        >>> without_null({"anyOf": [{"type": "string"}, {"type": "null"}], "default": None})
        {'type': 'string'}
    """
    told = {word: value for word, value in schema.items() if word != "default" or value is not None}
    options = [option for option in told.pop("anyOf", ()) if option != {"type": "null"}]
    return {**told, **options[0]} if len(options) == 1 else {**told, **_any(options)}


def _any(options: list[Schema]) -> Schema:
    return {"anyOf": options} if options else {}
