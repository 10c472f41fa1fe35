"""What one dialect refuses in a declared tool: its name, their number, and what a schema may say.

Declarations stand before the line, so these rules are asked once and know nothing of messages.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from antiphon.core.manifest import ToolDeclaration
from antiphon.core.rules.findings import Finding, Severity
from antiphon.core.rules.profile import Profile
from antiphon.core.rules.strict_schemas import strict_problems

NAMED_SCHEMAS: Final = ("properties", "$defs", "definitions", "patternProperties")
"""Keywords whose members bear names of the author's own."""

VALUES: Final = frozenset({"enum", "const", "default", "examples", "required", "example"})
"""Keywords that hold values, not schemas."""


def check_tools(
    profile: Profile, tools: Collection[ToolDeclaration], *, mapped: bool
) -> Iterator[Finding]:
    """Yield what is wrong with the tool declarations of a request. They stand before the line.

    Where they are `mapped`, a name is spelled as the profile takes it; no name stays none.
    """
    names = re.compile(profile.tool_name_pattern) if profile.tool_name_pattern else None
    if profile.max_tools is not None and len(tools) > profile.max_tools:
        yield Finding(
            code="too_many_blocks",
            at="tools",
            position=-1,
            message=f"{len(tools)} tools are declared, the provider takes {profile.max_tools}.",
        )
    declared: set[str] = set()
    for number, tool in enumerate(tools):
        if tool.name in declared:
            yield Finding(
                code="bad_tool_name",
                at=f"tools[{number}]",
                position=-1,
                message=f"{tool.name!r} is declared twice: nobody could say which one is called.",
            )
        declared.add(tool.name)
        named = mapped and tool.name
        if names is not None and not named and names.fullmatch(tool.name) is None:
            yield Finding(
                code="bad_tool_name",
                at=f"tools[{number}]",
                position=-1,
                message=f"{tool.name!r} is no name for a tool here: {profile.tool_name_pattern}.",
            )
        yield from _check_schema(profile, number, tool)


def _check_schema(profile: Profile, number: int, tool: ToolDeclaration) -> Iterator[Finding]:
    try:
        schema = msgspec.json.decode(tool.parameters)
    except (msgspec.DecodeError, RecursionError):
        schema = None
    if not isinstance(schema, dict):
        problem = "the parameters are not a JSON object"
    elif profile.object_schemas and schema.get("type") != "object":
        problem = "at its root it has to say that it is of type object"
    else:
        problem = next(_beyond(profile, schema, strict=tool.strict is True), "")
    if problem:
        yield Finding(
            code="schema_unsupported",
            at=f"tools[{number}]",
            position=-1,
            severity=Severity.ERROR,
            message=f"The schema of {tool.name!r} cannot be used: {problem}.",
        )


def _beyond(profile: Profile, schema: dict[str, object], *, strict: bool) -> Iterator[str]:
    if strict:
        yield from strict_problems(profile, schema)
    if profile.schemas_without:
        yield from unsayable(schema, profile.schemas_without)


def unsayable(schema: dict[str, object], keywords: Collection[str]) -> Iterator[str]:
    """Yield where `schema` uses one of `keywords`, which the wire cannot say."""
    todo: list[tuple[str, object]] = [("", schema)]
    while todo:
        path, node = todo.pop()
        if isinstance(node, list):
            todo += [(f"{path}[{n}]", item) for n, item in enumerate(node)]
        if not isinstance(node, dict):
            continue
        used = sorted(keywords & node.keys())
        if used:
            yield f"{path or 'the root'} says {used[0]}, which this wire cannot"
        for name in node.keys() - VALUES:
            inner = node[name]
            if name in NAMED_SCHEMAS and isinstance(inner, dict):
                todo += [(f"{path}.{name}.{key}".lstrip("."), inner[key]) for key in inner]
            else:
                todo.append((f"{path}.{name}".lstrip("."), inner))
