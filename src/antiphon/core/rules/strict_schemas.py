"""What a strict tool's schema may not say: a decoder that enforces a schema knows a part of JSON Schema only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from antiphon.core.rules.profile import Profile, StrictSubset

Fields = Mapping[str, object]

LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
MAPS: Final = ("properties", "$defs", "definitions")


def strict_problems(profile: Profile, schema: Fields) -> Iterator[str]:
    """Yield what a dialect refuses about the schema of a tool that is declared strict."""
    if profile.strict_schemas:
        yield from open_places(schema)
    elif profile.strict_subset is not None:
        yield from _outside(profile.strict_subset, schema)


def open_places(schema: Fields) -> Iterator[str]:
    """Yield why `schema` is not closed: every object says what it has, and has all of it."""
    if schema.get("type") != "object" or "anyOf" in schema:
        yield "a strict tool's schema is of type object at the root, without anyOf"
    for where, node in _nodes(schema):
        properties = node.get("properties")
        if _is_object(node):
            if node.get("additionalProperties") is not False:
                yield f"{where} has to say additionalProperties: false in a strict tool"
            required = node.get("required")
            listed = required if isinstance(required, list) else []  # whatever stands in it
            names = properties if isinstance(properties, dict) else {}
            missing = sorted(name for name in names if name not in listed)
            if missing:
                yield f"{where} has to require {', '.join(missing)} in a strict tool"


def _outside(subset: StrictSubset, schema: Fields) -> Iterator[str]:
    """Yield what in `schema` is beyond `subset`."""
    for where, node in _nodes(schema):
        if _is_object(node) and node.get("additionalProperties") is not False:
            yield f"{where} has to say additionalProperties: false in a strict tool"
        for word in sorted(subset.forbidden & node.keys()):
            yield f"{where} says {word}, which a strict tool may not"
        form = node.get("format")
        if isinstance(form, str) and form not in subset.formats:
            known = ", ".join(sorted(subset.formats))
            yield f"{where} has the format {form}; a strict tool may have {known}"


def _is_object(node: Fields) -> bool:
    return node.get("type") == "object" or isinstance(node.get("properties"), dict)


def _nodes(schema: Fields) -> Iterator[tuple[str, Fields]]:
    """Yield every schema inside `schema`, itself first, with where it stands."""
    todo: list[tuple[str, object]] = [("", schema)]
    while todo:
        path, node = todo.pop()
        if not isinstance(node, dict):
            continue
        yield path or "the root", node
        inner: list[tuple[str, object]] = []
        for word in MAPS:
            named = node.get(word)
            prefix = path if word == "properties" else f"{path}.{word}"
            if isinstance(named, dict):
                inner += [(f"{prefix}.{name}", value) for name, value in named.items()]
        for word in LISTS:
            listed = node.get(word)
            if isinstance(listed, list):
                inner += [(f"{path}.{word}[{n}]", value) for n, value in enumerate(listed)]
        inner += [(f"{path}.{word}", node[word]) for word in ("items", "not") if word in node]
        todo += reversed(inner)
